package grpctool

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
	"github.com/toolkeep/toolkeep/redact"
)

const (
	defaultMaxBytes = 100 << 20
	keyMetadata     = "idempotency-key"
)

// Config configures an Executor. The zero value works.
type Config struct {
	// Egress configures the connections. Used are Max (default 256), Resolver, RootCAs,
	// MinTLS, Proxy, IdleTimeout (90 s), ConnectTimeout (10 s) and MaxHeaderBytes (256
	// KiB). An HTTP proxy gets CONNECT requests, for plaintext too.
	Egress egress.PoolConfig
}

// Executor is the executor of kind "grpc". It is safe for concurrent use.
type Executor struct {
	pool *pool

	bindings bindings.Kept[binding]
}

var (
	_ toolkeep.Executor      = (*Executor)(nil)
	_ toolkeep.UpstreamNamer = (*Executor)(nil)
)

// UpstreamOf implements toolkeep.UpstreamNamer: the upstream of a tool is its host.
func (e *Executor) UpstreamOf(_ *toolkeep.Principal, t *toolkeep.Tool) string {
	b, err := e.bindings.Of(t, parse)
	if err != nil {
		return ""
	}
	return redact.Host(b.host)
}

// Reach implements toolkeep.Reacher: a tool calls its target.
func (e *Executor) Reach(t *toolkeep.Tool) (toolkeep.Reach, error) {
	b, err := e.bindings.Of(t, parse)
	if err != nil {
		return toolkeep.Reach{}, err
	}
	_, port, _ := net.SplitHostPort(b.target) // parse has read it
	n, _ := strconv.Atoi(port)
	return toolkeep.Reach{Hosts: []toolkeep.HostPort{{Host: b.host, Port: n}}}, nil
}

// New returns an Executor.
func New(c Config) *Executor { return &Executor{pool: newPool(c.Egress)} }

// Close closes the connections; one in use is closed when its last call ends. It may be
// called twice.
func (e *Executor) Close() { e.pool.close() }

// Kind is "grpc".
func (e *Executor) Kind() string { return "grpc" }

// Check returns every fault of the binding and of auth.
func (e *Executor) Check(m *toolkeep.Manifest) []toolkeep.Fault {
	_, faults := parse(m)
	return faults
}

// Execute calls the method once.
//
// Errors: E3301 an argument does not fit its field; E3402 the credential cannot be
// sent, or the status is UNAUTHENTICATED or PERMISSION_DENIED (details.status 401 or
// 403); E3501 DNS, connect, reset; E3502 the attempt's deadline, or DEADLINE_EXCEEDED;
// E3503 TLS; E3504 the response is not valid gRPC or not the method's message; E3505
// forbidden destination; E3530 any other status, retryable if it is UNAVAILABLE or
// carries a RetryInfo; E3710 the response is over MaxBytes (default 100 MiB); E3801
// RESOURCE_EXHAUSTED; E3902 ctx was cancelled. If the server sent a status,
// details.grpc_code is its name.
//
// BytesSent and BytesRecv count messages as sent over the wire.
func (e *Executor) Execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
	out, err := e.execute(ctx, x)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (e *Executor) execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, *toolkeep.Error) {
	b, err := e.bindings.Of(x.Tool, parse)
	if err != nil {
		return nil, err
	}
	messages, err := b.request(x.Args)
	if err != nil {
		return nil, err
	}
	credentials, cert, err := attachCredentials(x.Credentials, b)
	if err != nil {
		return nil, err
	}
	tenant := ""
	if x.Principal != nil {
		tenant = x.Principal.Tenant
	}
	a := &attempt{x: x, binding: b, parent: ctx, limit: x.MaxBytes}
	if a.limit <= 0 {
		a.limit = defaultMaxBytes
	}
	if ctx.Err() != nil {
		return nil, a.failure(ctx.Err())
	}
	var failed error
	if a.link, failed = e.pool.take(tenant, b, cert); failed != nil {
		return nil, a.failure(failed)
	}
	defer func() { e.pool.give(a.link, a.broken) }()
	run, stop := a.context(credentials)
	defer stop()
	a.stop = stop
	if b.method.IsStreamingClient() || b.method.IsStreamingServer() {
		return a.stream(run, messages)
	}
	return a.unary(run, messages[0])
}

// request encodes the arguments as messages.
func (b *binding) request(args map[string]any) ([][]byte, *toolkeep.Error) {
	w := &writer{types: b.types}
	encode := func(v any, at string) ([]byte, *toolkeep.Error) {
		m, bad := w.message(b.method.Input(), v, at)
		if bad != nil {
			return nil, bad.refuse()
		}
		raw, err := proto.Marshal(m)
		if err != nil {
			return nil, argErrorf(at, "%s", toolkeep.ClipBytes(err.Error(), 300)).refuse()
		}
		return raw, nil
	}
	single := "messages"
	if !b.method.IsStreamingClient() {
		if !wrapped(b.method.Input().FullName()) {
			raw, err := encode(args, "")
			return [][]byte{raw}, err
		}
		single = "value"
	}
	for name := range args {
		if name != single {
			return nil, argErrorf(canon.Pointer(name), "the method has one argument, %q", single).refuse()
		}
	}
	if single == "value" {
		value, ok := args[single]
		if !ok {
			return nil, argErrorf("/value", "the argument is missing").refuse()
		}
		raw, err := encode(value, "/value")
		return [][]byte{raw}, err
	}
	list, ok := args["messages"].([]any)
	if !ok {
		return nil, argErrorf("/messages", "a list of the messages to send is expected").refuse()
	}
	out := make([][]byte, len(list))
	for i, v := range list {
		var err *toolkeep.Error
		if out[i], err = encode(v, "/messages/"+strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// wrapped reports whether the message is not a JSON object: as arguments it is then the
// member value.
func wrapped(name protoreflect.FullName) bool {
	switch name {
	case "google.protobuf.Any", "google.protobuf.Struct":
		return false
	}
	_, own := wellKnown(name)
	return own
}

// attempt is one Execute.
type attempt struct {
	x        *toolkeep.Execution
	binding  *binding
	link     *link
	progress progress
	parent   context.Context // the caller's
	stop     func()          // ends the call's context
	limit    int64
	broken   bool // the connection must not be reused
}

// context returns the call's context, with deadline, metadata and progress.
func (a *attempt) context(credentials []pair) (context.Context, func()) {
	b := a.binding
	md := make(metadata.MD, len(b.metadata)+len(credentials)+2)
	for _, m := range b.metadata {
		md[m.name] = []string{m.value}
	}
	if t := a.x.Traceparent; t != "" && metadataFault("traceparent", t) == "" {
		md["traceparent"] = []string{t}
		if s := a.x.Tracestate; s != "" && metadataFault("tracestate", s) == "" {
			md["tracestate"] = []string{s}
		}
	}
	if k := a.x.Key; k != "" && b.takesKey && metadataFault(keyMetadata, k) == "" {
		md[keyMetadata] = []string{k}
	}
	for _, m := range credentials {
		md[m.name] = []string{m.value}
	}
	// The caller's context may carry metadata and spans of its call to this server.
	ctx := metadata.NewOutgoingContext(context.WithValue(a.parent, progressKey{}, &a.progress), md)
	if b.deadline > 0 {
		return context.WithTimeout(ctx, b.deadline)
	}
	return context.WithCancel(ctx)
}

func (a *attempt) options() []grpc.CallOption {
	return []grpc.CallOption{grpc.ForceCodecV2(rawCodec{}),
		grpc.MaxCallRecvMsgSize(int(min(a.limit, a.binding.frameBytes))), grpc.MaxCallSendMsgSize(1 << 30)}
}

func (a *attempt) unary(ctx context.Context, message []byte) (*toolkeep.Output, *toolkeep.Error) {
	var answer []byte
	if err := a.link.conn.Invoke(ctx, a.binding.path, message, &answer, a.options()...); err != nil {
		return nil, a.failure(err)
	}
	s := &shower{types: a.binding.types, left: a.limit}
	v, err := a.read(s, answer)
	if err != nil {
		return nil, err
	}
	return a.output(v), nil
}

func (a *attempt) output(v any) *toolkeep.Output {
	return &toolkeep.Output{Value: v, HasValue: true, ContentType: "application/json",
		BytesSent: a.progress.sentBytes.Load(), BytesRecv: a.progress.gotBytes.Load()}
}

// read returns the JSON tree of one encoded message.
func (a *attempt) read(s *shower, raw []byte) (any, *toolkeep.Error) {
	d := a.binding.method.Output()
	if weigh(d, raw, maxValues) < 0 {
		return nil, toolkeep.NewError(toolkeep.ResultTooLarge, "the upstream's answer holds more than %d values; ask for less, for example by a page or filter field", maxValues)
	}
	m, err := decode(d, raw)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidResponse, "the upstream's answer is no %s: it was changed without its tools being imported again, or is broken", d.FullName()).
			Because(fmt.Errorf("decoding the answer: %s", a.x.Cleaned(err.Error())))
	}
	v, err := s.message(m, maxDepth)
	if err == errLarge {
		return nil, a.tooLarge()
	}
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidResponse, "the upstream's answer has no form in JSON: %s", err)
	}
	return v, nil
}

func (a *attempt) tooLarge() *toolkeep.Error {
	limit := min(a.limit, a.binding.frameBytes)
	return toolkeep.NewError(toolkeep.ResultTooLarge, "the upstream's answer is over the limit of %d bytes; ask for less, for example by a page or filter field", limit).
		With("limit_bytes", limit)
}

// stream runs the three kinds of streaming method.
func (a *attempt) stream(ctx context.Context, messages [][]byte) (out *toolkeep.Output, _ *toolkeep.Error) {
	m := a.binding.method
	desc := &grpc.StreamDesc{StreamName: string(m.Name()), ClientStreams: m.IsStreamingClient(), ServerStreams: m.IsStreamingServer()}
	s, err := a.link.conn.NewStream(ctx, desc, a.binding.path, a.options()...)
	if err != nil {
		return nil, a.failure(err)
	}
	// Flow control may block the messages until responses are read.
	var sender sync.WaitGroup
	sender.Go(func() {
		for _, raw := range messages {
			// An error here means that the stream has ended; reading returns the
			// reason.
			if s.SendMsg(raw) != nil {
				return
			}
		}
		s.CloseSend()
	})
	defer func() {
		a.stop()
		sender.Wait()
		if out != nil { // the last message may have been answered before it was counted
			out.BytesSent = a.progress.sentBytes.Load()
		}
	}()
	if m.IsStreamingServer() {
		return a.collect(s)
	}
	var answer []byte
	if err := s.RecvMsg(&answer); err != nil {
		return nil, a.failure(err)
	}
	v, bad := a.read(&shower{types: a.binding.types, left: a.limit}, answer)
	if bad != nil {
		return nil, bad
	}
	return a.output(v), nil
}

// graceAtEnd is how long a stream may take to end after the last accepted frame.
const graceAtEnd = 250 * time.Millisecond

// collect reads the frames of a stream and reports each as progress: only their number,
// never their content, because a result must be inspected before any of it is shown.
func (a *attempt) collect(s grpc.ClientStream) (*toolkeep.Output, *toolkeep.Error) {
	var late atomic.Bool
	end := func() { late.Store(true); a.stop() }
	if d, ok := a.streamTime(); ok {
		timer := time.AfterFunc(d, end)
		defer timer.Stop()
	}
	show := &shower{types: a.binding.types, left: a.limit}
	list := []any{}
	for {
		var raw []byte
		err := s.RecvMsg(&raw)
		full := len(list) == a.binding.frames
		switch {
		case err == io.EOF:
			return a.frames(list, ""), nil
		case full && (err == nil || late.Load()):
			return a.frames(list, "it reached its limit of "+strconv.Itoa(len(list))+" messages"), nil
		case late.Load() && a.parent.Err() != context.Canceled && len(list) > 0:
			return a.frames(list, "its time limit passed"), nil
		case late.Load() && a.parent.Err() != context.Canceled:
			return nil, a.sent(toolkeep.NewError(toolkeep.UpstreamTimeout, "the upstream's stream sent no message within its time limit"))
		case err != nil:
			return nil, a.failure(err).With("messages_received", len(list))
		}
		// More may arrive: the wait for memory also holds it back. The answer that is one message is there already.
		if short := a.x.Arrived(int64(len(raw))); short != nil {
			return nil, a.sent(short)
		}
		v, bad := a.read(show, raw)
		if bad != nil && bad.Code == toolkeep.ResultTooLarge && len(list) > 0 {
			return a.frames(list, fmt.Sprintf("it reached its limit of %d bytes", a.limit)), nil
		}
		if bad != nil {
			return nil, bad
		}
		list = append(list, v)
		if a.x.Caller != nil {
			a.x.Caller.Progress(toolkeep.Progress{Phase: "streaming",
				Message: fmt.Sprintf("%d messages, %d bytes", len(list), a.progress.gotBytes.Load())})
		}
		if len(list) == a.binding.frames {
			timer := time.AfterFunc(graceAtEnd, end)
			defer timer.Stop()
		}
	}
}

// streamTime is slightly less than the attempt's time, so that the collected frames are
// not lost.
func (a *attempt) streamTime() (time.Duration, bool) {
	d := a.binding.deadline
	if deadline, ok := toolkeep.Deadline(a.parent); ok {
		if left := time.Until(deadline); d == 0 || left < d {
			d = left
		}
	}
	return d - min(time.Second, d/10), d > 0
}

func (a *attempt) frames(list []any, cut string) *toolkeep.Output {
	out := a.output(map[string]any{"messages": list, "complete": cut == ""})
	if cut != "" {
		out.Warnings = []toolkeep.Warning{{Code: toolkeep.ResultTooLarge,
			Message: fmt.Sprintf("the stream was cut off after %d messages: %s", len(list), cut),
			Details: map[string]any{"messages": len(list)}}}
	}
	return out
}

// rawCodec passes encoded messages through; this package encodes and decodes them, with
// its own limits and errors.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	raw, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("a message is bytes, not %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a message is bytes, not %T", v)
	}
	*to = data.Materialize()
	return nil
}

// progress tracks how far a call got.
type progress struct {
	sent      atomic.Bool // its headers were passed to the connection
	answered  atomic.Bool // the server ended it with trailers, so the status is the server's
	heard     atomic.Bool // anything was received
	sentBytes atomic.Int64
	gotBytes  atomic.Int64
}

type progressKey struct{}

// watcher observes every call on a connection and updates its progress.
type watcher struct{}

func (watcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (watcher) HandleRPC(ctx context.Context, s stats.RPCStats) {
	f, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.OutHeader:
		f.sent.Store(true)
	case *stats.OutPayload:
		f.sentBytes.Add(int64(s.WireLength))
	case *stats.InHeader:
		f.heard.Store(true)
	case *stats.InPayload:
		f.gotBytes.Add(int64(s.WireLength))
	case *stats.InTrailer:
		f.heard.Store(true)
		f.answered.Store(true)
	}
}

func (watcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (watcher) HandleConn(context.Context, stats.ConnStats)                       {}
