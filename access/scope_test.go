package access_test

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// TestSetScope: a key has its new scope when SetScope returns, on another node once that has followed, and only who could make
// such a key gives it.
func TestSetScope(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "t.db")})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	var nodes []*access.Access
	for range 2 {
		a, err := access.New(access.Config{Load: s.Keys, Store: s})
		if err == nil {
			err = a.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Stop)
		nodes = append(nodes, a)
	}
	a, other := nodes[0], nodes[1]
	boss := &toolkeep.Principal{Tenant: "default", Subject: "boss", Roles: []string{access.Admin}, Permissions: []string{"*"}}
	key, text, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "bot", Roles: []string{access.Agent}, Scope: []string{"shop.*"}})
	if err != nil {
		t.Fatal(err)
	}
	scopeOn := func(n *access.Access) []string {
		t.Helper()
		p, err := n.Authenticate(t.Context(), text, "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return p.Scope
	}
	open, err := a.Authenticate(t.Context(), text, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if k, err := a.SetScope(t.Context(), boss, key.ID, []string{"mail.*"}, true); err != nil || k.Scope[0] != "mail.*" || scopeOn(a)[0] != "shop.*" {
		t.Errorf("a dry run: %v %v, the key has %v", k.Scope, err, scopeOn(a))
	}
	k, err := a.SetScope(t.Context(), boss, key.ID, []string{"mail.*"}, false)
	if err != nil || !slices.Equal(k.Scope, []string{"mail.*"}) || k.Hash != [32]byte{} || k.Subject != "bot" || !slices.Equal(scopeOn(a), k.Scope) {
		t.Fatalf("%+v %v", k, err)
	}
	if now, err := a.Refresh(t.Context(), open); err != nil || now.Scope[0] != "mail.*" {
		t.Errorf("who was let in before has %+v, %v", now, err)
	}
	head, err := s.Head(t.Context())
	if err == nil {
		err = other.AwaitApplied(t.Context(), head)
	}
	if err != nil || scopeOn(other)[0] != "mail.*" {
		t.Errorf("on the other node: %v %v", scopeOn(other), err)
	}
	if _, err := other.SetScope(t.Context(), boss, key.ID, nil, false); err != nil || len(scopeOn(other)) != 0 {
		t.Errorf("widened: %v %v", scopeOn(other), err)
	}

	root, _, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "root", Roles: []string{access.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	over, _, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "over", Roles: []string{access.Agent}})
	if err == nil {
		err = a.RevokeKey(t.Context(), boss, over.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	clerk := &toolkeep.Principal{Tenant: "default", Subject: "clerk", Roles: []string{access.Agent}, Permissions: []string{toolkeep.PermKeys}, Scope: []string{"mail.*"}}
	for _, x := range []struct {
		name  string
		p     *toolkeep.Principal
		id    string
		scope []string
		want  toolkeep.Code
	}{
		{"no permission", &toolkeep.Principal{Tenant: "default"}, key.ID, []string{"a.*"}, toolkeep.PermissionDenied},
		{"beyond the caller's own scope", clerk, key.ID, []string{"shop.*"}, toolkeep.PermissionDenied},
		{"to the whole, by a narrowed caller", clerk, key.ID, nil, toolkeep.PermissionDenied},
		{"of a key with roles that the caller has not", clerk, root.ID, []string{"mail.*"}, toolkeep.PermissionDenied},
		{"of another tenant", &toolkeep.Principal{Tenant: "other", Roles: []string{access.Admin}, Permissions: []string{"*"}}, key.ID, []string{"a.*"}, toolkeep.ResourceNotFound},
		{"of no key", boss, "nosuchkey", []string{"a.*"}, toolkeep.ResourceNotFound},
		{"of a revoked key", boss, over.ID, []string{"a.*"}, toolkeep.InvalidParameters},
		{"of the last admin key", boss, root.ID, []string{"a.*"}, toolkeep.InvalidParameters},
		{"no pattern", boss, key.ID, []string{"shop"}, toolkeep.InputValidationFailed},
	} {
		var e *toolkeep.Error
		if _, err := a.SetScope(t.Context(), x.p, x.id, x.scope, false); !errors.As(err, &e) || e.Code != x.want {
			t.Errorf("%s: %v, want %s", x.name, err, x.want)
		}
	}
	if _, err := a.SetScope(t.Context(), clerk, key.ID, []string{"mail.send"}, false); err != nil {
		t.Errorf("within the caller's own scope: %v", err)
	}

	told := 0
	for c, err := range s.Watch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if put, ok := c.Change.(toolkeep.PutKey); ok && put.Key.ID == key.ID {
			told++
		}
		if head, err := s.Head(t.Context()); err != nil || c.Seq >= head {
			break
		}
	}
	if told != 4 { // made, narrowed, widened, narrowed
		t.Errorf("the feed has the key %d times", told)
	}
}

// TestKeyOfAnotherNode: what another node has just changed of a key is in its successor, and a role that left does not keep a key
// from being narrowed.
func TestKeyOfAnotherNode(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "t.db")})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	narrow, err := access.New(access.Config{Load: s.Keys, Store: s, Roles: []access.Role{{Name: "cook", Allow: []access.Rule{{Tools: []string{"*"}}}}}})
	if err == nil {
		err = narrow.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(narrow.Stop)
	late := &lateFeed{Store: s, open: make(chan struct{})}
	rotate, err := access.New(access.Config{Load: s.Keys, Store: late, Roles: []access.Role{{Name: "cook", Allow: []access.Rule{{Tools: []string{"*"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	boss := &toolkeep.Principal{Tenant: "default", Subject: "boss", Roles: []string{access.Admin}, Permissions: []string{"*"}}
	key, _, err := narrow.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "bot", Roles: []string{"cook"}})
	if err == nil {
		err = rotate.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rotate.Stop)
	if _, err := narrow.SetScope(t.Context(), boss, key.ID, []string{"mail.*"}, false); err != nil {
		t.Fatal(err)
	}
	// The feed is late until the rotation asks how far it has to be.
	next, _, _, err := rotate.RotateKey(t.Context(), boss, key.ID, 0)
	if err != nil || !slices.Equal(next.Scope, []string{"mail.*"}) {
		t.Errorf("the successor has the scope %v, %v", next.Scope, err)
	}

	if err := narrow.SetRoles(nil); err != nil {
		t.Fatal(err)
	}
	if k, err := narrow.SetScope(t.Context(), boss, next.ID, []string{"mail.send"}, false); err != nil || !slices.Equal(k.Scope, []string{"mail.send"}) {
		t.Errorf("with a role that left: %v %v", k.Scope, err)
	}
}

// lateFeed delivers nothing until the head of the store is asked for.
type lateFeed struct {
	access.Store
	once sync.Once
	open chan struct{}
}

func (l *lateFeed) Head(ctx context.Context) (int64, error) {
	l.once.Do(func() { close(l.open) })
	return l.Store.Head(ctx)
}

func (l *lateFeed) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	select {
	case <-l.open:
	case <-ctx.Done():
	}
	return l.Store.Watch(ctx, after)
}

// TestListRoles: roles of other tenants are not told, and neither are those tenants.
func TestListRoles(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "t.db")})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	rule := []access.Rule{{Tools: []string{"a.*"}}}
	a, err := access.New(access.Config{Load: s.Keys, Store: s, Roles: []access.Role{{Name: "z", Allow: rule, Inherits: []string{"agent", "t"}}, {Name: "both", Tenants: []string{"default", "u"}, Allow: rule}, {Name: "t", Tenants: []string{"t"}, Allow: rule}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		tenant string
		want   []string
		both   []string
	}{{"default", []string{"both", "z"}, []string{"default", "u"}}, {"u", []string{"both", "z"}, []string{"u"}}, {"t", []string{"t", "z"}, nil}} {
		own, file, err := a.ListRoles(&toolkeep.Principal{Tenant: x.tenant, Permissions: []string{toolkeep.PermKeys}})
		var names []string
		for _, r := range own {
			names = append(names, r.Name)
			if r.Name == "z" && slices.Contains(r.Inherits, "t") != (x.tenant == "t") || r.Name == "z" && r.Inherits[0] != access.Agent {
				t.Errorf("%s is told that z inherits %v", x.tenant, r.Inherits)
			}
			if r.Name == "both" && !slices.Equal(r.Tenants, x.both) {
				t.Errorf("%s is told of the tenants %v", x.tenant, r.Tenants)
			}
		}
		if err != nil || file != "" || !slices.Equal(names, x.want) {
			t.Errorf("%s: %v %q %v, want %v", x.tenant, names, file, err, x.want)
		}
	}
	if _, _, err := a.ListRoles(&toolkeep.Principal{Tenant: "default"}); toolkeep.AsError(err).Code != toolkeep.PermissionDenied {
		t.Errorf("without the permission: %v", err)
	}
}
