package invoke_test

import (
	"context"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/resultcache"
)

// otherNodes is a result cache whose other nodes have a result for each call.
type otherNodes struct {
	*resultcache.Cache
	shared, asked int
	has           *toolkeep.Result
}

func (o *otherNodes) Share(resultcache.Key) { o.shared++ }

func (o *otherNodes) Fetch(context.Context, resultcache.Key, string, string) (*toolkeep.Result, bool) {
	o.asked++
	return o.has, o.has != nil
}

// TestResultsForOtherNodes: results of cached tools are given to other nodes and taken from them, but for those that hold
// secrets; a hit in memory asks no other node.
func TestResultsForOtherNodes(t *testing.T) {
	o := &otherNodes{Cache: resultcache.New(resultcache.Config{})}
	h := newHarness(t, func(c *invoke.Config) { c.Results = o })
	cached := func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60} }
	h.tool("plain", cached)
	h.tool("uncached")
	h.tool("redact", cached, func(m *toolkeep.Manifest) { m.Redact = []string{"/n"} })
	h.tool("password", cached, func(m *toolkeep.Manifest) {
		m.ParametersSchema = []byte(`{"type":"object","properties":{"n":{},"p":{"type":"string","format":"password"}}}`)
	})
	h.tool("fields", cached, func(m *toolkeep.Manifest) { m.Result = &toolkeep.ResultSpec{SensitiveFields: []string{"/x"}} })
	for _, c := range []struct {
		tool          string
		shared, asked int
	}{{"plain", 1, 1}, {"uncached", 0, 0}, {"redact", 0, 0}, {"password", 0, 0}, {"fields", 0, 0}} {
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
