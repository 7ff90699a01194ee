package mcpserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// valve is an invoker whose calls wait until released. Each sends progress first.
type valve struct {
	started chan *toolkeep.Call
	open    chan struct{}
	ended   chan error
}

func newGate() *valve {
	return &valve{started: make(chan *toolkeep.Call, 10), open: make(chan struct{}), ended: make(chan error, 10)}
}

func (g *valve) Invoke(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
	if c.Caller != nil {
		c.Caller.Progress(toolkeep.Progress{Percent: 10, Message: "on the way"})
	}
	g.started <- c
	select {
	case <-g.open:
		g.ended <- nil
		return echo(ctx, p, c)
	case <-ctx.Done():
		g.ended <- context.Cause(ctx)
		return nil, toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled")
	}
}

const slowCall = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"demo__echo","arguments":{"text":"slow"},"_meta":{"progressToken":"p1"}}}`

func TestProgressMakesAStreamThatCanBeResumed(t *testing.T) {
	g := newGate()
	s := newSystem(t)
	s.Invoker = g
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", "{}")
	rd, stop := s.events("POST", "/mcp", slowCall, h...)
	first, err := rd.Next()
	if err != nil || first.ID != "1-1" || len(first.Data) != 0 {
		t.Fatalf("no priming event: %+v %v", first, err)
	}
	m, id := next(t, rd)
	if m.Method != mcp.NotificationProgress || mcp.Text(m.Params, "progressToken") != "p1" || string(mcp.Get(m.Params, "progress")) != "10" || mcp.Text(m.Params, "message") != "on the way" || id != "1-2" {
		t.Fatalf("%s %s", m.Bytes(), id)
	}
	<-g.started
	stop() // the connection drops; the call continues
	close(g.open)
	if err := <-g.ended; err != nil {
		t.Fatalf("the call was ended: %v", err)
	}
	rd, _ = s.events("GET", "/mcp", "", append(slices.Clone(h), "Last-Event-Id: 1-2")...)
	if m, id = next(t, rd); string(m.ID) != "5" || m.Result == nil || id != "1-3" {
		t.Fatalf("%s %s", m.Bytes(), id)
	}
	if _, err := rd.Next(); err != io.EOF {
		t.Errorf("the stream goes on: %v", err)
	}
	// Also from the start, and repeatedly.
	rd, _ = s.events("GET", "/mcp", "", append(slices.Clone(h), "Last-Event-Id: 1-1")...)
	if m, _ = next(t, rd); m.Method != mcp.NotificationProgress {
		t.Errorf("%s", m.Bytes())
	}
	for _, id := range []string{"99-1", "x", "1-x"} {
		s.do("GET", "/mcp", "", append(slices.Clone(h), "Accept: text/event-stream", "Last-Event-Id: "+id)...).problem(t, 400, toolkeep.MalformedRequest)
	}
}

func TestACallWithoutEventsEndsWithItsConnection(t *testing.T) {
	for name, headers := range map[string]func(*system) []string{
		"session": func(s *system) []string { return s.session("/mcp", "2025-11-25", "{}") },
		"none":    func(*system) []string { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			s := newSystem(t)
			s.Invoker = g
			s.publish(manifest("demo.echo"))
			s.start()
			ctx, cancel := context.WithCancel(t.Context())
			req := s.request("POST", "/mcp", callEcho, headers(s)...).WithContext(ctx)
			var done sync.WaitGroup
			done.Go(func() {
				if resp, err := http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			})
			<-g.started
			cancel()
			done.Wait()
			if err := <-g.ended; err == nil {
				t.Error("the call was not ended")
			}
		})
	}
}

func TestASlowCallBecomesAStream(t *testing.T) {
	g := newGate()
	s := newSystem(t)
	s.Invoker = g
	s.Limits.streamAfter, s.front.Limits.KeepAlive = time.Millisecond, 2*time.Millisecond
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", "{}")
	rd, _ := s.events("POST", "/mcp", callEcho, h...)
	if e, err := rd.Next(); err != nil || e.ID == "" {
		t.Fatalf("%+v %v", e, err)
	}
	close(g.open)
	if m, _ := next(t, rd); m.Result == nil {
		t.Errorf("%s", m.Bytes())
	}
}

func TestAClientThatTakesJSONAloneGetsJSON(t *testing.T) {
	g := newGate()
	close(g.open)
	s := newSystem(t)
	s.Invoker = g
	s.publish(manifest("demo.echo"))
	s.start()
	if a := s.post("/mcp", slowCall, "Accept: application/json"); a.header.Get("Content-Type") != "application/json" || a.result(t, "isError") != "" {
		t.Errorf("%s", a.body)
	}
	if a := s.post("/mcp", callEcho, "Accept: text/event-stream"); a.header.Get("Content-Type") != "text/event-stream" || !strings.Contains(a.body, `"result"`) {
		t.Errorf("%s", a.body)
	}
}

func TestCancelledNotification(t *testing.T) {
	g := newGate()
	s := newSystem(t)
	s.Invoker = g
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", "{}")
	rd, _ := s.events("POST", "/mcp", slowCall, h...)
	<-g.started
	s.post("/mcp", slowCall, h...).failure(t, 200, mcp.CodeInvalidRequest) // the id is in use
	if a := s.post("/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`, h...); a.status != 202 {
		t.Error(a.status)
	}
	if err := <-g.ended; err == nil {
		t.Error("the call was not ended")
	}
	for {
		if m, _ := next(t, rd); m.Result != nil {
			if !strings.Contains(string(m.Result), `"code":"E3902"`) {
				t.Errorf("%s", m.Result)
			}
			break
		}
	}
}

func TestOwnStreamOfASession(t *testing.T) {
	s := newSystem(t)
	s.Limits.listDelay = time.Millisecond
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", "{}")
	rd, stop := s.events("GET", "/mcp", "", h...)
	first, err := rd.Next()
	if err != nil || first.ID != "0-1" {
		t.Fatalf("%+v %v", first, err)
	}
	s.do("GET", "/mcp", "", append(slices.Clone(h), "Accept: text/event-stream")...).problem(t, 409, toolkeep.StateConflict)
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, h...)
	s.publish(manifest("demo.more"))
	m, id := next(t, rd)
	if m.Method != mcp.NotificationToolsChanged || id != "0-2" {
		t.Fatalf("%s %s", m.Bytes(), id)
	}
	// A reader that returns with an id takes over the stream.
	again, _ := s.events("GET", "/mcp", "", append(slices.Clone(h), "Last-Event-Id: 0-1")...)
	if m, _ := next(t, again); m.Method != mcp.NotificationToolsChanged {
		t.Errorf("%s", m.Bytes())
	}
	if _, err := rd.Next(); err != io.EOF {
		t.Errorf("the first reader goes on: %v", err)
	}
	stop()
	s.server.Drain()
	if _, err := again.Next(); err != io.EOF {
		t.Errorf("the stream outlives Drain: %v", err)
	}
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`).problem(t, 503, toolkeep.Draining)
	s.do("GET", "/mcp", "", append(h, "Accept: text/event-stream")...).problem(t, 503, toolkeep.Draining)
	if a := s.post("/mcp", callEcho, h...); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Changes to tools a caller cannot see are not announced to it.
func TestOnlyRealChangesAreAnnounced(t *testing.T) {
	s := newSystem(t)
	s.Limits.listDelay = time.Millisecond
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-06-18", "{}", "Authorization: Bearer narrow")
	all := s.session("/mcp", "2025-06-18", "{}")
	rd, _ := s.events("GET", "/mcp", "", h...)
	other, _ := s.events("GET", "/mcp", "", all...)
	for _, who := range [][]string{h, all} {
		s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, who...)
	}
	s.publish(manifest("demo.more"))
	if m, _ := next(t, other); m.Method != mcp.NotificationToolsChanged {
		t.Fatalf("%s", m.Bytes())
	}
	s.publish(strings.Replace(manifest("demo.echo"), `"1.0.0"`, `"1.1.0"`, 1))
	if m, id := next(t, rd); m.Method != mcp.NotificationToolsChanged || id != "0-1" {
		t.Fatalf("%s %s", m.Bytes(), id) // the first event on this stream
	}
}

func TestSlowReadersDropNoticesAndNeverAnswers(t *testing.T) {
	s := newSystem(t)
	s.Limits.streamEvents = 4
	s.start()
	st := s.server.newStream("9")
	rd, _ := st.attach(false)
	for i := range 20 {
		st.add([]byte(fmt.Sprintf(`{"n":%d}`, i)), i == 3, "")
	}
	list, over := st.take(rd, 0, nil)
	if len(list) != 4 || over || string(list[0].data) != `{"n":3}` || string(list[3].data) != `{"n":19}` {
		t.Errorf("%+v", list)
	}
	if !strings.Contains(s.log.String(), "too slow") {
		t.Error("nothing was logged")
	}
	// Of progress not yet taken, only the last is kept.
	st.add([]byte("a"), false, "k")
	st.add([]byte("b"), false, "k")
	if list, _ = st.take(rd, 20, nil); len(list) != 1 || string(list[0].data) != "b" {
		t.Errorf("%+v", list)
	}
	st.end()
	if st.add([]byte("late"), true, "") {
		t.Error("an ended stream takes events")
	}
}

// A client that does not read delays neither its call nor other clients.
func TestAClientThatDoesNotRead(t *testing.T) {
	s := newSystem(t)
	s.front.Limits.WriteTimeout = 500 * time.Millisecond
	done := make(chan struct{})
	s.Invoker = fakeInvoker(func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		for i := range 20_000 {
			c.Caller.Progress(toolkeep.Progress{Percent: i % 100, Message: strings.Repeat("x", 1000)})
		}
		close(done)
		return echo(ctx, p, c)
	})
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", "{}")
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(1024)
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer alice\r\nContent-Type: application/json\r\n"+
		"%s\r\n%s\r\nContent-Length: %d\r\n\r\n%s", h[0], h[1], len(slowCall), slowCall)
	<-done
	if a := s.post("/mcp", `{"jsonrpc":"2.0","id":9,"method":"ping"}`, h...); a.status != 200 {
		t.Error(a.status)
	}
}

func TestSessionsEndWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		s.Limits.SessionIdle = time.Minute
		s.server = s.face()
		defer s.server.Close()
		p := &toolkeep.Principal{Subject: "alice", Tenant: "t"}
		ses, err := s.server.newSession(p, s.server.views["all"], mcp.V20251125, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute) // it is in use
		if s.server.enter(ses.id, p, s.server.views["all"]) == nil {
			t.Fatal("a session in use ended")
		}
		ses.leave()
		ses.leave()
		time.Sleep(59 * time.Second)
		if s.server.enter(ses.id, p, s.server.views["all"]) == nil {
			t.Fatal("it ended too early")
		}
		ses.leave()
		time.Sleep(2 * time.Minute)
		if s.server.enter(ses.id, p, s.server.views["all"]) != nil {
			t.Error("an idle session did not end")
		}
	})
}

func TestLimitsOfSessions(t *testing.T) {
	s := newSystem(t)
	s.Limits.PrincipalSessions, s.Limits.Sessions = 2, 3
	s.start()
	a := s.session("/mcp", "2025-11-25", "{}")
	b := s.session("/mcp", "2025-11-25", "{}")
	rd, _ := s.events("GET", "/mcp", "", a...) // in use
	if _, err := rd.Next(); err != nil {
		t.Fatal(err)
	}
	c := s.session("/mcp", "2025-11-25", "{}")
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	s.post("/mcp", ping, b...).problem(t, 404, toolkeep.ResourceNotFound) // the idle session made room
	for _, h := range [][]string{a, c} {
		if got := s.post("/mcp", ping, h...); got.status != 200 {
			t.Error(got.status)
		}
	}
	s.session("/mcp", "2025-11-25", "{}", "Authorization: Bearer bob")
	// The server is full, and eve has no session of her own to end.
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, "Authorization: Bearer eve").
		problem(t, 429, toolkeep.ConcurrencyLimitExceeded)
}

// TestSessionsOfNodes: of several nodes each has its share of the sessions of a principal, and all of its own.
func TestSessionsOfNodes(t *testing.T) {
	s := newSystem(t)
	s.Limits.PrincipalSessions, s.Limits.Sessions = 6, 3
	s.Share = func(limit int) (int, int) { return limit / 3, 3 }
	s.start()
	first := s.session("/mcp", "2025-11-25", "{}")
	s.session("/mcp", "2025-11-25", "{}")
	s.session("/mcp", "2025-11-25", "{}")
	s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, first...).problem(t, 404, toolkeep.ResourceNotFound)
	s.session("/mcp", "2025-11-25", "{}", "Authorization: Bearer bob")
}

func TestEndedStreamsAreBounded(t *testing.T) {
	s := newSystem(t)
	s.Limits.sessionBytes = 4000
	s.start()
	ses, err := s.server.newSession(&toolkeep.Principal{Subject: "a", Tenant: "t"}, s.server.views["all"], mcp.V20251125, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		st := ses.openStream(s.server)
		st.add(make([]byte, 1000), true, "")
		st.end()
		ses.keep(s.server, st)
	}
	if ses.find("1") != nil || ses.find("10") == nil || len(ses.kept) != 3 || s.server.eventBytes.Load() != int64(ses.keptBytes) {
		t.Errorf("%d kept, %d bytes", len(ses.kept), ses.keptBytes)
	}
	big := ses.openStream(s.server)
	big.add(make([]byte, 5000), true, "")
	ses.keep(s.server, big)
	if ses.find(big.id) != nil {
		t.Error("a stream over the limit is kept")
	}
	s.server.drop(ses, "a test")
	if s.server.eventBytes.Load() != 0 {
		t.Errorf("%d bytes are still counted", s.server.eventBytes.Load())
	}
}
