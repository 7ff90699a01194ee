package rest

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/secret"
)

// Secrets is what control/secrets does, which see.
type Secrets interface {
	List(ctx context.Context, p *toolkeep.Principal) ([]secrets.Info, error)
	MayPut(p *toolkeep.Principal, w secrets.Where) error
	Put(ctx context.Context, p *toolkeep.Principal, name string, w secrets.Where, value string, expires time.Time) (secrets.Info, error)
	Delete(ctx context.Context, p *toolkeep.Principal, name string, w secrets.Where) error
	MayTest(p *toolkeep.Principal, ref string, as secrets.Where) error
	Test(ctx context.Context, p *toolkeep.Principal, ref string, as secrets.Where) (secrets.State, error)
	RotateSealKey(ctx context.Context, p *toolkeep.Principal, fresh bool) (secrets.Resealed, error)
	ToolAuth(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth
}

// SecretWhere is secrets.Where as query or body.
type SecretWhere struct {
	Scope     string `query:"scope" json:"scope,omitempty" enum:"user,workspace,organisation,organization" doc:"default user; organization is organisation"`
	User      string `query:"user" json:"user,omitempty" maxLength:"512" doc:"another user's than your own; needs secrets:admin"`
	Workspace string `query:"workspace" json:"workspace,omitempty" maxLength:"512" doc:"the workspace of scope workspace; default your key's"`
}

// These name the schemas in the document.
type (
	SecretInfo  secrets.Info
	SecretState secrets.State
	Resealed    secrets.Resealed
)

type listSecretsInput struct {
	paging
}

type listSecretsOutput struct {
	Body struct {
		Secrets []SecretInfo `json:"secrets"`
		paged
	} `nameHint:"SecretList"`
}

func (a *API) listSecrets(ctx context.Context, p *toolkeep.Principal, in *listSecretsInput) (*listSecretsOutput, error) {
	all, err := a.c.Secrets.List(ctx, p)
	if err != nil {
		return nil, err
	}
	out := &listSecretsOutput{}
	out.Body.Secrets = []SecretInfo{}
	for _, one := range cut(all, in.paging) {
		out.Body.Secrets = append(out.Body.Secrets, SecretInfo(one))
	}
	out.Body.paged = in.of(len(all))
	return out, nil
}

// SecretName names a secret in a path.
type SecretName struct {
	Name string `path:"name" maxLength:"128" doc:"a-z, 0-9, dot, hyphen, underscore"`
}

type putSecretInput struct {
	SecretName
	Body struct {
		SecretWhere
		// Its length is checked where a refusal does not quote it.
		Value     string     `json:"value" doc:"text of 1 byte to 64 KiB without NUL; it is never shown again"`
		ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"absent: never"`
	} `nameHint:"PutSecretRequest"`
}

func (in *putSecretInput) needs(a *API, p *toolkeep.Principal, body tree) error {
	return a.c.Secrets.MayPut(p, secrets.Where{Scope: textOf(body["scope"]), User: textOf(body["user"]), Workspace: textOf(body["workspace"])})
}

type secretOutput struct{ Body SecretInfo }

func (a *API) putSecret(ctx context.Context, p *toolkeep.Principal, in *putSecretInput) (*secretOutput, error) {
	var expires time.Time
	if in.Body.ExpiresAt != nil {
		expires = *in.Body.ExpiresAt
	}
	info, err := a.c.Secrets.Put(ctx, p, in.Name, secrets.Where(in.Body.SecretWhere), in.Body.Value, expires)
	if err != nil {
		return nil, err
	}
	return &secretOutput{SecretInfo(info)}, nil
}

type deleteSecretInput struct {
	SecretName
	SecretWhere
}

func (a *API) deleteSecret(ctx context.Context, p *toolkeep.Principal, in *deleteSecretInput) (*struct{}, error) {
	return nil, a.c.Secrets.Delete(ctx, p, in.Name, secrets.Where(in.SecretWhere))
}

type testSecretInput struct {
	Body struct {
		Reference string `json:"reference" minLength:"1" maxLength:"4096" doc:"secret://name, vault://, env:// or file://; a name alone is secret://name"`
		User      string `json:"user,omitempty" maxLength:"512" doc:"test as this user; needs secrets:admin"`
		Workspace string `json:"workspace,omitempty" maxLength:"512" doc:"test as of this workspace; needs secrets:admin"`
	} `nameHint:"TestSecretRequest"`
}

func (in *testSecretInput) needs(a *API, p *toolkeep.Principal, body tree) error {
	return a.c.Secrets.MayTest(p, textOf(body["reference"]), secrets.Where{User: textOf(body["user"]), Workspace: textOf(body["workspace"])})
}

type testSecretOutput struct{ Body SecretState }

func (a *API) testSecret(ctx context.Context, p *toolkeep.Principal, in *testSecretInput) (*testSecretOutput, error) {
	st, err := a.c.Secrets.Test(ctx, p, in.Body.Reference, secrets.Where{User: in.Body.User, Workspace: in.Body.Workspace})
	if err != nil {
		return nil, err
	}
	return &testSecretOutput{SecretState(st)}, nil
}

type rotateInput struct {
	Body struct {
		NewKey bool `json:"new_key,omitempty" doc:"make a new key first; without it everything is sealed under the newest there is"`
	} `nameHint:"RotateRequest"`
}

type rotateOutput struct{ Body Resealed }

func (a *API) rotateSealKey(ctx context.Context, p *toolkeep.Principal, in *rotateInput) (*rotateOutput, error) {
	out, err := a.c.Secrets.RotateSealKey(ctx, p, in.Body.NewKey)
	if err != nil {
		return nil, err
	}
	return &rotateOutput{Resealed(out)}, nil
}

// toolAuth is ToolAuth, nil where there are no secrets.
func (a *API) toolAuth(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth {
	if a.c.Secrets == nil {
		return nil
	}
	return a.c.Secrets.ToolAuth(ctx, p, t, ask)
}

// secretRoutes are the routes of secrets. Nothing there answers a value.
func (a *API) secretRoutes() {
	if a.c.Secrets == nil {
		return
	}
	op := func(method, path, id, summary string) route {
		r := op(method, "/api/v1/secrets"+path, id, tagAdmin, summary)
		r.spares = toolkeep.PermSecretsAdmin
		return r
	}
	register(a, op("GET", "", "listSecrets", "List secrets by name, never their values"), "", a.listSecrets)
	register(a, op("PUT", "/{name}", "putSecret", "Set a secret; the next call uses it"), "", a.putSecret)
	register(a, op("DELETE", "/{name}", "deleteSecret", "Remove a secret"), "", a.deleteSecret)
	register(a, op("POST", "/test", "testSecret", "Read a reference as a call would, and return everything but the value"), "", a.testSecret)
	register(a, op("POST", "/rotate", "rotateSealKey", "Seal everything that is stored under a new key"), toolkeep.PermSecretsAdmin, a.rotateSealKey)
}
