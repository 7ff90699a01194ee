package rest

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/discover"
)

// countTools is how many tools the principal may see, by category; a search that knows it
// already is asked.
func (a *API) countTools(ask discover.Query, visible func(*toolkeep.Tool) bool) map[string]int {
	if known, ok := a.c.Search.(discover.Counter); ok {
		return known.Count(ask, visible)
	}
	return discover.ByCategory(a.c.Search.Tools(visible))
}

type invalidateToolInput struct {
	ToolID string `path:"tool_id" maxLength:"4096"`
}

type invalidateOutput struct {
	Body struct {
		Status      string `json:"status" enum:"success"`
		Invalidated int    `json:"invalidated" doc:"cached results that were dropped on this node; the others drop theirs within a second"`
	} `nameHint:"InvalidateAnswer"`
}

func (a *API) invalidateTool(ctx context.Context, p *toolkeep.Principal, in *invalidateToolInput) (*invalidateOutput, error) {
	id, err := a.known(p, in.ToolID)
	if err != nil {
		return nil, err
	}
	return invalidated(a.c.Invalidate(ctx, p.Tenant, id, p.Subject))
}

func invalidated(n int, err error) (*invalidateOutput, error) {
	out := &invalidateOutput{}
	out.Body.Status, out.Body.Invalidated = "success", n
	return out, err
}

// Key is an API key without its secret.
type Key struct {
	ID        string     `json:"id"`
	Subject   string     `json:"subject" doc:"who authenticates with it"`
	Name      string     `json:"name,omitempty"`
	Roles     []string   `json:"roles"`
	Scope     []string   `json:"scope" doc:"tool id patterns; empty does not narrow"`
	Workspace string     `json:"workspace,omitempty" doc:"whose secrets come before the organisation's"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	CreatedBy string     `json:"created_by,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"absent: never"`
	RevokedAt *time.Time `json:"revoked_at,omitempty" doc:"absent: valid"`
	Successor string     `json:"successor,omitempty" doc:"id of the key that was made to take its place"`

	RequireSignature bool `json:"require_signature,omitempty" doc:"each request with it must be signed"`
}

func keyOf(k toolkeep.APIKey) Key {
	return Key{ID: k.ID, Subject: k.Subject, Name: k.Name, Roles: some(k.Roles), Scope: some(k.Scope), Workspace: k.Workspace,
		CreatedAt: given(k.CreatedAt), CreatedBy: k.CreatedBy, ExpiresAt: given(k.ExpiresAt), RevokedAt: given(k.RevokedAt), Successor: k.Successor,
		RequireSignature: k.RequireSignature}
}

type listKeysInput struct {
	paging
}

type listKeysOutput struct {
	Body struct {
		Keys []Key `json:"keys"`
		paged
	} `nameHint:"KeyList"`
}

func (a *API) listKeys(ctx context.Context, p *toolkeep.Principal, in *listKeysInput) (*listKeysOutput, error) {
	all, err := a.c.Keys.ListKeys(ctx, p)
	if err != nil {
		return nil, err
	}
	list := cut(all, in.paging)
	out := &listKeysOutput{}
	out.Body.Keys = make([]Key, len(list))
	for i, k := range list {
		out.Body.Keys[i] = keyOf(k)
	}
	out.Body.paged = in.of(len(all))
	return out, nil
}

type createKeyInput struct {
	Body struct {
		Subject   string     `json:"subject" minLength:"1" maxLength:"4096" doc:"who authenticates with it"`
		Name      string     `json:"name,omitempty" maxLength:"200" doc:"for people"`
		Roles     []string   `json:"roles" minItems:"1" maxItems:"64" doc:"admin, publisher, operator, agent, auditor or own roles"`
		Scope     []string   `json:"scope,omitempty" maxItems:"256" doc:"tool id patterns that the key is narrowed to"`
		Workspace string     `json:"workspace,omitempty" maxLength:"512" doc:"whose secrets come before the organisation's"`
		ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"absent: never"`

		RequireSignature bool `json:"require_signature,omitempty" doc:"each request with it must be signed with signing_secret"`
	} `nameHint:"CreateKeyRequest"`
}

type createKeyOutput struct {
	Location string `header:"Location"`
	Body     struct {
		Key
		Secret  string `json:"secret" doc:"send it as Authorization: Bearer; it is shown this once"`
		Signing string `json:"signing_secret,omitempty" doc:"of a key with require_signature: sign each request with it; it is shown this once"`
	} `nameHint:"CreatedKey"`
}

func (a *API) createKey(ctx context.Context, p *toolkeep.Principal, in *createKeyInput) (*createKeyOutput, error) {
	k := toolkeep.APIKey{Subject: in.Body.Subject, Name: in.Body.Name, Roles: in.Body.Roles, Scope: in.Body.Scope, Workspace: in.Body.Workspace}
	if in.Body.ExpiresAt != nil {
		k.ExpiresAt = *in.Body.ExpiresAt
	}
	var made toolkeep.APIKey
	var secret, signing string
	var err error
	if in.Body.RequireSignature {
		made, secret, signing, err = a.c.Keys.CreateSignedKey(ctx, p, k)
	} else {
		made, secret, err = a.c.Keys.CreateKey(ctx, p, k)
	}
	if err != nil {
		return nil, err
	}
	return createdKey(made, secret, signing), nil
}

func createdKey(made toolkeep.APIKey, secret, signing string) *createKeyOutput {
	out := &createKeyOutput{Location: "/api/v1/keys/" + url.PathEscape(made.ID)}
	out.Body.Key, out.Body.Secret, out.Body.Signing = keyOf(made), secret, signing
	return out
}

type rotateKeyInput struct {
	KeyID string `path:"key_id" maxLength:"4096"`
	Body  struct {
		Overlap *int `json:"overlap_s,omitempty" default:"3600" minimum:"0" maximum:"2592000" doc:"seconds until this key expires; 0: it ends at once"`
	} `nameHint:"RotateKeyRequest"`
}

func (a *API) rotateKey(ctx context.Context, p *toolkeep.Principal, in *rotateKeyInput) (*createKeyOutput, error) {
	overlap := 3600 // defaults of a body are not filled in
	if in.Body.Overlap != nil {
		overlap = *in.Body.Overlap
	}
	made, secret, signing, err := a.c.Keys.RotateKey(ctx, p, in.KeyID, time.Duration(overlap)*time.Second)
	if err != nil {
		return nil, err
	}
	return createdKey(made, secret, signing), nil
}

type listRolesOutput struct {
	Body struct {
		Roles []Role `json:"roles" doc:"roles beside the built-in ones, by name"`
		File  string `json:"file,omitempty" doc:"the server's file that they are in, by the setting access.roles_file; those of access.roles are not in it; told to the home tenant alone"`
	} `nameHint:"RoleList"`
}

// Role is access.Role.
type Role access.Role

func (a *API) listRoles(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*listRolesOutput, error) {
	own, file, err := a.c.Keys.ListRoles(p)
	if err != nil {
		return nil, err
	}
	out := &listRolesOutput{}
	out.Body.Roles, out.Body.File = []Role{}, file
	for _, r := range own {
		out.Body.Roles = append(out.Body.Roles, Role(r))
	}
	return out, nil
}

type scopeKeyInput struct {
	KeyID  string `path:"key_id" maxLength:"4096"`
	DryRun bool   `query:"dry_run" doc:"check everything, change nothing"`
	Body   struct {
		Scope []string `json:"scope" maxItems:"256" doc:"tool id patterns that the key is narrowed to; empty does not narrow"`
	} `nameHint:"ScopeKeyRequest"`
}

type keyOutput struct{ Body Key }

func (a *API) scopeKey(ctx context.Context, p *toolkeep.Principal, in *scopeKeyInput) (*keyOutput, error) {
	if in.Body.Scope == nil { // null: a mistake must not widen a key
		return nil, toolkeep.FaultsError(toolkeep.InputValidationFailed, "scope is null; send a list of patterns, or [] for a key that is not narrowed",
			[]toolkeep.Fault{{Pointer: "/scope", Rule: "type", Message: "a list of patterns; [] does not narrow"}})
	}
	k, err := a.c.Keys.SetScope(ctx, p, in.KeyID, in.Body.Scope, in.DryRun)
	if err != nil {
		return nil, err
	}
	return &keyOutput{Body: keyOf(k)}, nil
}

type revokeKeyInput struct {
	KeyID string `path:"key_id" maxLength:"4096"`
}

func (a *API) revokeKey(ctx context.Context, p *toolkeep.Principal, in *revokeKeyInput) (*struct{}, error) {
	return nil, a.c.Keys.RevokeKey(ctx, p, in.KeyID)
}

// blob is GET /api/v1/blobs/{blob_id}. What a tool brought back is never shown
// as a page of this server: it is an attachment, without sniffing or scripts.
func (a *API) blob(w http.ResponseWriter, r *http.Request) {
	p, err := a.caller(r)
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	id, err := a.pathID(r, "blob_id")
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	b, rd, err := a.c.Blobs.Open(r.Context(), id)
	if errors.Is(err, toolkeep.ErrNotFound) {
		a.gate.Refuse(w, r, noBlob())
		return
	}
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	defer rd.Close()
	// A blob without subject is part of a public result, which any principal of the
	// tenant may have got from the cache.
	if b.Tenant != p.Tenant || b.Subject != "" && b.Subject != p.Subject && !p.May(toolkeep.PermInvocations) {
		a.gate.Refuse(w, r, noBlob())
		return
	}
	h := w.Header()
	h.Set("Content-Type", safeType(b.ContentType))
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cache-Control", "private, no-store")
	a.sendBlob(w, r, b, rd)
}

func noBlob() error {
	return toolkeep.NewError(toolkeep.ResourceNotFound, "there is no blob with this id that you may read")
}

// sendBlob streams, each piece under a write deadline of its own. Ranges are
// served where the blob can seek; compression only where no range is asked for.
func (a *API) sendBlob(w http.ResponseWriter, r *http.Request, b toolkeep.Blob, rd io.Reader) {
	h := w.Header()
	slow := &timedWriter{ResponseWriter: w, rc: http.NewResponseController(w), each: a.limits.WriteTimeout}
	if packs(b.ContentType) && r.Header["Range"] == nil && a.gate.SendCompressed(slow, r, b.Bytes, func(to io.Writer) { a.copyBlob(to, rd, r) }) {
		return
	}
	if seek, ok := rd.(io.ReadSeeker); ok {
		http.ServeContent(slow, r, "", b.CreatedAt, seek)
		return
	}
	if b.Bytes > 0 {
		h.Set("Content-Length", strconv.FormatInt(b.Bytes, 10))
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		a.copyBlob(slow, rd, r)
	}
}

// copyBlob cuts the connection if the blob breaks off, because the status is
// sent and a short body must not look whole.
func (a *API) copyBlob(w io.Writer, rd io.Reader, r *http.Request) {
	if _, err := io.Copy(w, rd); err != nil {
		if r.Context().Err() == nil {
			a.log.WarnContext(r.Context(), "sending a blob failed", "error", err)
		}
		panic(http.ErrAbortHandler)
	}
}

// timedWriter gives each write its own deadline.
type timedWriter struct {
	http.ResponseWriter
	rc   *http.ResponseController
	each time.Duration
}

func (t *timedWriter) Write(p []byte) (int, error) {
	_ = t.rc.SetWriteDeadline(time.Now().Add(t.each))
	return t.ResponseWriter.Write(p)
}

func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// safeType is the content type if it is one, else bytes.
func safeType(ct string) string {
	if _, _, err := mime.ParseMediaType(ct); err != nil {
		return "application/octet-stream"
	}
	return ct
}

// packs tells whether compression pays.
func packs(ct string) bool {
	typ, _, _ := mime.ParseMediaType(ct)
	return strings.HasPrefix(typ, "text/") || strings.HasSuffix(typ, "json") || strings.HasSuffix(typ, "xml")
}

// webURL tells whether s is an absolute http or https URL without credentials.
func webURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}
