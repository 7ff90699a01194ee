package transport_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

func dialSSE(t *testing.T, f *fake, change func(*transport.HTTPConfig)) *transport.SSEConn {
	t.Helper()
	config := transport.HTTPConfig{URL: f.URL + "/sse", Client: f.Client()}
	if change != nil {
		change(&config)
	}
	c := transport.SSE(config)
	closing(t, c)
	return c
}

func TestSSE(t *testing.T) {
	events := make(chan mcp.Event)
	f := serve(t, &fake{
		get: func(w http.ResponseWriter, r *http.Request) {
			send := stream(w)
			send(mcp.Event{Name: "endpoint", Data: []byte("/messages?sessionId=7")})
			for e := range events {
				send(e)
			}
		},
		post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			if r.URL.String() != "/messages?sessionId=7" {
				t.Errorf("posted to %s", r.URL)
			}
			w.WriteHeader(http.StatusAccepted)
		},
	})
	c := dialSSE(t, f, nil)
	write(t, c, request(1, mcp.MethodListTools, ""))
	go func() {
		events <- mcp.Event{Name: "endpoint", Data: []byte("http://127.0.0.1:1/other")} // later endpoint events are ignored
		events <- mcp.Event{Name: "message", Data: []byte(`{"jsonrpc":"2.0","id":50,"result":{}}`)}
		events <- mcp.Event{Name: "message", Data: []byte(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)}
		events <- mcp.Event{Name: "message", Data: []byte(result([]byte("1"), `{"tools":[]}`))}
		close(events)
	}()
	for _, want := range []string{`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`, `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`} {
		if m := read(t, c); string(m.Bytes()) != want {
			t.Errorf("%s, want %s", m.Bytes(), want)
		}
	}
	if _, err := c.Read(within(t)); err != io.EOF {
		t.Errorf("the end of the stream: %v", err)
	}
	if e := refused(t, c, request(2, "ping", "")); !e.NothingSent {
		t.Errorf("%+v", e)
	}
	if s := c.Stats(); s.Strays != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSSERefused(t *testing.T) {
	first := func(e mcp.Event) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { stream(w)(e); <-r.Context().Done() }
	}
	for _, c := range []struct {
		name   string
		get    http.HandlerFunc
		status int
		say    string
	}{
		{"405", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(405) }, 405, "Method Not Allowed"},
		{"HTML", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Type", "text/html") }, 200, "text/html where an event stream"},
		{"other origin", first(mcp.Event{Name: "endpoint", Data: []byte("http://127.0.0.1:1/x")}), 0, "another origin"},
		{"other scheme", first(mcp.Event{Name: "endpoint", Data: []byte("javascript:1")}), 0, "another origin"},
		{"somebody's password", func(w http.ResponseWriter, r *http.Request) {
			stream(w)(mcp.Event{Name: "endpoint", Data: []byte("//me:pw@" + r.Host + "/x")})
			<-r.Context().Done()
		}, 0, "another origin"},
		{"no endpoint", first(mcp.Event{Name: "endpoint"}), 0, "no URL"},
		{"ended", func(w http.ResponseWriter, r *http.Request) { stream(w) }, 0, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dialSSE(t, serve(t, &fake{get: c.get}), nil)
			e := refused(t, conn, request(1, mcp.MethodInitialize, ""))
			if !e.NothingSent || e.Status != c.status || !strings.Contains(e.Error(), c.say) {
				t.Errorf("%+v: %v", e, e)
			}
			if _, err := conn.Read(within(t)); err == nil {
				t.Error("Read has no error")
			}
		})
	}
}

func TestSSEPostRefused(t *testing.T) {
	status := 429
	f := serve(t, &fake{
		get: func(w http.ResponseWriter, r *http.Request) {
			stream(w)(mcp.Event{Name: "endpoint", Data: []byte("?s=1")})
			<-r.Context().Done()
		},
		post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
		},
	})
	c := dialSSE(t, f, nil)
	if e := refused(t, c, request(1, "ping", "")); e.Status != 429 || !e.Refused || e.RetryAfter == 0 {
		t.Errorf("%+v", e)
	}
	status = 404
	if e := refused(t, c, request(1, "ping", "")); !errors.Is(e, transport.ErrSession) || !e.NotExecuted() {
		t.Errorf("%+v", e)
	}
	if _, err := c.Read(within(t)); !errors.Is(err, transport.ErrSession) {
		t.Error(err)
	}
}
