package mcptool

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

const (
	defaultMaxBytes = 100 << 20
	maxDepth        = 1000      // nesting of a result
	maxElements     = 2_000_000 // values of a result
	maxToolName     = 512       // bytes
	maxBinding      = 4 << 10   // bytes
)

// Upstream calls the MCP servers; *upstream.Servers implements it. Its errors are those
// of upstream.Servers.Do.
type Upstream interface {
	Do(ctx context.Context, r *upstream.Request) (*upstream.Answer, error)
	// UpstreamOf names a server for toolkeep.UpstreamNamer.
	UpstreamOf(p *toolkeep.Principal, server string) string
	// ActsForCaller answers for a server what toolkeep.CallerActor asks of a tool.
	ActsForCaller(p *toolkeep.Principal, server string) bool
	// Local reports whether a server is a program of this node.
	Local(p *toolkeep.Principal, server string) bool
}

// Executor is the executor of kind "mcp". It is safe for concurrent use.
type Executor struct{ upstream Upstream }

var (
	_ toolkeep.Executor      = (*Executor)(nil)
	_ toolkeep.UpstreamNamer = (*Executor)(nil)
	_ toolkeep.CallerActor   = (*Executor)(nil)
	_ toolkeep.MachineReader = (*Executor)(nil)
)

// New returns an Executor.
func New(u Upstream) *Executor { return &Executor{upstream: u} }

// Kind is "mcp".
func (e *Executor) Kind() string { return "mcp" }

// UpstreamOf implements toolkeep.UpstreamNamer: the upstream of a tool is its server.
func (e *Executor) UpstreamOf(p *toolkeep.Principal, t *toolkeep.Tool) string {
	return e.upstream.UpstreamOf(p, mcp.Text(t.Manifest.Execution.Binding, "server"))
}

// ServiceOf names a tool's server for its breaker: a program and each URL is one by itself.
func (e *Executor) ServiceOf(t *toolkeep.Tool) string {
	return "mcp:" + mcp.Text(t.Manifest.Execution.Binding, "server")
}

// ActsForCaller implements toolkeep.CallerActor.
func (e *Executor) ActsForCaller(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	return e.upstream.ActsForCaller(p, mcp.Text(t.Manifest.Execution.Binding, "server"))
}

// ReadsMachine implements toolkeep.MachineReader: a server by stdio is a program of each node.
func (e *Executor) ReadsMachine(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	return e.upstream.Local(p, mcp.Text(t.Manifest.Execution.Binding, "server"))
}

var serverName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Check requires a binding with exactly a server and a tool, and no credentials, which
// belong to the server's configuration.
func (e *Executor) Check(m *toolkeep.Manifest) []toolkeep.Fault {
	r := bindings.Reader{MaxBytes: maxBinding}
	o, ok := r.Read(m)
	if !ok {
		return r.Faults
	}
	if name := o.Text("server", false); !serverName.MatchString(name) {
		o.Fault("server", "pattern", "server must be the name of an MCP server, %s", serverName)
	}
	if name := o.Text("tool", false); name == "" || len(name) > maxToolName {
		o.Fault("tool", "length", "tool must be the server's own name of the tool, 1 to %d bytes", maxToolName)
	}
	o.Done()
	if len(m.Auth) > 0 {
		r.Fault("/auth", "mcp", "the credentials of an MCP server belong in the server's own configuration; leave auth out")
	}
	return r.Faults
}

// Execute sends one tools/call.
//
// Errors: E3540 the tool reports an error (details.content), or the server returned a
// JSON-RPC error (details.jsonrpc_code) or something that is not a result; E3407 the
// caller has to visit details.url first; E3710 the result is over MaxBytes (default 100
// MiB); E3902 ctx was cancelled; otherwise those of upstream.Servers.Do.
func (e *Executor) Execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
	binding := x.Tool.Manifest.Execution.Binding
	c := &call{x: x, server: mcp.Text(binding, "server"), tool: mcp.Text(binding, "tool"), limit: x.MaxBytes}
	if c.limit <= 0 {
		c.limit = defaultMaxBytes
	}
	if c.server == "" || c.tool == "" {
		return nil, bindings.Error(e.Check(x.Tool.Manifest))
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, true)
	}
	r := &upstream.Request{
		Principal: x.Principal, Server: c.server, Method: mcp.MethodCallTool, Params: c.params(),
		Session: x.Session, MaxBytes: c.limit,
	}
	if p := c.peer(); p != nil {
		r.Peer, r.PeerCapabilities = p, p.capabilities()
		if l, ok := x.Caller.(toolkeep.LegacyReporter); ok {
			r.Legacy = l.Legacy()
		}
	}
	a, err := e.upstream.Do(ctx, r)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	value, terr := c.result(a.Result)
	if terr != nil {
		return nil, terr
	}
	return &toolkeep.Output{Value: value, HasValue: true, BytesSent: a.BytesSent, BytesRecv: a.BytesRecv, Warnings: c.repairs.Warnings()}, nil
}

// call is one Execute.
type call struct {
	x            *toolkeep.Execution
	server, tool string
	limit        int64
	repairs      canon.Repairs // of the answer
}

// metaKey is the _meta key in which another Toolkeep looks for an idempotency key.
const metaKey = "toolkeep/idempotency-key"

func (c *call) params() []byte {
	x := c.x
	b := make([]byte, 0, 512)
	b = canon.AppendString(append(b, `{"name":`...), c.tool)
	b = append(b, `,"arguments":`...)
	if x.Args == nil {
		b = append(b, '{', '}')
	} else {
		b = canon.Append(b, x.Args)
	}
	b = append(b, `,"_meta":{`...)
	bare := len(b)
	member := func(name, value string) {
		if len(b) > bare {
			b = append(b, ',')
		}
		b = canon.AppendString(append(canon.AppendString(b, name), ':'), value)
	}
	if x.Caller != nil {
		member(mcp.MetaProgressToken, c.token())
	}
	if x.Traceparent != "" {
		member("traceparent", x.Traceparent)
		if x.Tracestate != "" {
			member("tracestate", x.Tracestate)
		}
	}
	if x.Key != "" && x.Tool.Manifest.Idempotent {
		member(metaKey, x.Key)
	}
	if len(b) == bare {
		b = b[:bare-len(`,"_meta":{`)]
	} else {
		b = append(b, '}')
	}
	return append(b, '}')
}

// token is the progress token. It differs per attempt, so that a late notification is
// not counted for the next attempt.
func (c *call) token() string { return c.x.InvocationID + "/" + strconv.Itoa(c.x.Attempt) }

// ended is the error of a call whose context has ended.
func ended(ctx context.Context, nothingSent bool) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled")
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e = toolkeep.NewError(toolkeep.UpstreamTimeout, "the MCP server did not answer within the attempt's time limit")
	}
	e.NothingSent = nothingSent
	return e.Because(context.Cause(ctx))
}

// failed turns an error of Do into the caller's error.
func (c *call) failed(ctx context.Context, err error) *toolkeep.Error {
	var own *toolkeep.Error
	if errors.As(err, &own) {
		return own
	}
	var rpc *mcp.Error
	if errors.As(err, &rpc) {
		return c.refused(rpc)
	}
	if ctx.Err() != nil {
		return ended(ctx, false)
	}
	return toolkeep.AsError(err)
}

// refused is the error for a JSON-RPC error response.
func (c *call) refused(rpc *mcp.Error) *toolkeep.Error {
	text := c.x.Cleaned(toolkeep.Clip(strings.TrimSpace(rpc.Message), maxMessage))
	if text == "" {
		text = "without saying why"
	}
	if rpc.Code == mcp.CodeURLElicitation {
		if url := firstURL(rpc.Data); url != "" {
			return toolkeep.NewError(toolkeep.LoginRequired, "the MCP server %s needs you to visit details.url first: %s", c.server, text).
				With("server", c.server).With("url", url)
		}
	}
	e := toolkeep.NewError(toolkeep.MCPError, "the MCP server %s refused the call: %s", c.server, text).
		With("server", c.server).With("jsonrpc_code", rpc.Code)
	if data := rpc.Data; len(data) > 0 && len(data) <= maxData {
		if tree, err := canon.Parse(data, resultLimits(maxData)); err == nil {
			e.With("data", c.x.CleanedTree(tree))
		}
	}
	return e
}

// firstURL returns the first address that the server wants visited.
func firstURL(data []byte) string {
	for question := range mcp.Elements(mcp.Get(data, "elicitations")) {
		url := mcp.Text(question, "url")
		if len(url) <= maxURL && (strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://")) {
			return url
		}
	}
	return ""
}
