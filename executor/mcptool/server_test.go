package mcptool

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// promptly bounds a test's waits.
const promptly = time.Minute

// server is an MCP server over streamable HTTP, revision 2025-11-25, without sessions.
type server struct {
	t                *testing.T
	http             *httptest.Server
	started, stopped chan struct{}
	mu               sync.Mutex
	answers          map[string]chan *mcp.Message // to requests, by id
	caps             []byte                       // declared by the last client
}

func newServer(t *testing.T) *server {
	s := &server{t: t, started: make(chan struct{}, 10), stopped: make(chan struct{}, 10), answers: map[string]chan *mcp.Message{}}
	s.http = httptest.NewServer(s)
	t.Cleanup(s.http.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, err := mcp.Parse(body, canon.Limits{})
	if err != nil {
		s.t.Errorf("the server got %s: %v", body, err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	reply := func(answer *mcp.Message) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer.Bytes())
	}
	switch {
	case m.IsResponse():
		s.mu.Lock()
		c := s.answers[string(m.ID)]
		s.mu.Unlock()
		if c != nil {
			c <- m
		}
		w.WriteHeader(http.StatusAccepted)
	case m.IsNotification():
		w.WriteHeader(http.StatusAccepted)
	case m.Method == mcp.MethodInitialize:
		s.mu.Lock()
		s.caps = append([]byte(nil), mcp.Get(m.Params, "capabilities")...)
		s.mu.Unlock()
		reply(mcp.Reply(m.ID, []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"test","version":"1"}}`)))
	case m.Method == mcp.MethodPing:
		reply(mcp.Reply(m.ID, []byte(`{}`)))
	case m.Method == mcp.MethodCallTool:
		s.call(w, r, m, reply)
	default:
		reply(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeMethodNotFound, "no such method")))
	}
}

func (s *server) call(w http.ResponseWriter, r *http.Request, m *mcp.Message, reply func(*mcp.Message)) {
	args := mcp.Get(m.Params, "arguments")
	text := func(v string) []byte {
		return fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, mcp.Quote(v))
	}
	stream := func() func(*mcp.Message) {
		w.Header().Set("Content-Type", "text/event-stream")
		return func(e *mcp.Message) {
			w.Write(mcp.AppendEvent(nil, mcp.Event{Data: e.Bytes()}))
			w.(http.Flusher).Flush()
		}
	}
	switch mcp.Text(m.Params, "name") {
	case "echo":
		reply(mcp.Reply(m.ID, fmt.Appendf(nil, `{"content":[],"structuredContent":%s,"_meta":{"com.example/a":[1.50]},"isError":false,"resultType":"complete"}`, args)))
	case "params":
		reply(mcp.Reply(m.ID, fmt.Appendf(nil, `{"structuredContent":%s}`, m.Params)))
	case "large":
		reply(mcp.Reply(m.ID, text(strings.Repeat("x", 5000))))
	case "result":
		reply(mcp.Reply(m.ID, []byte(mcp.Text(args, "raw"))))
	case "refuse":
		reply(mcp.Refuse(m.ID, &mcp.Error{Code: -32050, Message: mcp.Text(args, "message"), Data: mcp.Get(args, "data")}))
	case "visit":
		reply(mcp.Refuse(m.ID, &mcp.Error{Code: mcp.CodeURLElicitation, Message: "log in", Data: args}))
	case "reset":
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			s.t.Error(err)
			return
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	case "slow":
		s.started <- struct{}{}
		<-r.Context().Done()
		s.stopped <- struct{}{}
	case "progress":
		send := stream()
		token := mcp.Get(m.Params, "_meta", "progressToken")
		for _, p := range []string{`"progress":1,"total":4,"message":"a"`, `"progress":3.5,"total":4`, `"progress":9,"total":4`, `"progress":5`} {
			send(&mcp.Message{Method: mcp.NotificationProgress, Params: fmt.Appendf(nil, `{"progressToken":%s,%s}`, token, p)})
		}
		send(&mcp.Message{Method: mcp.NotificationProgress, Params: []byte(`{"progressToken":"another","progress":1}`)})
		send(&mcp.Message{Method: mcp.NotificationMessage, Params: []byte(`{"level":"info","data":"hello"}`)})
		send(mcp.Reply(m.ID, text("done")))
	case "ask":
		send := stream()
		id := `"question-` + string(m.ID) + `"`
		answer := make(chan *mcp.Message, 1)
		s.mu.Lock()
		s.answers[id] = answer
		s.mu.Unlock()
		send(&mcp.Message{ID: []byte(id), Method: mcp.MethodElicit, Params: []byte(`{"message":"Your name?","requestedSchema":{"type":"object"}}`)})
		select {
		case a := <-answer:
			out := string(a.Result)
			if a.Err != nil {
				out = a.Err.Error()
			}
			send(mcp.Reply(m.ID, text(out)))
		case <-r.Context().Done():
		}
	default:
		reply(mcp.Reply(m.ID, []byte(`{"isError":true,"content":[{"type":"text","text":"MCP error -32602: unknown tool"}]}`)))
	}
}

// start returns an executor over real sessions to the server, named "test", which may
// use the client capabilities in caps.
func start(t *testing.T, s *server, caps ...string) *Executor {
	t.Helper()
	spec := upstream.Spec{Name: "test", Transport: upstream.HTTP, URL: s.http.URL, Capabilities: caps}
	closed := spec
	closed.Name, closed.URL = "closed", closedPort(t)
	for _, sp := range []*upstream.Spec{&spec, &closed} {
		if faults := sp.Validate(); len(faults) > 0 {
			t.Fatal(faults)
		}
	}
	client := s.http.Client()
	servers := upstream.New(upstream.Config{HTTPClient: func(string, []toolkeep.HostPort) *http.Client { return client }})
	servers.Set([]upstream.Spec{spec, closed})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), promptly)
		defer cancel()
		if err := servers.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return New(servers)
}

// closedPort returns an address without a listener.
func closedPort(t *testing.T) string {
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}
