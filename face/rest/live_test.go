package rest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/overview"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestLiveEvents: the events of all calls are told as they come, and the filter is that of the list.
func TestLiveEvents(t *testing.T) {
	s := newSystem()
	events := make(chan invoke.LiveEvent, 8)
	var asked toolkeep.InvocationFilter
	s.calls.follow = func(ctx context.Context, _ *toolkeep.Principal, f toolkeep.InvocationFilter) iter.Seq2[invoke.LiveEvent, error] {
		asked = f
		return func(yield func(invoke.LiveEvent, error) bool) {
			for yield(invoke.LiveEvent{Kind: invoke.LiveOpen}, nil) {
				break
			}
			for {
				select {
				case e, ok := <-events:
					if !ok || !yield(e, nil) {
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}
	}
	srv := httptest.NewServer(s.api())
	defer srv.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/api/v1/invocations/events?state=running&state=failed&tool_id=demo.hash", nil)
	r.Header.Set("Authorization", "Bearer agent")
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	rd := bufio.NewReader(res.Body)
	if e, _ := next(t, rd); e.name != "open" || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v, %v", e, res.Header)
	}
	if want := (toolkeep.InvocationFilter{Tenant: "t", Subject: "agent", ToolID: "demo.hash", States: []toolkeep.CallState{toolkeep.CallRunning, toolkeep.CallFailed}}); !reflect.DeepEqual(asked, want) {
		t.Errorf("%+v", asked)
	}
	events <- invoke.LiveEvent{Kind: invoke.LiveProgress, Call: progressed(40)}
	if e, _ := next(t, rd); e.name != "progress" || e.id != "" || e.data["invocation_id"] != "i1" || fmt.Sprint(e.data["progress"]) != "map[fraction:0.4 phase:p]" {
		t.Errorf("%v", e)
	}
	events <- invoke.LiveEvent{Kind: invoke.LiveGap, Missed: 7}
	if e, _ := next(t, rd); e.name != "gap" || fmt.Sprint(e.data) != "map[missed:7]" {
		t.Errorf("%v", e)
	}
	close(events)
	if rest, err := io.ReadAll(rd); err != nil || strings.Contains(string(rest), "event:") {
		t.Errorf("%q, %v", rest, err)
	}
	s.calls.follow = func(context.Context, *toolkeep.Principal, toolkeep.InvocationFilter) iter.Seq2[invoke.LiveEvent, error] {
		return func(yield func(invoke.LiveEvent, error) bool) {
			yield(invoke.LiveEvent{}, toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "too many"))
		}
	}
	problem(t, s.do(t, "GET", "/api/v1/invocations/events", ""), toolkeep.ConcurrencyLimitExceeded)
	problem(t, s.do(t, "GET", "/api/v1/invocations/events?agent_id=other", "", "Authorization: Bearer agent"), toolkeep.PermissionDenied)
	problem(t, s.do(t, "GET", "/api/v1/invocations/events?error_code=3201", ""), toolkeep.InvalidParameters)
	problem(t, s.do(t, "GET", "/api/v1/invocations/events?page=1", ""), toolkeep.MalformedRequest)
}

// fakeOverview answers what it holds.
type fakeOverview struct{ window time.Duration }

func (f *fakeOverview) Show(_ context.Context, p *toolkeep.Principal, window time.Duration) (*overview.OverviewReport, error) {
	f.window = window
	return &overview.OverviewReport{Node: "n", Since: at, WindowS: 300, StepS: 60, Points: []overview.OverviewPoint{{At: at, CallCounts: overview.CallCounts{Calls: 2, P95: 1.5}}}, Codes: []overview.CodeCount{{ErrorCode: "E3201", Name: "permission_denied", Count: 1}}, Running: 1}, nil
}

func (f *fakeOverview) Limits(*toolkeep.Principal) (*overview.LimitReport, error) {
	return &overview.LimitReport{Node: "n", Since: at, Limits: []overview.LimitInForce{{LimitType: "agent", Scope: "s", PerMinute: 100}}, Refused: []overview.RefusedByLimit{{LimitType: "agent", Count: 1, LastAt: at}}}, nil
}

func TestOverview(t *testing.T) {
	s := newSystem()
	o := &fakeOverview{}
	s.Config.Overview = o
	m := decode(t, s.do(t, "GET", "/api/v1/overview?window=5m", ""))
	if p := m["points"].([]any)[0].(map[string]any); o.window != 5*time.Minute || p["calls"] != number("2") || p["p95_ms"] != number("1.5") || p["at"] == nil || m["running"] != number("1") {
		t.Errorf("%v", m)
	}
	if wantStatus(t, s.do(t, "GET", "/api/v1/overview", ""), 200); o.window != time.Hour {
		t.Errorf("the default is %s", o.window)
	}
	problem(t, s.do(t, "GET", "/api/v1/overview?window=1d", ""), toolkeep.InvalidParameters)
	if m := decode(t, s.do(t, "GET", "/api/v1/limits", "")); m["limits"].([]any)[0].(map[string]any)["per_minute"] != number("100") || m["bulkheads"] != nil {
		t.Errorf("%v", m)
	}
	for _, path := range []string{"/api/v1/overview", "/api/v1/limits"} {
		problem(t, s.do(t, "GET", path, "", "Authorization: Bearer agent"), toolkeep.PermissionDenied)
	}
}

func TestRequeue(t *testing.T) {
	s := newSystem()
	s.calls.get = func(_ *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
		if id != "i1" {
			return nil, toolkeep.NewError(toolkeep.StateConflict, "the call is not lost")
		}
		return invocationRow(toolkeep.CallQueued), nil
	}
	if m := decode(t, s.do(t, "POST", "/api/v1/invocations/i1/requeue", "")); m["state"] != "queued" || m["invocation_id"] != "i1" {
		t.Errorf("%v", m)
	}
	problem(t, s.do(t, "POST", "/api/v1/invocations/i2/requeue", ""), toolkeep.StateConflict)
	problem(t, s.do(t, "POST", "/api/v1/invocations/i1/requeue", "", "Authorization: Bearer agent"), toolkeep.PermissionDenied)
}
