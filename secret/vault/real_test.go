package vault

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

var acme = &toolkeep.Principal{Tenant: "acme", Subject: "ann", Workspace: "sales"}

// open makes a Store on a real server with the token.
func open(t *testing.T, s *vaulttest.Server, token string, change func(*Config)) *Store {
	t.Helper()
	c := Config{Address: s.URL, TLS: TLS{CAFile: s.CAFile}, Auth: Auth{Token: token}, Paths: []string{"secret/data/{tenant}/", "old/shared/"}}
	if change != nil {
		change(&c)
	}
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(v) })
	return v
}

func closeStore(v *Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v.Close(ctx)
}

// want reads a reference and checks the value, or the error code.
func want(t *testing.T, v *Store, p *toolkeep.Principal, ref, value string, code toolkeep.Code) secret.Value {
	t.Helper()
	got, err := v.Read(t.Context(), p, ref)
	if got.Text() != value || codeOf(err) != code {
		t.Errorf("%s: %q, %v with cause %v; want %q, %s", ref, got.Text(), err, errors.Unwrap(err), value, code)
	}
	if e := (*toolkeep.Error)(nil); errors.As(err, &e) && !e.NothingSent {
		t.Errorf("%s: NothingSent is not set", ref)
	}
	return got
}

// token returns the Store's current token.
func token(v *Store) string {
	v.client.mu.Lock()
	defer v.client.mu.Unlock()
	return v.client.session.token
}

func codeOf(err error) toolkeep.Code {
	var e *toolkeep.Error
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		return "?"
	}
	return ""
}

// until polls until ok.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never came to pass: %s", what)
		}
	}
}

// TestKV reads from both versions of the KV engine.
func TestKV(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Mount("old", "kv", map[string]string{"version": "1"})
	put := func(path string, data map[string]any) {
		s.Write("secret/data/"+path, map[string]any{"data": data})
	}
	put("acme/shop", map[string]any{"token": "first", "n": 1})
	put("acme/shop", map[string]any{"token": "second", "n": 12345, "deep": map[string]any{"a": []int{1}}})
	put("acme/one", map[string]any{"any name": "only"})
	put("acme/data/x", map[string]any{"k": "in a folder named data"})
	put("acme/empty", map[string]any{"k": "", "l": nil})
	put("acme/large", map[string]any{"k": strings.Repeat("x", secret.MaxBytes+1)})
	put("other/shop", map[string]any{"token": "theirs"})
	put("acme-not/shop", map[string]any{"token": "theirs"})
	s.Write("old/shared/db", map[string]any{"user": "u", "password": "p"})
	s.Write("old/shared/colon", map[string]any{"a:b": "the field a:b", "b": "z", "d": "p:q"})
	s.Policy("reader", `
path "secret/data/*" { capabilities = ["read"] }
path "old/*" { capabilities = ["read"] }
path "secret/data/acme/closed" { capabilities = ["deny"] }`)
	v := open(t, s, s.Token("", "reader"), nil)

	got := want(t, v, acme, "secret/acme/shop#token", "second", "")
	if got.Version != "2" || got.Store != "vault" || got.Scope != "organisation" {
		t.Errorf("%+v", got)
	}
	if got := want(t, v, acme, "old/shared/db#password", "p", ""); got.Scope != "server" || got.Version != "" {
		t.Errorf("%+v", got)
	}
	for ref, value := range map[string]string{
		"secret/acme/shop?version=1#token": "first",
		"secret/data/acme/shop#token":      "second",
		"secret/acme/shop#n":               "12345",
		"secret/acme/shop#deep":            `{"a":[1]}`,
		"secret/acme/one":                  "only",
		"secret/acme/one#any%20name":       "only",
		"secret/acme/data/x#k":             "in a folder named data",
		"old/shared/db":                    `{"password":"p","user":"u"}`,
		"old/shared/db#user:password":      "u:p",
		"old/shared/colon#a:b":             "the field a:b",
	} {
		want(t, v, acme, ref, value, "")
	}
	for ref, code := range map[string]toolkeep.Code{
		"secret/acme/shop#none":            toolkeep.SecretNotFound,
		"secret/acme/shop?version=9#token": toolkeep.SecretNotFound,
		"secret/acme/none#k":               toolkeep.SecretNotFound,
		"secret/acme/empty#k":              toolkeep.SecretNotFound,
		"secret/acme/empty#l":              toolkeep.SecretNotFound,
		"secret/acme/large#k":              toolkeep.SecretRetrievalFailed,
		"secret/acme/closed#k":             toolkeep.SecretAccessDenied,
		"secret/other/shop#token":          toolkeep.SecretAccessDenied,
		"secret/acme-not/shop#token":       toolkeep.SecretAccessDenied,
		"secret/acme#k":                    toolkeep.SecretAccessDenied,
		"old/shared?version=1#k":           toolkeep.SecretAccessDenied,
		"old/shared/db?version=1#user":     toolkeep.SecretNotFound,
		"old/shared/none#user":             toolkeep.SecretNotFound,
		"old/shared/colon#a:c":             toolkeep.SecretNotFound,
		"old/shared/colon#d:b":             toolkeep.SecretNotFound,
		"old/shared/colon#b:none":          toolkeep.SecretNotFound,
		"old/db#user":                      toolkeep.SecretAccessDenied,
		"sys/health":                       toolkeep.SecretAccessDenied,
		"auth/token/lookup-self#id":        toolkeep.SecretAccessDenied,
	} {
		want(t, v, acme, ref, "", code)
	}
	want(t, v, nil, "secret/acme/shop#token", "", toolkeep.SecretAccessDenied)
	want(t, v, &toolkeep.Principal{Tenant: "other"}, "secret/other/shop#token", "theirs", "")

	for ref, state := range map[string]string{"secret/acme/shop#token": "ready", "secret/acme/none#k": "missing", "old/shared/db#user": "ready"} {
		if st, err := v.Look(t.Context(), acme, ref); err != nil || st.State != state || st.Store != "vault" {
			t.Errorf("Look(%s) = %+v, %v", ref, st, err)
		}
	}

	s.Delete("secret/data/acme/shop") // deletes only the latest version
	want(t, v, acme, "secret/acme/shop#token", "", toolkeep.SecretNotFound)
	want(t, v, acme, "secret/acme/shop?version=1#token", "first", "")
	s.Write("secret/undelete/acme/shop", map[string]any{"versions": []int{2}})
	want(t, v, acme, "secret/acme/shop#token", "second", "")
	put("acme/shop", map[string]any{"token": "third"}) // nothing was cached
	want(t, v, acme, "secret/acme/shop#token", "third", "")
}

// TestReplace writes a rotated refresh token, unless another writer was faster.
func TestReplace(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Mount("old", "kv", map[string]string{"version": "1"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"client_id": "c", "refresh_token": "first"}})
	s.Write("secret/data/acme/read-only", map[string]any{"data": map[string]any{"k": "v"}})
	s.Write("old/shared/x", map[string]any{"k": "v"})
	s.Policy("writer", `
path "secret/data/*" { capabilities = ["read", "update"] }
path "secret/data/acme/read-only" { capabilities = ["read"] }
path "old/*" { capabilities = ["read", "update"] }`)
	v := open(t, s, s.Token("", "writer"), nil)
	old := want(t, v, acme, "secret/acme/x#refresh_token", "first", "")
	if err := v.Replace(t.Context(), acme, "secret/acme/x#refresh_token", old, []byte("second")); err != nil {
		t.Fatal(err)
	}
	whole := want(t, v, acme, "secret/acme/x", `{"client_id":"c","refresh_token":"second"}`, "")
	if err := v.Replace(t.Context(), acme, "secret/acme/x#refresh_token", old, []byte("third")); err != nil { // too late
		t.Fatal(err)
	}
	want(t, v, acme, "secret/acme/x#refresh_token", "second", "")
	if err := v.Replace(t.Context(), acme, "secret/acme/x", whole, []byte(`{"client_id":"c","refresh_token":"fourth"}`)); err != nil {
		t.Fatal(err)
	}
	want(t, v, acme, "secret/acme/x#refresh_token", "fourth", "")
	for ref, value := range map[string]string{"secret/acme/read-only#k": "v", "old/shared/x#k": "v", "secret/acme/x?version=1#refresh_token": "first"} {
		if err := v.Replace(t.Context(), acme, ref, want(t, v, acme, ref, value, ""), []byte("n")); codeOf(err) != toolkeep.SecretAccessDenied {
			t.Errorf("%s: %v", ref, err)
		}
		want(t, v, acme, ref, value, "")
	}
	if err := v.Replace(t.Context(), acme, "secret/acme/x", want(t, v, acme, "secret/acme/x", `{"client_id":"c","refresh_token":"fourth"}`, ""), []byte("no JSON")); codeOf(err) != toolkeep.SecretAccessDenied {
		t.Error(err)
	}
}

// TestMountSettings finds a mount of two segments, by query and by the settings.
func TestMountSettings(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("deep/kv", "kv", map[string]string{"version": "2"})
	s.Write("deep/kv/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "deep/kv/data/acme/x" { capabilities = ["read"] }`)
	token := s.Token("", "reader")
	paths := func(mounts ...string) func(*Config) {
		return func(c *Config) {
			c.Paths, c.Mounts, c.Prefix = []string{"deep/kv/data/{tenant}/"}, mounts, "deep/kv/{tenant}"
		}
	}
	want(t, open(t, s, token, paths()), acme, "deep/kv/acme/x#k", "v", "")
	want(t, open(t, s, token, paths("deep/kv=1")), acme, "deep/kv/acme/x#k", "", toolkeep.SecretAccessDenied) // the settings win
	v := open(t, s, token, paths("deep/kv=2"))
	want(t, v, acme, "deep/kv/acme/x#k", "v", "")
	want(t, v, acme, "./x#k", "v", "")
	want(t, v, acme, "./acme/x#k", "", toolkeep.SecretAccessDenied)
}

// TestPlatformForm reads credentials in the form of Platform 5.1.6.
func TestPlatformForm(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	cred := func(expires string) map[string]any {
		return map[string]any{"data": map[string]any{"credential_type": "api_key", "credential_value": "the value", "expires_at": expires,
			"metadata": map[string]any{"service_name": "x"}}}
	}
	s.Write("secret/data/tool-execution/mail.send/key", cred("2999-01-14T11:00:00Z"))
	s.Write("secret/data/tool-execution/mail.send/old", cred("2001-01-14T11:00:00Z"))
	v := open(t, s, s.Root, func(c *Config) { c.Paths = []string{"secret/data/tool-execution/"} })
	got := want(t, v, acme, "./mail.send/key", "the value", "")
	if got.Expires.Year() != 2999 {
		t.Errorf("expires %s", got.Expires)
	}
	want(t, v, acme, "./mail.send/key#credential_value", "the value", "")
	want(t, v, acme, "./mail.send/key#credential_type", "api_key", "")
	want(t, v, acme, "./mail.send/old", "", toolkeep.SecretAccessDenied)
	if st, err := v.Look(t.Context(), acme, "./mail.send/old"); err != nil || st.State != "expired" || st.Expires.Year() != 2001 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestAppRole logs in, renews, and survives the expiry and the revocation of its tokens.
func TestAppRole(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "secret/data/*" { capabilities = ["read"] }`)
	s.EnableAuth("approle")
	role, id := s.AppRole("toolkeep", map[string]any{"token_policies": "reader", "token_ttl": "2s", "token_max_ttl": "4s"})
	file := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(file, []byte(id+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := open(t, s, "", func(c *Config) { c.Auth = Auth{Method: AppRole, Role: role, SecretIDFile: file} })
	var wg sync.WaitGroup
	for range 20 { // one login for all
		wg.Go(func() { want(t, v, acme, "secret/acme/x#k", "v", "") })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	first := token(v)
	// The token is renewed past its first TTL and replaced after its maximum TTL.
	until(t, "another token", func() bool {
		want(t, v, acme, "secret/acme/x#k", "v", "")
		return token(v) != first
	})
	// The token is revoked from outside.
	s.Write("auth/token/revoke", map[string]any{"token": token(v)})
	want(t, v, acme, "secret/acme/x#k", "v", "")
	// Close revokes our token.
	last := token(v)
	closeStore(v)
	if got := s.Status(last, "auth/token/lookup-self"); got != http.StatusForbidden {
		t.Errorf("after Close the token is answered with %d", got)
	}
	want(t, v, acme, "secret/acme/x#k", "", toolkeep.SecretRetrievalFailed)

	bad := open(t, s, "", func(c *Config) { c.Auth = Auth{Method: AppRole, Role: role, SecretID: "wrong-secret-id"} })
	_, err := bad.Read(t.Context(), acme, "secret/acme/x#k")
	if codeOf(err) != toolkeep.SecretAccessDenied || strings.Contains(fmt.Sprint(err, errors.Unwrap(err)), "wrong-secret-id") {
		t.Errorf("%v because %v", err, errors.Unwrap(err))
	}
}

// TestWrapped logs in with a wrapped secret id.
func TestWrapped(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "secret/data/*" { capabilities = ["read"] }`)
	s.EnableAuth("approle")
	role, _ := s.AppRole("toolkeep", map[string]any{"token_policies": "reader"})
	c := s.Client()
	c.SetWrappingLookupFunc(func(_, path string) string {
		if strings.HasSuffix(path, "/secret-id") {
			return "5m"
		}
		return ""
	})
	wrapped := s.Write("auth/approle/role/toolkeep/secret-id", nil)
	v := open(t, s, "", func(c *Config) {
		c.Auth = Auth{Method: AppRole, Role: role, SecretID: wrapped.WrapInfo.Token, Wrapped: true}
	})
	want(t, v, acme, "secret/acme/x#k", "v", "")
}

// TestTokenFile rereads a token when its file changes.
func TestTokenFile(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "secret/data/*" { capabilities = ["read"] }`)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := s.Token("1h", "reader")
	write(first)
	v := open(t, s, "", func(c *Config) { c.Auth = Auth{TokenFile: file} })
	want(t, v, acme, "secret/acme/x#k", "v", "")
	s.Write("auth/token/revoke", map[string]any{"token": first})
	want(t, v, acme, "secret/acme/x#k", "", toolkeep.SecretAccessDenied)
	write(s.Token("1h", "reader"))
	want(t, v, acme, "secret/acme/x#k", "v", "")
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	write(s.Token("30m", "reader") + " ")
	want(t, v, acme, "secret/acme/x#k", "", toolkeep.SecretRetrievalFailed)
	closeStore(v) // Close does not revoke a token from the settings
	if got := s.Status(s.Root, "auth/token/lookup-self"); got != http.StatusOK {
		t.Errorf("%d", got)
	}
}

// TestTokenRenewed keeps a short-lived token alive.
func TestTokenRenewed(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "secret/data/*" { capabilities = ["read"] }`)
	began := time.Now()
	v := open(t, s, s.Token("6s", "reader"), nil) // renewed after 4 s, which leaves a busy machine 2 s
	until(t, "8 s have passed", func() bool {
		want(t, v, acme, "secret/acme/x#k", "v", "")
		return time.Since(began) > 8*time.Second
	})
}

// TestKubernetes logs in with a pod's token, which a token review on loopback confirms.
func TestKubernetes(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "secret/data/*" { capabilities = ["read"] }`)
	var reviews sync.Map
	review := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 64<<10)
		n, _ := r.Body.Read(body)
		reviews.Store(r.URL.Path, string(body[:n]))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"audiences":["vault"],"user":{"username":"system:serviceaccount:tools:toolkeep","uid":"u-1"}}}`)
	}))
	defer review.Close()
	s.EnableAuth("kubernetes")
	s.Write("auth/kubernetes/config", map[string]any{"kubernetes_host": review.URL, "disable_local_ca_jwt": true, "disable_iss_validation": true,
		"token_reviewer_jwt": "the-reviewer"})
	s.Write("auth/kubernetes/role/toolkeep", map[string]any{"bound_service_account_names": "toolkeep", "bound_service_account_namespaces": "tools",
		"audience": "vault", "token_policies": "reader", "token_ttl": "1h"})
	part := func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte(v)) }
	jwt := part(`{"alg":"RS256","typ":"JWT"}`) + "." + part(fmt.Sprintf(`{"iss":"kubernetes/serviceaccount","aud":["vault"],"nbf":1,"iat":1,"exp":%d,"sub":"system:serviceaccount:tools:toolkeep",`+
		`"kubernetes.io":{"namespace":"tools","serviceaccount":{"name":"toolkeep","uid":"u-1"}}}`, time.Now().Add(time.Hour).Unix())) + "." + part(strings.Repeat("s", 256))
	file := filepath.Join(t.TempDir(), "jwt")
	if err := os.WriteFile(file, []byte(jwt+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := open(t, s, "", func(c *Config) { c.Auth = Auth{Method: Kubernetes, JWTFile: file} }) // the role's default name
	got, err := v.Read(t.Context(), acme, "secret/acme/x#k")
	if got.Text() != "v" {
		t.Fatalf("%q, %v because %v", got.Text(), err, errors.Unwrap(err))
	}
	if body, ok := reviews.Load("/apis/authentication.k8s.io/v1/tokenreviews"); !ok || !strings.Contains(body.(string), jwt) {
		t.Errorf("the token review saw %v", body)
	}
	other := open(t, s, "", func(c *Config) { c.Auth = Auth{Method: Kubernetes, JWTFile: file, Role: "none"} })
	want(t, other, acme, "secret/acme/x#k", "", toolkeep.SecretAccessDenied)
}

// TestDatabase makes PostgreSQL users for calls and revokes them with the calls.
func TestDatabase(t *testing.T) {
	db := pgtest.Start(t)
	s := vaulttest.Start(t)
	s.Mount("database", "database", nil)
	s.Write("database/config/shop", map[string]any{"plugin_name": "postgresql-database-plugin", "allowed_roles": "*",
		"connection_url": fmt.Sprintf("postgresql://{{username}}:{{password}}@127.0.0.1:%d/postgres?sslmode=disable", db.Port),
		"username":       "postgres", "password": "none"})
	s.Write("database/roles/acme-ro", map[string]any{"db_name": "shop", "default_ttl": "4s", "max_ttl": "10m",
		"creation_statements": []string{`CREATE ROLE "{{name}}" WITH LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}';`}})
	s.Policy("maker", `
path "database/creds/acme-ro" { capabilities = ["read"] }
path "sys/leases/renew" { capabilities = ["update"] }
path "sys/leases/revoke" { capabilities = ["update"] }`)
	v := open(t, s, s.Token("1h", "maker"), func(c *Config) { c.Paths = []string{"database/creds/{tenant}-ro", "database/creds/none"} })

	admin, err := pgx.Connect(t.Context(), fmt.Sprintf("host=127.0.0.1 port=%d user=postgres database=postgres sslmode=disable", db.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	users := func() int {
		var n int
		if err := admin.QueryRow(context.Background(), `select count(*) from pg_roles where rolname like 'v-%'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	if st, err := v.Look(t.Context(), acme, "database/creds/acme-ro"); err != nil || st.State != "ready" || users() != 0 {
		t.Fatalf("Look = %+v, %v, and %d users were made", st, err, users())
	}
	if _, err := v.Look(t.Context(), acme, "database/creds/none"); codeOf(err) != toolkeep.SecretAccessDenied {
		t.Errorf("Look without a right: %v", err)
	}

	ctx, end := context.WithCancel(t.Context())
	defer end()
	whole, err := v.Read(ctx, acme, "database/creds/acme-ro")
	if err != nil {
		t.Fatalf("%v because %v", err, errors.Unwrap(err))
	}
	if whole.Expires.IsZero() || !whole.Leased || !strings.HasPrefix(whole.Text(), `{"password":"`) || !strings.Contains(whole.Text(), `"username":"v-`) {
		t.Errorf("%+v %s", whole, whole.Text())
	}
	both, err := v.Read(ctx, acme, "database/creds/acme-ro#username:password")
	if user, password, ok := strings.Cut(both.Text(), ":"); err != nil || !ok {
		t.Fatalf("%q, %v", both.Text(), err)
	} else if conn, err := pgx.Connect(t.Context(), fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s database=postgres sslmode=disable", db.Port, user, password)); err != nil {
		t.Errorf("the credential does not log in: %v", err)
	} else if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	began := time.Now()
	until(t, "more than the lease's first length", func() bool { // it is renewed while the call lasts
		if users() != 2 {
			t.Fatalf("%d users after %s", users(), time.Since(began))
		}
		return time.Since(began) > 6*time.Second
	})
	end()
	until(t, "the user is gone", func() bool { return users() == 0 })
	if n := v.leases.len(); n != 0 {
		t.Errorf("%d leases are held", n)
	}

	// A lease does not outlive the call's deadline by more than its grace.
	s.Write("database/roles/acme-ro", map[string]any{"db_name": "shop", "default_ttl": "1h", "max_ttl": "24h",
		"creation_statements": []string{`CREATE ROLE "{{name}}" WITH LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}';`}})
	short, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	value, err := v.Read(short, acme, "database/creds/acme-ro#username")
	if err != nil || time.Until(value.Expires) > time.Minute {
		t.Fatalf("%+v, %v", value, err)
	}
	until(t, "the lease is cut", func() bool {
		leases, err := s.Client().Logical().List("sys/leases/lookup/database/creds/acme-ro")
		if err != nil || leases == nil {
			t.Fatal(err)
		}
		for _, id := range leases.Data["keys"].([]any) {
			l, err := s.Client().Sys().Lookup("database/creds/acme-ro/" + id.(string))
			if err != nil {
				return false
			}
			if ttl, err := l.Data["ttl"].(interface{ Int64() (int64, error) }).Int64(); err == nil && ttl > 0 && ttl <= 30 {
				return true
			}
		}
		return false
	})

	// Close revokes the rest.
	if _, err := v.Read(t.Context(), acme, "database/creds/acme-ro#password"); err != nil {
		t.Fatal(err)
	}
	if users() != 2 {
		t.Errorf("%d users", users())
	}
	closeStore(v)
	if users() != 0 {
		t.Errorf("%d users are left by Close", users())
	}
}

// TestTransit seals with Vault's keys.
func TestTransit(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("transit", "transit", nil)
	s.Write("transit/keys/toolkeep", nil)
	s.Policy("sealer", `
path "transit/datakey/plaintext/toolkeep" { capabilities = ["update"] }
path "transit/decrypt/toolkeep" { capabilities = ["update"] }`)
	token := s.Token("1h", "sealer")
	v := open(t, s, token, nil)
	seal, err := v.Transit("", "toolkeep")
	if err != nil {
		t.Fatal(err)
	}
	plain, ctx := []byte("arguments of a call"), []byte("acme/1")
	sealed, err := seal.Seal(plain, ctx)
	if err != nil {
		t.Fatal(err)
	}
	again, err := seal.Seal(plain, ctx)
	if err != nil || bytes.Equal(sealed, again) || bytes.Contains(sealed, plain) {
		t.Fatalf("%v", err)
	}
	s.Write("transit/keys/toolkeep/rotate", nil)
	other, err := open(t, s, token, nil).Transit("transit/", "toolkeep") // another node, later
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{sealed, again} {
		if got, err := other.Open(b, ctx); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if _, err := other.Open(sealed, []byte("acme/2")); codeOf(err) != toolkeep.InternalError {
		t.Errorf("another context: %v", err)
	}
	for i := range sealed {
		broken := slices.Clone(sealed)
		broken[i] ^= 1
		if _, err := other.Open(broken, ctx); err == nil {
			t.Fatalf("a change of byte %d goes unseen", i)
		}
	}
	missing, err := v.Transit("", "none")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := missing.Seal(plain, ctx); codeOf(err) != toolkeep.SecretAccessDenied {
		t.Errorf("a key that is not there: %v", err)
	}
	// One data key seals many values; unwrapped keys work without Vault.
	s.Kill()
	kept, err := seal.Seal(plain, ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Open(kept, ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := missing.Seal(plain, ctx); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Errorf("without Vault: %v", err)
	}
}

// TestDown loses Vault and finds it again.
func TestDown(t *testing.T) {
	s := vaulttest.Start(t)
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	v := open(t, s, s.Root, nil)
	want(t, v, acme, "secret/acme/x#k", "v", "")
	if err := v.Health(t.Context()); err != nil {
		t.Error(err)
	}
	s.Kill()
	want(t, v, acme, "secret/acme/x#k", "", toolkeep.SecretRetrievalFailed)
	if err := v.Health(t.Context()); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Error(err)
	}
	s.Restart()
	want(t, v, acme, "secret/acme/x#k", "v", "")
	s.Seal()
	want(t, v, acme, "secret/acme/x#k", "", toolkeep.SecretRetrievalFailed)
	if err := v.Health(t.Context()); codeOf(err) != toolkeep.SecretRetrievalFailed || !strings.Contains(err.Error(), "sealed") {
		t.Error(err)
	}
}

// TestTLS trusts only the configured CA.
func TestTLS(t *testing.T) {
	s := vaulttest.Start(t)
	for name, change := range map[string]func(*Config){
		"the system's authorities": func(c *Config) { c.TLS.CAFile = "" },
		"another name":             func(c *Config) { c.TLS.ServerName = "other.test" },
	} {
		v := open(t, s, s.Root, change)
		if err := v.Health(t.Context()); codeOf(err) != toolkeep.SecretRetrievalFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
	v := open(t, s, s.Root, func(c *Config) { c.TLS.ServerName = "vault.test" })
	if err := v.Health(t.Context()); err != nil {
		t.Errorf("%v because %v", err, errors.Unwrap(err))
	}
}
