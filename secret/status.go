package secret

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Auth is how a tool stands with its secrets for one principal.
type Auth struct {
	State   string    `json:"state" enum:"ready,missing,expired,unreadable" doc:"unreadable: sealed with a key that the server does not have"`
	Type    string    `json:"type" doc:"auth type of the entry that would be used"`
	Scope   Scope     `json:"scope,omitempty" doc:"whose secret would be used: user, workspace, organisation or server"`
	Store   string    `json:"store,omitempty" doc:"secret, vault, env or file"`
	Expires time.Time `json:"expires_at,omitzero"`
	// Checked is false where the store was not asked: of vault references, lists tell
	// what the principal's last call or look on this node found, and ready before one.
	Checked bool `json:"checked" doc:"false: the store of the reference was not asked, and state is what was last known of it"`
}

// Entries is an auth entry followed by those that go with it (settings.also).
func Entries(spec toolkeep.AuthSpec) []toolkeep.AuthSpec {
	all := []toolkeep.AuthSpec{spec}
	also, _ := spec.Settings["also"].([]any)
	for _, a := range also {
		raw, err := json.Marshal(a)
		if err != nil {
			continue
		}
		var s toolkeep.AuthSpec
		if json.Unmarshal(raw, &s) == nil {
			all = append(all, s)
		}
	}
	return all
}

// Auth tells how the tool stands with its secrets for the principal: of its auth
// entries the first that is ready, else the first. needed is false where it has none.
// ask lets stores be asked that are not at hand; without it nothing is waited for.
func (r *Resolver) Auth(ctx context.Context, p *toolkeep.Principal, m *toolkeep.Manifest, ask bool) (a Auth, needed bool) {
	for i, spec := range m.Auth {
		one := r.authOf(ctx, p, m, spec, ask)
		if one.State == Ready {
			return one, true
		}
		if i == 0 {
			a = one
		}
	}
	return a, len(m.Auth) > 0
}

// authOf is the first of the entries that go together which is not ready.
func (r *Resolver) authOf(ctx context.Context, p *toolkeep.Principal, m *toolkeep.Manifest, spec toolkeep.AuthSpec, ask bool) Auth {
	a := Auth{State: Ready, Type: spec.Type, Checked: true}
	for i, s := range Entries(spec) {
		if s.Type == "none" {
			continue
		}
		st, checked := Status{State: Missing}, true
		// What the agent's context names in its place is what must be listed.
		if s.Secret != "" && (strings.HasPrefix(s.Secret, "context://") || Allowed(m, s.Secret) == nil) {
			st, checked = r.glance(ctx, p, s.Secret, ask)
		}
		a.Checked = a.Checked && checked
		if i == 0 || st.State != Ready {
			a.State, a.Scope, a.Store, a.Expires = st.State, st.Scope, st.Store, st.Expires
		}
		if st.State != Ready {
			break
		}
	}
	return a
}

// glance is Look that waits for nothing, unless ask says so.
func (r *Resolver) glance(ctx context.Context, p *toolkeep.Principal, ref string, ask bool) (Status, bool) {
	scheme, rest, _ := strings.Cut(ref, "://")
	s, stored := r.stores[scheme]
	if stored && !ask {
		if g, can := s.(Glancer); can {
			return g.Glance(p, rest), true
		}
	}
	if !stored && scheme == "context" { // the agent's context names it at the call
		return Status{State: Ready}, false
	}
	if !stored || ask {
		st, err := r.Look(ctx, p, ref)
		switch {
		case err == nil && st.State == Ready && stored:
			r.seen.mark(traceKey(p, ref), st, r.c.Clock())
			return st, true
		case err == nil:
			return st, true
		case !codeIs(err, toolkeep.SecretRetrievalFailed) && !codeIs(err, toolkeep.Cancelled):
			return Status{State: Missing, Store: scheme}, true // the principal may not have it
		}
	}
	st := Status{State: Ready, Store: scheme}
	if t, has := r.seen.get(traceKey(p, ref)); has {
		st.Scope, st.Version, st.Expires = t.value.Scope, t.value.Version, t.value.Expires
		if !st.Expires.IsZero() && !r.c.Clock().Before(st.Expires) && st.Version != "" {
			st.State = Expired
		}
	}
	return st, false
}

// mark remembers what a look found, if no call has told more.
func (m *memory) mark(key [32]byte, st Status, at time.Time) {
	if _, has := m.get(key); has {
		return
	}
	m.put(trace{key: key, at: at, value: Value{Scope: st.Scope, Store: st.Store, Version: st.Version, Expires: st.Expires}})
}
