package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// Secrets keeps secrets, and tells of them all but their values.
type Secrets interface {
	// ListSecrets gives the caller's own and those of its workspace and organisation that
	// a tool names which it may call; with secrets:admin all of the tenant. E3403.
	ListSecrets(ctx context.Context, p *toolkeep.Principal) ([]SecretInfo, error)
	// PutSecret sets a value; one's own (scope user) everybody may. E3201, E3301, E3965.
	PutSecret(ctx context.Context, p *toolkeep.Principal, name string, w SecretWhere, value string, expires time.Time) (SecretInfo, error)
	// DeleteSecret removes it. E3013, E3201, E3301, E3965.
	DeleteSecret(ctx context.Context, p *toolkeep.Principal, name string, w SecretWhere) error
	// TestSecret reads a reference as a call would, as the user and workspace of as
	// where they are set. E3201, E3403.
	TestSecret(ctx context.Context, p *toolkeep.Principal, ref string, as SecretWhere) (SecretState, error)
	// RotateSealKey makes a new sealing key, if fresh, and seals everything under the
	// newest one. E3201, E3403.
	RotateSealKey(ctx context.Context, p *toolkeep.Principal, fresh bool) (Resealed, error)
	// ToolAuth tells how a tool stands with its secrets, nil where it needs none; ask
	// lets stores be asked that are not at hand.
	ToolAuth(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth
}

// SecretWhere says which of a tenant's secrets of a name is meant.
type SecretWhere struct {
	Scope     string `query:"scope" json:"scope,omitempty" enum:"user,workspace,organisation" doc:"default user"`
	User      string `query:"user" json:"user,omitempty" maxLength:"512" doc:"another user's than your own; needs secrets:admin"`
	Workspace string `query:"workspace" json:"workspace,omitempty" maxLength:"512" doc:"the workspace of scope workspace; default your key's"`
}

// SecretInfo is a secret without its value.
type SecretInfo struct {
	Name      string     `json:"name"`
	Reference string     `json:"reference" doc:"what manifests name"`
	Scope     string     `json:"scope" enum:"user,workspace,organisation"`
	User      string     `json:"user,omitempty"`
	Workspace string     `json:"workspace,omitempty"`
	Version   int64      `json:"version" doc:"counts the values it has had"`
	State     string     `json:"state" enum:"ready,expired,unreadable" doc:"unreadable: sealed with a key that the server does not have"`
	UpdatedAt time.Time  `json:"updated_at"`
	UpdatedBy string     `json:"updated_by,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"absent: never"`
	Tools     []string   `json:"tools" doc:"tools you see that name it"`
}

// SecretState is what a test found.
type SecretState struct {
	Reference string     `json:"reference"`
	State     string     `json:"state" enum:"ready,missing,expired,unreadable"`
	Scope     string     `json:"scope,omitempty" doc:"whose secret answered: user, workspace, organisation, server"`
	Store     string     `json:"store,omitempty" doc:"secret, vault, env or file"`
	Version   string     `json:"version,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Stale     bool       `json:"stale,omitempty" doc:"the store is away, and this is what it gave last"`
	Code      string     `json:"code,omitempty" doc:"why it is not ready"`
	Reason    string     `json:"reason,omitempty"`
}

// Resealed is what a rotation of the sealing key did.
type Resealed struct {
	Key       string `json:"key" doc:"id of the key that seals now"`
	Keys      int    `json:"keys" doc:"keys that the server has"`
	Resealed  int    `json:"resealed" doc:"items sealed anew"`
	Unchanged int    `json:"unchanged" doc:"items that the key had sealed already, or that hold nothing sealed"`
	Failed    int    `json:"failed" doc:"items that stay as they were; the log says why"`
}

type listSecretsInput struct {
	Page     int `query:"page" minimum:"1" maximum:"1000000" default:"1" doc:"page, from 1"`
	PageSize int `query:"page_size" minimum:"1" maximum:"200" default:"50" doc:"entries a page"`
}

type listSecretsOutput struct {
	Body struct {
		Secrets    []SecretInfo `json:"secrets"`
		TotalCount int          `json:"total_count"`
		Page       int          `json:"page"`
		PageSize   int          `json:"page_size"`
	} `nameHint:"SecretList"`
}

func (a *API) listSecrets(ctx context.Context, p *toolkeep.Principal, in *listSecretsInput) (*listSecretsOutput, error) {
	all, err := a.c.Secrets.ListSecrets(ctx, p)
	if err != nil {
		return nil, err
	}
	from := min((in.Page-1)*in.PageSize, len(all))
	out := &listSecretsOutput{}
	out.Body.Secrets = append([]SecretInfo{}, all[from:min(from+in.PageSize, len(all))]...)
	out.Body.TotalCount, out.Body.Page, out.Body.PageSize = len(all), in.Page, in.PageSize
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

type secretOutput struct{ Body SecretInfo }

func (a *API) putSecret(ctx context.Context, p *toolkeep.Principal, in *putSecretInput) (*secretOutput, error) {
	var expires time.Time
	if in.Body.ExpiresAt != nil {
		expires = *in.Body.ExpiresAt
	}
	info, err := a.c.Secrets.PutSecret(ctx, p, in.Name, in.Body.SecretWhere, in.Body.Value, expires)
	if err != nil {
		return nil, err
	}
	return &secretOutput{info}, nil
}

type deleteSecretInput struct {
	SecretName
	SecretWhere
}

func (a *API) deleteSecret(ctx context.Context, p *toolkeep.Principal, in *deleteSecretInput) (*struct{}, error) {
	return nil, a.c.Secrets.DeleteSecret(ctx, p, in.Name, in.SecretWhere)
}

type testSecretInput struct {
	Body struct {
		Reference string `json:"reference" minLength:"1" maxLength:"4096" doc:"secret://name, vault://, env:// or file://; a name alone is secret://name"`
		User      string `json:"user,omitempty" maxLength:"512" doc:"test as this user; needs secrets:admin"`
		Workspace string `json:"workspace,omitempty" maxLength:"512" doc:"test as of this workspace; needs secrets:admin"`
	} `nameHint:"TestSecretRequest"`
}

type testSecretOutput struct{ Body SecretState }

func (a *API) testSecret(ctx context.Context, p *toolkeep.Principal, in *testSecretInput) (*testSecretOutput, error) {
	st, err := a.c.Secrets.TestSecret(ctx, p, in.Body.Reference, SecretWhere{User: in.Body.User, Workspace: in.Body.Workspace})
	if err != nil {
		return nil, err
	}
	return &testSecretOutput{st}, nil
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
	return &rotateOutput{out}, nil
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
	op := func(method, path, id, summary string) huma.Operation {
		return huma.Operation{Method: method, Path: "/api/v1/secrets" + path, OperationID: id, Tags: []string{tagAdmin}, Summary: summary}
	}
	register(a, op(http.MethodGet, "", "listSecrets", "List secrets by name, never their values"), "", a.listSecrets)
	register(a, op(http.MethodPut, "/{name}", "putSecret", "Set a secret; the next call uses it"), "", a.putSecret)
	register(a, op(http.MethodDelete, "/{name}", "deleteSecret", "Remove a secret"), "", a.deleteSecret)
	register(a, op(http.MethodPost, "/test", "testSecret", "Read a reference as a call would, and tell all but the value"), "", a.testSecret)
	register(a, op(http.MethodPost, "/rotate", "rotateSealKey", "Seal everything that is stored under a new key"), toolkeep.PermSecretsAdmin, a.rotateSealKey)
}
