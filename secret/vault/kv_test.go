package vault

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
)

// TestKVPlugin is TestKV in milliseconds, on Vault's KV plugin alone. It adds versions that were deleted, destroyed
// or do not exist yet.
func TestKVPlugin(t *testing.T) {
	url := vaulttest.StartKV(t, "secret=2", "old=1")
	v, err := New(Config{Address: url, Auth: Auth{Token: "the-tests"}, Paths: []string{"secret/data/{tenant}/", "old/shared/"}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(v) })
	put := func(path, body string) { vaulttest.PutKV(t, url, path, body) }
	for _, value := range []string{"first", "second", "third"} {
		put("secret/data/acme/shop", `{"data":{"token":"`+value+`","user":"u"}}`)
	}
	put("secret/data/acme/gone", `{"data":{"token":"deleted-soon"}}`)
	put("secret/data/other/shop", `{"data":{"token":"theirs"}}`)
	put("old/shared/db", `{"user":"u","password":"p"}`)
	put("secret/delete/acme/shop", `{"versions":[2]}`)
	put("secret/destroy/acme/shop", `{"versions":[1]}`)
	put("secret/delete/acme/gone", `{"versions":[1]}`)

	got := want(t, v, acme, "secret/acme/shop#token", "third", "")
	if got.Version != "3" || got.Scope != secret.Organisation {
		t.Errorf("%+v", got)
	}
	for ref, value := range map[string]string{
		"secret/acme/shop?version=3#user:token": "u:third",
		"secret/acme/shop":                      `{"token":"third","user":"u"}`,
		"old/shared/db#password":                "p",
	} {
		want(t, v, acme, ref, value, "")
	}
	for ref, code := range map[string]toolkeep.Code{
		"secret/acme/shop?version=1#token": toolkeep.SecretNotFound, // destroyed
		"secret/acme/shop?version=2#token": toolkeep.SecretNotFound, // deleted
		"secret/acme/shop?version=9#token": toolkeep.SecretNotFound,
		"secret/acme/gone#token":           toolkeep.SecretNotFound,
		"secret/acme/never#token":          toolkeep.SecretNotFound,
		"secret/acme/shop#none":            toolkeep.SecretNotFound,
		"secret/other/shop#token":          toolkeep.SecretAccessDenied,
	} {
		want(t, v, acme, ref, "", code)
	}
	put("secret/undelete/acme/gone", `{"versions":[1]}`)
	want(t, v, acme, "secret/acme/gone#token", "deleted-soon", "")

	// A rotated refresh token is stored as the next version, unless another writer was faster.
	if err := v.Replace(t.Context(), acme, "secret/acme/shop", secret.Value{Version: "3", Scope: secret.Organisation}, []byte(`{"token":"fourth","user":"u"}`)); err != nil {
		t.Fatal(err)
	}
	if got := want(t, v, acme, "secret/acme/shop#token", "fourth", ""); got.Version != "4" {
		t.Errorf("version %s", got.Version)
	}
	_ = v.Replace(t.Context(), acme, "secret/acme/shop", secret.Value{Version: "3", Scope: secret.Organisation}, []byte(`{"token":"late","user":"u"}`))
	want(t, v, acme, "secret/acme/shop#token", "fourth", "")
}

// TestKVForTests: the stand-in for Vault's core refuses as Vault does.
func TestKVForTests(t *testing.T) {
	url := vaulttest.StartKV(t, "secret=2")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, status := range map[string]int{"secret/data/x": 404, "nope/x": 404, "sys/internal/ui/mounts/nope/x": 403} {
		r, err := http.NewRequest(http.MethodGet, url+"/v1/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Vault-Token", "x")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != status || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s: status %d, %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
	}
}
