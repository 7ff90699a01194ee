package secret

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func codeOf(err error) toolkeep.Code {
	var e *toolkeep.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func TestEnv(t *testing.T) {
	vars := map[string]string{
		"TOOLKEEP_SECRET_A": "value-a", "TOOLKEEP_SECRET_": "value-b", "AWS_SECRET_ACCESS_KEY": "value-c",
		"SHOP_KEY": "value-d", "TOOLKEEP_SECRET_EMPTY": "", "TOOLKEEP_SECRET_LONG": strings.Repeat("x", MaxBytes+1),
		"TOOLKEEP_SECRET_NUL": "a\x00b",
	}
	r, err := New(Config{EnvPrefix: []string{"SHOP_*", "EXACT"}, LookupEnv: env(vars)})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		ref, value string
		code       toolkeep.Code
	}{
		{"env://TOOLKEEP_SECRET_A", "value-a", ""},
		{"env://SHOP_KEY", "value-d", ""},
		{"env://AWS_SECRET_ACCESS_KEY", "", toolkeep.SecretAccessDenied},
		{"env://PATH", "", toolkeep.SecretAccessDenied},
		{"env://toolkeep_secret_a", "", toolkeep.SecretAccessDenied},
		{"env://TOOLKEEP_SECRET_", "", toolkeep.SecretAccessDenied},
		{"env://", "", toolkeep.SecretAccessDenied},
		{"env://SHOP_/X", "", toolkeep.SecretAccessDenied},
		{"env://EXACTLY", "", toolkeep.SecretAccessDenied},
		{"env://EXACT", "", toolkeep.SecretNotFound},
		{"env://TOOLKEEP_SECRET_NONE", "", toolkeep.SecretNotFound},
		{"env://TOOLKEEP_SECRET_EMPTY", "", toolkeep.SecretNotFound},
		{"env://TOOLKEEP_SECRET_LONG", "", toolkeep.SecretRetrievalFailed},
		{"env://TOOLKEEP_SECRET_NUL", "", toolkeep.SecretRetrievalFailed},
		{"secret://x", "", toolkeep.SecretNotFound},
		{"vault://x", "", toolkeep.SecretNotFound},
		{"https://x", "", toolkeep.SecretNotFound},
		{"the-secret-itself", "", toolkeep.SecretNotFound},
		{"", "", toolkeep.SecretNotFound},
	}
	for _, tt := range tests {
		t.Run(tt.ref, func(t *testing.T) { check(t, r, &toolkeep.Principal{Tenant: "acme"}, tt.ref, tt.value, tt.code) })
	}
	_, err = r.Resolve(t.Context(), nil, "env://AWS_SECRET_ACCESS_KEY")
	if !strings.Contains(err.Error(), envPrefix) {
		t.Errorf("the refusal does not say how to allow it: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Resolve(ctx, nil, "env://SHOP_KEY"); codeOf(err) != toolkeep.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
}

// check wants the same answer from Resolve and Check, and no value in an error.
func check(t *testing.T, r *Resolver, p *toolkeep.Principal, ref, value string, code toolkeep.Code) {
	t.Helper()
	got, err := r.Resolve(t.Context(), p, ref)
	if got != value || codeOf(err) != code || (err == nil) != (code == "") {
		t.Fatalf("Resolve(%s) = %q, %v; want %q, %s", ref, got, err, value, code)
	}
	var e *toolkeep.Error
	if errors.As(err, &e) && !e.NothingSent {
		t.Error("NothingSent is not set")
	}
	if ref == "the-secret-itself" && strings.Contains(err.Error(), ref) {
		t.Errorf("the error repeats what may be a secret: %v", err)
	}
	if err := r.Check(t.Context(), p, ref); codeOf(err) != code {
		t.Errorf("Check(%s) = %v, want %s", ref, err, code)
	}
}

func write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func TestFiles(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "secrets")
	write(t, dir+"/acme/token", "tok\n", 0o600)
	write(t, dir+"/acme/sub/crlf", "tok\r\n", 0o644)
	write(t, dir+"/acme/lines", "a\n\n", 0o600)
	write(t, dir+"/acme/open", "tok", 0o666)
	write(t, dir+"/acme/group", "tok", 0o620)
	write(t, dir+"/acme/large", strings.Repeat("x", MaxBytes+1), 0o600)
	write(t, dir+"/acme/full", strings.Repeat("x", MaxBytes), 0o600)
	write(t, dir+"/other/token", "theirs", 0o600)
	write(t, dir+"/_shared/token", "ours", 0o600)
	write(t, dir+"/stray", "stray", 0o600)
	write(t, top+"/secrets-not/acme/token", "outside", 0o600)
	write(t, top+"/outside", "outside", 0o600)
	link := func(target, name string) {
		if err := os.Symlink(target, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	link("token", "acme/inner-link")
	link("../../outside", "acme/escape")
	link(top+"/outside", "acme/absolute")
	link("../other/token", "acme/cross")
	link("other", "linked-tenant")
	link("../..", "acme/up")
	if err := syscall.Mkfifo(dir+"/acme/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	acme := &toolkeep.Principal{Tenant: "acme"}
	tests := []struct {
		name, path, value string
		p                 *toolkeep.Principal
		code              toolkeep.Code
	}{
		{"own", dir + "/acme/token", "tok", acme, ""},
		{"newline of Windows", dir + "/acme/sub/crlf", "tok", acme, ""},
		{"one newline is dropped", dir + "/acme/lines", "a\n", acme, ""},
		{"largest", dir + "/acme/full", strings.Repeat("x", MaxBytes), acme, ""},
		{"shared", dir + "/_shared/token", "ours", acme, ""},
		{"link within", dir + "/acme/inner-link", "tok", acme, ""},
		{"other tenant", dir + "/other/token", "", acme, toolkeep.SecretAccessDenied},
		{"no principal", dir + "/acme/token", "", nil, toolkeep.SecretAccessDenied},
		{"no tenant", dir + "/acme/token", "", &toolkeep.Principal{}, toolkeep.SecretAccessDenied},
		{"outside", top + "/outside", "", acme, toolkeep.SecretAccessDenied},
		{"folder with the same beginning", top + "/secrets-not/acme/token", "", acme, toolkeep.SecretAccessDenied},
		{"passwd", "/etc/passwd", "", acme, toolkeep.SecretAccessDenied},
		{"in no tenant's folder", dir + "/stray", "", acme, toolkeep.SecretAccessDenied},
		{"dots", dir + "/acme/../other/token", "", acme, toolkeep.SecretNotFound},
		{"encoded dots", dir + "/acme/%2e%2e/other/token", "", acme, toolkeep.SecretNotFound},
		{"relative", "acme/token", "", acme, toolkeep.SecretNotFound},
		{"NUL", dir + "/acme/token%00", "", acme, toolkeep.SecretNotFound},
		{"missing", dir + "/acme/none", "", acme, toolkeep.SecretNotFound},
		{"missing below a file", dir + "/acme/token/x", "", acme, toolkeep.SecretNotFound},
		{"missing tenant", dir + "/ghost/x", "", &toolkeep.Principal{Tenant: "ghost"}, toolkeep.SecretNotFound},
		{"link out", dir + "/acme/escape", "", acme, toolkeep.SecretAccessDenied},
		{"absolute link out", dir + "/acme/absolute", "", acme, toolkeep.SecretAccessDenied},
		{"link to another tenant", dir + "/acme/cross", "", acme, toolkeep.SecretAccessDenied},
		{"through a linked folder", dir + "/acme/up/outside", "", acme, toolkeep.SecretAccessDenied},
		{"tenant that is a link", dir + "/linked-tenant/token", "", &toolkeep.Principal{Tenant: "linked-tenant"}, toolkeep.SecretAccessDenied},
		{"writable by all", dir + "/acme/open", "", acme, toolkeep.SecretAccessDenied},
		{"writable by the group", dir + "/acme/group", "", acme, toolkeep.SecretAccessDenied},
		{"too large", dir + "/acme/large", "", acme, toolkeep.SecretRetrievalFailed},
		{"folder", dir + "/acme/sub", "", acme, toolkeep.SecretAccessDenied},
		{"pipe", dir + "/acme/pipe", "", acme, toolkeep.SecretAccessDenied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { check(t, r, tt.p, "file://"+tt.path, tt.value, tt.code) })
	}
	write(t, dir+"/acme/empty", "\n", 0o600)
	if _, err := r.Resolve(t.Context(), acme, "file://"+dir+"/acme/empty"); codeOf(err) != toolkeep.SecretNotFound {
		t.Errorf("empty file: %v", err)
	}
	none, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	check(t, none, acme, "file://"+dir+"/acme/token", "", toolkeep.SecretAccessDenied)
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{EnvPrefix: []string{"*"}}, {EnvPrefix: []string{"**"}}, {EnvPrefix: []string{""}}, {EnvPrefix: []string{"[a"}}, {Dirs: []string{"relative"}}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestAllowed(t *testing.T) {
	const ref = "env://TOOLKEEP_SECRET_A"
	for _, tt := range []struct {
		name string
		p    *toolkeep.Permissions
		ok   bool
	}{
		{"no permissions", nil, true},
		{"no list", &toolkeep.Permissions{}, true},
		{"empty list", &toolkeep.Permissions{Credentials: []string{}}, false},
		{"listed", &toolkeep.Permissions{Credentials: []string{"x", ref}}, true},
		{"another", &toolkeep.Permissions{Credentials: []string{ref + "B"}}, false},
	} {
		err := Allowed(&toolkeep.Manifest{Permissions: tt.p}, ref)
		if (err == nil) != tt.ok || err != nil && codeOf(err) != toolkeep.CredentialDenied {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestSealer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	s, err := OpenSealer(file)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(file)
	if err != nil || fi.Mode().Perm() != 0o600 || fi.Size() != 32 {
		t.Fatalf("the key file is %v, %v", fi, err)
	}
	plain, ctx := []byte("arguments of a call"), []byte("acme/1")
	a, err := s.Seal(plain, ctx)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := s.Seal(plain, ctx)
	if bytes.Equal(a, b) || bytes.Contains(a, plain) || a[0] != sealKeyed {
		t.Error("sealing is not random or not sealing")
	}
	again, err := OpenSealer(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Open(a, ctx); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("Open = %q, %v", got, err)
	}
	if got, err := again.Open(mustSeal(t, s, nil, nil), nil); err != nil || len(got) != 0 {
		t.Errorf("empty: %q, %v", got, err)
	}
	for i := range a {
		broken := bytes.Clone(a)
		broken[i] ^= 1
		if _, err := s.Open(broken, ctx); err == nil {
			t.Fatalf("a change of byte %d goes unseen", i)
		}
	}
	if _, err := s.Open(a, []byte("acme/2")); codeOf(err) != toolkeep.InternalError {
		t.Errorf("another context: %v", err)
	}
	if _, err := s.Open(a[:overhead-1], ctx); err == nil {
		t.Error("a short text is opened")
	}
	other, _ := OpenSealer(file + "2")
	if _, err := other.Open(a, ctx); err == nil {
		t.Error("another key opens it")
	}
	left, _ := filepath.Glob(filepath.Dir(file) + "/.key-*")
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func mustSeal(t *testing.T, s *Sealer, plain, ctx []byte) []byte {
	t.Helper()
	b, err := s.Seal(plain, ctx)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSealerKeyFile(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, content string
		mode          os.FileMode
	}{
		{"readable", strings.Repeat("k", 32), 0o640},
		{"writable", strings.Repeat("k", 32), 0o602},
		{"short", strings.Repeat("k", 31), 0o600},
		{"long", strings.Repeat("k", 33), 0o600},
		{"empty", "", 0o600},
	} {
		write(t, filepath.Join(dir, tt.name), tt.content, tt.mode)
		_, err := OpenSealer(filepath.Join(dir, tt.name))
		if codeOf(err) != toolkeep.SecretRetrievalFailed {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := OpenSealer(filepath.Join(dir, "none", "key")); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Errorf("no folder: %v", err)
	}
}

// TestSealerRace opens one new key file many times at once: all must get the same key.
func TestSealerRace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	sealers := make([]*Sealer, 16)
	var wg sync.WaitGroup
	for i := range sealers {
		wg.Go(func() {
			s, err := OpenSealer(file)
			if err != nil {
				t.Error(err)
			}
			sealers[i] = s
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	sealed := mustSeal(t, sealers[0], []byte("x"), nil)
	for _, s := range sealers {
		if _, err := s.Open(sealed, nil); err != nil {
			t.Fatal(err)
		}
	}
}
