package vault

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
)

// TestTokenEnded: a configured token that expired or was revoked is told as that, by calls
// and by health, and not as the refusal of a policy; a new token in its file serves at once.
func TestTokenEnded(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "secret/data/acme/x" { capabilities = ["read"] }`)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	healthy := func(v *Store, want bool) {
		t.Helper()
		err := v.Health(t.Context())
		if (err == nil) != want || err != nil && (codeOf(err) != toolkeep.SecretAccessDenied || !strings.Contains(err.Error(), "expired or was revoked")) {
			t.Errorf("health: %v, want healthy %t", err, want)
		}
	}
	for name, end := range map[string]func(token string){
		"revoked": func(token string) { s.Write("auth/token/revoke", map[string]any{"token": token}) },
		"expired": func(token string) {
			until(t, "the token expires", func() bool { return s.Status(token, lookupSelf) == http.StatusForbidden })
		},
	} {
		t.Run(name, func(t *testing.T) {
			life := "1h"
			if name == "expired" {
				life = "2s"
			}
			first := s.Token(life, "reader")
			write(first)
			v := open(t, s, "", func(c *Config) { c.Auth = Auth{Method: Token, TokenFile: file} })
			want(t, v, acme, "secret/acme/x#k", "v", "")
			healthy(v, true)
			// A policy's refusal stays one.
			_, err := v.Read(t.Context(), acme, "secret/acme/other#k")
			if codeOf(err) != toolkeep.SecretAccessDenied || !strings.Contains(err.Error(), "its policy must allow it") {
				t.Errorf("what the policy refuses: %v", err)
			}
			healthy(v, true)
			v.client.mu.Lock()
			if v.client.timer != nil {
				v.client.timer.Stop() // no renewal
			}
			v.client.mu.Unlock()
			end(first)
			_, err = v.Read(t.Context(), acme, "secret/acme/x#k")
			if codeOf(err) != toolkeep.SecretAccessDenied || !strings.Contains(err.Error(), "has expired or was revoked") || strings.Contains(err.Error(), "policy") {
				t.Errorf("after its end: %v", err)
			}
			if text := fmt.Sprint(err); strings.Contains(text, file) || strings.Contains(text, first) {
				t.Errorf("the message names more than its reader may know: %s", text)
			}
			healthy(v, false)
			write(s.Token("1h", "reader"))
			want(t, v, acme, "secret/acme/x#k", "v", "")
			healthy(v, true)
		})
	}
	// A login that Vault refuses is told by health as well, until one succeeds.
	v := open(t, s, "", func(c *Config) { c.Auth = Auth{Method: AppRole, Role: "nobody", SecretID: "wrong"} })
	if err := v.Health(t.Context()); err != nil {
		t.Errorf("before the first login: %v", err)
	}
	_, err := v.Read(t.Context(), acme, "secret/acme/x#k")
	if herr := v.Health(t.Context()); codeOf(herr) != codeOf(err) || codeOf(err) != toolkeep.SecretAccessDenied {
		t.Errorf("a refused login: %v, health %v", err, herr)
	}
}

// TestTokenThatMayNotLookItselfUp: a token whose policies allow nothing but its secrets is
// not unhealthy for it.
func TestTokenThatMayNotLookItselfUp(t *testing.T) {
	f := newFake(t)
	refused := func(w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"errors":["permission denied"]}`)
		return true
	}
	f.set(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "-self") && refused(w)
	})
	v := openFake(t, f, nil)
	want(t, v, acme, "secret/acme/x#k", "v", "")
	for range 2 {
		if err := v.Health(t.Context()); err != nil {
			t.Errorf("health: %v", err)
		}
	}
}

// TestCredentialFilesAreNotNamed: no path of this machine is in a caller's message; the
// operator's cause has it.
func TestCredentialFilesAreNotNamed(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"absent": func(string) error { return nil },
		"empty":  func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"too long": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("x", maxCredential+1)), 0o600)
		},
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"open": func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, 0o622))
		},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		_, err := readCredential(path)
		e := toolkeep.AsError(err)
		if codeOf(err) != toolkeep.SecretRetrievalFailed || strings.Contains(e.Message, dir) || e.Cause == nil || !strings.Contains(e.Cause.Error(), path) {
			t.Errorf("%s: %v because of %v", name, err, e.Cause)
		}
	}
}
