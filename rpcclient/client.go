// Package rpcclient is a client of Toolkeep's gRPC face. It implements toolkeep.Invoker, so a program calls the
// tools of a remote Toolkeep like those of its own process:
//
//	c, err := rpcclient.Dial("127.0.0.1:50053", rpcclient.Options{Key: key})
//	defer c.Close()
//	res, err := c.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.hash", Arguments: []byte(`{"text":"hello"}`)})
//
// A refusal is the server's *toolkeep.Error, rebuilt from the status; a failed tool is a Result whose Error is set.
package rpcclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// Options configure the connection. The zero value uses plain text, without a key.
type Options struct {
	// Key is the API key. It is not sent in plain text to another machine: without TLS, Dial refuses an address
	// that is not loopback.
	Key string
	// SigningSecret signs each request, for a key that requires it; at least 32 bytes. Empty signs none.
	SigningSecret string
	// TLS holds the TLS settings; nil is plain text.
	TLS *tls.Config
	// MaxBytes is the maximum size of a response; default 256 MiB.
	MaxBytes int
	// UserAgent stands before the library's own.
	UserAgent string
	// Dialer replaces the default dialer, for example in tests.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// Client is a connection to one Toolkeep. It is safe for concurrent use, connects at first use and reconnects when
// cut off.
type Client struct {
	conn     *grpc.ClientConn
	tools    l03v1.ToolExecutionClient
	registry l03v1.ToolRegistryClient
	addr     string
	key      string
	signer   signer
}

var _ toolkeep.Invoker = (*Client)(nil)

// Dial makes a client for the server at addr, host:port. It does not wait for the server.
func Dial(addr string, o Options) (*Client, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address; write host:port, such as 127.0.0.1:50053", addr)
	}
	creds := insecure.NewCredentials()
	switch {
	case o.TLS != nil:
		creds = credentials.NewTLS(o.TLS)
	case o.Key != "" && o.Dialer == nil && !loopback(host):
		return nil, fmt.Errorf("the key would go to %s in plain text; set TLS", addr)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		// A service config from DNS must not enable retries.
		grpc.WithDisableServiceConfig(),
	}
	if o.UserAgent != "" {
		options = append(options, grpc.WithUserAgent(o.UserAgent))
	}
	var sign signer
	if o.SigningSecret != "" {
		if len(o.SigningSecret) < signing.MinKey {
			return nil, fmt.Errorf("the signing secret has %d bytes; it needs %d", len(o.SigningSecret), signing.MinKey)
		}
		sign.key = []byte(o.SigningSecret)
		options = append(options, sign.options()...)
	}
	target := "dns:///" + addr
	if o.Dialer != nil {
		target = "passthrough:///" + addr
		options = append(options, grpc.WithContextDialer(o.Dialer))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("the address %s cannot be used: %w", addr, err)
	}
	return &Client{conn: conn, tools: l03v1.NewToolExecutionClient(conn), registry: l03v1.NewToolRegistryClient(conn), addr: addr, key: o.Key, signer: sign}, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Close closes the connection and ends its calls.
func (c *Client) Close() error { return c.conn.Close() }

// Conn returns the connection, for services besides Toolkeep's own, such as health.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// outgoing adds the key and other metadata.
func (c *Client) outgoing(ctx context.Context, more ...string) context.Context {
	if c.key != "" {
		more = append(more, "authorization", "Bearer "+c.key)
	}
	if len(more) == 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, more...)
}

// Invoke executes the call on the server.
//
// The caller is the key's owner; the principal is ignored and may be nil. Call.Subject, Tenant and User are sent as
// they are. Call.Timeout and CacheTTL are sent in whole seconds, rounded up; ctx's deadline and cancellation reach
// the server too. With a Caller the call's progress is streamed to it, unless the call is a waiting one, which
// answers at once.
//
// The error is a *toolkeep.Error: a refusal of the server, or E3501 if the server was unreachable or lost (the call
// may have been executed: give it a Key and send it again), E3901 or E3902 if ctx ended first.
func (c *Client) Invoke(ctx context.Context, _ *toolkeep.Principal, call *toolkeep.Call) (*toolkeep.Result, error) {
	ctx, msg, err := c.request(ctx, call)
	if err != nil {
		return nil, err
	}
	if call.Caller != nil && !call.Async {
		return c.stream(ctx, msg, call.Caller)
	}
	var trailer metadata.MD
	res, err := c.tools.InvokeTool(ctx, msg, grpc.Trailer(&trailer))
	if err != nil {
		return nil, c.refused(ctx, err)
	}
	return resultOf(res, trailer), nil
}

func (c *Client) request(ctx context.Context, call *toolkeep.Call) (context.Context, *l03v1.ToolInvocationRequest, error) {
	if call.Fault != nil {
		return ctx, nil, call.Fault
	}
	msg, err := requestOf(call)
	if err != nil {
		return ctx, nil, err
	}
	var more []string
	if call.Token != "" {
		more = append(more, "x-capability-token", string(call.Token))
	}
	if call.Traceparent != "" {
		more = append(more, "traceparent", call.Traceparent)
		if call.Tracestate != "" {
			more = append(more, "tracestate", call.Tracestate)
		}
	}
	return c.outgoing(ctx, more...), msg, nil
}

// Explain returns as JSON what the call would do, without making it.
func (c *Client) Explain(ctx context.Context, call *toolkeep.Call) ([]byte, error) {
	ctx, msg, err := c.request(ctx, call)
	if err != nil {
		return nil, err
	}
	msg.DryRun = true
	var trailer metadata.MD
	res, err := c.tools.InvokeTool(ctx, msg, grpc.Trailer(&trailer))
	if err != nil {
		return nil, c.refused(ctx, err)
	}
	return outputOf(res, trailer), nil
}

func (c *Client) stream(ctx context.Context, msg *l03v1.ToolInvocationRequest, caller toolkeep.Caller) (*toolkeep.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.invokeStream(ctx, msg)
	if err != nil {
		return nil, c.refused(ctx, err)
	}
	var last *l03v1.ToolInvocationResult
	for {
		u, err := in.Recv()
		switch {
		case errors.Is(err, io.EOF) && last != nil:
			return resultOf(last, in.Trailer()), nil
		case errors.Is(err, io.EOF):
			return nil, toolkeep.NewError(toolkeep.InvalidResponse, "the server at %s ended the stream without a result", c.addr)
		case err != nil:
			return nil, c.refused(ctx, err)
		}
		if p := u.GetProgress(); p != nil {
			caller.Progress(toolkeep.Progress{Percent: int(p.GetPercent()), Phase: p.GetPhase(), Message: p.GetMessage()})
		}
		if r := u.GetResult(); r != nil {
			last = r
		}
	}
}

// Get returns the state or the outcome of a call. E3013, E3704.
func (c *Client) Get(ctx context.Context, id string) (*toolkeep.Result, error) {
	ctx = c.outgoing(ctx)
	var trailer metadata.MD
	res, err := c.tools.GetInvocation(ctx, &l03v1.GetInvocationRequest{InvocationId: id}, grpc.Trailer(&trailer))
	if err != nil {
		return nil, c.refused(ctx, err)
	}
	return resultOf(res, trailer), nil
}

// Poll intervals of Follow: a short call is answered soon, a long one costs one poll per second.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Follow polls a call until it has ended, and returns its outcome. seen, if set, is called with each changed state.
// When ctx ends the call continues. E3013, E3704, E3501, E3901, E3902.
func (c *Client) Follow(ctx context.Context, id string, seen func(*toolkeep.Result)) (*toolkeep.Result, error) {
	var state toolkeep.CallState
	var last toolkeep.Progress
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		r, err := c.Get(ctx, id)
		if err != nil || r.State.Ended() {
			return r, err
		}
		if seen != nil && (r.State != state || r.Progress != last) {
			state, last = r.State, r.Progress
			seen(r)
		}
		if !toolkeep.Sleep(ctx, pause) {
			return nil, c.lost(ctx, status.FromContextError(ctx.Err()))
		}
	}
}

// Cancel ends a waiting call or asks a running one to stop; cancelled is false if it had already ended. E3013,
// E3201.
func (c *Client) Cancel(ctx context.Context, id, why string) (cancelled bool, message string, err error) {
	ctx = c.outgoing(ctx)
	res, err := c.tools.CancelInvocation(ctx, &l03v1.CancelInvocationRequest{InvocationId: id, Reason: why})
	if err != nil {
		return false, "", c.refused(ctx, err)
	}
	return res.GetCancelled(), res.GetMessage(), nil
}

// Tool returns one version with its manifest; version is exact, a range, or "" for the latest. E3001, E3004, E3005.
func (c *Client) Tool(ctx context.Context, id, version string) (*l03v1.Tool, error) {
	ctx = c.outgoing(ctx)
	res, err := c.registry.GetTool(ctx, &l03v1.GetToolRequest{ToolId: id, Version: version})
	if err != nil {
		return nil, c.refused(ctx, err)
	}
	return res, nil
}

// List returns a page of the tools visible to the key's owner, and the total count.
func (c *Client) List(ctx context.Context, q *l03v1.ListToolsRequest) ([]*l03v1.ToolSummary, int, error) {
	ctx = c.outgoing(ctx)
	res, err := c.registry.ListTools(ctx, q)
	if err != nil {
		return nil, 0, c.refused(ctx, err)
	}
	return res.GetTools(), int(res.GetTotalCount()), nil
}

// Search finds tools by words, best first; limit 0 is the server's default. E3101 if none is found.
func (c *Client) Search(ctx context.Context, query string, limit int) ([]*l03v1.QueryByCapabilityResponse_Match, error) {
	return c.Query(ctx, &l03v1.QueryByCapabilityRequest{Query: query, MaxTools: uint32(max(limit, 0))})
}

// Query is Search with a strategy, within a category or for a conversation.
func (c *Client) Query(ctx context.Context, ask *l03v1.QueryByCapabilityRequest) ([]*l03v1.QueryByCapabilityResponse_Match, error) {
	ctx = c.outgoing(ctx)
	res, err := c.registry.QueryByCapability(ctx, ask)
	if err != nil {
		return nil, c.refused(ctx, err)
	}
	return res.GetMatches(), nil
}
