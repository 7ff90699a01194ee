package toolkeeptest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/approvals"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func TestHealthOverALife(t *testing.T) {
	t.Parallel()
	k, g := withGate(t, nil)
	k.Publish(gated("gate.write", "1.0.0", writes))
	nobody := as(t, k, "")
	for _, path := range []string{"/health/startup", "/health/live", "/health/ready", "/health", "/ready"} {
		a := nobody.do("GET", path, "").want(t, 200)
		if a.text(t, "status") != "UP" || a.text(t, "version") != "test" || a.text(t, "timestamp") == "" {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	ready := nobody.do("GET", "/health/ready", "")
	if ready.text(t, "components", "store", "status") != "UP" {
		t.Errorf("%s", ready.body)
	}

	got, stopped := stoppedInACall(t, k, g)
	// The port closes at once, so the test asks the handler directly.
	probe := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)
		k.Handler().ServeHTTP(w, r)
		return w
	}
	waitUntil(t, "not ready while draining", func() bool { return probe("/health/ready").Code == 503 })
	if w := probe("/health/ready"); !strings.Contains(w.Body.String(), `"DOWN"`) {
		t.Errorf("%s", w.Body)
	}
	if w := probe("/health/live"); w.Code != 200 {
		t.Errorf("not alive while draining: %d", w.Code)
	}
	// Load balancers see it before calls are refused.
	waitUntil(t, "calls are refused while draining", func() bool {
		_, err := k.Call("std.echo", "{}")
		e := toolkeep.AsError(err)
		return e != nil && e.Code == toolkeep.Draining
	})
	g.letGo("last")
	if a := <-got; a.status != 200 || a.text(t, "status") != "success" {
		t.Errorf("the call that ran was cut off: %s", a)
	}
	<-stopped
}

// stoppedInACall begins to stop the node while a call of gate.write, named last, runs.
func stoppedInACall(t *testing.T, k *toolkeeptest.Toolkeep, g *gate) (got <-chan answer, stopped <-chan struct{}) {
	t.Helper()
	c, answered, ended := admin(t, k), make(chan answer, 1), make(chan struct{})
	go func() {
		a, err := c.try(t.Context(), "POST", "/api/v1/tools/invoke", envelope("gate.write", named("last")))
		if err != nil {
			a.body = err.Error()
		}
		answered <- a
	}()
	g.awaits(t, "last")
	go func() { k.Close(); close(ended) }()
	return answered, ended
}

// TestDrainGrace: from the first signal on the node is not ready, but takes calls until drain.grace is over. (That it
// ends each connection with its answer is tested at the gate: Go's client hides the header.)
func TestDrainGrace(t *testing.T) {
	t.Parallel()
	k, g := withGate(t, map[string]string{"drain.grace": "3s"})
	k.Publish(gated("gate.write", "1.0.0", writes))
	c := admin(t, k)
	got, stopped := stoppedInACall(t, k, g)
	waitUntil(t, "not ready", func() bool { return c.do("GET", "/health/ready", "").status == 503 })
	echo := func() answer { return c.do("POST", "/api/v1/tools/invoke", envelope("std.echo", `{}`)) }
	if a := echo(); a.text(t, "status") != "success" {
		t.Errorf("in the grace: %s", a)
	}
	waitUntil(t, "calls are refused", func() bool { return echo().status == 503 })
	if a := echo(); a.text(t, "code") != string(toolkeep.Draining) || a.header.Get("Retry-After") == "" {
		t.Errorf("after the grace: %s", a)
	}
	g.letGo("last")
	if a := <-got; a.text(t, "status") != "success" {
		t.Errorf("the call that ran was cut off: %s", a)
	}
	<-stopped
}

// TestDocumentAndRoutesAgree: every operation of the OpenAPI document is served at its
// documented path.
func TestDocumentAndRoutesAgree(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	c := admin(t, k)
	doc := c.do("GET", "/openapi.json", "").want(t, 200).object(t)
	paths, _ := doc["paths"].(map[string]any)
	n := 0
	for path, item := range paths {
		for method := range item.(map[string]any) {
			switch method {
			case "get", "put", "post", "delete":
			default:
				continue
			}
			n++
			at := path
			if path == "/api/v1/invocations/events" { // a GET has no end
				method = "head"
			}
			for strings.Contains(at, "{") {
				i, j := strings.Index(at, "{"), strings.Index(at, "}")
				at = at[:i] + "none.such" + at[j+1:]
			}
			a := c.do(strings.ToUpper(method), at, "")
			if a.status == 405 || a.status >= 500 || strings.Contains(a.body, "there is nothing at") {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
			for _, key := range []string{"", "tk_wrong"} {
				u := as(t, k, key).do(strings.ToUpper(method), at, "")
				open := strings.HasPrefix(path, "/health") || path == "/ready" || strings.HasPrefix(path, "/openapi.") ||
					path == approvals.LinkPath || path == "/api/v1/session/redeem" // the link's token is the credential
				if !open && u.status != 401 && u.status != 429 || open && u.status == 401 {
					t.Errorf("%s %s with key %q: %d", method, path, key, u.status)
				}
				if key == "" {
					continue
				}
				break
			}
		}
	}
	for _, want := range []string{"/api/v1/tools/invoke", "/api/v1/invocations/{invocation_id}/events", "/api/v1/keys", "/health/ready",
		"/api/v1/tools/retrieval/search", "/api/v1/blobs/{blob_id}", "/cache/invalidate/{tool_id}", "/api/v1/tools/import"} {
		if paths[want] == nil {
			t.Errorf("the document has no %s", want)
		}
	}
	if n < 25 {
		t.Errorf("only %d operations", n)
	}
	if y := c.do("GET", "/openapi.yaml", "").want(t, 200); !strings.Contains(y.body, "/api/v1/tools/invoke") {
		t.Error("the YAML form lacks the paths")
	}
}
