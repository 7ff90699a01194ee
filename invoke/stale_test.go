package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/resultcache"
)

// TestStaleResultStandsInForAFailure fails a tool after its cached result has passed its TTL.
func TestStaleResultStandsInForAFailure(t *testing.T) {
	var passed atomic.Int64
	clock := func() time.Time { return time.Unix(1_700_000_000+passed.Load(), 0) }
	h := newHarness(t, func(c *invoke.Config) { c.Results = resultcache.New(resultcache.Config{Clock: clock}) })
	h.tool("stale", func(m *toolkeep.Manifest) {
		m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 10, StaleIfErrorS: 100}
	})
	h.tool("strict", func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 10} })
	var code atomic.Value
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		if c, _ := code.Load().(toolkeep.Code); c != "" {
			return nil, toolkeep.NewError(c, "broken")
		}
		return &toolkeep.Output{Value: "fine", HasValue: true}, nil
	}
	call := func(tool string) *toolkeep.Result {
		res, err := h.call(&toolkeep.Call{Tool: "std." + tool, Arguments: []byte(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for _, tool := range []string{"stale", "strict"} {
		if res := call(tool); res.Cached || res.Age != 0 {
			t.Fatalf("%+v", res)
		}
	}
	code.Store(toolkeep.UpstreamServerError)
	if res := call("stale"); !res.Cached || len(res.Warnings) != 0 {
		t.Errorf("within the TTL: %+v", res)
	}
	passed.Store(50)
	res := call("stale")
	if res.Error != nil || string(res.Output) != `"fine"` || !res.Cached || res.Age != 50*time.Second || res.Attempts != 3 ||
		len(res.Warnings) != 1 || res.Warnings[0].Code != toolkeep.UpstreamServerError || res.Warnings[0].Details["age_s"] != 50 {
		t.Errorf("%+v", res)
	}
	if res := call("strict"); res.Error == nil {
		t.Errorf("without stale_if_error_s: %+v", res)
	}
	code.Store(toolkeep.UpstreamClientError)
	if res := call("stale"); res.Error == nil || res.Error.Code != toolkeep.UpstreamClientError {
		t.Errorf("a failure that will not pass: %+v", res)
	}
	code.Store(toolkeep.UpstreamServerError)
	passed.Store(110)
	if res := call("stale"); res.Error == nil {
		t.Errorf("after stale_if_error_s: %+v", res)
	}
	code.Store(toolkeep.Code(""))
	if res := call("stale"); res.Error != nil || res.Cached {
		t.Errorf("the tool works again: %+v", res)
	}
}
