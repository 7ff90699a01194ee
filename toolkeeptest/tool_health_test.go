package toolkeeptest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestToolHealth: a tool whose endpoint fails is probed, known as unhealthy at each face, in lists, metrics and events, and stopped
// by its breaker; a caller that may not see it learns nothing. A probe reaches no inner address that the manifest does not list.
func TestToolHealth(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var credentials atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			credentials.Add(1)
		}
		if r.URL.Path == "/up" && down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer s.Close()
	probed := webTool("web.probed", s.URL, "/", `"health":{"endpoint":"/up","interval_s":1},"breaker":{"consecutive_failures":4,"failure_rate":100,"open_ms":3600000}`)
	inner := strings.Replace(webTool("web.inner", s.URL, "/", `"health":{"endpoint":"/up","interval_s":1}`), `"host":"127.0.0.1"`, `"host":"10.0.0.1"`, 1)
	k := toolkeeptest.New(t)
	k.Publish(probed, inner, webTool("web.plain", s.URL, "/", `"breaker":{"window":"count"}`)) // whose call stays in the window
	boss := admin(t, k)
	health := func(tool string) answer { return boss.do("GET", "/api/v1/tools/"+tool+"/health", "").want(t, 200) }
	is := func(tool, status string) func() bool {
		return func() bool { return health(tool).text(t, "status") == status }
	}
	waitUntil(t, "the tool is healthy", is("web.probed", "healthy"))
	waitUntil(t, "the probe of an inner address is refused", func() bool { return strings.Contains(health("web.inner").body, "E3505") })
	if a := health("web.inner"); a.text(t, "status") != "unknown" {
		t.Errorf("%s", a.body)
	}
	if a := health("web.plain"); a.text(t, "status") != "unknown" || a.text(t, "circuit_breaker_state") != "closed" {
		t.Errorf("%s", a.body)
	}
	boss.call("web.plain", `{}`).success(t)
	if a := health("web.plain"); a.text(t, "status") != "healthy" || strings.Contains(a.body, `"average_latency_ms":0,`) || a.text(t, "last_check_time") == "" {
		t.Errorf("after a call: %s", a.body)
	}

	down.Store(true)
	waitUntil(t, "probes opened the breaker", func() bool { return health("web.probed").text(t, "circuit_breaker_state") == "open" })
	if a := health("web.probed"); a.text(t, "status") != "unhealthy" || a.text(t, "metadata", "probe", "status") != "unhealthy" || !strings.Contains(a.body, "HTTP 503") {
		t.Errorf("%s", a.body)
	}
	boss.call("web.probed", `{}`).refused(t, toolkeep.CircuitBreakerOpen)
	list := boss.do("GET", "/api/v1/tools?namespace=web", "").want(t, 200)
	for i, want := range []string{"web.inner ", "web.plain healthy", "web.probed unhealthy"} {
		var got string
		for j := range 3 {
			at := string(rune('0' + j))
			if id := list.text(t, "tools", at, "tool_id"); strings.HasPrefix(want, id+" ") {
				got = id + " "
				if !strings.HasSuffix(want, " ") {
					got += list.text(t, "tools", at, "health")
				}
			}
		}
		if got != want {
			t.Errorf("%d in the list is %q, want %q: %s", i, got, want, list.body)
		}
	}
	r := l03v1.NewToolRegistryClient(dialAgent(t, k, "reader/1"))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+k.AdminKey)
	h, err := r.GetToolHealth(ctx, &l03v1.GetToolHealthRequest{ToolId: "web.probed"})
	if err != nil || h.GetStatus() != "unhealthy" || h.GetCircuitBreakerState() != "open" || h.GetErrorRatePercent() == 0 || h.GetLastCheckTime() == nil || h.GetMetadata().GetFields()["probe"] == nil {
		t.Errorf("%v, %v", h, err)
	}
	tools, err := r.ListTools(ctx, &l03v1.ListToolsRequest{Filters: map[string]string{"namespace": "web"}})
	if err != nil || tools.GetTools()[2].GetHealth() != "unhealthy" || tools.GetTools()[0].GetHealth() != "" {
		t.Errorf("%v, %v", tools, err)
	}
	waitUntil(t, "the change is an event", func() bool {
		return strings.Contains(boss.do("GET", "/api/v1/audit/events?type=ai.agent.tool.health.changed", "").want(t, 200).body, `"to":"unhealthy"`)
	})
	resp, err := http.Get(k.MetricsURL())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), `tool_health{state="unhealthy",tool_id="web.probed"} 1`) {
		t.Errorf("the metrics lack the health: %v", err)
	}
	other := as(t, k, k.AddKey(toolkeep.APIKey{Tenant: "other", Subject: "bot", Roles: []string{"agent"}, Scope: []string{"web.plain"}, CreatedBy: "test"}))
	other.do("GET", "/api/v1/tools/web.probed/health", "").refused(t, toolkeep.ToolNotFound)
	if mine, others := health("web.plain").body, other.do("GET", "/api/v1/tools/web.plain/health", "").want(t, 200).body; !strings.Contains(mine, "window_calls") || strings.Contains(others, "window_calls") {
		t.Errorf("how much a shared tool is called: %s\nfor another tenant: %s", mine, others)
	}
	if n := credentials.Load(); n != 0 {
		t.Errorf("%d requests had credentials", n)
	}

	a := boss.do("POST", "/api/v1/tools/register", `{"manifest":`+strings.Replace(webTool("web.away", s.URL, "/", `"health":{"endpoint":"https://elsewhere.example/up"}`), "\n", "", -1)+`}`)
	if a.refused(t, toolkeep.InvalidManifest); !strings.Contains(a.body, "/health/endpoint") {
		t.Errorf("%s", a.body)
	}
	a = boss.do("POST", "/api/v1/tools/register", `{"manifest":`+toolkeeptest.Manifest("std2.echo", "1.0.0", "echo", `"health":{"endpoint":"/up"}`)+`}`)
	if a.refused(t, toolkeep.InvalidManifest); !strings.Contains(a.body, "reach no network") {
		t.Errorf("%s", a.body)
	}
}
