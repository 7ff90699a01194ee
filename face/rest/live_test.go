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

	"github.com/toolkeep/toolkeep"
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
