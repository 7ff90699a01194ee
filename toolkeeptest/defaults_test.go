package toolkeeptest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestDefaultsOfManifests: settings under their names in the source documents hold for
// what manifests leave out, and what a manifest names is stronger.
func TestDefaultsOfManifests(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/down":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
		case "/slow":
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"n":"1","b":"true"}`)
		}
	}))
	defer s.Close()
	clock := &clock{begin: time.Now()}
	settings := map[string]string{"executor.default_resource_limits.timeout_seconds": "1", "result_validator.strict_mode": "false", "cache.ttl": "30s",
		"result_validator.type_coercion.rules": `[{"from_type":"string","to_type":"integer","coercion_function":"parseInt"}]`,
		"external_adapter.retry.max_attempts":  "2", "external_adapter.retry.base_delay_ms": "1", "external_adapter.retry.max_delay_ms": "2",
		"external_adapter.retry.jitter": "none", "external_adapter.retry.retryable_status_codes": "418,503",
		"result_validator.type_coercion.enabled": "true", "external_adapter.rate_limiting.burst_size": "2"}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: settings, Options: node.Options{Clock: clock.now}})
	const typed = `"result_schema":{"type":"object","properties":{"n":{"type":"integer"},"b":{"type":"boolean"}}}`
	k.Publish(webTool("d.down", s.URL, "/down"), webTool("d.down-once", s.URL, "/down", `"retry":{"max_attempts":1}`),
		webTool("d.teapot", s.URL, "/teapot"), webTool("d.teapot-once", s.URL, "/teapot", `"retry":{"retryable_status_codes":[]}`),
		strings.Replace(webTool("d.slow", s.URL, "/slow", `"retry":{"policy":"none"}`), `"kind":"http",`, `"kind":"http","attempt_timeout_ms":3600000,`, 1),
		webTool("d.typed", s.URL, "/typed", typed), webTool("d.typed-strict", s.URL, "/typed", typed, `"result":{"strict":true}`),
		webTool("d.typed-as-is", s.URL, "/typed", typed, `"result":{"coerce":false}`),
		webTool("d.kept", s.URL, "/kept", `"cache":{"policy":"ttl"}`), webTool("d.kept-long", s.URL, "/kept", `"cache":{"policy":"ttl","ttl_s":60}`),
		webTool("d.rated", s.URL, "/rated", `"rate_limit":{"per_minute":60}`), webTool("d.rated-more", s.URL, "/rated", `"rate_limit":{"per_minute":60,"burst":3}`))
	c := as(t, k, k.Key("default", "ann", "agent"))
	requests := func(call func()) int64 {
		before := asked.Load()
		call()
		return asked.Load() - before
	}
	for tool, want := range map[string]int64{"d.down": 2, "d.down-once": 1, "d.teapot": 2, "d.teapot-once": 1} {
		var a answer
		if n := requests(func() { a = c.call(tool, `{}`) }); n != want {
			t.Errorf("%s was asked %d times, want %d: %s", tool, n, want, a.body)
		}
	}
	c.call("d.slow", `{}`).failed(t, toolkeep.Timeout)

	a := c.call("d.typed", `{}`).success(t)
	if got := string(canon.Append(nil, a.at(t, "result"))); got != `{"b":"true","n":1}` || !strings.Contains(a.body, string(toolkeep.ResultCoercionFailed)) {
		t.Errorf("%s", a.body)
	}
	c.call("d.typed-strict", `{}`).failed(t, toolkeep.ResultCoercionFailed)
	a = c.call("d.typed-as-is", `{}`).success(t)
	if got := string(canon.Append(nil, a.at(t, "result"))); got != `{"b":"true","n":"1"}` {
		t.Errorf("%s", a.body)
	}

	for tool, again := range map[string]int64{"d.kept": 1, "d.kept-long": 0} {
		c.call(tool, `{}`).success(t)
		if n := requests(func() { c.call(tool, `{}`).success(t) }); n != 0 {
			t.Errorf("%s is not cached", tool)
		}
		clock.advance(31 * time.Second)
		if n := requests(func() { c.call(tool, `{}`).success(t) }); n != again {
			t.Errorf("%s was asked %d times after cache.ttl, want %d", tool, n, again)
		}
	}

	for tool, burst := range map[string]int{"d.rated": 2, "d.rated-more": 3} {
		for range burst {
			c.call(tool, `{}`).success(t)
		}
		c.call(tool, `{}`).overLimit(t, toolkeep.RateLimitExceeded, "tool")
	}
}

// TestBurstOfAgents: the buckets of an agent hold limits.burst, and fill at their rate.
func TestBurstOfAgents(t *testing.T) {
	t.Parallel()
	k, _, clock := limited(t, map[string]string{"limits.agent_per_minute": "60", "limits.burst": "2"})
	ann := as(t, k, k.Key("default", "ann", "agent"))
	for i := range 2 {
		if h := ann.call("std.echo", "{}").success(t).header.Get("RateLimit"); !strings.Contains(h, fmt.Sprintf("r=%d", 1-i)) {
			t.Errorf("RateLimit %q after %d calls", h, i+1)
		}
	}
	if wait := ann.call("std.echo", "{}").overLimit(t, toolkeep.RateLimitExceeded, "agent"); wait != time.Second {
		t.Errorf("wait %s", wait)
	}
	clock.advance(time.Second)
	ann.call("std.echo", "{}").success(t)
	ann.call("std.echo", "{}").overLimit(t, toolkeep.RateLimitExceeded, "agent")
}

// TestDimensionsThatDiffer: a service whose vectors are of another size than the settings
// say refuses the start; one that is away does not.
func TestDimensionsThatDiffer(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/embeddings" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, `{"data":[{"index":0,"embedding":[1,0,0]}]}`)
	}))
	defer s.Close()
	settings := func(url, dimensions string) map[string]string {
		return map[string]string{"registry.ollama_base_url": url, "registry.embedding_model": "small", "registry.embedding_dimensions": dimensions}
	}
	flags := settings(s.URL, "768")
	flags["data"] = t.TempDir()
	cfg, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	_, err = node.New(t.Context(), cfg, node.Options{LogTo: io.Discard})
	if !toolkeep.IsCode(err, toolkeep.InvalidManifest) || !strings.Contains(err.Error(), "vectors of 3 numbers") || !strings.Contains(err.Error(), "768") {
		t.Errorf("%v", err)
	}
	toolkeeptest.New(t, toolkeeptest.Option{Settings: settings(s.URL, "3")})
	toolkeeptest.New(t, toolkeeptest.Option{Settings: settings("http://127.0.0.1:1", "768")})
}
