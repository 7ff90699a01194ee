package toolkeeptest_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// limited starts a system with these limits and a clock set by the test. On a slow
// machine, limits must not refill before a test has used them up.
func limited(t *testing.T, settings map[string]string) (*toolkeeptest.Toolkeep, *gate, *clock) {
	c := &clock{begin: time.Now()}
	k, g := withGate(t, settings, func(o *toolkeeptest.Option) { o.Options.Clock = c.now })
	return k, g, c
}

// overLimit asserts a limit refusal and returns its RetryAfter.
func (a answer) overLimit(t *testing.T, code toolkeep.Code, kind string) time.Duration {
	t.Helper()
	a.want(t, 429).refused(t, code)
	if got := a.text(t, "details", "limit_type"); got != kind {
		t.Errorf("limit_type %q, want %s", got, kind)
	}
	s, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || s < 1 || fmt.Sprint(a.at(t, "retry_after_s")) != strconv.Itoa(s) || a.at(t, "retryable") != true {
		t.Errorf("Retry-After %q: %s", a.header.Get("Retry-After"), a.body)
	}
	return time.Duration(s) * time.Second
}

func TestAgentsBucket(t *testing.T) {
	t.Parallel()
	k, _, clock := limited(t, map[string]string{"limits.agent_per_minute": "3"})
	ann, bob := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent"))
	stray := as(t, k, k.Key(otherTenant, "ann", "agent"))
	for i := range 3 {
		a := ann.call("std.echo", "{}").success(t)
		if h := a.header.Get("RateLimit"); !strings.Contains(h, fmt.Sprintf("r=%d", 2-i)) {
			t.Errorf("RateLimit %q after %d calls", h, i+1)
		}
	}
	wait := ann.call("std.hash", `{"text":"x"}`).overLimit(t, toolkeep.RateLimitExceeded, "agent")
	// A refused call counts as a request; a request above the limit takes nothing.
	bob.call("std.nothing", "{}").refused(t, toolkeep.ToolNotFound)
	bob.call("std.echo", "{}").success(t)
	stray.call("std.echo", "{}").success(t) // the same name in another tenant
	if v := ann.call("std.echo", "{}", `"dry_run":true`).want(t, 200); !strings.Contains(v.body, string(toolkeep.RateLimitExceeded)) {
		t.Errorf("explain does not tell: %s", v.body)
	}
	ann.do("GET", "/api/v1/tools", "").overLimit(t, toolkeep.RateLimitExceeded, "agent")
	clock.advance(wait)
	ann.call("std.echo", "{}").success(t)
	ann.call("std.echo", "{}").overLimit(t, toolkeep.RateLimitExceeded, "agent")
}

func TestAgentAndToolBucket(t *testing.T) {
	t.Parallel()
	k, _, clock := limited(t, map[string]string{"limits.agent_tool_per_minute": "2"})
	ann, bob := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent"))
	ann.call("std.echo", "{}").success(t)
	ann.call("std.echo", "{}", keyed("a")).success(t)
	wait := ann.call("std.echo", "{}").overLimit(t, toolkeep.RateLimitExceeded, "agent_tool")
	ann.call("std.echo", "{}", keyed("a")).success(t) // a replayed result uses none of the tool's limit
	ann.call("std.hash", `{"text":"x"}`).success(t)
	bob.call("std.echo", "{}").success(t)
	clock.advance(wait)
	ann.call("std.echo", "{}").success(t)
}

func TestGlobalBucket(t *testing.T) {
	t.Parallel()
	k, _, clock := limited(t, map[string]string{"limits.global_per_minute": "4"})
	var callers []*client
	for i := range 5 {
		callers = append(callers, as(t, k, k.Key("default", fmt.Sprint("agent-", i), "agent")))
	}
	for _, c := range callers[:4] {
		c.call("std.echo", "{}").success(t)
	}
	clock.advance(callers[4].call("std.echo", "{}").overLimit(t, toolkeep.RateLimitExceeded, "global"))
	callers[4].call("std.echo", "{}").success(t)
}

// TestTenantsBucket: the agents of a tenant have its requests together, and those of another have theirs.
func TestTenantsBucket(t *testing.T) {
	t.Parallel()
	k, _, clock := limited(t, map[string]string{"limits.tenant_per_minute": "3"})
	ann, bob := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent"))
	stray := as(t, k, k.Key(otherTenant, "ann", "agent"))
	ann.call("std.echo", "{}").success(t)
	ann.do("GET", "/api/v1/tools", "").want(t, 200)
	if left := bob.call("std.echo", "{}").success(t).header.Get("RateLimit"); left != `"tenant";r=0;t=60` {
		t.Errorf("RateLimit %q", left)
	}
	wait := bob.call("std.echo", "{}").overLimit(t, toolkeep.RateLimitExceeded, "tenant")
	stray.call("std.echo", "{}").success(t)
	clock.advance(wait)
	ann.call("std.echo", "{}").success(t)
	metrics := *ann
	metrics.url = strings.TrimSuffix(k.MetricsURL(), "/metrics")
	ann.do("GET", "/api/v1/tools", "").overLimit(t, toolkeep.RateLimitExceeded, "tenant")
	if m := metrics.do("GET", "/metrics", "").want(t, 200).body; !strings.Contains(m, `tool_rate_limit_exceeded_total{limit_type="tenant"} 2`) {
		t.Errorf("a call and a list were refused: %s", m)
	}
}

// TestUpstreamsBucket: the tools of an upstream have its calls together, of all callers; one of another upstream has its own.
func TestUpstreamsBucket(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }
	one, port := upstream(t, answer)
	two, _ := upstream(t, answer)
	k, _, clock := limited(t, map[string]string{"limits.upstream_per_minute": "1", "limits.upstreams": fmt.Sprintf("host:127.0.0.1:%d=2", port)})
	k.Publish(webTool("shared.a", one, "/a"))
	raw := [][]byte{[]byte(webTool("web.a", one, "/a")), []byte(webTool("web.b", one, "/b")), []byte(webTool("web.c", two, "/c"))}
	if _, err := k.Catalog().Publish(t.Context(), access.System(), raw, catalog.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	ann, bob := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent"))
	ann.call("web.a", "{}").success(t)
	if left := bob.call("web.b", "{}").success(t).header.Get("RateLimit"); left != `"upstream";r=0;t=60` {
		t.Errorf("RateLimit %q", left)
	}
	if left := bob.call("shared.a", "{}").success(t).header.Get("RateLimit"); left != "" {
		t.Errorf("RateLimit %q tells what other tenants send", left)
	}
	if v := bob.call("web.a", "{}", `"dry_run":true`).want(t, 200); !strings.Contains(v.body, `"limit_type":"upstream"`) {
		t.Errorf("explain does not tell: %s", v.body)
	}
	wait := bob.call("web.a", "{}").overLimit(t, toolkeep.RateLimitExceeded, "upstream")
	ann.call("web.c", "{}").success(t)
	ann.call("web.c", "{}").overLimit(t, toolkeep.RateLimitExceeded, "upstream")
	ann.call("std.echo", "{}").success(t)
	clock.advance(wait)
	bob.call("web.b", "{}").success(t)
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	k, g, _ := limited(t, map[string]string{"limits.agent_concurrent": "2"})
	k.Publish(gated("gate.read", "1.0.0", reads), gated("gate.one", "1.0.0", reads, `"rate_limit":{"max_concurrent":1}`))
	ann, bob := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent"))
	held := make(chan answer, 3)
	hold := func(c *client, tool, name string) {
		go func() {
			a, err := c.try(t.Context(), "POST", "/api/v1/tools/invoke", envelope(tool, named(name)))
			if err != nil {
				a.body = err.Error()
			}
			held <- a
		}()
		g.awaits(t, name)
	}
	hold(ann, "gate.read", "first")
	hold(ann, "gate.read", "second")
	ann.call("std.echo", "{}").overLimit(t, toolkeep.ConcurrencyLimitExceeded, "agent")
	bob.call("std.echo", "{}").success(t)
	g.letGo("first")
	if a := <-held; a.status != 200 {
		t.Fatal(a)
	}
	ann.call("std.echo", "{}").success(t)

	hold(bob, "gate.one", "third")
	ann.call("gate.one", named("no")).overLimit(t, toolkeep.ConcurrencyLimitExceeded, "tool")
	g.letGo("second")
	g.letGo("third")
	<-held
	<-held
	g.openAll()
	ann.call("gate.one", named("yes")).success(t)
}

// TestWaitingCallsTakeTurns: waiting calls above the agent's limit wait for a slot
// instead of failing.
func TestWaitingCallsTakeTurns(t *testing.T) {
	t.Parallel()
	k, g, _ := limited(t, map[string]string{"limits.agent_concurrent": "1", "calls.workers": "4"})
	k.Publish(gated("gate.read", "1.0.0", reads))
	c := admin(t, k)
	first := c.call("gate.read", named("first"), async).want(t, 202).id(t)
	g.awaits(t, "first")
	second := c.call("gate.read", named("second"), async).want(t, 202).id(t)
	c.call("std.echo", "{}").overLimit(t, toolkeep.ConcurrencyLimitExceeded, "agent")
	g.letGo("first")
	c.ended(first).success(t)
	g.awaits(t, "second")
	g.letGo("second")
	c.ended(second).success(t)
	if n := len(g.starts()); n != 2 {
		t.Errorf("%v", g.starts())
	}
}

func TestToolsOwnLimit(t *testing.T) {
	t.Parallel()
	k, _, clock := limited(t, nil)
	k.Publish(toolkeeptest.Manifest("t.slow", "1.0.0", "echo", reads, `"rate_limit":{"per_minute":2,"burst":2}`))
	ann, bob := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent"))
	ann.call("t.slow", "{}").success(t)
	bob.call("t.slow", "{}").success(t)
	clock.advance(ann.call("t.slow", "{}").overLimit(t, toolkeep.RateLimitExceeded, "tool"))
	bob.call("t.slow", "{}").success(t)
}

// TestGuessingKeysIsBlocked: failed logins block the address for a while, but no valid
// key and no probe. A trusted proxy's clients have addresses of their own, over every
// face.
func TestGuessingKeysIsBlocked(t *testing.T) {
	t.Parallel()
	k, _, clock := limited(t, map[string]string{"http.trusted_proxies": "127.0.0.1", "access.address_failures": "20", "access.address_block": "1m"})
	wrong := k.AdminKey[:len(k.AdminKey)-5] + "abcde"
	guess, good := as(t, k, wrong), as(t, k, k.Key("default", "ann", "agent"))
	from := func(c *client, face, addr string) answer {
		switch face {
		case "mcp":
			return c.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Accept", "application/json, text/event-stream", "Content-Type", "application/json", "X-Forwarded-For", addr)
		case "call":
			return c.do("POST", "/api/v1/tools/invoke", envelope("std.echo", "{}"), "Forwarded", `for="`+addr+`:1"`)
		}
		return c.do("GET", "/api/v1/tools", "", "X-Forwarded-For", "192.0.2.77, "+addr)
	}
	overGRPC := func(key, addr string) toolkeep.Code {
		c, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", addr)
		_, err = c.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.echo", Arguments: []byte("{}")})
		if err == nil {
			return ""
		}
		return toolkeep.AsError(err).Code
	}
	for i := range 20 {
		from(guess, []string{"rest", "mcp", "call"}[i%3], "198.51.100.1").want(t, 401)
	}
	for _, face := range []string{"rest", "mcp", "call"} {
		if a := from(guess, face, "198.51.100.1").want(t, 429); a.header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %s", a)
		}
		from(guess, face, "198.51.100.2").want(t, 401)
		if a := from(good, face, "198.51.100.1"); a.status == 401 || a.status == 429 {
			t.Errorf("%s refuses a valid key: %s", face, a)
		}
	}
	if c := overGRPC(wrong, "198.51.100.1"); c != toolkeep.AuthFailuresLimited {
		t.Errorf("gRPC: %s", c)
	}
	if c := overGRPC(wrong, "198.51.100.3"); c != toolkeep.Unauthenticated {
		t.Errorf("gRPC: %s", c)
	}
	if c := overGRPC(good.key, "198.51.100.1"); c != "" {
		t.Errorf("gRPC refuses a valid key: %s", c)
	}
	as(t, k, "").do("GET", "/health/ready", "").want(t, 200)
	clock.advance(time.Minute)
	from(guess, "rest", "198.51.100.1").want(t, 401)
}

// TestDeniedCallsBlockWhoActed: denied calls for one person take the reasons from that person's further
// denials through the agent, and neither from others' behind the agent's key nor any allowed call.
func TestDeniedCallsBlockWhoActed(t *testing.T) {
	t.Parallel()
	k, _, clock := limited(t, map[string]string{"access.agent_failures": "3", "access.agent_block": "1m"})
	k.Publish(toolkeeptest.Manifest("t.guarded", "1.0.0", "echo", reads, `"required_roles":["nurse"]`))
	relay := as(t, k, k.Key("default", "relay", "agent", "admin"))
	call := func(tool, user string) answer {
		return relay.do("POST", "/api/v1/tools/invoke", envelope(tool, "{}"), "X-User-ID", user)
	}
	for range 3 {
		call("t.guarded", "ann").want(t, 403)
	}
	call("t.guarded", "ann").want(t, 429).refused(t, toolkeep.AuthFailuresLimited)
	for _, who := range []string{"ann", "bob"} {
		call("std.echo", who).success(t)
	}
	call("t.guarded", "bob").want(t, 403)
	relay.call("std.echo", "{}").success(t)
	relay.do("GET", "/api/v1/tools", "").want(t, 200)
	clock.advance(time.Minute)
	call("t.guarded", "ann").want(t, 403)

	// Who may neither call nor see the tool is told that there is none, and counts alike.
	agent := as(t, k, k.Key("default", "agent", "agent"))
	for range 5 {
		agent.call("t.guarded", "{}").want(t, 404).refused(t, toolkeep.ToolNotFound)
	}
	waitUntil(t, "the block of a caller that does not see the tool", func() bool {
		return strings.Count(k.Log(), "calls blocked after too many were refused") == 2
	})
	agent.call("std.echo", "{}").success(t)
}

// TestLimitsOfTwoNodes: an agent that calls two nodes in turn has its requests and its calls of a tool once, not
// twice. Each node says that it has a share; when the other stops, nothing that was used up comes back.
func TestLimitsOfTwoNodes(t *testing.T) {
	t.Parallel()
	clock := &clock{begin: time.Now()}
	nodes := cluster(t, 2, func(o *toolkeeptest.Option) {
		o.Options.Clock = clock.now
		o.Settings["limits.agent_per_minute"], o.Settings["limits.agent_tool_per_minute"] = "100", "30"
	})
	ann, eve := nodes[0].Key("default", "ann", "agent"), nodes[0].Key("default", "eve", "agent")
	var anns, eves []*client
	for _, k := range nodes {
		k.AwaitKey("default", ann)
		k.AwaitKey("default", eve)
		anns, eves = append(anns, as(t, k, ann)), append(eves, as(t, k, eve))
	}
	bob := as(t, nodes[0], nodes[0].Key("default", "bob", "agent"))
	policy := func() string { return bob.call("std.nothing", "{}").header.Get("RateLimit-Policy") }
	within(t, 20*time.Second, "the first node divides its limits", func() bool { return policy() == `"agent";q=50;w=60` })

	spend := func(each []*client, tool string) (admitted int, refused []answer) {
		for range 60 {
			for _, c := range each {
				if a := c.call(tool, "{}"); a.status == 429 {
					refused = append(refused, a)
				} else {
					admitted++
				}
			}
		}
		return admitted, refused
	}
	for kind, tc := range map[string]struct {
		clients     []*client
		tool        string
		want, share int
	}{
		"agent":      {anns, "std.nothing", 100, 50}, // no tool of this name: a request, and no call
		"agent_tool": {eves, "std.echo", 30, 15},
	} {
		got, refused := spend(tc.clients, tc.tool)
		if got != tc.want || len(refused) == 0 {
			t.Fatalf("%s: %d calls were admitted by both, want %d", kind, got, tc.want)
		}
		a := refused[0]
		a.overLimit(t, toolkeep.RateLimitExceeded, kind)
		for name, want := range map[string]int{"limit_per_minute": tc.want, "nodes": 2, "share_per_minute": tc.share} {
			if n := fmt.Sprint(a.at(t, "details", name)); n != strconv.Itoa(want) {
				t.Errorf("%s: %s is %s, want %d", kind, name, n, want)
			}
		}
	}

	nodes[1].Close()
	within(t, 20*time.Second, "the first node has the limits alone", func() bool { return policy() == `"agent";q=100;w=60` })
	a := anns[0].call("std.nothing", "{}")
	a.overLimit(t, toolkeep.RateLimitExceeded, "agent")
	if strings.Contains(a.body, "nodes") {
		t.Errorf("a node alone tells of nodes: %s", a.body)
	}
}
