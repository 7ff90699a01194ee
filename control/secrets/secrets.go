package secrets

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
)

// Where says which of a tenant's secrets of a name is meant.
type Where struct {
	Scope     string // user (the default), workspace or organisation
	User      string // of scope user; default the caller
	Workspace string // of scope workspace; default the caller's
}

// Info is a secret without its value.
type Info struct {
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

// State is what a test found.
type State struct {
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

// Access is what decides who sees and calls a tool.
type Access interface {
	Visible(p *toolkeep.Principal, t *toolkeep.Tool) bool
	Authorise(p *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call) access.Decision
}

// Config is what Secrets asks.
type Config struct {
	Store    secret.Documents
	Local    *secret.Local    // the stored secrets
	Resolver *secret.Resolver // reads references as calls do
	Sealer   *Sealer
	Access   Access
	// Tools are all versions in the catalogue.
	Tools  func() iter.Seq[toolkeep.Version]
	Redact *redact.Redactor
	// Hook is told "resealed" after every document that a rotation has sealed.
	Hook  func(point string) // default none
	Clock func() time.Time   // default time.Now
	Log   *slog.Logger
}

// Secrets keeps secrets, and tells of them all but their values.
type Secrets struct{ c Config }

// New makes a Secrets.
func New(c Config) *Secrets {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return &Secrets{c}
}

// List gives the caller's own secrets and those of its workspace and organisation that a
// tool names which it may call; with secrets:admin all of the tenant. E3403.
func (s *Secrets) List(ctx context.Context, p *toolkeep.Principal) ([]Info, error) {
	list, err := s.c.Local.List(ctx, p)
	if err != nil {
		return nil, err
	}
	serves := s.serving(p)
	list = slices.DeleteFunc(list, func(one secret.Info) bool { return one.Scope != secret.User && !serves(one.Ref()) })
	return s.infos(p, list), nil
}

// serving tells which secrets of its workspace and organisation the principal is told
// of: all with secrets:admin or with secrets:use, which publishes tools that name them,
// else those that a tool names which it may call. A key with a narrow scope, or a role
// that calls nothing, does not learn what else there is.
func (s *Secrets) serving(p *toolkeep.Principal) func(ref string) bool {
	if handles(p) {
		return func(string) bool { return true }
	}
	named := map[string]bool{}
	for t := range s.tools(p) {
		if !s.c.Access.Authorise(p, t, nil).Allowed {
			continue
		}
		for ref := range references(t.Manifest) {
			named[ref] = true
		}
		if t.Manifest.Permissions != nil { // what agents' contexts may put in place of another
			for _, ref := range t.Manifest.Permissions.Credentials {
				named[ref] = true
			}
		}
	}
	return func(ref string) bool { return named[ref] }
}

// handles tells whether secrets beside its own are the principal's business.
func handles(p *toolkeep.Principal) bool {
	return p.May(toolkeep.PermSecretsAdmin) || p.May(toolkeep.PermSecrets)
}

// tools are those with secrets that the principal sees.
func (s *Secrets) tools(p *toolkeep.Principal) iter.Seq[*toolkeep.Tool] {
	return func(yield func(*toolkeep.Tool) bool) {
		for v := range s.c.Tools() {
			if len(v.Tool.Manifest.Auth) > 0 && v.Life.State != toolkeep.Removed && s.c.Access.Visible(p, v.Tool) && !yield(v.Tool) {
				return
			}
		}
	}
}

// references are those of a manifest's auth entries.
func references(m *toolkeep.Manifest) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, spec := range m.Auth {
			for _, e := range secret.Entries(spec) {
				if !yield(e.Secret) {
					return
				}
			}
		}
	}
}

// infos adds the tools that the principal sees and that name a secret.
func (s *Secrets) infos(p *toolkeep.Principal, list []secret.Info) []Info {
	uses := map[string][]string{}
	for _, one := range list {
		uses[one.Ref()] = []string{}
	}
	for t := range s.tools(p) {
		for ref := range references(t.Manifest) {
			if tools, asked := uses[ref]; asked && !slices.Contains(tools, t.ID) {
				uses[ref] = append(tools, t.ID)
			}
		}
	}
	out := make([]Info, len(list))
	for i, one := range list {
		info := Info{Name: one.Name, Reference: one.Ref(), Scope: string(one.Scope), Version: one.Version, UpdatedAt: one.SetAt, UpdatedBy: one.SetBy, State: one.State}
		switch one.Scope {
		case secret.User:
			info.User = one.Owner
		case secret.Workspace:
			info.Workspace = one.Owner
		}
		if !one.Expires.IsZero() {
			info.ExpiresAt = &one.Expires
		}
		info.Tools = slices.Sorted(slices.Values(uses[one.Ref()]))
		if info.Tools == nil {
			info.Tools = []string{}
		}
		out[i] = info
	}
	return out
}

// named is the domain's form of a name and a Where. E3301.
func (w Where) named(name string) (secret.Where, error) {
	out := secret.Where{Name: name, Scope: secret.ScopeNamed(w.Scope), Owner: w.User + w.Workspace}
	if w.User != "" && w.Workspace != "" || w.User != "" && w.Scope != "" && out.Scope != secret.User || w.Workspace != "" && out.Scope != secret.Workspace {
		return out, toolkeep.NewError(toolkeep.InvalidParameters, "user goes with the scope user, and workspace with the scope workspace")
	}
	return out, nil
}

// MayPut checks that the principal may set a secret there, before the rest of the request is
// looked at. E3201.
func (s *Secrets) MayPut(p *toolkeep.Principal, w Where) error {
	at, _ := w.named("")
	return s.c.Local.MayChange(p, at)
}

// Put sets a value; one's own (scope user) every principal may. A zero expires is never.
// E3201, E3301, E3965.
func (s *Secrets) Put(ctx context.Context, p *toolkeep.Principal, name string, w Where, value string, expires time.Time) (Info, error) {
	defer s.c.Redact.HoldInLog(secret.Parts("", value)...)()
	at, err := w.named(name)
	if err != nil {
		return Info{}, err
	}
	plain := []byte(value)
	defer clear(plain)
	info, err := s.c.Local.Set(ctx, p, secret.Put{Where: at, Value: plain, Expires: expires})
	if err != nil {
		return Info{}, err
	}
	return s.infos(p, []secret.Info{info})[0], nil
}

// Delete removes a secret. E3013, E3201, E3301, E3965.
func (s *Secrets) Delete(ctx context.Context, p *toolkeep.Principal, name string, w Where) error {
	at, err := w.named(name)
	if err != nil {
		return err
	}
	return s.c.Local.Delete(ctx, p, at)
}

// testTime bounds a test.
const testTime = 10 * time.Second

// MayTest checks that the principal may test a reference, before the rest of the request is
// looked at. E3201.
func (s *Secrets) MayTest(p *toolkeep.Principal, ref string, as Where) error {
	if (as.User != "" || as.Workspace != "") && !p.May(toolkeep.PermSecretsAdmin) {
		return toolkeep.NewError(toolkeep.PermissionDenied, "to test as another user or workspace you need the permission %s", toolkeep.PermSecretsAdmin)
	}
	if !inStore(ref) && !handles(p) {
		return toolkeep.NewError(toolkeep.PermissionDenied, "to test a reference outside of the secret store you need the permission %s or %s", toolkeep.PermSecrets, toolkeep.PermSecretsAdmin)
	}
	return nil
}

// inStore tells whether a reference, or a name alone, is that of a stored secret.
func inStore(ref string) bool {
	return !strings.Contains(ref, "://") || strings.HasPrefix(ref, "secret://")
}

// Test reads a reference as a call would, and tells all but its value. A name alone is
// secret://name. as names another user or workspace; its scope is not read. E3201, E3403.
func (s *Secrets) Test(ctx context.Context, p *toolkeep.Principal, ref string, as Where) (State, error) {
	if err := s.MayTest(p, ref, as); err != nil {
		return State{}, err
	}
	stored := inStore(ref)
	if !strings.Contains(ref, "://") {
		ref = "secret://" + ref
	}
	who := *p
	if as.User != "" {
		who.Subject, who.OnBehalf = as.User, ""
	}
	if as.Workspace != "" {
		who.Workspace = as.Workspace
	}
	ctx, cancel := context.WithTimeout(ctx, testTime) // ends what a store makes for the test
	defer cancel()
	v, err := s.c.Resolver.Fetch(ctx, &who, ref)
	if err != nil {
		return s.untested(ctx, p, &who, ref, toolkeep.AsError(err))
	}
	defer v.Wipe()
	if broad := v.Scope == secret.Workspace || v.Scope == secret.Organisation; broad && stored && !s.serving(p)(ref) {
		return State{Reference: ref, State: secret.Missing, Store: v.Store, Code: string(toolkeep.SecretNotFound),
			Reason: "no tool that you may call names this secret"}, nil
	}
	defer s.c.Redact.HoldInLog(secret.Parts("basic", v.Text())...)()
	out := State{Reference: ref, State: secret.Ready, Scope: string(v.Scope), Store: v.Store, Version: v.Version, Stale: !v.KeptSince.IsZero()}
	if !v.Expires.IsZero() {
		out.ExpiresAt = &v.Expires
	}
	return out, nil
}

// untested is the answer where the secret could not be read. E3403.
func (s *Secrets) untested(ctx context.Context, p, who *toolkeep.Principal, ref string, e *toolkeep.Error) (State, error) {
	if e.Code == toolkeep.SecretRetrievalFailed || e.Code == toolkeep.Cancelled {
		return State{}, e
	}
	out := State{Reference: ref, State: secret.Missing, Code: string(e.Code), Reason: s.c.Redact.For(p).Clean(e.Message)}
	out.Store, _, _ = strings.Cut(ref, "://")
	if st, err := s.c.Resolver.Look(ctx, who, ref); err == nil && st.State == secret.Expired {
		out.State, out.Scope, out.Store, out.Version = st.State, string(st.Scope), st.Store, st.Version
		out.ExpiresAt = &st.Expires
	}
	return out, nil
}

// askTime bounds how long ToolAuth waits for stores.
const askTime = 500 * time.Millisecond

// ToolAuth tells how a tool stands with its secrets for the principal, nil where it
// needs none. Whose secret it would be, other than the principal's own, is told only to
// those who may call the tool or handle secrets. ask lets stores be asked that are not
// at hand; without it nothing is waited for.
func (s *Secrets) ToolAuth(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth {
	if len(t.Manifest.Auth) == 0 {
		return nil
	}
	if ask {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTime)
		defer cancel()
	}
	a, needed := s.c.Resolver.Auth(ctx, p, t.Manifest, ask)
	if !needed {
		return nil
	}
	if a.Scope != secret.User && !handles(p) && !s.c.Access.Authorise(p, t, nil).Allowed {
		a.Scope, a.Store, a.Expires = "", "", time.Time{}
	}
	return &a
}
