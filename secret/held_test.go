package secret

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// TestPrivateKeysAreHeld: a PEM private key is redacted in every form and line by line; the certificate beside it
// is not.
func TestPrivateKeysAreHeld(t *testing.T) {
	small, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	certificate := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a certificate is public; ", 20)))
	for name, key := range map[string]any{"P-256": small, "RSA": large} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		text := "-----BEGIN CERTIFICATE-----\n" + certificate + "\n-----END CERTIFICATE-----\n" + private
		inJSON, err := json.Marshal(map[string]string{"type": "service_account", "private_key": private})
		if err != nil {
			t.Fatal(err)
		}
		for kind, secret := range map[string]string{"mtls": text, "google_service_account": string(inJSON), "azure_ad": strings.ReplaceAll(text, "\n", "\r\n")} {
			known := redact.NewSecrets(nil)
			known.Hold(Parts(kind, secret)...)
			whole := base64.StdEncoding.EncodeToString(der)
			forms := map[string]string{"whole": secret, "one line": whole, "base64url": base64.RawURLEncoding.EncodeToString(der), "hex": hex.EncodeToString(der),
				"escaped": strings.ReplaceAll(private, "\n", `\n`)}
			for i, line := range strings.Split(strings.TrimSpace(private), "\n")[1:] {
				if len(line) >= 16 && !strings.HasPrefix(line, "-----") {
					forms["line "+string(rune('a'+i))] = line
				}
			}
			lines := strings.Split(private, "\n")
			for form, sent := range forms {
				got := known.Clean("it was " + sent + " that came")
				for _, line := range lines[1 : len(lines)-2] {
					if len(line) >= 16 && strings.Contains(got, line) {
						t.Errorf("%s, %s, %s: a line of the key is left in %q", name, kind, form, got)
					}
				}
				if strings.Contains(got, sent) {
					t.Errorf("%s, %s, %s: left as it was", name, kind, form)
				}
			}
			if got := known.Clean(certificate); kind == "google_service_account" && got != certificate {
				t.Errorf("%s: the certificate was taken out", kind)
			}
		}
	}
}

// TestHeldWhereItFails: a failed mint returns what it read, so that the failure can be redacted.
func TestHeldWhereItFails(t *testing.T) {
	b := newBench(t)
	boss := who("acme", "boss", "may=*")
	b.set(t, boss, Organisation, "", "k", "the-id:the-secret-of-the-client")
	m := &minter{err: refuse(toolkeep.SecretAccessDenied, "no")}
	r, err := New(Config{Stores: []Store{b.local}, Minter: m})
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Credential(t.Context(), boss, &toolkeep.Manifest{}, toolkeep.AuthSpec{Type: "oauth2_client_credentials", Secret: "secret://k"}, false)
	if codeOf(err) != toolkeep.SecretAccessDenied || !strings.Contains(strings.Join(e.Held, " "), "the-secret-of-the-client") || len(e.Value.Bytes) > 0 {
		t.Errorf("%+v %v", e, err)
	}
}

// TestUnreadable: Look, Glance and List report a value sealed with a missing key as unreadable; a new value fixes
// it.
func TestUnreadable(t *testing.T) {
	b := newBench(t)
	boss := who("acme", "boss", "may=*")
	b.set(t, boss, Organisation, "", "lost", "a-value")
	other, err := NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	b.local = NewLocal(LocalConfig{Store: b.store, Sealer: other})
	if _, err := b.local.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Stores: []Store{b.local}})
	if err != nil {
		t.Fatal(err)
	}
	state := func() string {
		t.Helper()
		list, lerr := b.local.List(t.Context(), boss)
		st, err := b.local.Look(t.Context(), boss, "lost")
		if err != nil || lerr != nil || len(list) != 1 {
			t.Fatalf("%v %v %v", list, lerr, err)
		}
		auth, _ := r.Auth(t.Context(), boss, &toolkeep.Manifest{Auth: []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://lost"}}}, false)
		if g := b.local.Glance(boss, "lost"); g.State != st.State || list[0].State != st.State || auth.State != st.State {
			t.Errorf("look %s, glance %s, list %s, auth %s", st.State, g.State, list[0].State, auth.State)
		}
		return st.State
	}
	if got := state(); got != Unreadable {
		t.Errorf("it is %s", got)
	}
	if err := r.Check(t.Context(), boss, "secret://lost"); codeOf(err) != toolkeep.SecretRetrievalFailed || !strings.Contains(err.Error(), "sealed with a key that this server does not have") {
		t.Error(err)
	}
	if i := b.set(t, boss, Organisation, "", "lost", "another"); i.State != Ready || i.Version != 2 {
		t.Errorf("%+v", i)
	}
	if got := state(); got != Ready {
		t.Errorf("set anew it is %s", got)
	}
}
