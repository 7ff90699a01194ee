package toolkeeptest_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// overGRPC calls a tool with any bearer.
func overGRPC(t *testing.T, k *toolkeeptest.Toolkeep, bearer, tool string) (*toolkeep.Result, error) {
	t.Helper()
	c, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{Key: bearer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: tool, Arguments: []byte(`{"a":1}`)})
}

// TestTokenCallsEverywhere: a token's scope grants its role over every face, and API
// keys work alongside.
func TestTokenCallsEverywhere(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	k := s.start(t, nil, node.Options{})
	agentToken, adminToken := s.token(k, "openid tools:call"), s.token(k, "tools:admin", map[string]any{"sub": "root"})
	key := k.Key("default", "bob", "agent")

	for who, bearer := range map[string]string{"token": agentToken, "key": key} {
		t.Run(who, func(t *testing.T) {
			subject := map[string]string{"token": "alice", "key": "bob"}[who]
			id := as(t, k, bearer).call("std.echo", `{"a":1}`).success(t).id(t)
			if r, err := overGRPC(t, k, bearer, "std.echo"); err != nil || r.State != toolkeep.CallSucceeded {
				t.Errorf("gRPC: %+v %v", r, err)
			}
			for _, view := range []string{"", "/all", "/auto"} {
				r, err := agent(t, k, bearer, view).CallTool(t.Context(), &sdk.CallToolParams{Name: "std__echo", Arguments: map[string]any{"a": 1}})
				if err != nil || r.IsError {
					t.Errorf("MCP %s: %v %v", view, r, err)
				}
			}
			row, err := k.Store().Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "default", ID: id})
			if err != nil || row.Subject != subject {
				t.Errorf("the record says %+v, %v; want %s", row, err, subject)
			}
			as(t, k, bearer).do("GET", "/api/v1/keys", "").want(t, 403).refused(t, toolkeep.PermissionDenied)
		})
	}
	as(t, k, adminToken).do("GET", "/api/v1/keys", "").want(t, 200)
	// The tenant comes from the token.
	own := as(t, k, s.token(k, "tools:admin", map[string]any{"tenant": otherTenant}))
	own.do("POST", "/api/v1/tools/register", `{"manifest":`+toolkeeptest.Manifest("own.echo", "1.0.0", "echo")+`}`).want(t, 201)
	as(t, k, s.token(k, "tools:call", map[string]any{"tenant": otherTenant})).call("own.echo", `{}`).success(t)
	as(t, k, agentToken).call("own.echo", `{}`).refused(t, toolkeep.ToolNotFound)
}

// TestTokenRefusedEverywhere: a bad token gets the same refusal over every face, with
// the challenge over HTTP.
func TestTokenRefusedEverywhere(t *testing.T) {
	t.Parallel()
	s, stranger := newIssuer(t), newIssuer(t)
	k := s.start(t, nil, node.Options{})
	good := s.token(k, "tools:call")
	forged := good[:len(good)-6] + "AAAAAA"
	n := 0
	failing := func(claims map[string]any) map[string]any { // failures block their subject
		n++
		claims["sub"] = fmt.Sprint("eve-", n)
		return claims
	}
	for name, bearer := range map[string]string{
		"another audience":   s.sign(failing(map[string]any{"aud": "https://elsewhere.example/mcp", "scope": "tools:call"})),
		"no audience":        s.sign(failing(map[string]any{"scope": "tools:call"})),
		"audience's prefix":  s.sign(failing(map[string]any{"aud": k.URL() + "0/mcp", "scope": "tools:call"})),
		"long expired":       s.token(k, "tools:call", failing(map[string]any{"exp": time.Now().Add(-2 * time.Hour).Unix()})),
		"just expired":       s.token(k, "tools:call", failing(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
		"not yet":            s.token(k, "tools:call", failing(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})),
		"another issuer":     stranger.token(k, "tools:call"),
		"says another":       s.token(k, "tools:call", failing(map[string]any{"iss": stranger.URL})),
		"no tenant":          s.token(k, "tools:call", failing(map[string]any{"tenant": nil})),
		"forged":             forged,
		"nothing that it is": "eyJhbGciOiJub25lIn0.e30.",
	} {
		t.Run(name, func(t *testing.T) {
			c := as(t, k, bearer)
			for _, a := range []answer{c.call("std.echo", `{}`), c.says("/all", "", initialize), c.do("GET", "/mcp/all", "", "Accept", "text/event-stream")} {
				a.want(t, 401).refused(t, toolkeep.Unauthenticated)
				p := challengeOf(t, a)
				if p["error"] != "invalid_token" || p["error_description"] == "" || !strings.HasPrefix(p["resource_metadata"], k.URL()+"/.well-known/oauth-protected-resource") {
					t.Errorf("challenge %v", p)
				}
				if strings.Contains(a.String(), bearer) {
					t.Error("the answer has the token in it")
				}
			}
			_, err := overGRPC(t, k, bearer, "std.echo")
			if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.Unauthenticated {
				t.Errorf("gRPC: %v", err)
			}
		})
	}
	as(t, k, good).call("std.echo", `{}`).success(t)
	k.Close()
	if log := k.Log(); strings.Contains(log, good) || strings.Contains(log, forged) {
		t.Error("the log has a token in it")
	}
}

// TestTokenWithoutRole: unmapped scopes grant nothing, not even seeing which tools
// exist.
func TestTokenWithoutRole(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	k := s.start(t, nil, node.Options{})
	bearer := s.token(k, "openid tools:calls TOOLS:CALL agent admin")
	c := as(t, k, bearer)
	// A caller that cannot see a tool must not learn that it exists.
	if a := c.call("std.echo", `{}`); a.status != 403 && a.status != 404 {
		t.Errorf("%s", a)
	}
	if a := c.do("GET", "/api/v1/tools", "").want(t, 200); fmt.Sprint(a.at(t, "total_count")) != "0" {
		t.Errorf("%s", a.body)
	}
	if _, err := overGRPC(t, k, bearer, "std.echo"); err == nil {
		t.Error("gRPC: a call without a role")
	}
	m := agent(t, k, bearer, "/all")
	list, err := m.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if r, err := m.CallTool(t.Context(), &sdk.CallToolParams{Name: "std__echo"}); err == nil && !r.IsError {
		t.Errorf("MCP: a call without a role: %v", said(r))
	}
}

// TestIssuerIsDown: health reports it, tokens of known keys and API keys keep working,
// and tokens of keys that cannot be fetched get a retryable refusal.
func TestIssuerIsDown(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	dir := filepath.Join(t.TempDir(), "data")
	settings := map[string]string{"oauth.issuer": s.URL, "oauth.scopes": "tools:call=agent"}
	c := new(clock)
	k := toolkeeptest.Open(t, dir, toolkeeptest.Option{Settings: settings, Options: node.Options{Clock: c.now}})
	part := func(k *toolkeeptest.Toolkeep) (whole, part string) {
		a := as(t, k, "").do("GET", "/health/ready", "").want(t, 200)
		return a.text(t, "status"), a.text(t, "components", "oauth_issuer", "status")
	}
	waitUntil(t, "the issuer's keys are known", func() bool { whole, p := part(k); return whole == "UP" && p == "UP" })
	good, key := s.token(k, "tools:call"), k.Key("default", "bob", "agent")
	as(t, k, good).call("std.echo", `{}`).success(t)

	s.set(func() { s.down = true })
	// An unknown key triggers a fetch, which shows that the issuer is down.
	c.advance(time.Minute) // the last fetch was just now
	elsewhere := newIssuer(t)
	unknown := elsewhere.sign(map[string]any{"iss": s.URL, "aud": k.URL(), "scope": "tools:call"})
	a := as(t, k, unknown).call("std.echo", `{}`).want(t, 503).refused(t, toolkeep.RegistryUnavailable)
	if a.header.Get("Retry-After") == "" || a.at(t, "retryable") != true {
		t.Errorf("%s", a)
	}
	if a := as(t, k, unknown).says("/all", "", initialize).want(t, 503); a.header.Get("Retry-After") == "" || a.header.Get("WWW-Authenticate") != "" {
		t.Errorf("%s", a)
	}
	if _, err := overGRPC(t, k, unknown, "std.echo"); !toolkeep.IsCode(err, toolkeep.RegistryUnavailable) {
		t.Errorf("gRPC: %v", err)
	}
	waitUntil(t, "health says that the issuer is down", func() bool { whole, p := part(k); return whole == "DEGRADED" && p == "DOWN" })
	// What is known keeps working: the cached token, a new one of a known key, API
	// keys.
	for _, bearer := range []string{good, s.token(k, "tools:call", map[string]any{"sub": "carol"}), key} {
		as(t, k, bearer).call("std.echo", `{}`).success(t)
		if r, err := agent(t, k, bearer, "/all").CallTool(t.Context(), &sdk.CallToolParams{Name: "std__echo", Arguments: map[string]any{}}); err != nil || r.IsError {
			t.Errorf("%v %v", r, err)
		}
	}
	k.Close()

	// Without the issuer the server starts, and API keys work.
	k = toolkeeptest.Open(t, dir, toolkeeptest.Option{Settings: settings})
	as(t, k, key).call("std.echo", `{}`).success(t)
	as(t, k, s.token(k, "tools:call")).call("std.echo", `{}`).want(t, 503).refused(t, toolkeep.RegistryUnavailable)
	waitUntil(t, "health says that the issuer is down", func() bool { whole, p := part(k); return whole == "DEGRADED" && p == "DOWN" })
}

// TestWaitingCallOfAToken: a waiting call keeps the roles of its token, also across a
// restart and past the token's expiry, until the configuration no longer grants them.
func TestWaitingCallOfAToken(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		then map[string]string // settings of the next start
		code toolkeep.Code
	}{
		"goes on":                {nil, ""},
		"another scope gives it": {map[string]string{"oauth.scopes": "tools:use=agent"}, ""},
		"no scope gives it":      {map[string]string{"oauth.scopes": "tools:call=auditor"}, toolkeep.PermissionDenied}, // in the record; its caller is told E3001
		"no tokens are taken":    {map[string]string{"oauth.issuer": "", "oauth.scopes": ""}, toolkeep.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			s, g := newIssuer(t), newGate()
			dir := filepath.Join(t.TempDir(), "data")
			open := func(more map[string]string) *toolkeeptest.Toolkeep {
				settings := map[string]string{"oauth.issuer": s.URL, "oauth.scopes": "tools:call=agent", "calls.workers": "1", "calls.poll": "5ms"}
				maps.Copy(settings, more)
				k := toolkeeptest.Open(t, dir, toolkeeptest.Option{Settings: settings, Options: node.Options{Executors: []toolkeep.Executor{g}}})
				t.Cleanup(g.openAll)
				return k
			}
			k := open(nil)
			k.Publish(gated("gate.read", "1.0.0", reads))
			boss := k.AdminKey
			as(t, k, boss).call("gate.read", named("busy"), async).want(t, 202)
			g.awaits(t, "busy")
			alice := as(t, k, s.token(k, "tools:call", map[string]any{"exp": time.Now().Add(-20 * time.Second).Unix()})) // within the tolerated clock skew
			id := alice.call("gate.read", named("waiting"), async).want(t, 202).id(t)
			for _, other := range []map[string]any{{"sub": "bob"}, {"tenant": otherTenant}} {
				as(t, k, s.token(k, "tools:call", other)).do("GET", "/api/v1/invocations/"+id, "").want(t, 404)
			}
			stopped := make(chan struct{})
			go func() { k.Close(); close(stopped) }()
			waitUntil(t, "the server refuses", func() bool {
				_, err := k.Call("std.echo", "{}")
				return err != nil
			})
			g.letGo("busy")
			<-stopped
			if n := g.count("waiting"); n != 0 {
				t.Fatalf("the call ran %d times", n)
			}

			k = open(x.then)
			g.letGo("waiting")
			var row *toolkeep.Invocation
			waitUntil(t, "the call is over", func() bool {
				var err error
				if row, err = k.Store().Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "default", ID: id}); err != nil {
					t.Fatal(err)
				}
				return row.State.Ended()
			})
			switch {
			case x.code == "" && (row.State != toolkeep.CallSucceeded || g.count("waiting") != 1):
				t.Errorf("%+v, ran %d times", row, g.count("waiting"))
			case x.code != "" && (row.State == toolkeep.CallSucceeded || row.Code != x.code || g.count("waiting") != 0):
				t.Errorf("%s %v, want %s; ran %d times", row.State, row.Code, x.code, g.count("waiting"))
			}
		})
	}
}
