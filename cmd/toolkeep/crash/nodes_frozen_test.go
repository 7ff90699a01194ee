package crash_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// frozen stops one of two nodes as a paused machine is: for longer than knowledge serves without
// a look, and for so short that only what its claims see can tell it.
func frozen(t *testing.T, c *cluster) {
	c.up(c.add(""), c.add(""))
	c.tools()
	c.frozenFor(3*time.Second, "long")
	c.frozenFor(0, "short")
	c.frozenWithSession()
	c.down()
	c.nothingLeft()
}

// frozenFor revokes keys and blocks tools on the node that is awake. What asks the other while it
// sleeps, and as soon as it goes on, is refused, and nothing is sent.
func (c *cluster) frozenFor(gap time.Duration, round string) {
	t, asleep, awake := c.t, c.p(0), c.p(1)
	const each = 10
	callers := make([]*process, each)
	ids := make([]string, each)
	tools := make([]string, each)
	for i := range each {
		var made struct {
			ID     string `json:"id"`
			Secret string `json:"secret"`
		}
		awake.must("POST", "/api/v1/keys", fmt.Sprintf(`{"subject":"%s-%d","roles":["admin"]}`, round, i), http.StatusCreated, &made)
		ids[i] = made.ID
		callers[i] = &process{t: t, url: asleep.url, client: &http.Client{}, key: made.Secret}
		tools[i] = fmt.Sprintf("chaos.%s%d", round, i)
		awake.publish(c.upstream.tool(tools[i], writing))
		callers[i].answered(ask{tool: addTool, args: named("warm", 0)})
		asleep.answered(ask{tool: tools[i], args: named("warm", 0)})
	}
	before := c.upstream.counts()

	asleep.freeze()
	for i := range each {
		awake.must("DELETE", "/api/v1/keys/"+ids[i], "", http.StatusNoContent, nil)
		awake.must("POST", "/api/v1/tools/"+tools[i]+"/versions/1.0.0/state", `{"state":"blocked"}`, http.StatusOK, nil)
	}
	pause(gap)
	var refused sync.WaitGroup
	call := func(p *process, a ask, want toolkeep.Code) {
		refused.Go(func() {
			if got, err := p.call(a); err != nil || got.Code != string(want) {
				t.Errorf("%s is answered %s %v, want %s", a.tool, got, err, want)
			}
		})
	}
	all := func(when string) {
		for i := range each {
			key := ""
			if i%2 == 0 {
				key = fmt.Sprintf("%s %s-%d", round, when, i)
			}
			call(callers[i], ask{tool: addTool, args: named(when, 0), key: key}, toolkeep.Unauthenticated)
			call(&process{t: t, url: asleep.url, client: callers[i].client, key: asleep.key}, ask{tool: tools[i], args: named(when, 0), key: key}, toolkeep.ToolBlocked)
		}
	}
	all("asked while it sleeps")
	pause(min(gap, 100*time.Millisecond)) // they are at its door
	asleep.signal(syscall.SIGCONT)
	all("asked at once")
	refused.Wait()
	for name, n := range c.upstream.counts() {
		if n != before[name] {
			t.Errorf("%s was carried out %d times", name, n)
		}
	}
	for _, p := range callers {
		p.client.CloseIdleConnections()
	}
	asleep.answered(ask{tool: addTool, args: named("after", 0), key: "after " + round})
}

// frozenWithSession stops the node of an MCP session. A request for it at the other node is refused,
// not held, and the session goes on when its node does.
func (c *cluster) frozenWithSession() {
	t, asleep, awake := c.t, c.p(0), c.p(1)
	send := func(p *process, session, body string) (status int, answer, begun string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, p.url+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + p.key}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := p.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
			t.Error("it does not say when to try again")
		}
		return resp.StatusCode, string(raw), resp.Header.Get("Mcp-Session-Id")
	}
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	_, answer, session := send(asleep, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if status, other, _ := send(awake, session, ping); session == "" || status != http.StatusOK {
		t.Fatalf("the session %q at the other node: %s, %d %s", session, answer, status, other)
	}
	asleep.freeze()
	if status, refused, _ := send(awake, session, ping); status != http.StatusServiceUnavailable || !strings.Contains(refused, string(toolkeep.NodeUnavailable)) {
		t.Errorf("a session of a node that is stopped: %d %s", status, refused)
	}
	asleep.signal(syscall.SIGCONT)
	within(t, waitLimit, "the session goes on", func() bool { status, _, _ := send(awake, session, ping); return status == http.StatusOK })
}
