//go:build unix

package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/mcp"
)

const leanAnswer = `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`

// scripted is a server that answers each request of a connection with the next text of
// its script, and closes the connection at the script's end or at an empty text.
type scripted struct {
	t      *testing.T
	l      net.Listener
	conns  atomic.Int32
	closed chan struct{} // receives one value per closed connection
	work   sync.WaitGroup
}

func newScripted(t *testing.T, script ...string) *scripted {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{t: t, l: l, closed: make(chan struct{}, 100)}
	s.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			s.work.Go(func() { s.serve(c, script) })
		}
	})
	t.Cleanup(func() { l.Close(); s.work.Wait() })
	return s
}

func (s *scripted) serve(c net.Conn, script []string) {
	defer func() { c.Close(); s.closed <- struct{}{} }()
	r := bufio.NewReader(c)
	for _, text := range script {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil || text == "" {
			return
		}
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

func (s *scripted) url() string { return "http://" + s.l.Addr().String() + "/mcp" }

// leanConnOf returns a connection that uses only the lean client.
func leanConnOf(t *testing.T, url string) *HTTPConn {
	tr := &http.Transport{}
	c := HTTP(HTTPConfig{URL: url, Client: &http.Client{Transport: tr}, noStream: true})
	if c.lean == nil {
		t.Fatal("net/http does the requests")
	}
	t.Cleanup(func() { c.Close(); tr.CloseIdleConnections() })
	return c
}

// ask sends one request and reads its answer.
func ask(ctx context.Context, c *HTTPConn) (*mcp.Message, error) {
	if err := c.Write(ctx, &mcp.Message{ID: []byte("1"), Method: mcp.MethodPing}); err != nil {
		return nil, err
	}
	return c.Read(ctx)
}

func answerOf(length int, more string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n", more, length) + leanAnswer
}

// TestLeanAnswers checks what happens to a response and its connection.
func TestLeanAnswers(t *testing.T) {
	good := answerOf(len(leanAnswer), "")
	for _, c := range []struct {
		name, first string
		ok          bool
		conns       int32 // after a second, successful request
	}{
		{"a length", good, true, 1},
		{"chunks", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + leanAnswer[:5] +
			fmt.Sprintf("\r\n%x\r\n", len(leanAnswer)-5) + leanAnswer[5:] + "\r\n0\r\n\r\n", true, 1},
		{"an event stream", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\ndata: %s\n\n\r\n0\r\n\r\n", len(leanAnswer)+8, leanAnswer), true, 1},
		{"early hints", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + good, true, 1},
		{"the connection is to be closed", answerOf(len(leanAnswer), "Connection: close\r\n"), true, 2},
		{"text behind the answer", good + "more", true, 2},
		{"no end of early answers", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 10) + good, false, 2},
		{"a head without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", leanHead) + "\r\n\r\n", false, 2},
		{"no HTTP", "220 mail ready\r\n\r\n", false, 2},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", false, 2},
		{"closed without an answer", "", false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScripted(t, c.first, good, good)
			// A second connection restarts the script, so use another server.
			other := newScripted(t, good)
			conn := leanConnOf(t, s.url())
			m, err := ask(t.Context(), conn)
			if ok := err == nil && m.Err == nil; ok != c.ok {
				t.Fatalf("%+v, %v", m, err)
			}
			var send *SendError
			if !c.ok && (!errors.As(err, &send) || send.NothingSent || send.Refused) {
				t.Errorf("%#v", err)
			}
			if c.conns == 2 {
				conn.lean.addr = other.l.Addr().String()
			}
			if m, err := ask(t.Context(), conn); err != nil || m.Err != nil {
				t.Errorf("the second request: %+v, %v", m, err)
			}
			if n := s.conns.Load() + other.conns.Load(); n != c.conns {
				t.Errorf("%d connections, want %d", n, c.conns)
			}
		})
	}
}

// After the server closed a kept connection, the next request uses a new one.
func TestLeanKeptConnectionIsClosed(t *testing.T) {
	s := newScripted(t, answerOf(len(leanAnswer), ""))
	c := leanConnOf(t, s.url())
	for n := range int32(3) {
		if _, err := ask(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		<-s.closed // on loopback its close has then arrived too
		if s.conns.Load() != n+1 {
			t.Fatalf("%d connections", s.conns.Load())
		}
	}
}

// The end of the context ends the wait and closes the connection.
func TestLeanCancel(t *testing.T) {
	got, gone := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(got)
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	c := leanConnOf(t, server.URL)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-got; cancel(why) }()
	_, err := ask(ctx, c)
	var send *SendError
	if !errors.As(err, &send) || send.NothingSent {
		t.Errorf("%v", err)
	}
	<-gone
	c.lean.mu.Lock()
	defer c.lean.mu.Unlock()
	if c.lean.open != 0 || len(c.lean.idle) != 0 {
		t.Errorf("%d open, %d idle", c.lean.open, len(c.lean.idle))
	}
}

// net/http handles what is not simple: redirects, long bodies, connections over the
// limit.
func TestLeanLeavesToNetHTTP(t *testing.T) {
	var paths []string
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusPermanentRedirect)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, leanAnswer)
	}))
	defer server.Close()
	c := leanConnOf(t, server.URL+"/old")
	for range 2 {
		if m, err := ask(t.Context(), c); err != nil || m.Err != nil {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	if got := strings.Join(paths, " "); got != "/old /old /new /old /new" {
		t.Errorf("asked %s", got)
	}
	for name, full := range map[string]bool{"a long body": false, "too many connections": true} {
		c := leanConnOf(t, server.URL)
		m := &mcp.Message{ID: []byte("1"), Method: mcp.MethodCallTool, Params: []byte(`{"name":"x"}`)}
		if full {
			c.lean.open = leanOpen
		} else {
			m.Params = append(append([]byte(`{"name":"`), bytes.Repeat([]byte("x"), leanBytes)...), `"}`...)
		}
		if err := c.Write(t.Context(), m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if full {
			c.lean.open -= leanOpen
		}
		if c.lean.open != 0 {
			t.Errorf("%s: the lean client has %d connections", name, c.lean.open)
		}
	}
	for name, url := range map[string]string{"TLS": "https://127.0.0.1/", "a name beyond ASCII": "http://bücher.example/"} {
		p := newPeer(HTTPConfig{URL: url, Client: &http.Client{Transport: &http.Transport{}}})
		if p.lean != nil {
			t.Errorf("%s: the lean client would do it", name)
		}
		p.shut(nil)
	}
}

// If no server was reached, nothing was sent.
func TestLeanNothingSent(t *testing.T) {
	s := newScripted(t)
	s.l.Close()
	_, err := ask(t.Context(), leanConnOf(t, s.url()))
	var send *SendError
	if !errors.As(err, &send) || !send.NothingSent {
		t.Errorf("%v", err)
	}
}

// Idle connections are closed after a while, and by Close.
func TestLeanIdle(t *testing.T) {
	good := answerOf(len(leanAnswer), "")
	s := newScripted(t, good, good, good)
	c := leanConnOf(t, s.url())
	if _, err := ask(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.lean.expire()
	if len(c.lean.idle) != 1 {
		t.Fatal("a young connection was closed")
	}
	c.lean.idle[0].since = time.Now().Add(-leanLife)
	c.lean.expire()
	<-s.closed
	if len(c.lean.idle) != 0 || c.lean.open != 0 || c.lean.sweep != nil {
		t.Errorf("%+v", c.lean)
	}
	if _, err := ask(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Close()
	<-s.closed
	if _, err := ask(t.Context(), c); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Concurrent callers never share a connection.
func TestLeanManyCallers(t *testing.T) {
	var conns atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := mcp.Parse(body, (&HTTPConfig{}).filled().Limits)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(mcp.Reply(m.ID, append(append([]byte(`{"id":`), m.ID...), '}')).Bytes())
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := leanConnOf(t, server.URL)
	const callers, each = 16, 50
	var answers [callers*each + 1]atomic.Int32
	c.OnAnswer(func(m *mcp.Message) {
		var n int
		if _, err := fmt.Sscan(string(m.ID), &n); err != nil || mcp.Text(m.Result, "id") != "" || string(mcp.Get(m.Result, "id")) != string(m.ID) {
			t.Errorf("%s has the answer %s", m.ID, m.Result)
			return
		}
		answers[n].Add(1)
	})
	var all sync.WaitGroup
	for k := range callers {
		all.Go(func() {
			for i := range each {
				id := fmt.Append(nil, k*each+i+1)
				if err := c.Write(t.Context(), &mcp.Message{ID: id, Method: mcp.MethodPing}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for n := 1; n < len(answers); n++ {
		if answers[n].Load() != 1 {
			t.Fatalf("request %d has %d answers", n, answers[n].Load())
		}
	}
	if n := conns.Load(); n > callers {
		t.Errorf("%d connections for %d callers", n, callers)
	}
}
