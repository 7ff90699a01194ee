package toolkeeptest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// silence is an upstream that never answers. It sends on came when a request comes, and on left when that was cancelled.
type silence struct {
	url        string
	came, left chan struct{}
}

func newSilence(t testing.TB) *silence {
	u := &silence{came: make(chan struct{}, 1000), left: make(chan struct{}, 1000)}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		u.came <- struct{}{}
		<-r.Context().Done()
		u.left <- struct{}{}
	}))
	t.Cleanup(s.Close)
	u.url = s.URL
	return u
}

// tool is one that asks the upstream; execution has further members of execution.
func (u *silence) tool(id, execution string) string {
	at, _ := url.Parse(u.url)
	return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":"1.0.0","description":"Never answers.","side_effects":"reads","parameters_schema":{"type":"object"},
		"retry":{"policy":"none"},"permissions":{"network":[{"host":%q}]},"execution":{"kind":"http","binding":{"method":"GET","server":%q,"path":"/"}%s}}`, id, at.Hostname(), u.url, execution)
}

// TestTimeouts: of the limits of caller, call, tool and attempt the first that ends is answered, and the upstream's request is cancelled;
// within 10 ms, as one call within a minute shows: others wait for a machine with other work. TestTimeoutIsOnTime in invoke has what the gateway itself adds.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	u, short := newSilence(t), newSilence(t)
	k := toolkeeptest.New(t)
	k.Publish(u.tool("quiet.slow", `,"timeout_ms":60000`), u.tool("quiet.tool", `,"timeout_ms":2000`), u.tool("quiet.attempt", `,"timeout_ms":60000,"attempt_timeout_ms":2000`),
		short.tool("quiet.short", `,"timeout_ms":60000`))
	c := admin(t, k)
	ends := func(name string) {
		t.Helper()
		for _, what := range []chan struct{}{u.came, u.left} {
			select {
			case <-what:
			case <-time.After(time.Minute):
				t.Fatalf("%s: the upstream was not asked, or its request was not cancelled", name)
			}
		}
	}
	for _, tt := range []struct { // the limits are long enough for the call to reach its tool on a busy machine
		name, tool, more string
		code             toolkeep.Code
		whose            toolkeep.TimeLimit
	}{
		{"of the call", "quiet.slow", `"timeout_seconds":2`, toolkeep.Timeout, toolkeep.LimitCall},
		{"of the tool", "quiet.tool", `"timeout_seconds":30`, toolkeep.Timeout, toolkeep.LimitTool},
		{"of the attempt", "quiet.attempt", `"timeout_seconds":30`, toolkeep.UpstreamTimeout, ""},
	} {
		a := c.call(tt.tool, "{}", tt.more).failed(t, tt.code)
		if got := a.at(t, "error", "details", "time_limit"); tt.whose != "" && got != string(tt.whose) {
			t.Errorf("%s: the limit was that of %v, want %s: %s", tt.name, got, tt.whose, a.body)
		}
		ends(tt.name)
	}
	const limit, soon = 20 * time.Millisecond, 10 * time.Millisecond
	least := time.Hour
	for end := time.Now().Add(time.Minute); least > soon && time.Now().Before(end); {
		began := time.Now()
		a := c.call("quiet.short", "{}", `"timeout_seconds":0.02`)
		took := time.Since(began)
		if a.text(t, "code") == string(toolkeep.Timeout) { // its time was over before it was sent
			continue
		}
		a.failed(t, toolkeep.Timeout)
		<-short.came
		<-short.left
		least = min(least, took-limit)
	}
	if least > soon {
		t.Errorf("the end of a call's %s was answered %s late at best", limit, least)
	}
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := c.try(ctx, "POST", "/api/v1/tools/invoke", envelope("quiet.slow", "{}"))
		gone <- err
	}()
	<-u.came
	leave()
	u.came <- struct{}{}
	ends("of a caller that leaves")
	if err := <-gone; err == nil {
		t.Error("an answer came for the caller that left")
	}
}

// BenchmarkTimeout measures how long after a call's deadline of 20 ms its answer comes: late-ms is the mean, most-ms the latest.
func BenchmarkTimeout(b *testing.B) {
	const limit = 20 * time.Millisecond
	u := newSilence(b)
	k := toolkeeptest.New(b)
	k.Publish(u.tool("quiet.slow", `,"timeout_ms":60000`))
	c := admin(b, k)
	var sum, most time.Duration
	for b.Loop() {
		began := time.Now()
		c.call("quiet.slow", "{}", `"timeout_seconds":0.02`).failed(b, toolkeep.Timeout)
		late := time.Since(began) - limit
		sum, most = sum+late, max(most, late)
		<-u.came
		<-u.left
	}
	b.ReportMetric(float64(sum.Microseconds())/float64(b.N)/1000, "late-ms")
	b.ReportMetric(float64(most.Microseconds())/1000, "most-ms")
}
