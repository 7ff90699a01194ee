package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

// sdkServer is a server of the official SDK: echo returns its arguments, ask sends its
// caller a request first, slow reports progress and waits to be cancelled.
func sdkServer(cancelled chan<- struct{}) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "behind", Version: "1"}, nil)
	schema := map[string]any{"type": "object", "properties": map[string]any{
		"region": map[string]any{"type": "string", "x-mcp-header": "Region"},
	}}
	s.AddTool(&sdk.Tool{Name: "echo", InputSchema: schema}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	s.AddTool(&sdk.Tool{Name: "ask", InputSchema: schema}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		a, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "sure?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}})
		if err != nil {
			return nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: a.Action}}}, nil
	})
	s.AddTool(&sdk.Tool{Name: "slow", InputSchema: schema}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1}); err != nil {
			return nil, err
		}
		<-ctx.Done()
		cancelled <- struct{}{}
		return nil, ctx.Err()
	})
	return s
}

// legacySession runs one session of revision 2025-11-25: handshake, lists, a call, a
// server request, an error, a cancelled call.
func legacySession(t *testing.T, c mcp.Conn, cancelled <-chan struct{}, related, asks bool) {
	t.Helper()
	write(t, c, request(1, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}`))
	m := answerTo(t, c, "1")
	if v := mcp.Text(m.Result, "protocolVersion"); v != mcp.V20251125 {
		t.Fatalf("initialize: %s", m.Bytes())
	}
	write(t, c, &mcp.Message{Method: mcp.NotificationInitialized})
	write(t, c, request(2, mcp.MethodListTools, ""))
	names := ""
	for tool := range mcp.Elements(mcp.Get(answerTo(t, c, "2").Result, "tools")) {
		names += mcp.Text(tool, "name") + " "
	}
	if names != "ask echo slow " {
		t.Errorf("tools: %s", names)
	}
	echo(t, c, 3, request)

	write(t, c, request(4, mcp.MethodCallTool, `{"name":"none","arguments":{}}`))
	if m := answerTo(t, c, "4"); m.Err == nil || m.Err.Code != mcp.CodeInvalidParams {
		t.Errorf("an unknown tool: %s", m.Bytes())
	}
	if asks {
		write(t, c, request(5, mcp.MethodCallTool, `{"name":"ask","arguments":{}}`))
		q := read(t, c)
		if q.Method != mcp.MethodElicit || related != (string(q.Related) == "5") {
			t.Fatalf("%s, related to %q", q.Bytes(), q.Related)
		}
		write(t, c, mcp.Reply(q.ID, []byte(`{"action":"decline"}`)))
		if m := answerTo(t, c, "5"); !strings.Contains(string(m.Result), `"decline"`) {
			t.Errorf("ask: %s", m.Bytes())
		}
	}
	write(t, c, request(6, mcp.MethodCallTool, `{"name":"slow","arguments":{},"_meta":{"progressToken":"p6"}}`))
	if m := read(t, c); m.Method != mcp.NotificationProgress || mcp.Text(m.Params, "progressToken") != "p6" {
		t.Errorf("slow: %s", m.Bytes())
	}
	write(t, c, &mcp.Message{Method: mcp.NotificationCancelled, Params: []byte(`{"requestId":6}`)})
	toldOf(t, cancelled)
}

func toldOf(t *testing.T, cancelled <-chan struct{}) {
	t.Helper()
	select {
	case <-cancelled:
	case <-within(t).Done():
		t.Fatal("the server did not learn that the call was cancelled")
	}
}

// answerTo reads up to the response with the id, skipping notifications.
func answerTo(t *testing.T, c mcp.Conn, id string) *mcp.Message {
	t.Helper()
	for {
		m := read(t, c)
		switch {
		case m.IsNotification():
		case m.IsResponse() && string(m.ID) == id && m.Lost == nil:
			return m
		default:
			t.Fatalf("%s, lost %v, instead of the answer to %s", m.Bytes(), m.Lost, id)
		}
	}
}

func echo(t *testing.T, c mcp.Conn, id int, make func(int, string, string) *mcp.Message) {
	t.Helper()
	write(t, c, make(id, mcp.MethodCallTool, `{"name":"echo","arguments":{"n":9007199254740993,"f":1.10,"region":"é"}}`))
	m := answerTo(t, c, fmt.Sprint(id))
	for block := range mcp.Elements(mcp.Get(m.Result, "content")) {
		if got := mcp.Text(block, "text"); got != `{"n":9007199254740993,"f":1.10,"region":"é"}` {
			t.Errorf("echo: %s", got)
		}
		return
	}
	t.Errorf("echo: %s", m.Bytes())
}

// started serves a handler of the SDK and ends its sessions with the test.
func started(t *testing.T, h http.Handler, s *sdk.Server) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		for ss := range s.Sessions() {
			_ = ss.Close()
		}
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv
}

func TestInteropStreamable(t *testing.T) {
	for _, c := range []struct {
		name    string
		options sdk.StreamableHTTPOptions
		asks    bool
	}{
		{"stateful", sdk.StreamableHTTPOptions{}, true},
		{"with event store", sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)}, true},
		{"stateless", sdk.StreamableHTTPOptions{Stateless: true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cancelled := make(chan struct{}, 1)
			s := sdkServer(cancelled)
			srv := started(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &c.options), s)
			conn := transport.HTTP(transport.HTTPConfig{URL: srv.URL, Client: srv.Client()}.WithRetry(time.Millisecond, 0))
			closing(t, conn)
			if c.options.Stateless {
				statelessSession(t, conn)
				return
			}
			legacySession(t, conn, cancelled, true, c.asks)
			if conn.Session() == "" {
				t.Error("there is no session")
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			until(t, "the end of the session", func() bool {
				for range s.Sessions() {
					return false
				}
				return true
			})
		})
	}
}

// statelessSession is a session without an id, answered with JSON or a stream.
func statelessSession(t *testing.T, c *transport.HTTPConn) {
	t.Helper()
	write(t, c, request(1, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
	answerTo(t, c, "1")
	write(t, c, &mcp.Message{Method: mcp.NotificationInitialized})
	echo(t, c, 2, request)
}

func TestInteropModern(t *testing.T) {
	for _, json := range []bool{false, true} {
		t.Run(fmt.Sprintf("JSON %v", json), func(t *testing.T) {
			cancelled := make(chan struct{}, 1)
			s := sdkServer(cancelled)
			srv := started(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: json, PropagateRequestCancellation: true}), s)
			config := transport.HTTPConfig{URL: srv.URL, Client: srv.Client()}
			bare := transport.HTTP(config)
			closing(t, bare)
			write(t, bare, modern(1, mcp.MethodDiscover, ""))
			m := answerTo(t, bare, "1")
			if !strings.Contains(string(mcp.Get(m.Result, "supportedVersions")), mcp.V20260728) || bare.Version() != mcp.V20260728 {
				t.Errorf("discover: %s, revision %s", m.Bytes(), bare.Version())
			}
			write(t, bare, modern(2, mcp.MethodListTools, ""))
			tools := answerTo(t, bare, "2")
			params := map[string][]mcp.HeaderParam{}
			for tool := range mcp.Elements(mcp.Get(tools.Result, "tools")) {
				p, err := mcp.HeaderParams(mcp.Get(tool, "inputSchema"))
				if err != nil {
					t.Error(err)
				}
				params[mcp.Text(tool, "name")] = p
			}
			// Without the header that the schema requires, the call is refused.
			write(t, bare, modern(3, mcp.MethodCallTool, `{"name":"echo","arguments":{"region":"eu"}}`))
			if m := answerTo(t, bare, "3"); m.Err == nil || m.Err.Code != mcp.CodeHeaderMismatch {
				t.Errorf("a call without its header: %s", m.Bytes())
			}
			config.Params = func(tool string) []mcp.HeaderParam { return params[tool] }
			c := transport.HTTP(config)
			closing(t, c)
			echo(t, c, 4, modern)

			m5 := modern(5, mcp.MethodListTools, "")
			m5.Params = mcp.Set(m5.Params, mcp.Quote("2099-01-01"), "_meta", mcp.MetaProtocolVersion)
			write(t, c, m5)
			if m := answerTo(t, c, "5"); m.Err == nil || m.Err.Code != mcp.CodeUnsupportedVersion {
				t.Errorf("a revision of the future: %s", m.Bytes())
			}
			if json {
				return
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if err := c.Write(ctx, modern(6, mcp.MethodCallTool, `{"name":"slow","arguments":{},"_meta":{"progressToken":6}}`)); err != nil {
				t.Fatal(err)
			}
			if m := read(t, c); m.Method != mcp.NotificationProgress || string(m.Related) != "6" {
				t.Errorf("slow: %s", m.Bytes())
			}
			cancel()
			toldOf(t, cancelled)
		})
	}
}

// TestInteropListen keeps a subscription of revision 2026-07-28 open.
func TestInteropListen(t *testing.T) {
	s := sdkServer(nil)
	srv := started(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}), s)
	c := transport.HTTP(transport.HTTPConfig{URL: srv.URL, Client: srv.Client()})
	closing(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := c.Write(ctx, modern(1, mcp.MethodListen, `{"notifications":{"toolsListChanged":true}}`)); err != nil {
		t.Fatal(err)
	}
	if m := read(t, c); m.Method != mcp.NotificationSubscriptionsAck || string(m.Related) != "1" {
		t.Errorf("%s", m.Bytes())
	}
	s.RemoveTools("ask")
	if m := read(t, c); m.Method != mcp.NotificationToolsChanged || string(m.Related) != "1" {
		t.Errorf("%s", m.Bytes())
	}
}

// TestInteropResume breaks a call's stream between an SDK server and the client; the
// server stores the events.
func TestInteropResume(t *testing.T) {
	release := make(chan struct{})
	s := sdk.NewServer(&sdk.Implementation{Name: "behind", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "late", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		<-release
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "after all"}}}, nil
	})
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)})
	var resumed atomic.Bool
	srv := started(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-Id") != "" {
			resumed.Store(true)
			close(release)
		}
		h.ServeHTTP(w, r)
	}), s)
	breaker := &cutter{base: srv.Client().Transport}
	c := transport.HTTP(transport.HTTPConfig{URL: srv.URL, Client: &http.Client{Transport: breaker}}.WithRetry(time.Millisecond, 0).WithoutStream())
	closing(t, c)
	write(t, c, request(1, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
	answerTo(t, c, "1")
	write(t, c, &mcp.Message{Method: mcp.NotificationInitialized})
	breaker.armed.Store(true)
	write(t, c, request(2, mcp.MethodCallTool, `{"name":"late","arguments":{}}`))
	if m := answerTo(t, c, "2"); !strings.Contains(string(m.Result), "after all") || !resumed.Load() {
		t.Errorf("%s, resumed %v", m.Bytes(), resumed.Load())
	}
}

// cutter cuts off the body of one response after its first bytes.
type cutter struct {
	base  http.RoundTripper
	armed atomic.Bool
}

func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(r)
	if err == nil && c.armed.CompareAndSwap(true, false) {
		resp.Body = &cutBody{resp.Body, false}
	}
	return resp, err
}

type cutBody struct {
	io.ReadCloser
	cut bool
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.cut {
		return 0, io.ErrUnexpectedEOF
	}
	b.cut = true
	return b.ReadCloser.Read(p)
}

func TestInteropSSE(t *testing.T) {
	cancelled := make(chan struct{}, 1)
	s := sdkServer(cancelled)
	srv := started(t, sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil), s)
	c := transport.SSE(transport.HTTPConfig{URL: srv.URL, Client: srv.Client()})
	closing(t, c)
	legacySession(t, c, cancelled, false, true)
}

func TestInteropLines(t *testing.T) {
	cancelled := make(chan struct{}, 1)
	s := sdkServer(cancelled)
	toServer, ours := io.Pipe()
	fromServer, theirs := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, &sdk.IOTransport{Reader: toServer, Writer: theirs}) }()
	c := transport.Lines(fromServer, ours, transport.LinesConfig{})
	legacySession(t, c, cancelled, false, true)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	select {
	case <-done:
	case <-within(t).Done():
		t.Error("the server did not end")
	}
}
