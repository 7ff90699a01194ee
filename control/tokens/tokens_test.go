package tokens

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	store := must[*sqlite.Store](t)(sqlite.Open(t.Context(), sqlite.Config{Path: t.TempDir() + "/toolkeep.db"}))
	t.Cleanup(func() { store.Close() })
	tokens := must[*capability.Tokens](t)(capability.New(capability.Config{Store: store, Sealer: must[*secret.Sealer](t)(secret.NewSealer()), Algorithm: "EdDSA"}))
	s := New(Config{Tokens: tokens, Store: store})
	admin := &toolkeep.Principal{Tenant: "acme", Subject: "admin", Permissions: []string{"*"}}
	lead := &toolkeep.Principal{Tenant: "acme", Subject: "lead"}
	wish := func(agent string, tools ...string) capability.Claims {
		return capability.Claims{Grant: toolkeep.Grant{Tenant: "globex", Agent: agent, Tools: tools}} // the tenant is the caller's
	}
	wants := func(err error, code toolkeep.Code) {
		t.Helper()
		if !toolkeep.IsCode(err, code) {
			t.Errorf("%v, want %s", err, code)
		}
	}
	_, _, err := s.Mint(t.Context(), lead, wish("lead", "*"), "")
	wants(err, toolkeep.PermissionDenied)
	text, made, err := s.Mint(t.Context(), admin, wish("lead", "weather.*"), "")
	if err != nil || made.Grant.Tenant != "acme" || time.Until(made.Expires) > DefaultLife {
		t.Fatal(made, err)
	}
	parent := toolkeep.CapabilityToken(text)
	_, _, err = s.Mint(t.Context(), lead, wish("sub", "*"), parent)
	wants(err, toolkeep.InvalidParameters)
	_, _, err = s.Mint(t.Context(), admin, wish("sub", "weather.current"), parent)
	wants(err, toolkeep.TokenScopeMismatch)
	child, sub, err := s.Mint(t.Context(), lead, wish("sub", "weather.current"), parent)
	if err != nil || len(sub.Grant.Parents) != 1 || sub.Grant.Parents[0] != made.Grant.ID {
		t.Fatal(sub, err)
	}
	wants(s.Revoke(t.Context(), lead, made.Grant.ID), toolkeep.PermissionDenied)
	wants(s.Revoke(t.Context(), admin, ""), toolkeep.InvalidParameters)
	other := &toolkeep.Principal{Tenant: "globex", Subject: "admin", Permissions: []string{"*"}}
	if err := s.Revoke(t.Context(), other, made.Grant.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Verify(toolkeep.CapabilityToken(child)); err != nil {
		t.Fatal("another tenant revoked it")
	}
	if err := s.Revoke(t.Context(), admin, made.Grant.ID); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{text, child} {
		if _, err := tokens.Verify(toolkeep.CapabilityToken(text)); err == nil || err.Code != toolkeep.TokenRevoked {
			t.Errorf("%v", err)
		}
	}
	_, err = s.RotateKey(t.Context(), admin, false)
	wants(err, toolkeep.PermissionDenied) // not the home tenant
	wants(need(lead, "x"), toolkeep.PermissionDenied)
}

// TestRotationIsRecorded: the event is committed with the key or neither is.
func TestRotationIsRecorded(t *testing.T) {
	store := must[*sqlite.Store](t)(sqlite.Open(t.Context(), sqlite.Config{Path: t.TempDir() + "/toolkeep.db"}))
	t.Cleanup(func() { store.Close() })
	seen := &commits{Store: store}
	tokens := must[*capability.Tokens](t)(capability.New(capability.Config{Store: seen, Sealer: must[*secret.Sealer](t)(secret.NewSealer()), Algorithm: "EdDSA"}))
	s := New(Config{Tokens: tokens, Store: seen})
	admin := &toolkeep.Principal{Tenant: access.HomeTenant, Subject: "admin", Permissions: []string{"*"}}
	for _, drop := range []bool{false, true} {
		seen.all = nil
		kid := must[string](t)(s.RotateKey(t.Context(), admin, drop))
		if len(seen.all) != 1 {
			t.Fatalf("%d commits", len(seen.all))
		}
		var put, told bool
		for _, c := range seen.all[0] {
			switch c := c.(type) {
			case toolkeep.PutDocument:
				put = c.Document.ID == kid
			case toolkeep.AppendEvent:
				want := `{"by":"admin","drop_old":` + strconv.FormatBool(drop) + `,"kid":"` + kid + `"}`
				told = c.Event.Type == eventRotated && c.Event.Tenant == access.HomeTenant && string(c.Event.Data) == want
			}
		}
		if !put || !told {
			t.Errorf("drop %v: the key %v, its event %v: %+v", drop, put, told, seen.all[0])
		}
	}
}

// commits hears what is committed.
type commits struct {
	*sqlite.Store
	all [][]toolkeep.Change
}

func (c *commits) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	c.all = append(c.all, changes)
	return c.Store.Apply(ctx, changes...)
}
