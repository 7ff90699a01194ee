package overview

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

var began = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// listed counts what is asked of the store.
type listed struct{ asked int }

func (l *listed) List(_ context.Context, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
	l.asked++
	return nil, map[toolkeep.CallState]int{toolkeep.CallRunning: 3, toolkeep.CallQueued: 5}[f.State], nil
}

func newOverview(now *time.Time) (*Overview, *listed) {
	l := &listed{}
	return New(Config{Node: "node-1", Recent: NewRecent(began), Calls: l, Approvals: &approval.Book{}, Rates: limit.Config{PerAgentRPM: 100, Burst: 7, Concurrent: 4},
		Bulkheads: func() []bulkhead.Stat { return []bulkhead.Stat{{Name: "http", Limit: 300, InUse: 2, Waiting: 1}} },
		Clock:     func() time.Time { return *now }}), l
}

func call(tenant string, at time.Time, state toolkeep.CallState, took time.Duration, code toolkeep.Code) *toolkeep.Invocation {
	return &toolkeep.Invocation{Tenant: tenant, Subject: "bot", ToolID: "a.b", State: state, EndedAt: at, TotalUS: took.Microseconds(), Code: code, CostUSD: 0.25}
}

func admin(tenant string) *toolkeep.Principal {
	return &toolkeep.Principal{Tenant: tenant, Subject: "root", Permissions: []string{"*"}}
}

// TestShow: a tenant sees its own calls by minute, those of the window alone.
func TestShow(t *testing.T) {
	t.Parallel()
	now := began.Add(10*time.Minute + 30*time.Second)
	o, l := newOverview(&now)
	r := o.c.Recent
	r.Called(call("t", began.Add(time.Minute), toolkeep.CallFailed, time.Second, toolkeep.UpstreamTimeout), nil) // before the window
	for range 90 {
		r.Called(call("t", now, toolkeep.CallSucceeded, 3*time.Millisecond, ""), nil)
	}
	for range 10 {
		r.Called(call("t", now.Add(-time.Minute), toolkeep.CallFailed, 900*time.Millisecond, toolkeep.UpstreamTimeout), nil)
	}
	r.Called(call("t", now, toolkeep.CallRefused, 0, toolkeep.PermissionDenied), nil)
	r.Called(call("other", now, toolkeep.CallSucceeded, 0, ""), nil)
	hit := call("t", now, toolkeep.CallSucceeded, 100*time.Microsecond, "")
	hit.Cached = true
	r.Called(hit, nil)
	replayed, waits := *hit, call("t", now, toolkeep.CallQueued, 0, "")
	replayed.Replayed = true
	r.Called(&replayed, nil)
	r.Called(waits, nil)
	got, err := o.Show(t.Context(), admin("t"), 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c := got.Totals
	if c.Calls != 102 || c.Succeeded != 91 || c.Failed != 10 || c.Refused != 1 || c.CacheHits != 1 || c.CostUSD != 25.5 || c.P50 < 2 || c.P50 > 5 || c.P95 < 500 || c.P95 > 1000 || c.P99 > 1000 {
		t.Errorf("%+v", c)
	}
	if n := len(got.Points); n != 5 || got.Points[4].Calls != 92 || got.Points[3].Failed != 10 || got.Points[0].Calls != 0 || !got.Points[4].At.Equal(began.Add(10*time.Minute)) {
		t.Errorf("%+v", got.Points)
	}
	if s := fmt.Sprint(got.Codes); s != "[{E3502 upstream_timeout 10} {E3201 permission_denied 1}]" {
		t.Error(s)
	}
	if got.Running != 3 || got.Queued != 5 || got.Node != "node-1" || !got.Since.Equal(began) {
		t.Errorf("%+v", got)
	}
	if _, _ = o.Show(t.Context(), admin("t"), time.Hour); l.asked != 2 {
		t.Errorf("the store was asked %d times within 5 s", l.asked)
	}
	if got, _ := o.Show(t.Context(), admin("t"), time.Hour); len(got.Points) != 11 || got.Totals.Calls != 103 {
		t.Errorf("since the start: %d points, %d calls", len(got.Points), got.Totals.Calls)
	}
	now = now.Add(minutes * time.Minute)
	if got, _ := o.Show(t.Context(), admin("t"), MaxWindow); got.Totals.Calls != 0 || len(got.Points) != minutes {
		t.Errorf("after %d minutes: %d points, %+v", minutes, len(got.Points), got.Totals)
	}
	if _, err := o.Show(t.Context(), &toolkeep.Principal{Tenant: "t"}, time.Hour); !toolkeep.IsCode(err, toolkeep.PermissionDenied) {
		t.Error(err)
	}
	for _, d := range []time.Duration{0, time.Minute, 7 * time.Hour} {
		if _, err := o.Show(t.Context(), admin("t"), d); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// TestLimits: an operator sees whom the limits refused in its tenant; the bulkheads, which hold the calls of all, in the home tenant alone.
func TestLimits(t *testing.T) {
	t.Parallel()
	now := began
	o, _ := newOverview(&now)
	r := o.c.Recent
	e := toolkeep.NewError(toolkeep.RateLimitExceeded, "no").With("limit_type", "agent_tool")
	for i := range 2 {
		r.Called(call("t", began.Add(time.Duration(i)*time.Second), toolkeep.CallRefused, 0, toolkeep.RateLimitExceeded), e)
	}
	r.Called(call("t", began, toolkeep.CallRefused, 0, toolkeep.PermissionDenied), nil)
	r.Called(call("other", began, toolkeep.CallRefused, 0, toolkeep.RateLimitExceeded), e)
	r.Limited(&toolkeep.Principal{Tenant: "t", Subject: "lister"}, toolkeep.NewError(toolkeep.RateLimitExceeded, "no").With("limit_type", "agent"))
	got, err := o.Limits(admin("t"))
	if err != nil || len(got.Refused) != 2 || got.Refused[0].Subject != "lister" || got.Refused[0].LimitType != "agent" || got.Bulkheads != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := (RefusedByLimit{LimitType: "agent_tool", Subject: "bot", ToolID: "a.b", Count: 2, LastAt: began.Add(time.Second)}); got.Refused[1] != want {
		t.Errorf("%+v", got.Refused[1])
	}
	if s := fmt.Sprint(got.Limits); s != "[{agent requests of an agent 100 7 0} {concurrency calls of an agent at once 0 0 4}]" {
		t.Error(s)
	}
	if got, _ := o.Limits(&toolkeep.Principal{Tenant: "t", Permissions: []string{toolkeep.PermOperate}}); got.Refused[1].Subject != "" || got.Refused[1].ToolID != "" || got.Refused[1].Count != 2 {
		t.Errorf("without invocations:read: %+v", got.Refused)
	}
	if got, _ := o.Limits(admin("default")); len(got.Bulkheads) != 1 || got.Bulkheads[0].Most != 300 || len(got.Refused) != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := o.Limits(&toolkeep.Principal{Tenant: "t"}); !toolkeep.IsCode(err, toolkeep.PermissionDenied) {
		t.Error(err)
	}
}

// TestRecentIsBounded: so are tenants, and who was refused; it is used by many at once.
func TestRecentIsBounded(t *testing.T) {
	t.Parallel()
	r := NewRecent(began)
	e := toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "no")
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range maxTenants {
				r.Called(call(fmt.Sprint(i+w*8), began.Add(time.Duration(i)*time.Second), toolkeep.CallSucceeded, 0, ""), nil)
				v := call("t", began.Add(time.Duration(i)*time.Hour), toolkeep.CallRefused, 0, toolkeep.ConcurrencyLimitExceeded)
				v.Subject = fmt.Sprint(i)
				r.Called(v, e)
				r.points("t", 0, 10, &counts{})
				r.refusedOf(admin("t"))
			}
		})
	}
	all.Wait()
	if n, m := len(r.tenants), len(r.tenants["t"].refused); n != maxTenants || m != maxRefused {
		t.Errorf("%d tenants, %d of one that were refused", n, m)
	}
	last := false
	for _, one := range r.refusedOf(admin("t")) {
		last = last || one.Subject == fmt.Sprint(maxTenants-1)
	}
	if !last {
		t.Error("the newest refusal is not among those that are kept")
	}
}
