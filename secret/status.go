package secret

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Auth is the state of a tool's secrets for one principal.
type Auth struct {
	State   string    `json:"state" enum:"ready,missing,expired,unreadable" doc:"unreadable: sealed with a key that the server does not have"`
	Type    string    `json:"type" doc:"auth type of the entry that would be used"`
	Scope   Scope     `json:"scope,omitempty" doc:"whose secret would be used: user, workspace, organisation or server"`
	Store   string    `json:"store,omitempty" doc:"secret, vault, env or file"`
	Expires time.Time `json:"expires_at,omitzero"`
	// Checked is false if the store was not asked: lists report what the principal's last call or look on this node
	// found for a vault reference, and ready before the first.
	Checked bool `json:"checked" doc:"false: the store of the reference was not asked, and state is what was last known of it"`
}

// Entries returns an auth entry followed by its additional ones (settings.also).
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

// Auth returns the state of the tool's secrets for the principal: its first ready auth entry, else the first entry.
// needed is false if it has none. ask allows remote stores to be asked; without it Auth never waits.
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

// authOf returns the state of the first of the combined entries that is not ready.
func (r *Resolver) authOf(ctx context.Context, p *toolkeep.Principal, m *toolkeep.Manifest, spec toolkeep.AuthSpec, ask bool) Auth {
	a := Auth{State: Ready, Type: spec.Type, Checked: true}
	for i, s := range Entries(spec) {
		if s.Type == "none" {
			continue
		}
		st, checked := Status{State: Missing}, true
		// A reference that replaces context:// must be listed.
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

// glance is Look without waiting, unless ask is set.
func (r *Resolver) glance(ctx context.Context, p *toolkeep.Principal, ref string, ask bool) (Status, bool) {
	scheme, rest, _ := strings.Cut(ref, "://")
	s, stored := r.stores[scheme]
	if stored && !ask {
		if g, can := s.(Glancer); can {
			return g.Glance(p, rest), true
		}
	}
	if !stored && scheme == "context" { // the agent's context provides it at the call
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
		case !toolkeep.IsCode(err, toolkeep.SecretRetrievalFailed) && !toolkeep.IsCode(err, toolkeep.Cancelled):
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

// mark records a look's finding if no call has recorded more.
func (m *memory) mark(key [32]byte, st Status, at time.Time) {
	if _, has := m.get(key); has {
		return
	}
	m.put(trace{key: key, at: at, value: Value{Scope: st.Scope, Store: st.Store, Version: st.Version, Expires: st.Expires}})
}
