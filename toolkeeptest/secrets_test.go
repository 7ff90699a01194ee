package toolkeeptest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// keyShop is an upstream that requires a key and returns it in every encoding.
type keyShop struct {
	*httptest.Server
	mu     sync.Mutex
	want   string   // "" accepts any
	refuse int      // number of requests to answer with 401, whatever they send
	got    []string // received keys, in order
}

func newKeyShop(t *testing.T) *keyShop {
	k := &keyShop{}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		key := r.Header.Get("X-Key")
		k.got = append(k.got, key)
		w.Header().Set("Content-Type", "application/json")
		if k.refuse > 0 || k.want != "" && key != k.want {
			k.refuse--
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"the key %s is not good"}`, key)
			return
		}
		_, _ = w.Write([]byte(spill(key)))
	}))
	t.Cleanup(k.Close)
	return k
}

// set changes the required key and clears the received ones.
func (k *keyShop) set(want string, refuse int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.want, k.refuse, k.got = want, refuse, nil
}

func (k *keyShop) keys() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.got, " ")
}

func (k *keyShop) tool(t *testing.T, id, secret string, more map[string]any) string {
	port := k.Listener.Addr().String()
	port = port[strings.LastIndexByte(port, ':')+1:]
	var n int
	fmt.Sscan(port, &n)
	all := map[string]any{"execution": map[string]any{"kind": "http", "timeout_ms": 5000, "binding": map[string]any{
		"method": "GET", "server": k.URL, "path": "/{mode}", "parameters": []any{map[string]any{"name": "mode", "in": "path"}}}}}
	for name, v := range more {
		all[name] = v
	}
	return httpTool(t, id, k.URL, n, []any{map[string]any{"type": "api_key", "in": "header", "name": "X-Key", "secret": secret}}, all)
}

// secret sets a secret over REST and expects success.
func (c *client) secret(name, value string, more ...string) {
	c.t.Helper()
	extra := ""
	for _, m := range more {
		extra += "," + m
	}
	if a := c.do("PUT", "/api/v1/secrets/"+name, `{"value":`+jsonOf(value)+extra+`}`); a.status != 200 {
		c.t.Fatalf("the secret %s: %s", name, a)
	}
}

// succeeded reports whether a call succeeded.
func (a answer) succeeded() bool {
	var r struct{ Status string }
	return json.Unmarshal([]byte(a.body), &r) == nil && r.Status == "success"
}

// TestSecrets sets a secret over REST, calls with it, rotates it, has it refused once
// and permanently, and then searches all output for every value.
func TestSecrets(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	secrets := []*hidden{
		{name: "organisation", value: "org-Zk41SecretCore9x/+&", cores: []string{"Zk41SecretCore9x"}},
		{name: "workspace", value: "wsp-Rm72SecretCore5y\"<é", cores: []string{"Rm72SecretCore5y"}},
		{name: "user", value: "usr-Vb93SecretCore2z%3D", cores: []string{"Vb93SecretCore2z"}},
		{name: "next", value: "new-Hn64SecretCore3v", cores: []string{"Hn64SecretCore3v"}},
		{name: "foreign", value: "far-Tq58SecretCore7w", cores: []string{"Tq58SecretCore7w"}},
	}
	org, workspace, user, next, foreign := secrets[0].value, secrets[1].value, secrets[2].value, secrets[3].value, secrets[4].value
	dir := filepath.Join(t.TempDir(), "data")
	k := toolkeeptest.Open(t, dir)
	out := &outputs{}
	sees := func(c *client) *client { c.seen = out.add; return c }
	root := sees(admin(t, k))
	k.Publish(up.tool(t, "shop.read", "secret://shop", nil), up.tool(t, "shop.write", "secret://shop", map[string]any{"side_effects": "writes"}))
	bob := sees(as(t, k, k.Key("default", "bob", "agent")))
	ann := sees(as(t, k, k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "ann", Roles: []string{"agent"}, Workspace: "billing"})))
	other := sees(as(t, k, k.Key("acme", "bob", "admin")))
	read := func(c *client, want string) {
		t.Helper()
		up.set("", 0)
		a := c.call("shop.read", `{"mode":"x"}`)
		if !a.succeeded() || up.keys() != want || !strings.Contains(a.body, `"secrets":[{"secret_hash":"`) {
			t.Fatalf("sent %q, want %q: %s", up.keys(), want, a.body[:min(len(a.body), 500)])
		}
	}

	a := bob.call("shop.read", `{"mode":"x"}`)
	a.refused(t, toolkeep.SecretNotFound)
	if s := authOf(t, bob, "shop.read"); s["state"] != "missing" {
		t.Errorf("before it is set: %v", s)
	}

	// The scopes, in order of precedence.
	root.secret("shop", org, `"scope":"organisation"`)
	read(bob, org)
	read(ann, org)
	root.secret("shop", workspace, `"scope":"workspace","workspace":"billing"`)
	read(bob, org)
	read(ann, workspace)
	ann.secret("shop", user)
	read(ann, user)
	read(bob, org)
	for c, scope := range map[*client]string{bob: "organisation", ann: "user"} {
		if s := authOf(t, c, "shop.read"); s["state"] != "ready" || s["scope"] != scope || s["checked"] != true {
			t.Errorf("the tool stands as %v, want %s", s, scope)
		}
		if s := c.do("POST", "/api/v1/secrets/test", `{"reference":"shop"}`); !strings.Contains(s.body, `"scope":"`+scope+`"`) || !strings.Contains(s.body, `"state":"ready"`) {
			t.Errorf("the test says %s", s)
		}
	}
	if a := ann.do("DELETE", "/api/v1/secrets/shop", ""); a.status != 204 {
		t.Errorf("deleting one's own: %s", a)
	}
	read(ann, workspace)

	// Tenants are separate, and so are rights.
	other.call("shop.read", `{"mode":"x"}`).refused(t, toolkeep.SecretNotFound)
	other.secret("shop", foreign, `"scope":"organisation"`)
	read(other, foreign)
	read(bob, org)
	if a := other.do("GET", "/api/v1/secrets", ""); strings.Count(a.body, `"name"`) != 1 {
		t.Errorf("the other tenant sees %s", a)
	}
	for _, body := range []string{`{"value":"x","scope":"organisation"}`, `{"value":"x","scope":"workspace","workspace":"billing"}`, `{"value":"x","user":"ann"}`} {
		bob.do("PUT", "/api/v1/secrets/shop", body).refused(t, toolkeep.PermissionDenied)
	}
	bob.do("DELETE", "/api/v1/secrets/shop?scope=organisation", "").refused(t, toolkeep.PermissionDenied)
	bob.do("POST", "/api/v1/secrets/test", `{"reference":"shop","user":"ann"}`).refused(t, toolkeep.PermissionDenied)
	bob.do("POST", "/api/v1/secrets/test", `{"reference":"env://PATH"}`).refused(t, toolkeep.PermissionDenied)
	bob.do("POST", "/api/v1/secrets/rotate", `{}`).refused(t, toolkeep.PermissionDenied)
	other.do("POST", "/api/v1/secrets/rotate", `{}`).refused(t, toolkeep.PermissionDenied)
	for _, body := range []string{`{"value":""}`, `{"value":` + jsonOf(org+strings.Repeat("x", 64<<10)) + `}`, `{"value":"a\u0000b"}`, `{"value":"x","scope":"all"}`, `{"value":"x","expires_at":"2020-01-01T00:00:00Z"}`} {
		if a := root.do("PUT", "/api/v1/secrets/shop", body); a.status != 400 && a.status != 422 {
			t.Errorf("%.40s gave %d", body, a.status)
		}
	}
	// Faults of a body are reported without quoting it.
	for _, body := range []string{`{"value":[` + jsonOf(foreign) + `]}`, `{"valve":` + jsonOf(foreign) + `}`, `{"value":` + jsonOf(foreign) + `,"scope":` + jsonOf(foreign) + `}`, `{"value":` + jsonOf(foreign),
		`{"value":"x","value":` + jsonOf(foreign) + `}`} {
		if a := root.do("PUT", "/api/v1/secrets/shop", body); a.status < 400 {
			t.Errorf("%s gave %d", body, a.status)
		}
	}
	for _, name := range []string{"UPPER", "-a", "a%2Fb", "a%20b", strings.Repeat("a", 129)} {
		if a := root.do("PUT", "/api/v1/secrets/"+name, `{"value":"x"}`); a.status < 400 {
			t.Errorf("the name %s gave %d", name, a.status)
		}
	}

	// The very next call uses the new value, and the change is reported and counted.
	root.secret("shop", next, `"scope":"organisation"`)
	read(bob, next)
	if a := root.do("GET", "/api/v1/secrets", ""); !strings.Contains(a.body, `"version":2`) || !strings.Contains(a.body, `"tools":["shop.read","shop.write"]`) {
		t.Errorf("the list is %s", a)
	}

	// Refused once: fetched again and sent once more, also by a tool that writes.
	for _, tool := range []string{"shop.read", "shop.write"} {
		up.set("", 1)
		if a := bob.call(tool, `{"mode":"x"}`); !a.succeeded() || up.keys() != next+" "+next {
			t.Errorf("%s sent %q: %.300s", tool, up.keys(), a.body)
		}
		// Refused permanently: one retry, no third attempt.
		up.set("none of them", 0)
		a := bob.call(tool, `{"mode":"x"}`)
		if a.succeeded() || !strings.Contains(a.body, "E3402") || up.keys() != next+" "+next {
			t.Errorf("%s sent %q: %.300s", tool, up.keys(), a.body)
		}
	}

	// An expired secret does not fall back to a broader scope.
	bob.secret("shop", user, `"expires_at":`+jsonOf(time.Now().Add(1200*time.Millisecond).UTC().Format(time.RFC3339Nano)))
	within(t, 10*time.Second, "the secret expires", func() bool { return authOf(t, bob, "shop.read")["state"] == "expired" })
	bob.call("shop.read", `{"mode":"x"}`).refused(t, toolkeep.SecretNotFound)

	metrics := getText(t, k.MetricsURL())
	for _, line := range []string{`tool_secret_rotation_total{status="success"} 1`, `tool_secret_rotation_total{status="picked_up"} `, `tool_secret_rotation_total{status="failure"} 0`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	out.named("metrics", metrics)
	k.Close()
	out.named("log", k.Log())
	dump(t, filepath.Join(dir, "toolkeep.db"), out)
	wantEvents(t, out)
	for range 100 { // search needs many
		out.add("")
	}
	out.search(t, secrets, k.AdminKey)
}

// wantEvents checks that uses and rotations have events.
func wantEvents(t *testing.T, out *outputs) {
	t.Helper()
	all := map[string]bool{}
	for _, o := range out.all {
		for _, trace := range []string{"ai.agent.tool.secret.accessed", "ai.agent.tool.secret.rotated", `"scope":"workspace"`, `"error_code":"E3401"`, `"previous_version":"1"`} {
			if strings.HasPrefix(o.where, "table ") && strings.Contains(o.text, trace) {
				all[trace] = true
			}
		}
	}
	if len(all) != 5 {
		t.Errorf("of the events there are %v", all)
	}
}

// authOf returns a tool's authentication state for the caller; the list and the
// description must agree.
func authOf(t *testing.T, c *client, tool string) map[string]any {
	t.Helper()
	var list struct {
		Tools []struct {
			ToolID         string         `json:"tool_id"`
			Authentication map[string]any `json:"authentication"`
		}
	}
	if err := json.Unmarshal([]byte(c.do("GET", "/api/v1/tools?namespace="+tool[:strings.IndexByte(tool, '.')], "").body), &list); err != nil {
		t.Fatal(err)
	}
	var one struct {
		Authentication map[string]any `json:"authentication"`
	}
	if err := json.Unmarshal([]byte(c.do("GET", "/api/v1/tools/"+tool, "").body), &one); err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Tools {
		if s.ToolID == tool {
			if fmt.Sprint(s.Authentication) != fmt.Sprint(one.Authentication) {
				t.Logf("the list says %v and the tool %v", s.Authentication, one.Authentication)
			}
			return s.Authentication
		}
	}
	t.Fatalf("%s is not listed", tool)
	return nil
}

func getText(t *testing.T, url string) string {
	t.Helper()
	k := &client{t: t, url: url, http: http.DefaultClient}
	return k.do("GET", "", "").body
}

// TestSecretOfAWaitingCall: the caller's workspace is stored with the call.
func TestSecretOfAWaitingCall(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	k := toolkeeptest.New(t)
	k.Publish(up.tool(t, "shop.read", "secret://shop", nil))
	admin(t, k).secret("shop", "of-the-workspace-1", `"scope":"workspace","workspace":"billing"`)
	ann := as(t, k, k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "ann", Roles: []string{"agent"}, Workspace: "billing"}))
	a := ann.call("shop.read", `{"mode":"x"}`, `"execution_options":{"async_mode":true}`)
	if a.status >= 300 {
		t.Fatal(a)
	}
	within(t, 10*time.Second, "the call runs", func() bool { return up.keys() == "of-the-workspace-1" })
}

// TestSealKeyRotation rotates the seal key, then removes the old one.
func TestSealKeyRotation(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	dir := filepath.Join(t.TempDir(), "data")
	k := toolkeeptest.Open(t, dir)
	k.Publish(up.tool(t, "shop.read", "secret://shop", nil))
	root := admin(t, k)
	root.secret("shop", "before-the-rotation", `"scope":"organisation"`)
	root.secret("other", "another-one", `"scope":"organisation"`)
	if a := root.do("PUT", "/api/v1/context/agent/bob/tool/shop.read", `{"session_context":{"project":"p"}}`); a.status >= 300 {
		t.Fatal(a)
	}
	root.auditKey()
	a := root.do("POST", "/api/v1/secrets/rotate", `{"new_key":true}`)
	if a.status != 200 || !strings.Contains(a.body, `"keys":2,"resealed":4,"unchanged":0,"failed":0`) {
		t.Fatalf("the rotation: %s", a)
	}
	if a := root.do("POST", "/api/v1/secrets/rotate", `{}`); !strings.Contains(a.body, `"resealed":0,"unchanged":4,"failed":0`) {
		t.Errorf("once more: %s", a)
	}
	k.Close()
	// No stored data needs the old key.
	file := filepath.Join(dir, "seal.key")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keys := strings.Fields(string(raw))
	if len(keys) != 2 {
		t.Fatalf("the file has %d keys", len(keys))
	}
	// The keys may also come from the environment.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	k = toolkeeptest.Open(t, dir, toolkeeptest.Option{Environ: []string{"TOOLKEEP_SEAL_KEY=" + keys[0]}})
	k.AdminKey = strings.TrimSpace(readText(t, filepath.Join(dir, "admin.key")))
	root = admin(t, k)
	if a := root.call("shop.read", `{"mode":"x"}`); !a.succeeded() || up.keys() != "before-the-rotation" {
		t.Errorf("with the new key alone %q was sent: %.300s", up.keys(), a.body)
	}
	root.do("POST", "/api/v1/secrets/rotate", `{"new_key":true}`).refused(t, toolkeep.SecretRetrievalFailed)
	if _, err := os.Stat(file); err == nil {
		t.Error("a key file was made beside the keys of the environment")
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestSealKeyRotationEndsHalfWay stops a rotation after its first item: everything is
// readable, by the running node and after a restart, and a second rotation completes
// it.
func TestSealKeyRotationEndsHalfWay(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	dir := filepath.Join(t.TempDir(), "data")
	died := make(chan struct{})
	hang := make(chan struct{})
	var once sync.Once
	k := toolkeeptest.Open(t, dir, toolkeeptest.Option{Options: node.Options{Hook: func(point, _ string) {
		if point == "resealed" {
			once.Do(func() { close(died); <-hang })
		}
	}}})
	root := admin(t, k)
	var tools []string
	for i := range 5 {
		name := fmt.Sprintf("s%d", i)
		tools = append(tools, up.tool(t, "shop."+name, "secret://"+name, nil))
		root.secret(name, "value-of-"+name, `"scope":"organisation"`)
	}
	k.Publish(tools...)
	all := func(root *client) {
		t.Helper()
		for i := range 5 {
			up.set("", 0)
			if a := root.call(fmt.Sprintf("shop.s%d", i), `{"mode":"x"}`); !a.succeeded() || up.keys() != fmt.Sprintf("value-of-s%d", i) {
				t.Errorf("secret %d sent %q: %.300s", i, up.keys(), a.body)
			}
		}
	}
	rotated := make(chan struct{})
	go func() {
		defer close(rotated)
		_, _ = root.try(t.Context(), "POST", "/api/v1/secrets/rotate", `{"new_key":true}`)
	}()
	<-died
	all(root) // halfway
	// A copy of the directory equals what a kill leaves at this moment.
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	close(hang)
	<-rotated
	if err := os.Chmod(filepath.Join(copied, "seal.key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(copied, "server.json")); err != nil {
		t.Fatal(err)
	}
	second := toolkeeptest.Open(t, copied)
	second.AdminKey = k.AdminKey
	root = admin(t, second)
	all(root)
	if a := root.do("POST", "/api/v1/secrets/rotate", `{}`); !strings.Contains(a.body, `"failed":0`) || strings.Contains(a.body, `"resealed":0`) {
		t.Errorf("finishing it: %s", a)
	}
	all(root)
}

// TestSecretsOnNodes: a secret set or changed on one node is used by the very next call
// on another.
func TestSecretsOnNodes(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	nodes := cluster(t, 2)
	key := nodes[0].Key("default", "operator", "admin")
	a, b := as(t, nodes[0], key), as(t, nodes[1], key)
	nodes[1].AwaitKey("default", key)
	nodes[0].Publish(up.tool(t, "shop.read", "secret://shop", nil))
	within(t, 5*time.Second, "the tool is known", func() bool { return b.do("GET", "/api/v1/tools/shop.read", "").status == 200 })
	for i := range 5 {
		value := fmt.Sprintf("value-number-%d", i)
		a.secret("shop", value)
		up.set("", 0)
		if got := b.call("shop.read", `{"mode":"x"}`); !got.succeeded() || up.keys() != value {
			t.Fatalf("the other node sent %q, want %q: %.300s", up.keys(), value, got.body)
		}
	}
}

// TestSecretInMCPLists: tools/list reports the tools' authentication state beside the
// definition.
func TestSecretInMCPLists(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	k := toolkeeptest.New(t)
	k.Publish(up.tool(t, "shop.read", "secret://shop", nil))
	root := admin(t, k)
	list := func() map[string]any {
		t.Helper()
		a := root.do("POST", "/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
		var answer struct {
			Result struct {
				Tools []struct {
					Name string
					Meta map[string]map[string]any `json:"_meta"`
				}
			}
		}
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
			t.Fatalf("%v: %s", err, a)
		}
		for _, tool := range answer.Result.Tools {
			if tool.Name == "shop__read" {
				return tool.Meta["toolkeep/authentication"]
			}
		}
		t.Fatalf("the tool is not listed: %s", a)
		return nil
	}
	if s := list(); s["state"] != "missing" {
		t.Errorf("before: %v", s)
	}
	root.secret("shop", "a-value-that-is-set")
	if s := list(); s["state"] != "ready" || s["scope"] != "user" {
		t.Errorf("after: %v", s)
	}
}

// TestRefreshTokenIsKept: a refresh token replaced by the OAuth server is stored in the
// scope it came from.
func TestRefreshTokenIsKept(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	refresh, access, n := "refresh-token-0", "", 0
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("refresh_token") != refresh {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		n++
		refresh, access = fmt.Sprintf("refresh-token-%d", n), fmt.Sprintf("access-token-%d", n)
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600,"refresh_token":%q}`, access, refresh)
	}))
	t.Cleanup(issuer.Close)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+access {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	t.Cleanup(api.Close)
	dir := filepath.Join(t.TempDir(), "data")
	k := toolkeeptest.Open(t, dir)
	port := func(s *httptest.Server) map[string]any {
		var n int
		addr := s.Listener.Addr().String()
		fmt.Sscan(addr[strings.LastIndexByte(addr, ':')+1:], &n)
		return map[string]any{"host": "127.0.0.1", "port": n}
	}
	k.Publish(httpTool(t, "api.read", api.URL, 0, []any{map[string]any{"type": "oauth2_refresh", "secret": "secret://api", "token_url": issuer.URL + "/token"}},
		map[string]any{"permissions": map[string]any{"network": []any{port(issuer), port(api)}},
			"execution": map[string]any{"kind": "http", "binding": map[string]any{"method": "GET", "server": api.URL, "path": "/"}}}))
	root := admin(t, k)
	root.secret("api", `{"client_id":"us","client_secret":"client-secret-1","refresh_token":"refresh-token-0"}`, `"scope":"organisation"`)
	for range 2 {
		if a := root.call("api.read", `{"mode":"x"}`); !a.succeeded() {
			t.Fatal(a)
		}
	}
	if a := root.do("GET", "/api/v1/secrets", ""); !strings.Contains(a.body, `"version":2`) || !strings.Contains(a.body, `"scope":"organisation"`) {
		t.Errorf("the secret was not replaced: %s", a)
	}
	// After a restart only the new refresh token works.
	k.Close()
	k = toolkeeptest.Open(t, dir)
	k.AdminKey = strings.TrimSpace(readText(t, filepath.Join(dir, "admin.key")))
	if a := admin(t, k).call("api.read", `{"mode":"x"}`); !a.succeeded() {
		t.Errorf("after the restart: %s", a)
	}
	mu.Lock()
	defer mu.Unlock()
	if n != 2 {
		t.Errorf("%d tokens were minted", n)
	}
}

// TestSealKeyFromEnvironment: with the key in the environment no file is created.
func TestSealKeyFromEnvironment(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	k := toolkeeptest.New(t, toolkeeptest.Option{Environ: []string{"TOOLKEEP_SEAL_KEY=" + key}})
	admin(t, k).secret("a", "value")
	if _, err := os.Stat(filepath.Join(k.Dir, "seal.key")); err == nil {
		t.Error("a key file was made")
	}
}

// TestVaultIsDown: an unresponsive Vault degrades the node and refuses the calls that
// need it; other calls and the lists are unaffected.
func TestVaultIsDown(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	address, _ := closedPort(t)
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"vault.address": address, "vault.token": "root-token-of-the-test", "vault.paths": "secret/data/{tenant}/", "vault.mounts": "secret=2"}})
	k.Publish(up.tool(t, "far.read", "vault://secret/default/shop#key", nil), up.tool(t, "near.read", "secret://shop", nil))
	root := admin(t, k)
	root.secret("shop", "value-in-the-store")
	a := root.call("far.read", `{"mode":"x"}`).refused(t, toolkeep.SecretRetrievalFailed)
	if !strings.Contains(a.body, `"retryable":true`) {
		t.Errorf("it may be tried again: %s", a)
	}
	if a := root.call("near.read", `{"mode":"x"}`); !a.succeeded() || up.keys() != "value-in-the-store" {
		t.Errorf("the other tool: %s", a)
	}
	root.call("std.hash", `{"text":"a"}`).success(t)
	if s := authOf(t, root, "far.read"); s["state"] != "ready" || s["checked"] != false || s["store"] != "vault" {
		t.Errorf("the list says %v", s)
	}
	within(t, 10*time.Second, "health tells", func() bool {
		a := root.do("GET", "/health", "")
		return a.status == 200 && strings.Contains(a.body, "secret_store") && strings.Contains(a.body, "DEGRADED")
	})
	root.do("POST", "/api/v1/secrets/test", `{"reference":"vault://secret/default/shop#key"}`).refused(t, toolkeep.SecretRetrievalFailed)
}
