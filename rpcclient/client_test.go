package rpcclient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wantCode(t *testing.T, err error, want toolkeep.Code) *toolkeep.Error {
	t.Helper()
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	return e
}

// scripted is a server with responses from a test.
type scripted struct {
	l03v1.UnimplementedToolExecutionServer
	invoke func(context.Context, *l03v1.ToolInvocationRequest) (*l03v1.ToolInvocationResult, error)
	stream func(*l03v1.ToolInvocationRequest, grpc.ServerStreamingServer[l03v1.InvocationUpdate]) error
	get    func(*l03v1.GetInvocationRequest) (*l03v1.ToolInvocationResult, error)
}

func (s *scripted) GetInvocation(_ context.Context, m *l03v1.GetInvocationRequest) (*l03v1.ToolInvocationResult, error) {
	return s.get(m)
}

func (s *scripted) InvokeTool(ctx context.Context, m *l03v1.ToolInvocationRequest) (*l03v1.ToolInvocationResult, error) {
	return s.invoke(ctx, m)
}
func (s *scripted) InvokeToolStream(m *l03v1.ToolInvocationRequest, out grpc.ServerStreamingServer[l03v1.InvocationUpdate]) error {
	return s.stream(m, out)
}

func (s *scripted) serve(t *testing.T) *rpcclient.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	l03v1.RegisterToolExecutionServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	c, err := rpcclient.Dial(l.Addr().String(), rpcclient.Options{Key: "k", UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); server.Stop(); <-done })
	return c
}

func TestDial(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1":         "is not an address",
		"10.0.0.1:50053":    "plain text",
		"example.com:50053": "plain text",
		"0.0.0.0:1":         "plain text",
	} {
		if _, err := rpcclient.Dial(addr, rpcclient.Options{Key: "k"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"localhost:1", "127.0.0.1:1", "[::1]:1"} {
		c, err := rpcclient.Dial(addr, rpcclient.Options{Key: "k"})
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		c.Close()
	}
}

func TestArguments(t *testing.T) {
	s := &scripted{invoke: func(_ context.Context, m *l03v1.ToolInvocationRequest) (*l03v1.ToolInvocationResult, error) {
		return &l03v1.ToolInvocationResult{Outputs: m.Inputs}, nil
	}}
	c := s.serve(t)
	for in, want := range map[string]string{
		"": "{}", "{}": "{}", ` {"b":1.50,"a":{"x":[1,"ü"]}} `: `{"a":{"x":[1,"ü"]},"b":1.50}`, `{"n":9007199254740993}`: `{"n":9007199254740993}`,
	} {
		r, err := c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "a.b", Arguments: []byte(in)})
		if err != nil || string(r.Output) != want || r.State != toolkeep.CallSucceeded {
			t.Errorf("%s: %+v %v", in, r, err)
		}
	}
	for in, code := range map[string]toolkeep.Code{
		"[1]": toolkeep.MalformedRequest, "{": toolkeep.MalformedRequest, `{"a":}`: toolkeep.MalformedRequest, `{} x`: toolkeep.MalformedRequest,
		`{"a":1,"a":2}`: toolkeep.InvalidEncoding, "nope": toolkeep.MalformedRequest,
	} {
		_, err := c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "a.b", Arguments: []byte(in)})
		wantCode(t, err, code)
	}
	_, err := c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "a.b", Priority: "urgent"})
	wantCode(t, err, toolkeep.InvalidParameters)
	_, err = c.Invoke(t.Context(), nil, &toolkeep.Call{Fault: toolkeep.NewError(toolkeep.MalformedRequest, "no")})
	wantCode(t, err, toolkeep.MalformedRequest)
}

func TestExplain(t *testing.T) {
	s := &scripted{invoke: func(_ context.Context, m *l03v1.ToolInvocationRequest) (*l03v1.ToolInvocationResult, error) {
		if !m.GetDryRun() {
			return nil, status.Error(codes.Internal, "it would be carried out")
		}
		return &l03v1.ToolInvocationResult{Outputs: map[string]string{"tool": `"a.b"`, "would_execute": "true"}}, nil
	}}
	c := s.serve(t)
	out, err := c.Explain(t.Context(), &toolkeep.Call{Tool: "a.b"})
	if err != nil || string(out) != `{"tool":"a.b","would_execute":true}` {
		t.Errorf("%s %v", out, err)
	}
	_, err = c.Explain(t.Context(), &toolkeep.Call{Tool: "a.b", Arguments: []byte("nope")})
	wantCode(t, err, toolkeep.MalformedRequest)
}

// Follow reports every change once, and ends with the call or with its context.
func TestFollow(t *testing.T) {
	running := func(percent uint32) *l03v1.ToolInvocationResult {
		return &l03v1.ToolInvocationResult{Status: l03v1.ToolInvocationResult_RUNNING, ProgressPercent: percent}
	}
	answers := []*l03v1.ToolInvocationResult{{Status: l03v1.ToolInvocationResult_PENDING}, running(10), running(10), running(50),
		{Status: l03v1.ToolInvocationResult_SUCCESS, InvocationId: "i", Outputs: map[string]string{"n": "1"}}}
	asked := 0
	s := &scripted{get: func(m *l03v1.GetInvocationRequest) (*l03v1.ToolInvocationResult, error) {
		if m.GetInvocationId() != "i" {
			return running(1), nil
		}
		asked++
		return answers[asked-1], nil
	}}
	c := s.serve(t)
	var seen []string
	r, err := c.Follow(t.Context(), "i", func(r *toolkeep.Result) {
		seen = append(seen, fmt.Sprint(r.State, r.Progress.Percent))
	})
	if got := strings.Join(seen, " "); err != nil || string(r.Output) != `{"n":1}` || got != "queued0 running10 running50" {
		t.Errorf("%+v %v; seen %s", r, err, got)
	}
	ctx, leave := context.WithCancel(t.Context())
	_, err = c.Follow(ctx, "endless", func(*toolkeep.Result) { leave() })
	wantCode(t, err, toolkeep.Cancelled)
}

// An error not from Toolkeep is reported as such, and never as retryable: the call may have been executed.
func TestLost(t *testing.T) {
	for grpcCode, code := range map[codes.Code]toolkeep.Code{
		codes.Unavailable: toolkeep.NetworkError, codes.Internal: toolkeep.NetworkError, codes.Unknown: toolkeep.NetworkError,
		codes.Unauthenticated: toolkeep.Unauthenticated, codes.PermissionDenied: toolkeep.PermissionDenied,
		codes.ResourceExhausted: toolkeep.RequestTooLarge, codes.Unimplemented: toolkeep.APIVersionUnsupported,
		codes.DeadlineExceeded: toolkeep.Timeout, codes.Canceled: toolkeep.NetworkError,
	} {
		s := &scripted{invoke: func(context.Context, *l03v1.ToolInvocationRequest) (*l03v1.ToolInvocationResult, error) {
			return nil, status.Error(grpcCode, "x")
		}}
		_, err := s.serve(t).Invoke(t.Context(), nil, &toolkeep.Call{Tool: "a.b"})
		e := wantCode(t, err, code)
		var lost *rpcclient.Lost
		if e.Retryable || !errors.As(err, &lost) || lost.Status.Message() != "x" {
			t.Errorf("%+v", e)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := rpcclient.Dial(l.Addr().String(), rpcclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "a.b"})
	wantCode(t, err, toolkeep.NetworkError)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Invoke(ctx, nil, &toolkeep.Call{Tool: "a.b"})
	wantCode(t, err, toolkeep.Cancelled)
}

type progress struct {
	mu   sync.Mutex
	seen []toolkeep.Progress
}

func (p *progress) Progress(v toolkeep.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, v)
}

func TestProgress(t *testing.T) {
	s := &scripted{stream: func(_ *l03v1.ToolInvocationRequest, out grpc.ServerStreamingServer[l03v1.InvocationUpdate]) error {
		for _, n := range []uint32{10, 20} {
			p := &l03v1.InvocationUpdate_Progress{Percent: n, Phase: "p", Message: "m"}
			if err := out.Send(&l03v1.InvocationUpdate{Update: &l03v1.InvocationUpdate_Progress_{Progress: p}}); err != nil {
				return err
			}
		}
		return out.Send(&l03v1.InvocationUpdate{Update: &l03v1.InvocationUpdate_Result{Result: &l03v1.ToolInvocationResult{InvocationId: "x"}}})
	}}
	c := s.serve(t)
	p := &progress{}
	r, err := c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "a.b", Caller: p})
	if err != nil || r.InvocationID != "x" || len(p.seen) != 2 || p.seen[1] != (toolkeep.Progress{Percent: 20, Phase: "p", Message: "m"}) {
		t.Errorf("%+v %v %+v", r, err, p.seen)
	}
	s.stream = func(*l03v1.ToolInvocationRequest, grpc.ServerStreamingServer[l03v1.InvocationUpdate]) error {
		return nil
	}
	_, err = c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "a.b", Caller: p})
	wantCode(t, err, toolkeep.InvalidResponse)
	s.stream = func(*l03v1.ToolInvocationRequest, grpc.ServerStreamingServer[l03v1.InvocationUpdate]) error {
		return status.Error(codes.Unavailable, "gone")
	}
	_, err = c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "a.b", Caller: p})
	wantCode(t, err, toolkeep.NetworkError)
}

// The client against the whole system: its results equal the pipeline's.
func TestSystem(t *testing.T) {
	k, tools, keys := toolkeeptest.ForFaces(t)
	dial := func(key string) *rpcclient.Client {
		c, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial(keys["admin"])
	ctx := t.Context()
	call := &toolkeep.Call{Tool: "face.echo", Range: "0.9.0", Arguments: []byte(`{"text":"a","n":7}`), Session: "s", Plan: "p", Task: "t", Timeout: 1500 * time.Millisecond}
	r, err := c.Invoke(ctx, nil, call)
	if err != nil || string(r.Output) != `{"n":7,"text":"a"}` || r.ToolVersion != "0.9.0" || r.StartedAt.IsZero() || r.EndedAt.Before(r.StartedAt) ||
		r.Attempts != 1 || r.CallID == "" || len(r.Warnings) != 1 || r.Warnings[0].Code != toolkeep.ToolDeprecated || strings.Contains(r.Warnings[0].Message, "E3006") {
		t.Fatalf("%+v %v", r, err)
	}
	row, err := k.Pipeline().Get(ctx, &toolkeep.Principal{Tenant: "default", Subject: "admin"}, r.InvocationID)
	if err != nil || row.Face != "grpc" || row.Session != "s" || row.Plan != "p" || row.Task != "t" {
		t.Errorf("%+v %v", row, err)
	}
	_, err = c.Invoke(ctx, nil, &toolkeep.Call{Tool: "face.strict", Arguments: []byte(`{"text":"long"}`)})
	e := wantCode(t, err, toolkeep.InputValidationFailed)
	if f, ok := e.Details["errors"].([]toolkeep.Fault); !ok || len(f) != 1 || f[0].Pointer != "/text" || f[0].Message == "" || e.InvocationID == "" {
		t.Errorf("%+v", e)
	}
	_, err = c.Invoke(ctx, nil, &toolkeep.Call{Tool: "face.limits"})
	if e := wantCode(t, err, toolkeep.RateLimitExceeded); e.RetryAfter != 7*time.Second || !e.Retryable {
		t.Errorf("%+v", e)
	}
	r, err = c.Invoke(ctx, nil, &toolkeep.Call{Tool: "face.client"})
	if err != nil || r.Error == nil || r.Error.Details["status"] != 404.0 || r.State != toolkeep.CallFailed {
		t.Errorf("%+v %v", r, err)
	}

	// A caller that leaves cancels its call; a waiting call continues.
	leaving, leave := context.WithCancel(ctx)
	go func() { tools.Await(t, "left"); leave() }()
	_, err = c.Invoke(leaving, nil, &toolkeep.Call{Tool: "face.gate", Arguments: []byte(`{"name":"left"}`)})
	wantCode(t, err, toolkeep.Cancelled)

	tool, err := c.Tool(ctx, "face.echo", "")
	if err != nil || tool.GetVersion() != "1.0.0" || len(tool.GetVersions()) != 2 {
		t.Errorf("%v %v", tool, err)
	}
	_, err = c.Tool(ctx, "face.none", "")
	wantCode(t, err, toolkeep.ToolNotFound)
	list, total, err := c.List(ctx, &l03v1.ListToolsRequest{Filters: map[string]string{"namespace": "std"}})
	if err != nil || total == 0 || len(list) != total {
		t.Errorf("%v %d %v", list, total, err)
	}
	found, err := c.Search(ctx, "hash", 3) // which no tool of the transcripts says: they go before the examples
	if err != nil || len(found) == 0 || found[0].GetTool().GetToolId() != "std.hash" {
		t.Errorf("%v %v", found, err)
	}
	_, _, err = dial("wrong").List(ctx, nil)
	wantCode(t, err, toolkeep.Unauthenticated)
}
