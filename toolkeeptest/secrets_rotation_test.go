package toolkeeptest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source/grpc"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
	servers "github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// reopened opens the directory again, with the keys of the first start.
func reopened(t *testing.T, dir string, o ...toolkeeptest.Option) (*toolkeeptest.Toolkeep, *client) {
	t.Helper()
	k := toolkeeptest.Open(t, dir, o...)
	k.AdminKey = strings.TrimSpace(readText(t, filepath.Join(dir, "admin.key")))
	return k, admin(t, k)
}

// auditKey waits for the key that signs the audit's checkpoints, which the leader makes a moment
// after the start: it is sealed as secrets are.
func (c *client) auditKey() {
	c.t.Helper()
	waitUntil(c.t, "the key of the audit", func() bool { return strings.Contains(c.do("GET", "/api/v1/audit/keys", "").body, `"public":`) })
}

// rotated requests a rotation and expects no failures.
func (c *client) rotated(body string) (resealed, unchanged int) {
	c.auditKey()
	c.t.Helper()
	a := c.do("POST", "/api/v1/secrets/rotate", body)
	var out struct{ Resealed, Unchanged, Failed int }
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 || out.Failed != 0 {
		c.t.Fatalf("the rotation: %v %s", err, a)
	}
	return out.Resealed, out.Unchanged
}

// TestSealKeyRotationOfServers: logins at MCP servers and their definitions' values are
// resealed too, and need only the new key.
func TestSealKeyRotationOfServers(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	with := toolkeeptest.Option{Options: node.Options{Reaper: []string{self, "__reaper"}}}
	g := newGuarded(t)
	dir := filepath.Join(t.TempDir(), "data")
	k := toolkeeptest.Open(t, dir, with)
	root := admin(t, k)
	visit(t, root.do("PUT", "/api/v1/servers/crm", g.spec()).address(t))
	root.do("PUT", "/api/v1/servers/crm", g.spec()).plan(t)
	s := offerByStdio(t, definition("remember", "Keeps a text."))
	s.env["VALUE_OF_THE_TEST"] = "a value of an environment"
	root.put(t, "notes", s)
	bodies := func(kind string) string {
		t.Helper()
		items, _, err := k.Store().Documents(t.Context(), kind)
		if err != nil || len(items) == 0 {
			t.Fatalf("%s: %d items, %v", kind, len(items), err)
		}
		all := ""
		for _, it := range items {
			all += string(it.Body)
		}
		return all
	}
	token, spec := bodies(oauth.TokenKind), bodies(servers.DocumentKind)
	if n, _ := root.rotated(`{"new_key":true}`); n < 2 {
		t.Errorf("%d items were sealed anew", n)
	}
	if bodies(oauth.TokenKind) == token || bodies(servers.DocumentKind) == spec {
		t.Error("the login or the definition is sealed as before")
	}
	if n, _ := root.rotated(`{}`); n != 0 {
		t.Errorf("once more: %d items were sealed anew", n)
	}
	works := func(root *client) {
		t.Helper()
		if got := root.call("crm.whoami", "{}").output(t); got != "ann with [REDACTED]" {
			t.Errorf("the login: %q", got)
		}
		if got := root.call("notes.remember", `{"text":"kept"}`).output(t); got != "kept" {
			t.Errorf("the program: %q", got)
		}
	}
	works(root)
	k.Close()
	file := filepath.Join(dir, "seal.key")
	newest := strings.Fields(readText(t, file))[0]
	if err := os.WriteFile(file, []byte(newest+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, root = reopened(t, dir, with)
	works(root)
}

// TestSealKeyRotationWhileCallsRun: continuous callers and waiting calls do not notice
// rotations, and secrets set meanwhile are not lost.
func TestSealKeyRotationWhileCallsRun(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	k := toolkeeptest.New(t)
	root := admin(t, k)
	const secrets, callers, rotations = 4, 3, 3
	var tools []string
	for i := range secrets {
		name := fmt.Sprintf("s%d", i)
		tools = append(tools, up.tool(t, "shop."+name, "secret://"+name, nil))
		root.secret(name, "value-of-"+name, `"scope":"organisation"`)
	}
	k.Publish(tools...)
	stop, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var faults []string
	done := map[int]int{}
	for c := range callers {
		wg.Go(func() {
			for i := 0; stop.Err() == nil; i++ {
				more := ""
				if i%3 == 2 {
					more = `,"execution_options":{"async_mode":true}`
				}
				a, err := root.try(context.WithoutCancel(stop), "POST", "/api/v1/tools/invoke",
					fmt.Sprintf(`{"tool_id":"shop.s%d","parameters":{"mode":"x"}%s}`, i%secrets, more))
				if more != "" && err == nil && a.status == http.StatusAccepted {
					a = root.ended(a.id(t))
				}
				mu.Lock()
				if err != nil || !a.succeeded() {
					faults = append(faults, fmt.Sprintf("call %d of %d: %v %.300s", i, c, err, a.body))
				}
				done[c]++
				mu.Unlock()
			}
		})
	}
	progress := func(beyond int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for c := range callers {
				if done[c] <= beyond {
					return false
				}
			}
			return true
		}
	}
	for n := range rotations {
		within(t, 30*time.Second, "calls go on", progress(3*n))
		root.secret("s0", fmt.Sprintf("value-of-s0-after-%d", n), `"scope":"organisation"`)
		root.rotated(`{"new_key":true}`)
	}
	within(t, 30*time.Second, "calls go on", progress(3*rotations+3))
	cancel()
	wg.Wait()
	if len(faults) > 0 {
		t.Errorf("%d calls failed, such as %s", len(faults), faults[0])
	}
	up.set("", 0)
	if a := root.call("shop.s0", `{"mode":"x"}`); !a.succeeded() || up.keys() != fmt.Sprintf("value-of-s0-after-%d", rotations-1) {
		t.Errorf("sent %q: %.300s", up.keys(), a.body)
	}
}

// TestSealByTransit moves a store from its own keys to Vault's transit engine; a call
// queued there waits while Vault is down.
func TestSealByTransit(t *testing.T) {
	t.Parallel()
	v := vaulttest.Start(t)
	v.Mount("transit", "transit", nil)
	v.Write("transit/keys/toolkeep", map[string]any{})
	v.Policy("seal", `
path "transit/datakey/plaintext/toolkeep" { capabilities = ["update"] }
path "transit/decrypt/toolkeep" { capabilities = ["update"] }`)
	up := newKeyShop(t)
	dir := filepath.Join(t.TempDir(), "data")
	k := toolkeeptest.Open(t, dir)
	k.Publish(up.tool(t, "shop.read", "secret://shop", nil))
	root := admin(t, k)
	root.secret("shop", "before-the-transit", `"scope":"organisation"`)
	root.secret("spare", "another-one-of-before", `"scope":"organisation"`)
	k.Close()

	sealing := toolkeeptest.Option{Settings: map[string]string{"vault.address": v.URL, "vault.ca_file": v.CAFile, "vault.token": v.Token("", "seal"),
		"vault.transit_key": "toolkeep", "vault.timeout": "2s", "calls.poll": "20ms"}}
	k, root = reopened(t, dir, sealing)
	call := func(want string) {
		t.Helper()
		up.set("", 0)
		if a := root.call("shop.read", `{"mode":"x"}`); !a.succeeded() || up.keys() != want {
			t.Errorf("sent %q: %.300s", up.keys(), a.body)
		}
	}
	call("before-the-transit") // sealed with the key file
	root.do("POST", "/api/v1/secrets/rotate", `{"new_key":true}`).refused(t, toolkeep.InvalidParameters)
	if n, _ := root.rotated(`{}`); n != 3 { // with the key of the audit's checkpoints
		t.Errorf("%d items were sealed anew", n)
	}
	items, _, err := k.Store().Documents(t.Context(), secret.DocumentKind)
	for _, it := range items {
		if !strings.Contains(string(it.Body), `"sealed":"Ag`) { // starts with the byte 2
			t.Errorf("not sealed by Vault: %s", it.Body)
		}
	}
	if err != nil || len(items) != 2 {
		t.Errorf("%d items, %v", len(items), err)
	}
	v.Write("transit/keys/toolkeep/rotate", nil)
	call("before-the-transit")
	root.secret("shop", "under-the-transit", `"scope":"organisation"`)
	if n, _ := root.rotated(`{}`); n != 0 {
		t.Errorf("%d items were sealed anew", n)
	}
	call("under-the-transit")
	k.Close()

	// The key file is no longer needed.
	if err := os.Remove(filepath.Join(dir, "seal.key")); err != nil {
		t.Fatal(err)
	}
	k, root = reopened(t, dir, sealing)
	call("under-the-transit")
	k.Close()

	// A waiting call is also sealed by Vault. A node that starts while Vault is down
	// returns it to the queue, and runs it when Vault is back.
	g := newGate()
	t.Cleanup(g.openAll)
	sealing.Settings["calls.workers"] = "1"
	sealing.Options.Executors = []toolkeep.Executor{g}
	k, root = reopened(t, dir, sealing)
	k.Publish(gated("gate.read", "1.0.0", reads))
	root.call("gate.read", named("first"), async).want(t, 202)
	g.awaits(t, "first")
	up.set("", 0)
	waits := root.call("shop.read", `{"mode":"x"}`, async).want(t, 202).id(t)
	stopped := make(chan struct{})
	go func() { k.Close(); close(stopped) }()
	waitUntil(t, "the server refuses", func() bool {
		_, err := k.Call("std.echo", "{}")
		return err != nil
	})
	g.letGo("first")
	<-stopped
	v.Kill()
	k, root = reopened(t, dir, sealing)
	row := func() *toolkeep.Invocation {
		got, err := k.Store().Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "default", ID: waits})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	within(t, 30*time.Second, "the call was tried and waits again", func() bool {
		got := row()
		return !got.StartedAt.IsZero() && got.State == toolkeep.CallQueued
	})
	if up.keys() != "" {
		t.Errorf("sent %q while Vault was away", up.keys())
	}
	v.Restart()
	if a := root.ended(waits); !a.succeeded() || up.keys() != "under-the-transit" {
		t.Errorf("sent %q: %.300s", up.keys(), a.body)
	}
}

// grpcTool returns the manifest of a server's method with an auth entry.
func grpcTool(t *testing.T, s *grpctest.Server, method string, auth toolkeep.AuthSpec) string {
	t.Helper()
	plan, err := grpc.Read(t.Context(), grpc.Options{Target: s.Addr, Namespace: "kinds", Protoset: s.Set, Plaintext: true})
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(s.Addr)
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plan.Tools {
		var m map[string]any
		if err := json.Unmarshal(p.Manifest, &m); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(m["tool_id"].(string), method) {
			continue
		}
		m["auth"] = []any{auth}
		m["permissions"] = map[string]any{"network": []any{map[string]any{"host": "127.0.0.1", "port": port}}}
		return jsonText(t, m)
	}
	t.Fatalf("there is no method %s", method)
	return ""
}

// TestGRPCCredentialRenewal: after UNAUTHENTICATED from a gRPC server the secret is
// fetched again and the call is sent once more, and only once.
func TestGRPCCredentialRenewal(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var want string
	var got []string
	refuse := 0
	s := grpctest.Start(t, grpctest.Options{Refuse: func(md metadata.MD) error {
		mu.Lock()
		defer mu.Unlock()
		bearer := strings.Join(md["authorization"], ",")
		got = append(got, bearer)
		if refuse > 0 || bearer != want {
			refuse--
			return status.Errorf(codes.Unauthenticated, "the token %s is not good", bearer)
		}
		return nil
	}})
	set := func(next string, n int) {
		mu.Lock()
		defer mu.Unlock()
		want, refuse, got = "Bearer "+next, n, nil
	}
	sent := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(got, " ")
	}
	k := toolkeeptest.New(t)
	k.Publish(grpcTool(t, s, "Kinds_Meta", toolkeep.AuthSpec{Type: "bearer", Secret: "secret://remote"}))
	root := admin(t, k)
	const tool = "kinds.Kinds_Meta"
	root.secret("remote", "first-token-of-the-remote", `"scope":"organisation"`)

	set("first-token-of-the-remote", 0)
	if a := root.call(tool, `{}`); !a.succeeded() || sent() != "Bearer first-token-of-the-remote" {
		t.Fatalf("sent %q: %.400s", sent(), a.body)
	}
	set("first-token-of-the-remote", 1)
	a := root.call(tool, `{}`)
	if !a.succeeded() || sent() != "Bearer first-token-of-the-remote Bearer first-token-of-the-remote" {
		t.Errorf("refused once: sent %q: %.400s", sent(), a.body)
	}
	set("second-token-of-the-remote", 0)
	a = root.call(tool, `{}`).failed(t, toolkeep.SecretAccessDenied)
	if n := strings.Count(sent(), "first-token"); n != 2 {
		t.Errorf("refused for good: sent %q", sent())
	}
	if strings.Contains(a.body, "first-token") {
		t.Errorf("the answer shows the token: %s", a)
	}
	root.secret("remote", "second-token-of-the-remote", `"scope":"organisation"`)
	set("second-token-of-the-remote", 0)
	if a := root.call(tool, `{}`); !a.succeeded() || sent() != "Bearer second-token-of-the-remote" {
		t.Errorf("after the rotation: sent %q: %.400s", sent(), a.body)
	}
	if log := k.Log(); strings.Contains(log, "-token-of-the-remote") {
		t.Error("the log shows a token")
	}
}

// TestSecretsOfTwoScopes: a tool with two secrets gets each from the scope that has it,
// and the record lists both.
func TestSecretsOfTwoScopes(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	k := toolkeeptest.New(t)
	m := up.tool(t, "shop.read", "secret://shop", nil)
	var tree map[string]any
	if err := json.Unmarshal([]byte(m), &tree); err != nil {
		t.Fatal(err)
	}
	tree["auth"].([]any)[0].(map[string]any)["settings"] = map[string]any{"also": []any{map[string]any{"type": "bearer", "secret": "secret://app"}}}
	k.Publish(jsonText(t, tree))
	root, bob := admin(t, k), as(t, k, k.Key("default", "bob", "agent"))
	root.secret("shop", "shop-of-the-organisation", `"scope":"organisation"`)
	root.secret("app", "app-of-the-organisation", `"scope":"organisation"`)
	bob.secret("shop", "shop-of-bob-himself")
	for who, want := range map[*client][]string{bob: {"shop-of-bob-himself", "user", "organisation"}, root: {"shop-of-the-organisation", "organisation", "organisation"}} {
		up.set("", 0)
		a := who.call("shop.read", `{"mode":"x"}`)
		var res struct {
			Metadata struct {
				Secrets []struct {
					Scope string
					Hash  string `json:"secret_hash"`
				}
			} `json:"execution_metadata"`
		}
		if err := json.Unmarshal([]byte(a.body), &res); err != nil || !a.succeeded() || up.keys() != want[0] {
			t.Fatalf("sent %q, %v: %s", up.keys(), err, a)
		}
		uses := res.Metadata.Secrets
		if len(uses) != 2 || uses[0].Scope != want[1] || uses[1].Scope != want[2] || uses[0].Hash == uses[1].Hash {
			t.Errorf("told %+v", uses)
		}
	}
	if a := bob.do("DELETE", "/api/v1/secrets/shop", ""); a.status != 204 {
		t.Fatal(a)
	}
	if a := root.do("DELETE", "/api/v1/secrets/app?scope=organisation", ""); a.status != 204 {
		t.Fatal(a)
	}
	up.set("", 0)
	bob.call("shop.read", `{"mode":"x"}`).refused(t, toolkeep.SecretNotFound)
	if up.keys() != "" {
		t.Errorf("one secret of two was sent: %q", up.keys())
	}
}

// TestBadAuthIsNotPublished: a manifest whose first call would certainly fail is
// refused.
func TestBadAuthIsNotPublished(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	k := toolkeeptest.New(t)
	root := admin(t, k)
	for pointer, entry := range map[string]map[string]any{
		"/auth/0/token_url":       {"type": "azure_ad", "secret": "secret://x", "token_url": "ftp://login.example/token", "scopes": []string{"a/.default"}},
		"/auth/0/settings/tenant": {"type": "azure_ad", "secret": "secret://x", "scopes": []string{"a/.default"}},
		"/auth/0/scopes":          {"type": "google_service_account", "secret": "secret://x"},
	} {
		port := up.Listener.Addr().(*net.TCPAddr).Port
		a := root.do("POST", "/api/v1/tools/register", `{"manifest":`+httpTool(t, "bad.auth", up.URL, port, []any{entry}, nil)+`}`)
		if a.status < 400 || !strings.Contains(a.body, pointer) {
			t.Errorf("%s: %s", pointer, a)
		}
	}
}
