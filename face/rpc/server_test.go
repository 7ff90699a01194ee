package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// wantCode checks the status and the catalogued code in its details.
func wantCode(t *testing.T, err error, want toolkeep.Code) *status.Status {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != grpcCodes[want.Info().GRPC] || !strings.Contains(fmt.Sprint(s.Details()), string(want)) {
		t.Fatalf("got %v %v, want %s", s, s.Details(), want)
	}
	return s
}

func TestMetadataAndAnswer(t *testing.T) {
	s := newSystem()
	var got *toolkeep.Call
	var who *toolkeep.Principal
	s.Invoker = fakeInvoker(func(_ context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		got, who = c, p
		r := succeeded()
		r.Replayed, r.Output = true, []byte("7")
		return r, nil
	})
	c := l03v1.NewToolExecutionClient(s.start(t))
	var header, trailer metadata.MD
	res, err := c.InvokeTool(as(t.Context(), "agent", "x-session-id", "s1", "idempotency-key", "k1", "x-request-id", "mine-1"), ask(nil),
		grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	if got.Session != "s1" || got.Key != "k1" || got.Face != "grpc" || got.Fault != nil || who.Subject != "agent" {
		t.Errorf("%+v %+v", got, who)
	}
	if res.RequestId != "k1" || res.Outputs["result"] != "7" || trailer.Get("x-output-form")[0] != "bare" ||
		trailer.Get("x-idempotency-replayed")[0] != "true" || header.Get("x-request-id")[0] != "mine-1" {
		t.Errorf("%v %v %v", res, header, trailer)
	}
	for _, bad := range []string{"a b", strings.Repeat("x", 129), ""} {
		if _, err := c.InvokeTool(as(t.Context(), "agent", "x-request-id", bad), ask(nil), grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if id := header.Get("x-request-id")[0]; id == bad || !strings.HasPrefix(id, "req-") {
			t.Errorf("%q", id)
		}
	}
}

func TestWhoCalls(t *testing.T) {
	s := newSystem()
	s.calls.get = func(*toolkeep.Principal, string) (*toolkeep.Invocation, error) {
		return &toolkeep.Invocation{ID: someID}, nil
	}
	conn := s.start(t)
	c, r := l03v1.NewToolExecutionClient(conn), l03v1.NewToolRegistryClient(conn)
	outgoing := func(md ...string) context.Context { return metadata.AppendToOutgoingContext(t.Context(), md...) }
	for name, ctx := range map[string]context.Context{
		"nobody":      t.Context(),
		"a wrong key": as(t.Context(), "stranger"),
		"basic":       outgoing("authorization", "Basic YWRtaW46"),
		"two keys":    outgoing("authorization", "Bearer admin", "authorization", "Bearer admin"),
		"a long key":  outgoing("authorization", "Bearer "+strings.Repeat("x", 5000)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.InvokeTool(ctx, ask(nil))
			wantCode(t, err, toolkeep.Unauthenticated)
			_, err = c.GetInvocation(ctx, &l03v1.GetInvocationRequest{InvocationId: someID})
			wantCode(t, err, toolkeep.Unauthenticated)
			_, err = c.CancelInvocation(ctx, &l03v1.CancelInvocationRequest{InvocationId: someID})
			wantCode(t, err, toolkeep.Unauthenticated)
			_, err = r.GetTool(ctx, &l03v1.GetToolRequest{ToolId: "demo.text"})
			wantCode(t, err, toolkeep.Unauthenticated)
			_, err = r.ListTools(ctx, &l03v1.ListToolsRequest{})
			wantCode(t, err, toolkeep.Unauthenticated)
			_, err = r.QueryByCapability(ctx, &l03v1.QueryByCapabilityRequest{Query: "x"})
			wantCode(t, err, toolkeep.Unauthenticated)
			in, err := c.InvokeToolStream(ctx, ask(nil))
			if err == nil {
				_, err = in.Recv()
			}
			wantCode(t, err, toolkeep.Unauthenticated)
		})
	}
	get := func(md ...string) error {
		_, err := c.GetInvocation(as(t.Context(), "agent", md...), &l03v1.GetInvocationRequest{InvocationId: someID})
		return err
	}
	wantCode(t, get("x-user-id", "somebody"), toolkeep.PermissionDenied)
	wantCode(t, get("x-capability-token", "x"), toolkeep.TokenInvalid)
	wantCode(t, get("x-request-signature", "x"), toolkeep.SignatureInvalid)
	if err := get("x-user-id", "agent"); err != nil {
		t.Error(err)
	}
	_, err := c.GetInvocation(as(t.Context(), "agent"), &l03v1.GetInvocationRequest{})
	wantCode(t, err, toolkeep.InvalidParameters)
}

// The RPC's deadline and cancellation reach the call.
func TestDeadlineAndCancellation(t *testing.T) {
	s := newSystem()
	began, ended := make(chan time.Duration, 1), make(chan error, 1)
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, _ *toolkeep.Call) (*toolkeep.Result, error) {
		left := time.Duration(0)
		if d, ok := ctx.Deadline(); ok {
			left = time.Until(d)
		}
		began <- left
		<-ctx.Done()
		ended <- ctx.Err()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // like the pipeline; the server's timer may fire first
			return nil, toolkeep.NewError(toolkeep.Timeout, "the call's deadline passed")
		}
		return nil, toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled")
	})
	c := l03v1.NewToolExecutionClient(s.start(t))
	ctx, cancel := context.WithTimeout(as(t.Context(), "agent"), time.Minute)
	go func() {
		if left := <-began; left <= 0 || left > time.Minute {
			t.Errorf("the call saw %s", left)
		}
		cancel()
	}()
	if _, err := c.InvokeTool(ctx, ask(nil)); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for d := 50 * time.Millisecond; ; d *= 2 { // until the server has received the call before it is over
		ctx, cancel := context.WithTimeout(as(t.Context(), "agent"), d)
		_, err := c.InvokeTool(ctx, ask(nil))
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
		select {
		case <-began:
			<-ended
			return
		default:
		}
	}
}

func recvAll(t *testing.T, in grpc.ServerStreamingClient[l03v1.InvocationUpdate], err error) (progress []*l03v1.InvocationUpdate_Progress, res *l03v1.ToolInvocationResult, end error) {
	t.Helper()
	if err != nil {
		return nil, nil, err
	}
	for {
		u, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return progress, res, nil
		}
		if err != nil {
			return progress, res, err
		}
		if res != nil {
			t.Errorf("after the result came %v", u)
		}
		if p := u.GetProgress(); p != nil {
			progress = append(progress, p)
		}
		res = u.GetResult()
	}
}

// The executor reports far more than the client reads; it never blocks, the latest progress wins
// and the result is the last message.
func TestProgressNeverBlocks(t *testing.T) {
	s := newSystem()
	reported := make(chan struct{})
	s.Invoker = fakeInvoker(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		for i := range 100_000 {
			c.Caller.Progress(toolkeep.Progress{Percent: i / 1000, Phase: "work", Message: strings.Repeat("x", 1000)})
		}
		close(reported)
		return &toolkeep.Result{InvocationID: c.ID, State: toolkeep.CallSucceeded, Output: []byte(`{}`)}, nil
	})
	c := l03v1.NewToolExecutionClient(s.start(t))
	in, err := c.InvokeToolStream(as(t.Context(), "agent"), ask(nil))
	if err != nil {
		t.Fatal(err)
	}
	<-reported // before the client has read anything
	progress, res, err := recvAll(t, in, nil)
	if err != nil || res.GetStatus() != l03v1.ToolInvocationResult_SUCCESS || len(progress) == 0 || len(progress) == 100_000 {
		t.Fatalf("%d %v %v", len(progress), res, err)
	}
	for _, p := range progress {
		if p.InvocationId != res.InvocationId || p.Phase != "work" {
			t.Fatalf("%v of %v", p, res)
		}
	}
}

func rows(list ...*toolkeep.Invocation) func(context.Context, *toolkeep.Principal, string) iter.Seq2[*toolkeep.Invocation, error] {
	return func(ctx context.Context, _ *toolkeep.Principal, _ string) iter.Seq2[*toolkeep.Invocation, error] {
		return func(yield func(*toolkeep.Invocation, error) bool) {
			for _, v := range list {
				if !yield(v, nil) {
					return
				}
			}
			if len(list) > 0 && list[len(list)-1].State.Ended() {
				return
			}
			<-ctx.Done()
		}
	}
}

func TestStreamFollowsAWaitingCall(t *testing.T) {
	s := newSystem()
	queued := &toolkeep.Result{InvocationID: someID, State: toolkeep.CallQueued}
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		return queued, nil
	})
	half := toolkeep.Progress{Percent: 50, Phase: "half"}
	done := &toolkeep.Invocation{ID: someID, State: toolkeep.CallSucceeded, Output: []byte(`{"a":1}`)}
	var fetched atomic.Int32
	s.calls.get = func(*toolkeep.Principal, string) (*toolkeep.Invocation, error) { fetched.Add(1); return done, nil }
	s.calls.watch = rows(&toolkeep.Invocation{ID: someID, State: toolkeep.CallQueued}, &toolkeep.Invocation{ID: someID, State: toolkeep.CallQueued},
		&toolkeep.Invocation{ID: someID, State: toolkeep.CallRunning, Progress: half}, done)
	c := l03v1.NewToolExecutionClient(s.start(t))
	in, err := c.InvokeToolStream(as(t.Context(), "agent"), ask(nil))
	progress, res, err := recvAll(t, in, err)
	if err != nil || res.GetOutputs()["a"] != "1" || fetched.Load() != 1 {
		t.Fatalf("%v %v", res, err)
	}
	var phases []string
	for _, p := range progress {
		phases = append(phases, p.InvocationId[:8]+" "+p.Phase)
	}
	if !slices.Equal(phases, []string{"01900000 queued", "01900000 half"}) {
		t.Errorf("%q", phases)
	}
	// A caller that may not see the row gets the receipt that says where the call waits.
	s.calls.watch = func(context.Context, *toolkeep.Principal, string) iter.Seq2[*toolkeep.Invocation, error] {
		return func(yield func(*toolkeep.Invocation, error) bool) {
			yield(nil, toolkeep.NewError(toolkeep.ResourceNotFound, "no"))
		}
	}
	in, err = c.InvokeToolStream(as(t.Context(), "agent"), ask(nil))
	if _, res, err := recvAll(t, in, err); err != nil || res.GetStatus() != l03v1.ToolInvocationResult_PENDING || res.GetPollingInfo() == nil {
		t.Errorf("%v %v", res, err)
	}
	// Stopping the server ends the stream but not the call.
	s.calls.watch = rows(&toolkeep.Invocation{ID: someID, State: toolkeep.CallRunning})
	in, err = c.InvokeToolStream(as(t.Context(), "agent"), ask(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Recv(); err != nil {
		t.Fatal(err)
	}
	s.server.Close()
	_, err = in.Recv()
	if st := wantCode(t, err, toolkeep.Draining); !strings.Contains(fmt.Sprint(st.Details()), someID) {
		t.Errorf("%v", st.Details())
	}
}

func TestDryRun(t *testing.T) {
	s := newSystem()
	s.calls.explain = func(c *toolkeep.Call) (any, error) {
		if c.Fault != nil {
			return nil, c.Fault
		}
		return map[string]any{"tool": c.Tool, "would_execute": true}, nil
	}
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		t.Error("it was called")
		return nil, nil
	})
	c := l03v1.NewToolExecutionClient(s.start(t))
	dry := ask(func(m *l03v1.ToolInvocationRequest) { m.DryRun = true })
	res, err := c.InvokeTool(as(t.Context(), "agent"), dry)
	if err != nil || res.Outputs["would_execute"] != "true" || res.Outputs["tool"] != `"demo.text"` || res.InvocationId != "" {
		t.Errorf("%v %v", res, err)
	}
	in, err := c.InvokeToolStream(as(t.Context(), "agent"), dry)
	if _, res, err := recvAll(t, in, err); err != nil || res.GetOutputs()["would_execute"] != "true" {
		t.Errorf("%v %v", res, err)
	}
}

func TestPanic(t *testing.T) {
	s := newSystem()
	s.Invoker = fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
		panic("the secret inside")
	})
	c := l03v1.NewToolExecutionClient(s.start(t))
	_, err := c.InvokeTool(as(t.Context(), "agent"), ask(nil))
	st := wantCode(t, err, toolkeep.InternalError)
	in, err := c.InvokeToolStream(as(t.Context(), "agent"), ask(nil))
	_, _, err = recvAll(t, in, err)
	wantCode(t, err, toolkeep.InternalError)
	if strings.Contains(st.Message()+fmt.Sprint(st.Details()), "secret") {
		t.Errorf("%v", st)
	}
	if log := s.log.String(); strings.Count(log, "a request handler panicked") != 2 || strings.Count(log, "rpc.TestPanic.func1") != 2 {
		t.Errorf("%s", log)
	}
}

// rawCodec sends raw bytes, to send invalid messages.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = b
	return nil
}
func (rawCodec) Name() string { return "proto" }

var _ encoding.Codec = rawCodec{}

func TestHostileMessages(t *testing.T) {
	s := newSystem()
	s.front.Limits = gate.Limits{BodyBytes: 64 << 10, HeaderBytes: 8 << 10}
	s.Invoker = fakeInvoker(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		if c.Fault != nil {
			return nil, c.Fault
		}
		return succeeded(), nil
	})
	conn := s.start(t)
	const invoke = "/agentic.l03.v1.ToolExecution/InvokeTool"
	text, _ := proto.Marshal(&l03v1.ToolInvocationRequest{ToolId: "demo.text"})
	for name, raw := range map[string][]byte{
		"no protobuf": {0xff, 0xff, 0xff}, "text that is not UTF-8": []byte(strings.ReplaceAll(string(text), "demo", "d\xffmo")),
	} {
		t.Run(name, func(t *testing.T) {
			var out []byte
			err := conn.Invoke(as(t.Context(), "agent"), invoke, raw, &out, grpc.ForceCodec(rawCodec{}))
			wantCode(t, err, toolkeep.InvalidEncoding)
			in, err := conn.NewStream(as(t.Context(), "agent"), &grpc.StreamDesc{ServerStreams: true}, invoke+"Stream", grpc.ForceCodec(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(in.SendMsg(raw), in.CloseSend()); err != nil {
				t.Fatal(err)
			}
			wantCode(t, in.RecvMsg(&out), toolkeep.InvalidEncoding)
			err = conn.Invoke(as(t.Context(), "agent"), "/agentic.l03.v1.ToolRegistry/GetTool", raw, &out, grpc.ForceCodec(rawCodec{}))
			wantCode(t, err, toolkeep.InvalidEncoding)
		})
	}
	c := l03v1.NewToolExecutionClient(conn)
	_, err := c.InvokeTool(as(t.Context(), "agent"), ask(func(m *l03v1.ToolInvocationRequest) {
		m.Inputs = map[string]string{"text": strings.Repeat("x", 200<<10)}
	}))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message over twice the limit: %v", err)
	}
	ctx, cancel := context.WithTimeout(as(t.Context(), "agent", "x-session-id", strings.Repeat("x", 20<<10)), time.Minute)
	defer cancel()
	if _, err = c.InvokeTool(ctx, ask(nil)); err == nil || status.Code(err) == codes.DeadlineExceeded {
		t.Errorf("metadata over the limit: %v", err)
	}
	if _, err = c.InvokeTool(as(t.Context(), "agent"), ask(nil)); err != nil {
		t.Errorf("the server no longer answers: %v", err)
	}
	var out []byte
	if err := conn.Invoke(as(t.Context(), "agent"), "/agentic.l03.v1.ToolExecution/Nothing", text, &out, grpc.ForceCodec(rawCodec{})); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// A client that opens calls and sends nothing is disconnected; after sending its message it may
// wait for the answer without limit.
func TestMessagesThatDoNotArrive(t *testing.T) {
	s := newSystem()
	s.front.Limits.BodyTimeout = 500 * time.Millisecond // enough for a message that was sent
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, _ *toolkeep.Call) (*toolkeep.Result, error) {
		select {
		case <-ctx.Done():
			return nil, toolkeep.NewError(toolkeep.Cancelled, "cut off")
		case <-time.After(s.front.Limits.BodyTimeout + 100*time.Millisecond):
			return succeeded(), nil
		}
	})
	conn := s.start(t)
	for _, method := range []string{"InvokeTool", "InvokeToolStream"} {
		in, err := conn.NewStream(as(t.Context(), "agent"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/agentic.l03.v1.ToolExecution/"+method)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.RecvMsg(new(l03v1.ToolInvocationResult)); status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", method, err)
		}
	}
	c := l03v1.NewToolExecutionClient(conn)
	if _, err := c.InvokeTool(as(t.Context(), "agent"), ask(nil)); err != nil {
		t.Error(err)
	}
	in, err := c.InvokeToolStream(as(t.Context(), "agent"), ask(nil))
	if _, res, err := recvAll(t, in, err); err != nil || res == nil {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	s := newSystem()
	s.healthEvery = time.Millisecond
	var ready atomic.Bool
	s.Ready = func(context.Context) bool { return ready.Load() }
	c := healthpb.NewHealthClient(s.start(t))
	check := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		t.Helper()
		r, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	const serving, not = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	if got := check(""); got != not {
		t.Error(got)
	}
	in, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "agentic.l03.v1.ToolExecution"})
	if err != nil {
		t.Fatal(err)
	}
	next := func() healthpb.HealthCheckResponse_ServingStatus {
		t.Helper()
		r, err := in.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	first := next()
	ready.Store(true)
	if second := next(); first != not || second != serving || check("agentic.l03.v1.ToolRegistry") != serving {
		t.Error(first, second)
	}
	if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nothing"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	if l, err := c.List(t.Context(), &healthpb.HealthListRequest{}); err != nil || len(l.Statuses) != 3 {
		t.Error(l, err)
	}
	s.server.Close()
	if got := next(); got != not || check("") != not {
		t.Error(got)
	}
	if _, err := in.Recv(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// Reflection lists the services and describes every message, in both versions.
func TestReflection(t *testing.T) {
	conn := newSystem().start(t)
	want := []string{"agentic.l03.v1.ToolExecution", "agentic.l03.v1.ToolRegistry", "agentic.l03.v1.ToolRetrieval", "grpc.health.v1.Health",
		"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
	in, err := reflectv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	talk := func(q *reflectv1.ServerReflectionRequest) *reflectv1.ServerReflectionResponse {
		t.Helper()
		if err := in.Send(q); err != nil {
			t.Fatal(err)
		}
		r, err := in.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var names []string
	for _, s := range talk(&reflectv1.ServerReflectionRequest{MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	raw := talk(&reflectv1.ServerReflectionRequest{MessageRequest: &reflectv1.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "agentic.l03.v1.ToolInvocationRequest"}}).GetFileDescriptorResponse().GetFileDescriptorProto()
	files := map[string]bool{}
	for _, b := range raw {
		var f descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(b, &f); err != nil {
			t.Fatal(err)
		}
		files[f.GetName()] = true
	}
	if !files["agentic/l03/v1/l03.proto"] || !files["google/protobuf/struct.proto"] {
		t.Errorf("%v", files)
	}
	if err := in.CloseSend(); err != nil {
		t.Fatal(err)
	}
	// The older version has the same messages under other names.
	old, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
	if err != nil {
		t.Fatal(err)
	}
	if err := old.SendMsg(&reflectv1.ServerReflectionRequest{MessageRequest: &reflectv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	r := new(reflectv1.ServerReflectionResponse)
	if err := old.RecvMsg(r); err != nil || len(r.GetListServicesResponse().GetService()) != len(want) {
		t.Errorf("%v %v", r, err)
	}
}

// identity creates a certificate, self-signed if by is nil.
func identity(t *testing.T, name string, by *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IsCA: by == nil, BasicConstraintsValid: true}
	parent, signer := template, any(key)
	if by != nil {
		if parent, err = x509.ParseCertificate(by.Certificate[0]); err != nil {
			t.Fatal(err)
		}
		signer = by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTLS(t *testing.T) {
	authority := identity(t, "authority", nil)
	root, err := x509.ParseCertificate(authority.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	serverCert, clientCert, foreign := identity(t, "server", &authority), identity(t, "client", &authority), identity(t, "foreign", nil)
	for _, mutual := range []bool{false, true} {
		t.Run(fmt.Sprintf("mutual=%t", mutual), func(t *testing.T) {
			s := newSystem()
			c := &tls.Config{Certificates: []tls.Certificate{serverCert}, MinVersion: tls.VersionTLS12}
			if mutual {
				c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
			}
			s.TLS = c
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
			})
			with := func(certs ...tls.Certificate) grpc.DialOption {
				return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "server", Certificates: certs}))
			}
			conn := s.serve(t, l, dial, with(clientCert))
			if _, err := l03v1.NewToolExecutionClient(conn).InvokeTool(as(t.Context(), "agent"), ask(nil)); err != nil {
				t.Error(err)
			}
			for name, o := range map[string]grpc.DialOption{"no certificate": with(), "a foreign certificate": with(foreign)} {
				other, err := grpc.NewClient("passthrough:///server", dial, o)
				if err != nil {
					t.Fatal(err)
				}
				_, err = l03v1.NewToolExecutionClient(other).InvokeTool(as(t.Context(), "agent"), ask(nil))
				if (err == nil) == mutual {
					t.Errorf("%s: %v", name, err)
				}
				other.Close()
			}
		})
	}
}

// Stop waits for running calls, and cuts them off when ctx ends.
func TestStop(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient=%t", patient), func(t *testing.T) {
			s := newSystem()
			began, finish := make(chan struct{}), make(chan struct{})
			s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, _ *toolkeep.Call) (*toolkeep.Result, error) {
				close(began)
				select {
				case <-finish:
					return succeeded(), nil
				case <-ctx.Done():
					return nil, toolkeep.NewError(toolkeep.Draining, "the server stopped while the call ran")
				}
			})
			c := l03v1.NewToolExecutionClient(s.start(t))
			answered := make(chan error, 1)
			go func() {
				_, err := c.InvokeTool(as(context.Background(), "agent"), ask(nil))
				answered <- err
			}()
			<-began
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- s.server.Stop(ctx) }()
			if patient {
				close(finish)
			} else {
				cancel()
			}
			stop, answer := <-stopped, <-answered
			if (stop == nil) != patient || (answer == nil) != patient {
				t.Errorf("stop %v, answer %v", stop, answer)
			}
		})
	}
}

// Interrupt ends running calls, and their answers still arrive.
func TestInterrupt(t *testing.T) {
	s := newSystem()
	began := make(chan struct{})
	s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, _ *toolkeep.Call) (*toolkeep.Result, error) {
		close(began)
		<-ctx.Done()
		return nil, toolkeep.NewError(toolkeep.Draining, "the server stopped while the call ran").After(time.Second)
	})
	c := l03v1.NewToolExecutionClient(s.start(t))
	go func() { <-began; s.server.Interrupt() }()
	_, err := c.InvokeTool(as(t.Context(), "agent"), ask(nil))
	wantCode(t, err, toolkeep.Draining)
}

func TestManyAtOnce(t *testing.T) {
	s := newSystem()
	s.Invoker = fakeInvoker(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		if c.Caller != nil {
			c.Caller.Progress(toolkeep.Progress{Percent: 5})
		}
		r := succeeded()
		r.Output = []byte(`{"session":"` + c.Session + `"}`)
		return r, nil
	})
	c := l03v1.NewToolExecutionClient(s.start(t))
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 50 {
				id := fmt.Sprintf("%d-%d", g, i)
				ctx := as(t.Context(), "agent", "x-session-id", id)
				var res *l03v1.ToolInvocationResult
				var err error
				if i%2 == 0 {
					res, err = c.InvokeTool(ctx, ask(nil))
				} else {
					var in grpc.ServerStreamingClient[l03v1.InvocationUpdate]
					in, err = c.InvokeToolStream(ctx, ask(nil))
					_, res, err = recvAll(t, in, err)
				}
				if err != nil || res.Outputs["session"] != `"`+id+`"` {
					t.Errorf("%v %v", res, err)
				}
			}
		})
	}
	wg.Wait()
}
