package invoke_test

import (
	"context"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/resultcache"
)

// otherNodes is a result cache whose other nodes have a result for each call.
type otherNodes struct {
	*resultcache.Cache
	shared, asked, once int
	has                 *toolkeep.Result
}

// ofMachine is the fake executor of tools that read what their node has by itself.
type ofMachine struct{ *fakeExecutor }

func (ofMachine) ReadsMachine(*toolkeep.Principal, *toolkeep.Tool) bool { return true }

func (o *otherNodes) Share(resultcache.Key) { o.shared++ }

func (o *otherNodes) FetchOnce(context.Context, resultcache.Key, string, string) (*toolkeep.Result, bool) {
	o.once++
	return o.has, o.has != nil
}

func (o *otherNodes) Fetch(context.Context, resultcache.Key, string, string) (*toolkeep.Result, bool) {
	o.asked++
	return o.has, o.has != nil
}

// TestResultsForOtherNodes: results of cached tools are given to other nodes and taken from them, but for those that hold
// secrets or come from the node's own machine; a hit in memory asks no other node.
func TestResultsForOtherNodes(t *testing.T) {
	o := &otherNodes{Cache: resultcache.New(resultcache.Config{})}
	h := newHarness(t, func(c *invoke.Config) {
		c.Results = o
		fake := c.Executors["builtin"].(*fakeExecutor)
		c.Executors["http"] = &reacher{fake, toolkeep.Reach{Hosts: []toolkeep.HostPort{{Host: "shop.example", Port: 443}}}}
		c.Executors["sqlite"] = &reacher{fake, toolkeep.Reach{OtherFiles: true}}
		c.Executors["socket"] = &reacher{fake, toolkeep.Reach{Socket: true}}
		c.Executors["file"] = ofMachine{fake}
	})
	cached := func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60} }
	h.tool("plain", cached)
	h.tool("uncached")
	for _, kind := range []string{"http", "sqlite", "socket", "file"} {
		h.tool(kind, cached, func(m *toolkeep.Manifest) { m.Execution.Kind = kind })
	}
	h.tool("redact", cached, func(m *toolkeep.Manifest) { m.Redact = []string{"/n"} })
	h.tool("password", cached, func(m *toolkeep.Manifest) {
		m.ParametersSchema = []byte(`{"type":"object","properties":{"n":{},"p":{"type":"string","format":"password"}}}`)
	})
	h.tool("fields", cached, func(m *toolkeep.Manifest) { m.Result = &toolkeep.ResultSpec{SensitiveFields: []string{"/x"}} })
	for _, c := range []struct {
		tool          string
		shared, asked int
	}{{"plain", 1, 1}, {"http", 1, 1}, {"sqlite", 0, 0}, {"socket", 0, 0}, {"file", 0, 0}, {"uncached", 0, 0}, {"redact", 0, 0}, {"password", 0, 0}, {"fields", 0, 0}} {
		o.shared, o.asked = 0, 0
		for range 2 { // the second hits memory
			if res, err := h.call(&toolkeep.Call{Tool: "std." + c.tool, Arguments: []byte(`{"n":1}`)}); err != nil || res.Error != nil {
				t.Fatalf("%s: %+v, %v", c.tool, res, err)
			}
		}
		if o.shared != c.shared || o.asked != c.asked {
			t.Errorf("%s: %d results were shared and other nodes asked %d times, want %d and %d", c.tool, o.shared, o.asked, c.shared, c.asked)
		}
	}
	o.has = &toolkeep.Result{ToolID: "std.plain", ToolVersion: "1.0.0", State: toolkeep.CallSucceeded, Output: []byte(`"theirs"`), Cached: true}
	ran := h.executor.calls.Load()
	res, err := h.call(&toolkeep.Call{Tool: "std.plain", Arguments: []byte(`{"n":2}`)})
	if err != nil || string(res.Output) != `"theirs"` || !res.Cached || res.Source() != "cache" || h.executor.calls.Load() != ran {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestRefusedCallsAndOtherNodes: calls that a breaker refuses ask the other nodes as FetchOnce does, and are no misses.
func TestRefusedCallsAndOtherNodes(t *testing.T) {
	o := &otherNodes{Cache: resultcache.New(resultcache.Config{})}
	h := newHarness(t, func(c *invoke.Config) {
		c.Results, c.Breakers = o, breaker.New(breaker.Config{})
		c.Executors["file"] = ofMachine{c.Executors["builtin"].(*fakeExecutor)}
	})
	few, long := 1, int64(3_600_000)
	rule := func(m *toolkeep.Manifest) {
		m.Retry.MaxAttempts = 1
		m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}
		m.Breaker = &toolkeep.BreakerSpec{ConsecutiveFailures: &few, OpenMS: &long}
	}
	h.tool("plain", rule)
	h.tool("file", rule, func(m *toolkeep.Manifest) { m.Execution.Kind = "file" })
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "broken")
	}
	for tool, once := range map[string]int{"plain": 1, "file": 0} {
		_, _ = h.call(&toolkeep.Call{Tool: "std." + tool, Arguments: []byte(`{"n":1}`)})
		asked, misses := o.asked, o.Stats().Misses
		o.once = 0
		if _, err := h.call(&toolkeep.Call{Tool: "std." + tool, Arguments: []byte(`{"n":1}`)}); err == nil || err.Code != toolkeep.CircuitBreakerOpen {
			t.Fatalf("%s: %v", tool, err)
		}
		if n := o.Stats().Misses - misses; n != 0 || o.asked != asked || o.once != once {
			t.Errorf("%s: a refused call is %d misses, and asked other nodes %d and %d times, want 0, 0 and %d", tool, n, o.asked-asked, o.once, once)
		}
	}
}
