package access

import (
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestRotateKey: a rotated key has a successor that is like it, and both work until the overlap ends, also for a follower of the
// feed and whatever the order of what it hears.
func TestRotateKey(t *testing.T) {
	c := new(clock)
	store := newMemory()
	config := Config{Store: store, Clock: c.Now, Signing: Signing{Sealer: &plainSealer{}}}
	a := open(t, config)
	boss := &toolkeep.Principal{Tenant: "default", Subject: "boss", Roles: []string{Admin}, Permissions: []string{"*"}}
	old, text, secret, err := a.CreateSignedKey(t.Context(), boss, toolkeep.APIKey{Subject: "runtime", Name: "n", Roles: []string{Agent}, Scope: []string{"shop.*"}, Workspace: "w", ExpiresAt: c.Now().Add(48 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	enters := func(text string) bool {
		_, err := a.Authenticate(t.Context(), text, "192.0.2.1")
		return err == nil
	}
	c.pass(24 * time.Hour)
	before := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
	made, next, signs, err := a.RotateKey(t.Context(), boss, old.ID, time.Hour)
	if err != nil || made.ID == old.ID || made.Subject != "runtime" || made.Name != "n" || made.Roles[0] != Agent || made.Scope[0] != "shop.*" || made.Workspace != "w" ||
		!made.RequireSignature || !made.ExpiresAt.Equal(c.Now().Add(48*time.Hour)) || made.CreatedBy != "boss" || signs == secret || signs == "" || next == text {
		t.Fatalf("%+v %v", made, err)
	}
	if now := must[*toolkeep.Principal](t)(a.Refresh(t.Context(), before)); !now.Until.Equal(c.Now().Add(time.Hour)) {
		t.Errorf("what the old key opened goes on until %s", now.Until)
	}
	c.pass(time.Hour - 1)
	if !enters(text) || !enters(next) {
		t.Error("within the overlap one of the two keys does not work")
	}
	heard := false
	for _, change := range store.feed {
		if put, ok := change.Change.(toolkeep.PutKey); ok && put.Key.ID == old.ID {
			a.Follow(change) // heard late, as the key was
			heard = true
		}
	}
	if !heard {
		t.Error("the feed has no first key")
	}
	c.pass(1)
	if enters(text) || !enters(next) {
		t.Error("after the overlap the old key works, or the new one does not")
	}

	// Without an overlap it ends at once.
	newest, last, _, err := a.RotateKey(t.Context(), boss, made.ID, 0)
	if err != nil || enters(next) || !enters(last) || !newest.ExpiresAt.Equal(c.Now().Add(48*time.Hour)) {
		t.Errorf("%+v %v", newest, err)
	}
	clerk := &toolkeep.Principal{Tenant: "default", Subject: "clerk", Roles: []string{Agent}, Permissions: []string{toolkeep.PermKeys}}
	root, _, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "root", Roles: []string{Admin}})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		p    *toolkeep.Principal
		id   string
		want toolkeep.Code
	}{
		"no permission":             {&toolkeep.Principal{Tenant: "default"}, root.ID, toolkeep.PermissionDenied},
		"roles that it has not":     {clerk, root.ID, toolkeep.PermissionDenied},
		"another tenant":            {&toolkeep.Principal{Tenant: "other", Roles: []string{Admin}, Permissions: []string{"*"}}, root.ID, toolkeep.ResourceNotFound},
		"no such key":               {boss, "nosuchkey", toolkeep.ResourceNotFound},
		"a key that ended at once":  {boss, made.ID, toolkeep.InvalidParameters},
		"a key that expired by now": {boss, old.ID, toolkeep.InvalidParameters},
	} {
		if _, _, _, err := a.RotateKey(t.Context(), x.p, x.id, time.Hour); codeOf(err) != x.want {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}
	// A key that ends before the overlap does.
	ends := c.Now().Add(time.Minute)
	soon, _, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "soon", Roles: []string{Agent}, ExpiresAt: ends})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := a.RotateKey(t.Context(), boss, soon.ID, time.Hour); err != nil {
		t.Error(err)
	}
	if k, _ := a.key("default", soon.ID); !k.ExpiresAt.Equal(ends) {
		t.Errorf("it ends at %s", k.ExpiresAt)
	}
	// The last key of an administrator is followed by one. A key in its overlap has its successor and gets no second one.
	if _, _, _, err := a.RotateKey(t.Context(), boss, root.ID, time.Hour); err != nil {
		t.Error(err)
	}
	if _, _, _, err := a.RotateKey(t.Context(), boss, root.ID, time.Hour); codeOf(err) != toolkeep.InvalidParameters {
		t.Errorf("a second rotation: %v", err)
	}
	if k, _ := a.key("default", root.ID); k.Successor == "" {
		t.Errorf("%+v", k)
	}
	if !store.hears(`"expires_at":"` + ends.UTC().Format(time.RFC3339)) {
		t.Error("no event says when the old key ends that was to end before the overlap does")
	}
	kinds := map[string]int{}
	for _, change := range store.feed {
		if e, ok := change.Change.(toolkeep.AppendEvent); ok && strings.Contains(e.Event.Type, ".key_") {
			kinds[e.Event.Type]++
			if e.Event.Tenant != "default" || !strings.Contains(string(e.Event.Data), `"by":"boss"`) {
				t.Errorf("%+v", e.Event)
			}
		}
	}
	if kinds["ai.agent.auth.key_created"] != 3 || kinds["ai.agent.auth.key_rotated"] != 4 {
		t.Errorf("the audit has %v", kinds)
	}
}

// hears reports whether an event has a text in its data.
func (m *memory) hears(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.feed {
		if e, ok := c.Change.(toolkeep.AppendEvent); ok && strings.Contains(string(e.Event.Data), text) {
			return true
		}
	}
	return false
}
