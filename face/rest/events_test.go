package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// event is one server-sent event as a client reads it.
type event struct {
	name, id string
	data     map[string]any
}

// rowsWatch is a watch fed by a channel.
func rowsWatch(rows <-chan *toolkeep.Invocation) func(context.Context, *toolkeep.Principal, string) iter.Seq2[*toolkeep.Invocation, error] {
	return func(ctx context.Context, _ *toolkeep.Principal, _ string) iter.Seq2[*toolkeep.Invocation, error] {
		return func(yield func(*toolkeep.Invocation, error) bool) {
			for {
				select {
				case v, ok := <-rows:
					if !ok || !yield(v, nil) {
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

// open starts a server and an event stream on it.
func open(t *testing.T, s *system, headers ...string) (*http.Response, *API) {
	t.Helper()
	a := s.api()
	srv := httptest.NewServer(a)
	tr := &http.Transport{}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/api/v1/invocations/i1/events", nil)
	r.Header.Set("Authorization", "Bearer agent")
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Set(k, v)
	}
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		res.Body.Close()
		tr.CloseIdleConnections()
		srv.Close()
	})
	return res, a
}

// next reads one event; comments are passed over.
func next(t *testing.T, rd *bufio.Reader) (event, bool) {
	t.Helper()
	var e event
	for {
		line, err := rd.ReadString('\n')
		if err != nil {
			return e, false
		}
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				t.Fatal(err)
			}
		case "":
			if e.name != "" {
				return e, true
			}
		}
	}
}

func progressed(percent int) *toolkeep.Invocation {
	v := invocationRow(toolkeep.CallRunning)
	v.Progress = toolkeep.Progress{Percent: percent, Phase: "p"}
	return v
}

func TestEvents(t *testing.T) {
	s := newSystem()
	rows := make(chan *toolkeep.Invocation)
	s.calls.watch = rowsWatch(rows)
	queued := invocationRow(toolkeep.CallQueued)
	queued.Progress = toolkeep.Progress{}
	go func() { rows <- queued }()
	res, _ := open(t, s)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Content-Encoding") != "" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	rd := bufio.NewReader(res.Body)
	done := invocationRow(toolkeep.CallSucceeded)
	done.Output = []byte("{\n\"n\": 1}")
	for _, x := range []struct {
		row          *toolkeep.Invocation
		name, status string
	}{{nil, "state", "pending"}, {progressed(0), "state", "running"}, {progressed(50), "progress", "running"}, {done, "result", "success"}} {
		if x.row != nil {
			rows <- x.row
		}
		e, ok := next(t, rd)
		if !ok || e.name != x.name || e.id == "" || e.data["status"] != x.status || e.data["invocation_id"] != "i1" {
			t.Fatalf("%+v, want %s %s", e, x.name, x.status)
		}
		schema := "InvocationAnswer"
		if x.name == "result" {
			schema = "InvokeResponse"
			if e.data["result"].(map[string]any)["n"] != 1.0 {
				t.Errorf("%v", e.data)
			}
		}
		b, _ := json.Marshal(e.data)
		if err := theContract().validate("/components/schemas/"+schema, b); err != nil {
			t.Error(err)
		}
	}
	if _, ok := next(t, rd); ok {
		t.Error("the stream went on after the result")
	}
}

func TestEventsResume(t *testing.T) {
	s := newSystem()
	start := func(row *toolkeep.Invocation, last string) (*http.Response, *bufio.Reader, chan *toolkeep.Invocation) {
		rows := make(chan *toolkeep.Invocation, 2)
		rows <- row
		s.calls.watch = rowsWatch(rows)
		var h []string
		if last != "" {
			h = []string{"Last-Event-ID: " + last}
		}
		res, _ := open(t, s, h...)
		return res, bufio.NewReader(res.Body), rows
	}
	_, rd, _ := start(progressed(10), "")
	first, _ := next(t, rd)

	// The client has this state already: only what is new comes.
	_, rd, rows := start(progressed(10), first.id)
	rows <- progressed(20)
	e, ok := next(t, rd)
	if !ok || e.data["progress_percent"] != 20.0 {
		t.Errorf("%+v", e)
	}
	// Something happened in between: it comes at once.
	_, rd, _ = start(progressed(30), first.id)
	if e, _ := next(t, rd); e.name != "state" || e.data["progress_percent"] != 30.0 {
		t.Errorf("%+v", e)
	}
	// The call ended in between.
	_, rd, _ = start(invocationRow(toolkeep.CallSucceeded), first.id)
	last, _ := next(t, rd)
	if last.name != "result" {
		t.Errorf("%+v", last)
	}
	// The client has the result: it is told not to come back.
	s.calls.get = func(p *toolkeep.Principal, _ string) (*toolkeep.Invocation, error) {
		if p.Subject != "agent" {
			return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "no")
		}
		return invocationRow(toolkeep.CallSucceeded), nil
	}
	wantStatus(t, s.do(t, "GET", "/api/v1/invocations/i1/events", "", "Authorization: Bearer agent", "Last-Event-ID: "+last.id), 204)
	problem(t, s.do(t, "GET", "/api/v1/invocations/i1/events", "", "Last-Event-ID: "+last.id), toolkeep.ResourceNotFound)
}

func TestEventsThatCannotBegin(t *testing.T) {
	s := newSystem()
	for name, x := range map[string]struct {
		watch iter.Seq2[*toolkeep.Invocation, error]
		code  toolkeep.Code
	}{
		"not found": {func(yield func(*toolkeep.Invocation, error) bool) {
			yield(nil, toolkeep.NewError(toolkeep.ResourceNotFound, "no"))
		}, toolkeep.ResourceNotFound},
		"nothing": {func(func(*toolkeep.Invocation, error) bool) {}, toolkeep.ResourceNotFound},
		"panic":   {func(func(*toolkeep.Invocation, error) bool) { panic("boom") }, toolkeep.InternalError},
	} {
		t.Run(name, func(t *testing.T) {
			s.calls.watch = func(context.Context, *toolkeep.Principal, string) iter.Seq2[*toolkeep.Invocation, error] {
				return x.watch
			}
			problem(t, s.do(t, "GET", "/api/v1/invocations/i1/events", ""), x.code)
		})
	}
}

func TestEventsHead(t *testing.T) {
	s := newSystem()
	rows := make(chan *toolkeep.Invocation, 1)
	rows <- progressed(1)
	s.calls.watch = rowsWatch(rows)
	w := s.do(t, "HEAD", "/api/v1/invocations/i1/events", "")
	wantStatus(t, w, 200)
	if w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", w.Header())
	}
}

func TestEventsThatBreakOff(t *testing.T) {
	s := newSystem()
	s.calls.watch = func(context.Context, *toolkeep.Principal, string) iter.Seq2[*toolkeep.Invocation, error] {
		return func(yield func(*toolkeep.Invocation, error) bool) {
			yield(progressed(1), toolkeep.NewError(toolkeep.RecordUnavailable, "the store is gone"))
		}
	}
	res, _ := open(t, s)
	rd := bufio.NewReader(res.Body)
	if e, ok := next(t, rd); !ok || e.name != "state" {
		t.Errorf("%+v", e)
	}
	if e, ok := next(t, rd); !ok || e.name != "error" || e.data["code"] != "E3965" {
		t.Errorf("%+v", e)
	}
	if _, ok := next(t, rd); ok {
		t.Error("the stream went on")
	}
}

func TestEventsKeepAlive(t *testing.T) {
	s := newSystem()
	s.Limits.KeepAlive = time.Millisecond
	rows := make(chan *toolkeep.Invocation, 1)
	rows <- progressed(1)
	s.calls.watch = rowsWatch(rows)
	res, _ := open(t, s)
	rd := bufio.NewReader(res.Body)
	for n := 0; n < 3; {
		line, err := rd.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == ": keep-alive\n" {
			n++
		}
	}
}

func TestShutdownEndsStreams(t *testing.T) {
	s := newSystem()
	rows := make(chan *toolkeep.Invocation, 1)
	rows <- progressed(1)
	s.calls.watch = rowsWatch(rows)
	res, a := open(t, s)
	rd := bufio.NewReader(res.Body)
	next(t, rd)
	a.Close()
	a.Close()
	rest, err := io.ReadAll(rd)
	if err != nil || !strings.Contains(string(rest), "shutting down") {
		t.Errorf("%q %v", rest, err)
	}
	problem(t, send(t, a, "GET", "/api/v1/invocations/i1/events", ""), toolkeep.Draining)
}

// A client that reads nothing holds up neither the watch, which goes on, nor
// the server, which cuts it off when the write timeout is over.
func TestSlowReader(t *testing.T) {
	s := newSystem()
	s.Limits.WriteTimeout = 500 * time.Millisecond
	seen, ended := 0, make(chan struct{})
	long := strings.Repeat("x", 1<<20)
	s.calls.watch = func(ctx context.Context, _ *toolkeep.Principal, _ string) iter.Seq2[*toolkeep.Invocation, error] {
		return func(yield func(*toolkeep.Invocation, error) bool) {
			defer close(ended)
			for ; ; seen++ {
				v := progressed(seen % 100)
				v.Progress.Message = long
				if !yield(v, nil) {
					return
				}
			}
		}
	}
	srv := httptest.NewServer(s.api())
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /api/v1/invocations/i1/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer agent\r\n\r\n", srv.Listener.Addr())
	<-ended
	if seen < 100 {
		t.Errorf("the watch stood still after %d rows", seen)
	}
}

func TestLatestWins(t *testing.T) {
	l := &latest{ready: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				l.put(progressed((i+j)%100), nil)
			}
		})
	}
	wg.Wait()
	end := invocationRow(toolkeep.CallSucceeded)
	l.put(end, nil)
	l.put(nil, io.EOF)
	<-l.ready
	if v, err := l.take(); v != end || err != io.EOF {
		t.Errorf("%+v %v", v, err)
	}
	if v, _ := l.take(); v != nil {
		t.Error("a row was given twice")
	}
}
