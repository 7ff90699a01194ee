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
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

func TestHTTPSession(t *testing.T) {
	f := serve(t, &fake{
		post: handshake(func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			answerJSON(w, result(m.ID, `{"n":1.10}`))
		}),
		delete: func(w http.ResponseWriter, r *http.Request) {},
	})
	c := f.dial(t, nil)
	initialized(t, c)
	if c.Session() != "s1" || c.Version() != "2025-11-25" {
		t.Errorf("session %q, revision %q", c.Session(), c.Version())
	}
	write(t, c, request(1, mcp.MethodListTools, ""))
	if m := read(t, c); string(m.Bytes()) != `{"jsonrpc":"2.0","id":1,"result":{"n":1.10}}` {
		t.Errorf("%s", m.Bytes())
	}
	until(t, "the GET stream", func() bool { return strings.Contains(f.log(), "GET") })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	got := strings.ReplaceAll(f.log(), "\nGET s1 2025-11-25", "")
	if want := "initialize\nnotifications/initialized s1 2025-11-25\ntools/list s1 2025-11-25\nDELETE s1 2025-11-25"; got != want {
		t.Errorf("the server saw\n%s\nwant\n%s", got, want)
	}
	if e := refused(t, c, request(2, "ping", "")); !e.NothingSent || !errors.Is(e, transport.ErrClosed) {
		t.Errorf("after Close: %+v", e)
	}
	if _, err := c.Read(within(t)); err != io.EOF {
		t.Errorf("after Close: %v", err)
	}
}

func TestHTTPStreamAnswer(t *testing.T) {
	f := serve(t, &fake{post: handshake(func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		send := stream(w)
		send(mcp.Event{ID: "0"})
		send(mcp.Event{Name: "other", Data: []byte("not ours")})
		send(mcp.Event{Data: []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`)})
		send(mcp.Event{Data: []byte(`not JSON`)})
		send(mcp.Event{Data: []byte(`{"jsonrpc":"2.0","id":77,"result":{}}`)})
		send(mcp.Event{Name: "message", Data: []byte(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)})
		send(mcp.Event{Data: []byte(result(m.ID, `{}`))})
		send(mcp.Event{Data: []byte(result(m.ID, `{"again":true}`))})
	})})
	var junk atomic.Value
	c := f.dial(t, func(c *transport.HTTPConfig) { c.OnJunk = func(head []byte) { junk.Store(string(head)) } })
	initialized(t, c)
	write(t, c, request(4, mcp.MethodCallTool, `{"name":"t"}`))
	for _, want := range []string{
		`4 {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`,
		`4 {"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`,
		` {"jsonrpc":"2.0","id":4,"result":{}}`,
	} {
		if m := read(t, c); string(m.Related)+" "+string(m.Bytes()) != want {
			t.Errorf("got  %s %s\nwant %s", m.Related, m.Bytes(), want)
		}
	}
	until(t, "the second stray", func() bool { return c.Stats().Strays == 2 })
	if s := c.Stats(); s.Junk != 1 || junk.Load() != "not JSON" {
		t.Errorf("%+v, %v", s, junk.Load())
	}
	// The client's response to a server request is accepted with 202.
	write(t, c, mcp.Reply([]byte(`"q"`), []byte(`{"action":"decline"}`)))
}

// TestHTTPKeepsConnection: cancelling a call's context after its response does not
// close the HTTP connection.
func TestHTTPKeepsConnection(t *testing.T) {
	addresses := make(chan string, 100)
	f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		addresses <- r.RemoteAddr
		send := stream(w)
		send(mcp.Event{Data: []byte(result(m.ID, `{}`))})
	}})
	c := f.dial(t, nil)
	seen := map[string]bool{}
	for i := range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		if err := c.Write(ctx, request(i, "ping", "")); err != nil {
			t.Fatal(err)
		}
		read(t, c)
		cancel()
		seen[<-addresses] = true
	}
	if len(seen) > 10 {
		t.Errorf("%d connections for 20 calls in a row", len(seen))
	}
}

func TestHTTPResumes(t *testing.T) {
	for _, how := range []string{"ends", "breaks"} {
		t.Run(how, func(t *testing.T) {
			cut := func() {
				if how == "breaks" {
					panic(http.ErrAbortHandler)
				}
			}
			var gets atomic.Int32
			f := serve(t, &fake{})
			f.post = handshake(func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
				send := stream(w)
				send(mcp.Event{ID: "a_1", Retry: time.Millisecond})
				cut()
			})
			f.get = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Last-Event-Id") == "" { // the server's own stream
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				switch gets.Add(1) {
				case 1:
					w.WriteHeader(http.StatusServiceUnavailable)
				case 2:
					stream(w)(mcp.Event{ID: "a_2", Data: []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)})
					cut()
				default:
					stream(w)(mcp.Event{ID: "a_3", Data: []byte(result([]byte("9"), `{"late":true}`))})
				}
			}
			c := f.dial(t, nil)
			initialized(t, c)
			write(t, c, request(9, mcp.MethodCallTool, `{"name":"slow"}`))
			if m := read(t, c); m.Method != mcp.NotificationMessage || string(m.Related) != "9" {
				t.Errorf("%s related to %s", m.Bytes(), m.Related)
			}
			if m := read(t, c); string(m.Bytes()) != `{"jsonrpc":"2.0","id":9,"result":{"late":true}}` || m.Lost != nil {
				t.Errorf("%s, lost %v", m.Bytes(), m.Lost)
			}
			if log := f.log(); !strings.Contains(log, "GET s1 2025-11-25 a_1\nGET s1 2025-11-25 a_1\nGET s1 2025-11-25 a_2") {
				t.Error(log)
			}
			if n := c.Stats().Reconnects; n != 2 {
				t.Errorf("%d reconnects", n)
			}
		})
	}
}

func TestHTTPLost(t *testing.T) {
	cases := []struct {
		name   string
		msg    func(int) *mcp.Message
		answer func(w http.ResponseWriter, m *mcp.Message)
		get    int // status of a resuming GET
		say    string
	}{
		{"no event id", nil, func(w http.ResponseWriter, m *mcp.Message) { stream(w) }, 0, "ended before the answer"},
		{"revision 2026", func(id int) *mcp.Message { return modern(id, "x", "") }, func(w http.ResponseWriter, m *mcp.Message) {
			stream(w)(mcp.Event{ID: "1", Data: []byte(`{"jsonrpc":"2.0","method":"n"}`)})
		}, 0, "ended before the answer"},
		{"cannot be resumed", nil, func(w http.ResponseWriter, m *mcp.Message) { stream(w)(mcp.Event{ID: "1"}) }, http.StatusBadRequest, "ended before the answer"},
		{"never comes back", nil, func(w http.ResponseWriter, m *mcp.Message) { stream(w)(mcp.Event{ID: "1"}) }, http.StatusBadGateway, "ended before the answer"},
		{"an event too large", nil, func(w http.ResponseWriter, m *mcp.Message) {
			stream(w)(mcp.Event{ID: "1", Data: []byte(result(m.ID, `{"text":"`+strings.Repeat("x", 200_000)+`"}`))})
		}, 0, "size limit"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, &fake{})
			f.post = handshake(func(w http.ResponseWriter, r *http.Request, m *mcp.Message) { c.answer(w, m) })
			f.get = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Last-Event-Id") == "" {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				w.WriteHeader(c.get)
			}
			conn := f.dial(t, func(c *transport.HTTPConfig) { c.Limits = canon.Limits{Bytes: 100_000} })
			initialized(t, conn)
			msg := request
			if c.msg != nil {
				write(t, conn, c.msg(3))
			} else {
				write(t, conn, msg(3, "x", ""))
			}
			m := read(t, conn)
			for m.Method != "" {
				m = read(t, conn)
			}
			if string(m.ID) != "3" || m.Lost == nil || !strings.Contains(m.Lost.Error(), c.say) || m.Err == nil || m.Err.Code != mcp.CodeLost {
				t.Errorf("%s, lost %v", m.Bytes(), m.Lost)
			}
			// The connection is still usable.
			write(t, conn, &mcp.Message{Method: "notifications/x"})
		})
	}
}

func TestHTTPBadAnswers(t *testing.T) {
	const secret = "hunter2-in-the-body"
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter, m *mcp.Message)
		want   transport.SendError // without Err
		say    string
	}{
		{"HTML", func(w http.ResponseWriter, m *mcp.Message) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>"+secret)
		}, transport.SendError{Status: 502}, "Bad Gateway (text/html)"},
		{"HTML with 200", func(w http.ResponseWriter, m *mcp.Message) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>"+secret)
		}, transport.SendError{Status: 200}, "answered text/html where JSON or an event stream is expected"},
		{"401", func(w http.ResponseWriter, m *mcp.Message) { http.Error(w, secret, http.StatusUnauthorized) }, transport.SendError{Status: 401, Refused: true}, "Unauthorized"},
		{"403", func(w http.ResponseWriter, m *mcp.Message) { http.Error(w, secret, http.StatusForbidden) }, transport.SendError{Status: 403, Refused: true}, "Forbidden"},
		{"404 without a session", func(w http.ResponseWriter, m *mcp.Message) { http.NotFound(w, nil) }, transport.SendError{Status: 404, Refused: true}, "Not Found"},
		{"429", func(w http.ResponseWriter, m *mcp.Message) {
			w.Header().Set("Retry-After", "7")
			http.Error(w, secret, http.StatusTooManyRequests)
		}, transport.SendError{Status: 429, Refused: true, RetryAfter: 7 * time.Second}, "Too Many Requests"},
		{"503 for a day", func(w http.ResponseWriter, m *mcp.Message) {
			w.Header().Set("Retry-After", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat))
			http.Error(w, secret, http.StatusServiceUnavailable)
		}, transport.SendError{Status: 503, RetryAfter: time.Hour}, "Service Unavailable"},
		{"409", func(w http.ResponseWriter, m *mcp.Message) { http.Error(w, secret, http.StatusConflict) }, transport.SendError{Status: 409}, "Conflict"},
		{"202 and no stream", func(w http.ResponseWriter, m *mcp.Message) { w.WriteHeader(202) }, transport.SendError{Status: 202}, "did not answer"},
		{"200 and no body", func(w http.ResponseWriter, m *mcp.Message) {}, transport.SendError{Status: 200}, "without a content type"},
		{"no JSON", func(w http.ResponseWriter, m *mcp.Message) { answerJSON(w, secret) }, transport.SendError{Status: 200}, "not a JSON-RPC message"},
		{"another id", func(w http.ResponseWriter, m *mcp.Message) { answerJSON(w, result([]byte(`"1"`), `{}`)) }, transport.SendError{Status: 200}, "another id"},
		{"too large", func(w http.ResponseWriter, m *mcp.Message) {
			answerJSON(w, result(m.ID, `{"t":"`+strings.Repeat("x", 5000)+`"}`))
		}, transport.SendError{Status: 200}, "size limit"},
		{"too large without a length", func(w http.ResponseWriter, m *mcp.Message) {
			answerJSON(w, "")
			_ = http.NewResponseController(w).Flush()
			answerJSON(w, result(m.ID, `{"t":"`+strings.Repeat("x", 5000)+`"}`))
		}, transport.SendError{Status: 200}, "size limit"},
		{"compressed", func(w http.ResponseWriter, m *mcp.Message) {
			w.Header().Set("Content-Encoding", "br")
			answerJSON(w, "x")
		}, transport.SendError{Status: 200}, "compressed"},
		{"bad session", func(w http.ResponseWriter, m *mcp.Message) {
			w.Header().Set("Mcp-Session-Id", "a b")
			answerJSON(w, result(m.ID, `{}`))
		}, transport.SendError{Status: 200}, "session id"},
		{"no HTTP", func(w http.ResponseWriter, m *mcp.Message) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "SSH-2.0-"+strings.Repeat("x", 8)+"\r\n")
				_ = conn.Close()
			}
		}, transport.SendError{}, "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) { c.answer(w, m) }})
			conn := f.dial(t, func(c *transport.HTTPConfig) {
				c.Limits.Bytes = 1000
				c.Client.Transport.(*http.Transport).DisableCompression = true
			})
			e := refused(t, conn, request(1, mcp.MethodInitialize, ""))
			got := *e
			got.Err = nil
			if got != c.want || !strings.Contains(e.Error(), c.say) {
				t.Errorf("%+v: %v, want %+v with %q", got, e, c.want, c.say)
			}
			if strings.Contains(e.Error(), secret) || strings.Contains(e.Error(), "127.0.0.1") {
				t.Errorf("the error shows too much: %v", e)
			}
		})
	}
}

// TestHTTPErrorStatusWithAnswer: a JSON-RPC error is a response whatever the HTTP
// status, as revision 2026-07-28 requires.
func TestHTTPErrorStatusWithAnswer(t *testing.T) {
	for _, status := range []int{200, 400, 404, 500} {
		f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`)
		}})
		c := f.dial(t, nil)
		write(t, c, modern(5, mcp.MethodDiscover, ""))
		if m := read(t, c); string(m.ID) != "5" || m.Err == nil || m.Err.Code != mcp.CodeUnsupportedVersion || m.Lost != nil {
			t.Errorf("%d: %s", status, m.Bytes())
		}
		if v := c.Version(); v != "" {
			t.Errorf("a refused revision is in use: %s", v)
		}
	}
}

func TestHTTPSessionGone(t *testing.T) {
	for name, refuse := range map[string]http.HandlerFunc{
		"404": http.NotFound,
		"404 and JSON": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(404)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
		},
		"400 and JSON": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, &fake{post: handshake(func(w http.ResponseWriter, r *http.Request, m *mcp.Message) { refuse(w, r) })})
			c := f.dial(t, nil)
			initialized(t, c)
			e := refused(t, c, request(1, mcp.MethodListTools, ""))
			if !errors.Is(e, transport.ErrSession) || !e.NotExecuted() || e.NothingSent {
				t.Errorf("%+v", e)
			}
			if _, err := c.Read(within(t)); !errors.Is(err, transport.ErrSession) {
				t.Errorf("Read: %v", err)
			}
			if e := refused(t, c, request(2, mcp.MethodListTools, "")); !e.NothingSent || !errors.Is(e, transport.ErrSession) {
				t.Errorf("the next: %+v", e)
			}
			if err := c.Close(); err != nil || strings.Contains(f.log(), "DELETE") {
				t.Errorf("Close: %v\n%s", err, f.log())
			}
		})
	}
}

func TestHTTPUnauthorized(t *testing.T) {
	var token atomic.Value
	token.Store("old")
	f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		if r.Header.Get("Authorization") != "Bearer new" {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="x"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		answerJSON(w, result(m.ID, `{}`))
	}})
	asked := 0
	hookError := errors.New("login needed")
	config := func(next string, err error) func(*transport.HTTPConfig) {
		return func(c *transport.HTTPConfig) {
			c.Header = func(context.Context) (http.Header, error) {
				return http.Header{"authorization": {"Bearer " + token.Load().(string)}}, nil
			}
			c.Unauthorized = func(_ context.Context, r *http.Response) error {
				if asked++; r.Header.Get("WWW-Authenticate") == "" {
					t.Error("the hook cannot see the challenge")
				}
				token.Store(next)
				return err
			}
		}
	}
	c := f.dial(t, config("new", nil))
	write(t, c, request(1, "ping", ""))
	read(t, c)
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	token.Store("old")
	c = f.dial(t, config("bad", nil))
	if e := refused(t, c, request(1, "ping", "")); e.Status != 401 || !e.Refused || asked != 2 {
		t.Errorf("%+v after %d", e, asked)
	}
	c = f.dial(t, config("bad", hookError))
	if e := refused(t, c, request(1, "ping", "")); e.Status != 401 || !e.Refused || !errors.Is(e, hookError) {
		t.Errorf("%+v", e)
	}
	c = f.dial(t, func(c *transport.HTTPConfig) {
		c.Header = func(context.Context) (http.Header, error) { return nil, hookError }
	})
	if e := refused(t, c, request(1, "ping", "")); !e.NothingSent || !errors.Is(e, hookError) {
		t.Errorf("%+v", e)
	}
}

func TestHTTPRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the other origin was asked, with %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	for _, c := range []struct {
		to     string
		status int
		ok     bool
	}{
		{"/final", http.StatusTemporaryRedirect, true},
		{"/final", http.StatusPermanentRedirect, true},
		{"/final", http.StatusFound, false}, // would become a GET
		{"/", http.StatusTemporaryRedirect, false},
		{other.URL, http.StatusTemporaryRedirect, false},
	} {
		f := serve(t, &fake{})
		f.post = func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			if r.URL.Path == "/final" {
				answerJSON(w, result(m.ID, `{}`))
				return
			}
			http.Redirect(w, r, c.to, c.status)
		}
		conn := f.dial(t, func(c *transport.HTTPConfig) {
			c.Header = func(context.Context) (http.Header, error) {
				return http.Header{"Authorization": {"Bearer secret"}}, nil
			}
		})
		if c.ok {
			write(t, conn, request(1, "ping", ""))
			read(t, conn)
			continue
		}
		if e := refused(t, conn, request(1, "ping", "")); e.Status != c.status || !e.Refused || !strings.Contains(e.Error(), "redirects") {
			t.Errorf("%d to %s: %+v", c.status, c.to, e)
		}
	}
}

func TestHTTPOwnStream(t *testing.T) {
	var n atomic.Int32
	asked := make(chan struct{})
	f := serve(t, &fake{post: handshake(func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		w.WriteHeader(http.StatusAccepted) // the answer comes on the own stream
		close(asked)
	})})
	f.get = func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2:
			send := stream(w)
			send(mcp.Event{ID: "g1", Retry: time.Millisecond, Data: []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)})
			_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 20_000)+"\n\n")
			send(mcp.Event{Data: []byte(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)})
			panic(http.ErrAbortHandler)
		case 3:
			send := stream(w)
			<-asked
			send(mcp.Event{Data: []byte(result([]byte("5"), `{"over":"GET"}`))})
			<-r.Context().Done()
		}
	}
	c := f.dial(t, func(c *transport.HTTPConfig) { c.Limits.Bytes = 5000 })
	initialized(t, c)
	write(t, c, request(5, mcp.MethodListTools, ""))
	for _, want := range []string{
		` {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, ` {"jsonrpc":"2.0","id":"r","method":"roots/list"}`,
		` {"jsonrpc":"2.0","id":5,"result":{"over":"GET"}}`,
	} {
		if m := read(t, c); string(m.Related)+" "+string(m.Bytes()) != want {
			t.Errorf("%s %s, want %s", m.Related, m.Bytes(), want)
		}
	}
	if s := c.Stats(); s.Oversized != 1 || s.Reconnects != 1 {
		t.Errorf("%+v", s)
	}
	if log := f.log(); !strings.Contains(log, "GET s1 2025-11-25 g1") { // before tools/list or after it
		t.Error(log)
	}
}

// TestHTTPOwnStreamLosesSession: a 404 on a stream that was open before means that the
// session is gone.
func TestHTTPOwnStreamLosesSession(t *testing.T) {
	var n atomic.Int32
	f := serve(t, &fake{post: handshake(nil)})
	f.get = func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			stream(w)
			return
		}
		http.NotFound(w, r)
	}
	c := f.dial(t, nil)
	initialized(t, c)
	if m, err := c.Read(within(t)); !errors.Is(err, transport.ErrSession) {
		t.Errorf("%v, %v", m, err)
	}
}

func TestHTTPNoStream(t *testing.T) {
	f := serve(t, &fake{post: handshake(func(w http.ResponseWriter, r *http.Request, m *mcp.Message) { answerJSON(w, result(m.ID, `{}`)) })})
	f.get = func(w http.ResponseWriter, r *http.Request) { t.Error("GET") }
	c := f.dial(t, func(c *transport.HTTPConfig) { *c = c.WithoutStream() })
	initialized(t, c)
	write(t, c, request(1, "ping", ""))
	read(t, c)
}

func TestHTTPModern(t *testing.T) {
	headers := make(chan http.Header, 4)
	closed := make(chan struct{}, 2)
	f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		headers <- r.Header
		if e := mcp.CheckHeaders(r.Header, m, []mcp.HeaderParam{{Path: []string{"region"}, Header: "Region"}}); e != nil {
			t.Error(e)
		}
		if !m.IsRequest() {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		stream(w)
		<-r.Context().Done()
		closed <- struct{}{}
	}})
	f.get = func(w http.ResponseWriter, r *http.Request) { t.Error("there is no GET in revision 2026-07-28") }
	c := f.dial(t, func(c *transport.HTTPConfig) {
		c.Params = func(tool string) []mcp.HeaderParam {
			if tool != "wetter-für" {
				t.Errorf("asked for the tool %q", tool)
			}
			return []mcp.HeaderParam{{Path: []string{"region"}, Header: "Region"}}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	if err := c.Write(ctx, modern(1, mcp.MethodCallTool, `{"name":"wetter-für","arguments":{"region":"eu"}}`)); err != nil {
		t.Fatal(err)
	}
	h := <-headers
	got := fmt.Sprint(h["Mcp-Protocol-Version"], h["Mcp-Method"], h["Mcp-Name"], h["Mcp-Param-Region"], h["Mcp-Session-Id"])
	if got != "[2026-07-28] [tools/call] [=?base64?d2V0dGVyLWbDvHI=?=] [eu] []" {
		t.Error(got)
	}
	// The end of the context closes the stream, which tells the server.
	cancel()
	select {
	case <-closed:
	case <-within(t).Done():
		t.Fatal("the server was not told")
	}
	c.SetVersion(mcp.V20260728)
	write(t, c, &mcp.Message{Method: mcp.NotificationInitialized})
	if h := <-headers; h.Get("Mcp-Method") != mcp.NotificationInitialized || h.Get("Mcp-Protocol-Version") != mcp.V20260728 {
		t.Errorf("%v", h)
	}
	// The id may be reused.
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	if err := c.Write(ctx, modern(1, mcp.MethodListTools, "")); err != nil {
		t.Error(err)
	}
	if e := refused(t, c, modern(1, mcp.MethodListTools, "")); !e.NothingSent {
		t.Errorf("an id in use: %+v", e)
	}
}

func TestHTTPContext(t *testing.T) {
	begun := make(chan struct{}, 1)
	f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		begun <- struct{}{}
		<-r.Context().Done()
	}})
	c := f.dial(t, nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() { <-begun; cancel(nil) }()
	err := c.Write(ctx, request(1, "ping", ""))
	var e *transport.SendError
	if !errors.As(err, &e) || !errors.Is(err, context.Canceled) || e.NothingSent {
		t.Errorf("%v", err)
	}
	ctx2, cancel2 := context.WithTimeout(context.Background(), time.Second) // enough to reach the server
	defer cancel2()
	if err := c.Write(ctx2, request(1, "ping", "")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	<-begun
	done, cancel3 := context.WithCancel(context.Background())
	cancel3()
	if err := c.Write(done, request(1, "ping", "")); !errors.As(err, &e) || !e.NothingSent {
		t.Errorf("%v", err)
	}
	if _, err := c.Read(done); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
	go func() { <-begun; _ = c.Close() }()
	if err := c.Write(context.Background(), request(2, "ping", "")); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("a request under way at Close: %v", err)
	}
}

func TestHTTPNothingSent(t *testing.T) {
	// A port without a listener.
	gone := httptest.NewServer(nil)
	gone.Close()
	pool := egress.NewPool(egress.PoolConfig{})
	defer pool.Close()
	guarded := &http.Client{Transport: pool.Transport("t", egress.AllowList{})}
	for name, config := range map[string]transport.HTTPConfig{
		"nobody listens": {URL: gone.URL},
		"forbidden":      {URL: gone.URL, Client: guarded},
		"no URL":         {URL: "ftp://x"},
		"no host":        {URL: "http://"},
		"broken":         {URL: "http://secret@%zz"},
	} {
		c := transport.HTTP(config)
		closing(t, c)
		e := refused(t, c, request(1, "ping", ""))
		if !e.NothingSent || strings.Contains(e.Error(), "secret") {
			t.Errorf("%s: %+v", name, e)
		}
		var own *toolkeep.Error
		if name == "forbidden" && (!errors.As(e, &own) || own.Code != toolkeep.DestinationForbidden) {
			t.Errorf("%s: %v", name, e)
		}
	}
	// A request that was received but not answered was sent.
	f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) { panic(http.ErrAbortHandler) }})
	c := f.dial(t, nil)
	if e := refused(t, c, request(1, "ping", "")); e.NothingSent || e.Refused || e.Status != 0 {
		t.Errorf("%+v", e)
	}
}

// TestHTTPCloseIsBounded: a server that does not answer DELETE cannot block Close.
func TestHTTPCloseIsBounded(t *testing.T) {
	f := serve(t, &fake{post: handshake(nil)})
	f.delete = func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	f.get = func(w http.ResponseWriter, r *http.Request) { stream(w); <-r.Context().Done() }
	c := f.dial(t, func(c *transport.HTTPConfig) { *c = c.WithCloseTimeout(10 * time.Millisecond) })
	initialized(t, c)
	until(t, "the stream", func() bool { return strings.Contains(f.log(), "GET") })
	closed := make(chan struct{})
	go func() { defer close(closed); _ = c.Close() }()
	select {
	case <-closed:
	case <-within(t).Done():
		t.Fatal("Close hangs")
	}
}

func TestHTTPBatchAnswer(t *testing.T) {
	f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		answerJSON(w, `[{"jsonrpc":"2.0","method":"n"},`+result(m.ID, `{}`)+`,{"jsonrpc":"2.0","id":99,"result":{}}]`)
	}})
	c := f.dial(t, nil)
	write(t, c, request(1, "ping", ""))
	if m := read(t, c); m.Method != "n" || string(m.Related) != "1" {
		t.Errorf("%s", m.Bytes())
	}
	if m := read(t, c); string(m.ID) != "1" {
		t.Errorf("%s", m.Bytes())
	}
	if c.Stats().Strays != 1 {
		t.Errorf("%+v", c.Stats())
	}
}

// TestHTTPMany sends many concurrent requests on one connection, answered with JSON or
// a stream, some of them cancelled.
func TestHTTPMany(t *testing.T) {
	f := serve(t, &fake{post: func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		switch m.ID[len(m.ID)-1] % 3 {
		case 0:
			answerJSON(w, result(m.ID, `{"id":`+string(m.ID)+`}`))
		case 1:
			stream(w)(mcp.Event{Data: []byte(result(m.ID, `{"id":`+string(m.ID)+`}`))})
		default:
			stream(w)(mcp.Event{Data: []byte(`{"jsonrpc":"2.0","method":"n"}`)})
			<-r.Context().Done()
		}
	}})
	c := f.dial(t, nil)
	const writers, each = 8, 30
	var (
		mu      sync.Mutex
		waiting = map[string]chan *mcp.Message{}
		wg      sync.WaitGroup
	)
	stop, halt := context.WithCancel(context.Background())
	defer halt()
	wg.Go(func() {
		for {
			m, err := c.Read(stop)
			if err != nil {
				return
			}
			id := m.ID
			if m.Related != nil {
				id = m.Related
			}
			mu.Lock()
			ch := waiting[string(id)]
			mu.Unlock()
			ch <- m
		}
	})
	var calls sync.WaitGroup
	for w := range writers {
		calls.Go(func() {
			for i := range each {
				m := request(w*each+i, "x", "")
				ch := make(chan *mcp.Message, 1)
				mu.Lock()
				waiting[string(m.ID)] = ch
				mu.Unlock()
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				if err := c.Write(ctx, m); err != nil {
					t.Error(err)
				}
				select {
				case got := <-ch:
					if got.IsResponse() && string(mcp.Get(got.Result, "id")) != string(m.ID) {
						t.Errorf("%s for %s", got.Bytes(), m.ID)
					}
				case <-ctx.Done():
					t.Errorf("no answer to %s", m.ID)
				}
				cancel()
			}
		})
	}
	calls.Wait()
	halt()
	wg.Wait()
	if s := c.Stats(); s != (transport.Stats{}) {
		t.Errorf("%+v", s)
	}
}
