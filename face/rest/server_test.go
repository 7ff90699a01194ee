package rest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// serve starts the face's server on loopback and gives a raw connection to it.
func serve(t *testing.T, s *system) (*http.Server, net.Conn, *bufio.Reader) {
	t.Helper()
	srv := s.api().Server()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); srv.Close(); <-done })
	return srv, c, bufio.NewReader(c)
}

const invokeHead = "POST /api/v1/tools/invoke HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer admin\r\nContent-Type: application/json\r\n"

func TestSlowHeadersAreCutOff(t *testing.T) {
	s := newSystem()
	s.Limits.HeaderTimeout = 20 * time.Millisecond
	_, c, rd := serve(t, s)
	fmt.Fprint(c, "GET /health HTTP/1.1\r\nHost: loc")
	// Closed without an answer or with 408; by a reset where the server gave up before
	// the first bytes came.
	if _, err := io.ReadAll(rd); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

func TestSlowBodyIsCutOff(t *testing.T) {
	s := newSystem()
	s.Limits.BodyTimeout = 20 * time.Millisecond
	for name, head := range map[string]string{
		"read by invoke":      invokeHead,
		"read by a route":     "POST /api/v1/tools/register HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer admin\r\n",
		"never read, refused": "POST /api/v1/tools/register HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobody\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, c, rd := serve(t, s)
			fmt.Fprint(c, head+"Content-Length: 1000\r\n\r\n{")
			b, _ := io.ReadAll(rd) // ends when the server closes
			if !strings.Contains(string(b), "application/problem+json") {
				t.Errorf("%s", b)
			}
		})
	}
}

// The limits of reading must not end a call that takes longer than they are.
func TestLongCallOutlivesTheBodyTimeout(t *testing.T) {
	s := newSystem()
	s.Limits.BodyTimeout = 500 * time.Millisecond // enough to read a body that is there
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, _ *toolkeep.Call) (*toolkeep.Result, error) {
		select {
		case <-ctx.Done():
			return nil, toolkeep.NewError(toolkeep.Cancelled, "the context ended")
		case <-time.After(s.Limits.BodyTimeout + 100*time.Millisecond):
			return succeeded(), nil
		}
	})
	_, c, rd := serve(t, s)
	for range 2 { // the connection stays usable
		fmt.Fprintf(c, invokeHead+"Content-Length: %d\r\n\r\n%s", len(hashCall), hashCall)
		res, err := http.ReadResponse(rd, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%d %s", res.StatusCode, b)
		}
	}
}

func TestChunkedBodies(t *testing.T) {
	s := newSystem()
	s.Limits.BodyBytes = 100
	s.Invoker = okInvoker(succeeded())
	for body, status := range map[string]int{hashCall: 200, `{"tool_id":"` + strings.Repeat("x", 200) + `"}`: 413} {
		_, c, rd := serve(t, s)
		fmt.Fprintf(c, invokeHead+"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		res, err := http.ReadResponse(rd, nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%d, want %d", res.StatusCode, status)
		}
	}
}

// A body that ends early is refused, and the connection is not used again.
func TestBodyThatEndsEarly(t *testing.T) {
	_, c, rd := serve(t, newSystem())
	fmt.Fprint(c, invokeHead+"Content-Length: 100\r\n\r\n{}")
	_ = c.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(rd)
	if !strings.Contains(string(b), "E3312") {
		t.Errorf("%s", b)
	}
}

func TestShutdown(t *testing.T) {
	s := newSystem()
	rows := make(chan *toolkeep.Invocation, 1)
	rows <- progressed(1)
	s.calls.watch = rowsWatch(rows)
	srv, c, rd := serve(t, s)
	fmt.Fprint(c, "GET /api/v1/invocations/i1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer agent\r\n\r\n")
	if line, err := rd.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatal(line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(rd); err != nil || !strings.Contains(string(b), "shutting down") {
		t.Errorf("%s %v", b, err)
	}
}

func TestServerDefaults(t *testing.T) {
	srv := newSystem().api().Server()
	if srv.Addr != "127.0.0.1:8080" || srv.ReadHeaderTimeout != 10*time.Second || srv.IdleTimeout != 2*time.Minute || srv.ReadTimeout != 0 || srv.WriteTimeout != 0 {
		t.Errorf("%+v", srv)
	}
}
