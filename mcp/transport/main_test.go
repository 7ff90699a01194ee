package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds a test's wait for an event.
const patience = time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// request returns a request with the id and params.
func request(id int, method string, params string) *mcp.Message {
	m := &mcp.Message{ID: fmt.Append(nil, id), Method: method}
	if params != "" {
		m.Params = []byte(params)
	}
	return m
}

func modern(id int, method string, params string) *mcp.Message {
	m := request(id, method, params)
	m.Params = mcp.Set(m.Params, mcp.Quote(mcp.V20260728), "_meta", mcp.MetaProtocolVersion)
	m.Params = mcp.Set(m.Params, []byte(`{}`), "_meta", mcp.MetaClientCapabilities)
	return m
}

func write(t *testing.T, c mcp.Conn, m *mcp.Message) {
	t.Helper()
	if err := c.Write(within(t), m); err != nil {
		t.Fatalf("writing %s: %v", m.Bytes(), err)
	}
}

func read(t *testing.T, c mcp.Conn) *mcp.Message {
	t.Helper()
	m, err := c.Read(within(t))
	if err != nil {
		t.Fatalf("reading: %v", err)
	}
	return m
}

// refused writes a message that must not be delivered.
func refused(t *testing.T, c mcp.Conn, m *mcp.Message) *transport.SendError {
	t.Helper()
	err := c.Write(within(t), m)
	var e *transport.SendError
	if !errors.As(err, &e) {
		t.Fatalf("writing %s: %v, want a SendError", m.Bytes(), err)
	}
	return e
}

// until polls a condition that no channel signals.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := within(t); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s did not come about", what)
		}
	}
}

func closing(t *testing.T, c mcp.Conn) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// fake is a hand-written MCP endpoint; each test supplies its handlers.
type fake struct {
	*httptest.Server
	post   func(w http.ResponseWriter, r *http.Request, m *mcp.Message)
	get    http.HandlerFunc
	delete http.HandlerFunc

	mu   sync.Mutex
	seen []string // method, session id and revision of each request
}

func serve(t *testing.T, f *fake) *fake {
	t.Helper()
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method
		var m *mcp.Message
		if r.Method == http.MethodPost {
			data, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			if m, err = mcp.Parse(data, canon.Limits{}); err != nil {
				t.Errorf("the client sent %q: %v", data, err)
			} else if what = m.Method; what == "" {
				what = "answer"
			}
		}
		f.mu.Lock()
		f.seen = append(f.seen, strings.TrimSpace(what+" "+r.Header.Get("Mcp-Session-Id")+" "+r.Header.Get("Mcp-Protocol-Version")+" "+r.Header.Get("Last-Event-Id")))
		f.mu.Unlock()
		switch {
		case r.Method == http.MethodPost && f.post != nil && m != nil:
			f.post(w, r, m)
		case r.Method == http.MethodGet && f.get != nil:
			f.get(w, r)
		case r.Method == http.MethodDelete && f.delete != nil:
			f.delete(w, r)
		default:
			http.Error(w, "no", http.StatusMethodNotAllowed)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// log returns the requests so far, one per line.
func (f *fake) log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.seen, "\n")
}

// dial connects to it with short retry pauses.
func (f *fake) dial(t *testing.T, change func(*transport.HTTPConfig)) *transport.HTTPConn {
	t.Helper()
	config := transport.HTTPConfig{URL: f.URL, Client: f.Client()}.WithRetry(time.Millisecond, 5*time.Millisecond)
	if change != nil {
		change(&config)
	}
	c := transport.HTTP(config)
	closing(t, c)
	return c
}

func answerJSON(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body)
}

func result(id []byte, result string) string {
	return `{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`
}

// stream begins an event stream and returns its write function.
func stream(w http.ResponseWriter) func(e mcp.Event) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	return func(e mcp.Event) {
		_, _ = w.Write(mcp.AppendEvent(nil, e))
		_ = http.NewResponseController(w).Flush()
	}
}

// initialized runs the handshake of revision 2025-11-25 with a fake that uses
// handshake.
func initialized(t *testing.T, c *transport.HTTPConn) {
	t.Helper()
	write(t, c, request(0, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25"}`))
	if m := read(t, c); string(m.ID) != "0" || m.Result == nil {
		t.Fatalf("initialize: %s", m.Bytes())
	}
	write(t, c, &mcp.Message{Method: mcp.NotificationInitialized})
}

// handshake answers initialize and notifications, and passes the rest to next.
func handshake(next func(w http.ResponseWriter, r *http.Request, m *mcp.Message)) func(http.ResponseWriter, *http.Request, *mcp.Message) {
	return func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		switch {
		case m.Method == mcp.MethodInitialize:
			w.Header().Set("Mcp-Session-Id", "s1")
			answerJSON(w, result(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		case !m.IsRequest():
			w.WriteHeader(http.StatusAccepted)
		default:
			next(w, r, m)
		}
	}
}
