package tokens

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
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
