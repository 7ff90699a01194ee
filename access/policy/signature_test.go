package policy

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	opa "github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/toolkeep/toolkeep"
)

// signer is a key pair of a test.
type signer struct{ private, public, algorithm string }

func newSigner(t *testing.T, algorithm string) signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch algorithm {
	case "RS256":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "EdDSA":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return signer{text("PRIVATE KEY", private), text("PUBLIC KEY", public), algorithm}
}

// sign returns signatureFile for files, made by OPA's own library.
func (s signer) sign(t *testing.T, files map[string]string) string {
	t.Helper()
	hash, err := opa.NewSignatureHasher(opa.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	var list []opa.FileInfo
	for name, content := range files {
		var value any = []byte(content)
		if opa.IsStructuredDoc(name) {
			if err := util.Unmarshal([]byte(content), &value); err != nil {
				t.Fatal(err)
			}
		}
		sum, err := hash.HashFile(value)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, opa.NewFile(name, hex.EncodeToString(sum), string(opa.SHA256)))
	}
	token, err := opa.GenerateSignedToken(list, opa.NewSigningConfig(s.private, s.algorithm, ""), "")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{"signatures": []string{token}})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func with(files map[string]string, name, content string) map[string]string {
	all := maps.Clone(files)
	if all[name] = content; content == "" {
		delete(all, name)
	}
	return all
}

func keyFile(t *testing.T, keys ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.pem")
	if err := os.WriteFile(file, []byte(strings.Join(keys, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func headers(files map[string]string) (list []*tar.Header) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, packed("/"+name, files[name]))
	}
	return list
}

// TestSigned: with keys, a policy is read as it was signed by one of them, from a folder and from an archive, and refused
// in every other case.
func TestSigned(t *testing.T) {
	ours, next, ed, theirs := newSigner(t, "RS256"), newSigner(t, "ES256"), newSigner(t, "EdDSA"), newSigner(t, "RS256")
	keys := keyFile(t, ours.public, next.public, ed.public)
	plain := map[string]string{"p.rego": "package toolkeep\nallow if data.on.off", "on/data.json": `{ "off": true, "n": 12345678901234567890 }`, manifestFile: `{"roots":["toolkeep","on"]}`}
	signed := with(plain, signatureFile, ours.sign(t, plain))
	secret := signer{private: ours.public, algorithm: "HS256"} // the public key as a secret
	none := `{"signatures":["eyJhbGciOiJub25lIn0.` + strings.Split(ours.sign(t, plain), ".")[1] + `."]}`
	for name, c := range map[string]struct {
		files map[string]string
		keys  string
		says  string // "" is taken
	}{
		"signed":              {signed, keys, ""},
		"by another key":      {with(plain, signatureFile, next.sign(t, plain)), keys, ""},
		"by Ed25519":          {with(plain, signatureFile, ed.sign(t, plain)), keys, ""},
		"a readme":            {with(signed, "README.md", "x"), keys, ""},
		"a signed readme":     {with(with(plain, "README.md", "x"), signatureFile, ours.sign(t, with(plain, "README.md", "x"))), keys, ""},
		"not signed":          {plain, keys, "it is not signed"},
		"no key":              {signed, "", "name the file of the public key in policy.bundle_key_file"},
		"no file of keys":     {signed, keys + "x", "cannot be read"},
		"no keys in the file": {signed, keyFile(t, "x"), "no public key"},
		"a private key":       {signed, keyFile(t, ours.private), "write the public key alone"},
		"by a stranger":       {with(plain, signatureFile, theirs.sign(t, plain)), keys, "not one by a key"},
		"by the public key":   {with(plain, signatureFile, secret.sign(t, plain)), keys, "not one by a key"},
		"by no algorithm":     {with(plain, signatureFile, none), keys, "not one by a key"},
		"no signature in it":  {with(plain, signatureFile, `{"signatures":[]}`), keys, "missing JWT"},
		"another verifier":    {with(plain, signatureFile, `{"plugin":"x","signatures":["a.b.c"]}`), keys, "no verifier exists"},
		"no JSON":             {with(plain, signatureFile, `x`), keys, "cannot be read"},
		"a changed rule":      {with(signed, "p.rego", "package toolkeep\nallow := true"), keys, "p.rego: digest mismatch"},
		"changed data":        {with(signed, "on/data.json", `{"off":false,"n":12345678901234567890}`), keys, "on/data.json: digest mismatch"},
		"a changed manifest":  {with(signed, manifestFile, `{"roots":[""]}`), keys, ".manifest: digest mismatch"},
		"a rule more":         {with(signed, "q.rego", "package toolkeep\nallow := true"), keys, "q.rego not included"},
		"data more":           {with(signed, "q/data.json", "{}"), keys, "q/data.json not included"},
		"a rule less":         {with(with(plain, signatureFile, ours.sign(t, with(plain, "deny.rego", "package toolkeep"))), "x", "x"), keys, "missing, or not read: deny.rego"},
		"a signature below":   {with(signed, "on/"+signatureFile, "{}"), keys, "lies at the top"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, at := t.TempDir(), filepath.Join(t.TempDir(), "b.tar.gz")
			write(t, dir, c.files)
			bundle(t, at, headers(c.files)...)
			for _, path := range []string{dir, at} {
				files, err := Read(path, c.keys)
				switch {
				case c.says == "" && (err != nil || len(files) != 2):
					t.Errorf("%s: %v %v", path, files, err)
				case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
					t.Errorf("%s: %v, want %q", path, err, c.says)
				}
			}
		})
	}
}

// TestSignedReload: a changed policy that is not signed is not taken, by whatever way it comes; the one in use goes on and health
// tells of it, until a signed one comes. One that was kept for a start is verified too.
func TestSignedReload(t *testing.T) {
	ours, theirs := newSigner(t, "ES256"), newSigner(t, "ES256")
	keys := keyFile(t, ours.public)
	yes, no := map[string]string{"p.rego": "package toolkeep\nallow := true"}, map[string]string{"p.rego": "package toolkeep\nallow := false"}
	signed := func(by signer, files map[string]string) map[string]string {
		return with(files, signatureFile, by.sign(t, files))
	}
	for _, kind := range []string{"disk", "http", "oci"} {
		t.Run(kind, func(t *testing.T) {
			told := make(chan State, 100)
			c := Config{Timeout: 20 * time.Second, Poll: time.Millisecond, KeyFile: keys, OnChange: func(s State) { told <- s }}
			s, keep, look := (*shelf)(nil), t.TempDir(), func(*Engine) {}
			var set func(map[string]string)
			if kind == "disk" {
				c.Path = filepath.Join(t.TempDir(), "b.tar.gz")
				set = func(files map[string]string) {
					bundle(t, c.Path+".new", headers(files)...)
					if err := os.Rename(c.Path+".new", c.Path); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				s = newShelf(t)
				c.Bundle, look = s.bundle(kind, keep), (*Engine).Look
				set = func(files map[string]string) { s.set(t, headers(files)...) }
			}
			begin := func(c Config) (*Engine, error) {
				e, err := New(t.Context(), c)
				if err == nil {
					err = e.Start(t.Context())
					t.Cleanup(e.Stop)
				}
				return e, err
			}
			set(yes)
			if e, err := begin(c); !toolkeep.IsCode(err, toolkeep.InvalidManifest) || !strings.Contains(err.Error(), "it is not signed") {
				t.Fatalf("%v %v", e, err)
			}
			set(signed(ours, yes))
			e, err := begin(c)
			if err != nil || !allows(t, e) {
				t.Fatal(err)
			}
			for says, files := range map[string]map[string]string{"it is not signed": no, "not one by a key": signed(theirs, no)} {
				set(files)
				look(e)
				if got := <-told; !strings.Contains(got.Refused, says) || !allows(t, e) || e.Health(t.Context()) == nil {
					t.Fatalf("%+v", got)
				}
			}
			set(signed(ours, no))
			look(e)
			if got := <-told; got.Refused != "" || allows(t, e) || e.Health(t.Context()) != nil {
				t.Fatalf("%+v", got)
			}
			e.Stop()
			if s == nil {
				return
			}
			s.do(func() { s.down = true })
			if e, err := begin(c); err != nil || allows(t, e) {
				t.Fatalf("the one that was kept: %v", err)
			} else {
				e.Stop()
			}
			c.KeyFile = keyFile(t, theirs.public)
			if _, err := begin(c); !toolkeep.IsCode(err, toolkeep.InvalidManifest) {
				t.Errorf("one that was kept is not verified: %v", err)
			}
		})
	}
}

// TestSignatureChangesAlone: in a folder whose signature comes later than its files, the policy is taken once it is there.
func TestSignatureChangesAlone(t *testing.T) {
	ours := newSigner(t, "ES256")
	yes, no := map[string]string{"p.rego": "package toolkeep\nallow := true"}, map[string]string{"p.rego": "package toolkeep\nallow := false"}
	dir := t.TempDir()
	write(t, dir, with(yes, signatureFile, ours.sign(t, yes)))
	told := make(chan State, 100)
	e, err := New(t.Context(), Config{Path: dir, Timeout: 20 * time.Second, Poll: time.Millisecond, KeyFile: keyFile(t, ours.public), OnChange: func(s State) { told <- s }})
	if err != nil || !allows(t, e) {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	write(t, dir, no)
	if s := <-told; !strings.Contains(s.Refused, "p.rego: digest mismatch") || !allows(t, e) {
		t.Fatalf("%+v", s)
	}
	if before := look(dir); before == "" {
		t.Fatal("a folder looks like nothing")
	} else if write(t, dir, map[string]string{signatureFile: ours.sign(t, no)}); look(dir) == before {
		t.Error("a changed signature does not show")
	}
	if s := <-told; s.Refused != "" || allows(t, e) {
		t.Fatalf("%+v", s)
	}
}

// FuzzSignature: no content of a signature makes a policy verify that was not signed.
func FuzzSignature(f *testing.F) {
	f.Add([]byte(`{"signatures":["a.b.c"]}`))
	f.Add([]byte(`{"signatures":["eyJhbGciOiJub25lIn0.eyJmaWxlcyI6W119."]}`))
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		f.Fatal(err)
	}
	var key bytes.Buffer
	if err := pem.Encode(&key, &pem.Block{Type: "PUBLIC KEY", Bytes: der}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := reader{files: Files{"p.rego": nil}, others: Files{signatureFile: raw}, keys: []*opa.KeyConfig{{Key: key.String(), Algorithm: "EdDSA"}}}
		if r.verify() == nil {
			t.Error("it verifies")
		}
	})
}
