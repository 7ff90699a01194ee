package toolkeeptest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestVault calls tools whose secrets are in a real Vault: a plain token, an OAuth
// refresh token that is replaced at each use, and both while Vault is down.
func TestVault(t *testing.T) {
	t.Parallel()
	v := vaulttest.Start(t)
	v.Mount("secret", "kv", map[string]string{"version": "2"})
	v.Policy("toolkeep", `path "secret/data/*" { capabilities = ["read", "update"] }`)
	v.EnableAuth("approle")
	role, id := v.AppRole("toolkeep", map[string]any{"token_policies": "toolkeep"})
	tenant := access.System().Tenant
	write := func(path string, data map[string]any) {
		v.Write("secret/data/"+path, map[string]any{"data": data})
	}
	write(tenant+"/crm", map[string]any{"token": "the-token-of-the-crm"})
	write(tenant+"/calendar", map[string]any{"client_id": "c", "client_secret": "the-client's-secret", "refresh_token": "refresh-0"})
	write("other/crm", map[string]any{"token": "not-ours"})

	var mu sync.Mutex
	var sent []string // Authorization of each request
	refresh := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/token" {
			if r.FormValue("refresh_token") != "refresh-"+strconv.Itoa(refresh) {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"error":"invalid_grant"}`)
				return
			}
			refresh++
			fmt.Fprintf(w, `{"access_token":"access-%d","refresh_token":"refresh-%d","expires_in":3600}`, refresh, refresh)
			return
		}
		sent = append(sent, r.Header.Get("Authorization"))
		fmt.Fprintf(w, `{"you_sent":%q}`, r.Header.Get("Authorization"))
	}))
	defer upstream.Close()
	lastSent := func() string {
		mu.Lock()
		defer mu.Unlock()
		return sent[len(sent)-1]
	}
	u, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}

	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{
		"vault.address": v.URL, "vault.ca_file": v.CAFile, "vault.auth": "approle", "vault.role": role, "vault.secret_id": id,
		"vault.paths": "secret/data/{tenant}/",
	}})
	tool := func(name string, auth map[string]any) string {
		list := []any{}
		if auth != nil {
			list = append(list, auth)
		}
		return httpTool(t, name, upstream.URL, port, list, map[string]any{"execution": map[string]any{"kind": "http", "binding": map[string]any{
			"method": "GET", "server": upstream.URL, "path": "/{mode}", "parameters": []any{map[string]any{"name": "mode", "in": "path"}}}}})
	}
	k.Publish(
		tool("crm.get", map[string]any{"type": "bearer", "secret": "vault://secret/" + tenant + "/crm#token"}),
		tool("crm.theirs", map[string]any{"type": "bearer", "secret": "vault://secret/other/crm#token"}),
		tool("calendar.get", map[string]any{"type": "oauth2_refresh", "secret": "vault://secret/" + tenant + "/calendar", "token_url": upstream.URL + "/token"}),
		tool("open.get", nil))
	call := func(name string, code toolkeep.Code) {
		t.Helper()
		res, err := k.Call(name, `{"mode":"x"}`)
		var got toolkeep.Code
		if err != nil {
			got = toolkeep.AsError(err).Code
		} else if res.Error != nil {
			got = res.Error.Code
		}
		if got != code {
			t.Fatalf("%s: %s, %v, %+v; want %q", name, got, err, res, code)
		}
		if text := fmt.Sprintf("%+v %v", res, err); strings.Contains(text, "the-token-of-the-crm") || strings.Contains(text, "access-") {
			t.Errorf("%s shows its credential: %s", name, text)
		}
	}

	call("crm.get", "")
	if got := lastSent(); got != "Bearer the-token-of-the-crm" {
		t.Errorf("sent %q", got)
	}
	call("crm.theirs", toolkeep.SecretAccessDenied)
	write(tenant+"/crm", map[string]any{"token": "the-next-token"}) // the next call uses it
	call("crm.get", "")
	if got := lastSent(); got != "Bearer the-next-token" {
		t.Errorf("sent %q", got)
	}

	call("calendar.get", "")
	call("calendar.get", "")
	if got := lastSent(); got != "Bearer access-1" {
		t.Errorf("sent %q", got)
	}
	kept, err := v.Client().Logical().ReadWithContext(context.Background(), "secret/data/"+tenant+"/calendar")
	if err != nil || kept.Data["data"].(map[string]any)["refresh_token"] != "refresh-1" || kept.Data["data"].(map[string]any)["client_id"] != "c" {
		t.Errorf("Vault holds %v, %v", kept, err)
	}

	v.Kill()
	call("crm.get", toolkeep.SecretRetrievalFailed)
	call("open.get", "") // tools without secrets keep working
	v.Restart()
	call("crm.get", "")

	log := k.Log()
	k.Close()
	for _, secret := range []string{"the-token-of-the-crm", "the-next-token", "the-client's-secret", "refresh-", "access-1", id} {
		if strings.Contains(log+k.Log(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}
