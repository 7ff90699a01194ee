package capability

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// TestRevocationOutlivesWaitingCalls: a revocation is dropped neither before the last token of its
// name has expired nor before the last call that one admitted has ended.
func TestRevocationOutlivesWaitingCalls(t *testing.T) {
	for name, c := range map[string]struct{ life, wait, kept time.Duration }{
		"calls wait longer":  {5 * time.Minute, time.Hour, time.Hour},
		"tokens live longer": {time.Hour, 5 * time.Minute, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			clk, s := newClock(), newStore()
			v := newTokens(t, Config{Life: c.life, Wait: c.wait}, s, clk)
			revoke := func(id string) {
				changes := must[[]toolkeep.Change](t)(v.Revoke("acme", id, "admin"))
				if err := s.Apply(t.Context(), changes...); err != nil {
					t.Fatal(err)
				}
				for _, c := range changes {
					v.Follow(toolkeep.Committed{Change: c})
				}
			}
			grant := &toolkeep.Grant{Tenant: "acme", ID: "of a waiting call"}
			revoke(grant.ID)
			clk.Add(c.kept + time.Minute) // with the skew of the clocks of two nodes
			revoke("another")
			if v.Revoked(grant) == nil {
				t.Error("the revocation was dropped too early")
			}
			clk.Add(time.Second)
			revoke("a third")
			if v.Revoked(grant) != nil {
				t.Error("the revocation is kept for ever")
			}
		})
	}
}

// TestKeyRemovedWhileVerifying: whatever a verification meets halfway, a token of a key that is
// gone is not accepted afterwards.
func TestKeyRemovedWhileVerifying(t *testing.T) {
	const here = "https://here.example"
	for name, ready := range map[string]func(t *testing.T, clk *clock, c Config) (v *Tokens, text toolkeep.CapabilityToken, remove func(), during func(remove func())){
		"own": func(t *testing.T, clk *clock, c Config) (*Tokens, toolkeep.CapabilityToken, func(), func(func())) {
			s, hook := newStore(), func() {}
			c.BaseURL = func() string { hook(); return here }
			v := newTokens(t, c, s, clk)
			c.Audience = []string{here} // which names it in the token
			text, _ := mint(t, newTokens(t, c, s, clk), wish(clk), nil)
			remove := func() { must[string](t)(v.RotateKey(t.Context(), "admin", true, nil)) }
			if err := v.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			return v, text, remove, func(remove func()) { hook = func() { hook = func() {}; remove() } }
		},
		"own, new to the node": func(t *testing.T, clk *clock, c Config) (*Tokens, toolkeep.CapabilityToken, func(), func(func())) {
			s := newStore()
			v, other := newTokens(t, c, s, clk), newTokens(t, c, s, clk)
			text, _ := mint(t, other, wish(clk), nil)
			docs, _, _ := s.Documents(t.Context(), KeyKind)
			remove := func() {
				gone := toolkeep.DeleteDocument{Kind: KeyKind, ID: docs[0].ID, Expect: toolkeep.AnyRevision}
				if err := s.Apply(t.Context(), gone); err != nil {
					t.Fatal(err)
				}
				v.Follow(toolkeep.Committed{Change: gone})
			}
			return v, text, remove, func(remove func()) {
				s.answering = func() error { s.answering = nil; remove(); return nil }
			}
		},
		"outside": func(t *testing.T, clk *clock, c Config) (*Tokens, toolkeep.CapabilityToken, func(), func(func())) {
			c.KeysFile = write(t, pemOf(t, "rsa"))
			hook := func() {}
			c.BaseURL = func() string { hook(); return here }
			v := newTokens(t, c, newStore(), clk)
			remove := func() {
				if err := os.WriteFile(c.KeysFile, pemOf(t, "ec"), 0o600); err != nil {
					t.Fatal(err)
				}
				clk.Add(keysEvery)
				if err := check(v, signed(t, "ec", claims(clk, nil), nil)); err != nil { // another request reads the file
					t.Fatal(err, err.Cause)
				}
			}
			return v, signed(t, "rsa", claims(clk, m{"aud": here}), nil), remove, func(remove func()) { hook = func() { hook = func() {}; remove() } }
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, text, remove, during := ready(t, newClock(), Config{Sealer: must[*secret.Sealer](t)(secret.NewSealer())})
			removed := false
			during(func() { remove(); removed = true })
			_, _ = v.Verify(text) // began before the key was gone: either answer is right
			if !removed {
				t.Fatal("the key was not removed while the token was verified")
			}
			if _, err := v.Verify(text); err == nil || err.Code != toolkeep.TokenInvalid {
				t.Errorf("a token of a removed key: %v", err)
			}
		})
	}
}

// TestStoreDoesNotAnswer: only a token whose key may be in the store waits for it, and its refusal
// says try again.
func TestStoreDoesNotAnswer(t *testing.T) {
	clk, s, seal := newClock(), newStore(), must[*secret.Sealer](t)(secret.NewSealer())
	jwks := thumbprintSet(t, "rsa")
	a := newTokens(t, Config{Sealer: seal}, s, clk)
	b := newTokens(t, Config{Sealer: seal, KeysFile: jwks}, s, clk)
	known, _ := mint(t, b, wish(clk), nil)
	if _, err := a.RotateKey(t.Context(), "admin", false, nil); err != nil { // b does not follow
		t.Fatal(err)
	}
	unheard, _ := mint(t, a, wish(clk), nil)
	down := errors.New("no route to the store")
	s.answering = func() error { return down }
	if err := check(b, known); err != nil {
		t.Errorf("a key that is known: %v", err)
	}
	kid := must[string](t)(thumbprint(keys()["rsa"].Public()))
	if err := check(b, signed(t, "rsa", claims(clk, nil), m{"kid": kid})); err != nil {
		t.Errorf("a token of an outside issuer: %v", err)
	}
	err := check(b, unheard)
	if err == nil || err.Code != toolkeep.RegistryUnavailable || !err.Retryable || err.RetryAfter <= 0 || !errors.Is(err, down) {
		t.Fatalf("a key that only the store knows: %#v", err)
	}
	s.answering = nil
	if err := check(b, unheard); err != nil {
		t.Error(err, err.Cause)
	}
}
