package grpctool

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
)

// TestLimits: oversized responses are refused, messages and headers alike.
func TestLimits(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts := importTools(t, s)
	e := New(Config{Egress: egress.PoolConfig{MaxHeaderBytes: 8 << 10}})
	defer e.Close()
	header := func(n int) map[string]any {
		return map[string]any{"metadata": map[string]any{"x-header-bytes": fmt.Sprint(n)}}
	}
	if _, _, err := run(t, e, execution(ts.with(t, "Kinds_Old", header(1000)), args(t, `{}`))); err != nil {
		t.Fatal(err, err.Cause)
	}
	_, _, err := run(t, e, execution(ts.with(t, "Kinds_Old", header(20_000)), args(t, `{}`)))
	wantCode(t, err, toolkeep.InvalidResponse)
	small := ts.with(t, "Kinds_Large", map[string]any{"max_frame_bytes": number(1000)})
	if _, _, err := run(t, e, execution(small, args(t, `{"to":900}`))); err != nil {
		t.Fatal(err, err.Cause)
	}
	_, _, err = run(t, e, execution(small, args(t, `{"to":2000}`)))
	wantCode(t, err, toolkeep.ResultTooLarge)
	if err.Details["limit_bytes"] != int64(1000) {
		t.Errorf("%+v", err.Details)
	}
}

// TestPlainHTTP checks the errors for plain HTTP responses of a proxy or another
// server.
func TestPlainHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	status := 0
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprint(w, "<h1>words of a proxy</h1>")
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }()
	defer func() { server.Close(); <-done }()
	ts := importTools(t, grpctest.Start(t, grpctest.Options{}))
	e := newExecutor(t)
	for code, want := range map[int]toolkeep.Code{401: toolkeep.SecretAccessDenied, 403: toolkeep.SecretAccessDenied, 429: toolkeep.RateLimitExceeded,
		404: toolkeep.InvalidResponse, 200: toolkeep.InvalidResponse, 500: toolkeep.UpstreamServerError, 503: toolkeep.UpstreamServerError, 0: toolkeep.InvalidResponse} {
		status = code
		_, _, err := run(t, e, execution(ts.with(t, "Kinds_Old", map[string]any{"target": l.Addr().String()}), args(t, `{}`)))
		if err == nil || err.Code != want || err.NothingSent {
			t.Errorf("HTTP %d: %v (because of %v), want %s", code, err, toolkeep.AsError(err).Cause, want)
			continue
		}
		if got, _ := err.Details["status"].(int); code != 0 && code != 200 && got != code {
			t.Errorf("HTTP %d: details.status is %d", code, got)
		}
		if strings.Contains(err.Message+fmt.Sprint(err.Details), "words of a proxy") {
			t.Errorf("HTTP %d: %v %v", code, err, err.Details)
		}
	}
}

// TestManyAtOnce makes concurrent calls over a pool that is too small for them.
func TestManyAtOnce(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts := importTools(t, s)
	e := New(Config{Egress: egress.PoolConfig{Max: 3}})
	defer e.Close()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 20 {
				x := execution(ts["Kinds_Chat"], map[string]any{"messages": []any{map[string]any{"n": number(i*1000 + j)}}})
				x.Principal = &toolkeep.Principal{Tenant: fmt.Sprint(i % 5)}
				got, _, err := runWith(t.Context(), e, x)
				if want := fmt.Sprintf(`{"complete":true,"messages":[{"n":"%d"}]}`, i*1000+j); err != nil || got != want {
					t.Errorf("%s %v", got, err)
				}
			}
		})
	}
	all.Wait()
	if n := e.pool.len(); n > 3 {
		t.Errorf("%d connections are kept", n)
	}
}

// TestManyMessages sends more than flow control permits at once, in both directions.
func TestManyMessages(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	list := make([]any, 20_000)
	for i := range list {
		list[i] = map[string]any{"n": number(1 << 30)}
	}
	_, out, err := run(t, e, execution(ts.with(t, "Kinds_Chat", map[string]any{"max_frames": number(100_000)}), map[string]any{"messages": list}))
	if err != nil {
		t.Fatal(err, err.Cause)
	}
	if n := len(out.Value.(map[string]any)["messages"].([]any)); n != len(list) {
		t.Errorf("%d messages came back", n)
	}
	// The server has sent all that is accepted long before it has read everything.
	_, out, err = run(t, e, execution(ts.with(t, "Kinds_Chat", map[string]any{"max_frames": number(5)}), map[string]any{"messages": list}))
	if err != nil || len(out.Warnings) != 1 {
		t.Errorf("%v %v", out, err)
	}
	// It ends the call without reading the rest.
	_, _, err = run(t, e, execution(ts.with(t, "Kinds_Sum", map[string]any{"method": "acme.kinds.v1.Kinds/Gone", "descriptors": renamed(t, ts)}), args(t, `{}`)))
	wantCode(t, err, toolkeep.GRPCError)
}

// TestIdle: an idle connection is closed, and the next call gets a new one.
func TestIdle(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts := importTools(t, s)
	e := New(Config{Egress: egress.PoolConfig{IdleTimeout: 500 * time.Millisecond}})
	defer e.Close()
	for i := range 2 {
		if _, _, err := run(t, e, execution(ts["Kinds_Old"], args(t, `{}`))); err != nil {
			t.Fatal(err, err.Cause)
		}
		for deadline := time.Now().Add(time.Minute); s.Open() > 0; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("the idle connection stays open")
			}
		}
		if n := s.Conns(); n != i+1 {
			t.Errorf("%d connections were made for %d calls", n, i+1)
		}
	}
}

// TestKilledStream stops the server while a stream is read.
func TestKilledStream(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	x := execution(ts.with(t, "Kinds_Forever", map[string]any{"max_frames": number(100_000)}), args(t, `{}`))
	x.Caller = killer{s}
	_, _, err := run(t, e, x)
	wantCode(t, err, toolkeep.NetworkError)
	if n, _ := err.Details["messages_received"].(int); n == 0 || err.NothingSent || err.Details["reason"] != "reset" {
		t.Errorf("%+v", err)
	}
}

// killer stops the server at the first progress message.
type killer struct{ s *grpctest.Server }

func (k killer) Progress(toolkeep.Progress) { k.s.Stop() }

// TestRestart: calls go on after a graceful server restart.
func TestRestart(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	if _, _, err := run(t, e, execution(ts["Kinds_Old"], args(t, `{}`))); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	l, err := net.Listen("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	grpctest.Serve(t, l, grpctest.Options{})
	// The old connection is dead; that is noticed before or after the call was written
	// to it, and the next call gets a new one either way.
	_, _, failed := run(t, e, execution(ts["Kinds_Old"], args(t, `{}`)))
	if failed != nil && failed.Code != toolkeep.NetworkError {
		t.Errorf("%v (because of %v)", failed, failed.Cause)
	}
	if _, _, failed := run(t, e, execution(ts["Kinds_Old"], args(t, `{}`))); failed != nil {
		t.Errorf("%v (because of %v)", failed, failed.Cause)
	}
}

// TestEnvironment: a proxy in the environment is ignored.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy", "http_proxy"} {
		t.Setenv(name, "http://"+closedPort(t))
	}
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	if _, _, err := run(t, e, execution(ts["Kinds_Old"], args(t, `{}`))); err != nil {
		t.Error(err, err.Cause)
	}
}

// TestMemoryForResults: an answer of one message is a result also while there is no memory for results; a stream is read
// on only if there is.
func TestMemoryForResults(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	for tool, x := range map[string]struct {
		args string
		code toolkeep.Code
	}{
		"Kinds_Day":   {`{"value":"ab"}`, ""},
		"Kinds_Sum":   {`{"messages":[{"n":5}]}`, ""},
		"Kinds_Count": {`{"to":3}`, toolkeep.UpstreamTimeout},
	} {
		call := execution(ts[tool], args(t, x.args))
		call.Grow = func(int64) error { return context.DeadlineExceeded }
		_, out, err := run(t, e, call)
		switch {
		case x.code != "":
			wantCode(t, err, x.code)
		case err != nil || out.BytesRecv == 0:
			t.Errorf("%s: %+v, %v", tool, out, err)
		}
	}
}
