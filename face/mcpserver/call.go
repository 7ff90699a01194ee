package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/suggest"
)

// Keys a client may set in _meta of tools/call.
const (
	metaKey      = "toolkeep/idempotency-key"
	metaAsync    = "toolkeep/async"            // true: answer at once with an invocation id
	metaVersion  = "toolkeep/version"          // exact version or range of the tool
	metaTimeout  = "toolkeep/timeout-ms"       // of the whole call
	metaPriority = "toolkeep/priority"         // low, normal, high
	metaApproval = "toolkeep/require-approval" // true: ask a person first
	metaNoCache  = "toolkeep/skip-cache"
	metaAgent    = "toolkeep/agent-id"
	metaPlan     = "toolkeep/plan-id"
	metaTask     = "toolkeep/task-id"
	metaParent   = "toolkeep/parent-invocation-id"
	metaPrefix   = "toolkeep/"
)

var callKeys = []string{metaKey, metaAsync, metaVersion, metaTimeout, metaPriority, gate.MetaToken, gate.MetaSignature, gate.MetaTimestamp, gate.MetaRequestID, metaApproval, metaNoCache, metaAgent, metaPlan, metaTask, metaParent}

const maxTimeout = 7 * 24 * time.Hour

// callTool is tools/call, the hot path.
func (x *exchange) callTool(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	var name string
	var arguments, meta []byte
	for member, v := range mcp.Members(m.Params) {
		switch member {
		case "name":
			name, _ = mcp.Unquote(v)
		case "arguments":
			arguments = v
		case "_meta":
			meta = v
		}
	}
	if name == "" {
		e := toolkeep.NewError(toolkeep.MalformedRequest, "tools/call needs params.name, the name of a tool")
		return nil, &mcp.Error{Code: mcp.CodeInvalidParams, Message: e.Message, Data: errorData(e)}
	}
	if x.v.kind != viewRelay {
		if own := ownTools[name]; own != nil {
			if name != "call_tool" { // the pipeline checks call_tool's arguments
				acting, err := x.acting(meta)
				if err == nil && name != "get_invocation" { // which follows a call that was counted
					err = x.count(ctx, acting)
				}
				if err != nil {
					return x.ownFailure(dst, toolkeep.AsError(err)), nil
				}
				mine := *x
				mine.p = acting
				x = &mine
			}
			return own(ctx, x, m, arguments, meta, dst)
		}
	}
	e := x.named(name)
	call := x.newCall(arguments, meta)
	if !e.has(x.as(call).exists) {
		return nil, x.unknownTool(ctx, call, name, e)
	}
	call.Tool = e.id
	out, err := x.invoke(ctx, m, call, e, meta, dst)
	if toolkeep.IsCode(err, toolkeep.ToolNotFound) { // it went or was hidden a moment ago
		gone := x.noTool(call, name)
		gone.InvocationID = toolkeep.AsError(err).InvocationID
		return nil, &mcp.Error{Code: mcp.CodeInvalidParams, Message: gone.Message, Data: errorData(gone)}
	}
	return out, err
}

// acting names who asks for what is no call, narrowed by the capability tokens of the headers and the _meta.
func (x *exchange) acting(meta []byte) (*toolkeep.Principal, error) {
	return x.s.gate.Acting(gate.HTTP(x.header), x.p, func(c *toolkeep.Call) { gate.TakeMeta(c, meta) })
}

// as returns the exchange of who acts in a call, which says what exists for the call. The call itself is made by the caller: who may
// not act so is refused by the pipeline.
func (x *exchange) as(call *toolkeep.Call) *exchange {
	p := x.s.gate.For(x.p, call)
	if p == x.p {
		return x
	}
	own := *x
	own.p = p
	return &own
}

// noTool is the error of a call of a tool that does not exist for who acts in it. A near name would be one that the call's token may hide.
func (x *exchange) noTool(call *toolkeep.Call, name string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.ToolNotFound, "there is no tool %q, or you may not see it; tools/list shows those that there are", toolkeep.ClipBytes(name, 100)).
		With("name", toolkeep.ClipBytes(name, 100))
	if meant := x.as(call).nearName(name); meant != "" && call.Token == "" {
		e.Message += "; did you mean " + meant + "?"
		e.With("nearest", meant)
	}
	return e
}

// unknownTool has the call recorded as refused. hidden is the tool that does not exist for the caller alone, nil
// if there is none.
func (x *exchange) unknownTool(ctx context.Context, call *toolkeep.Call, name string, hidden *entry) *mcp.Error {
	e := x.noTool(call, name)
	call.Tool = toolkeep.ClipBytes(name, 100)
	if call.Signature != nil { // which has the id
		call.Tool = strings.Replace(call.Tool, "__", ".", 1)
	}
	call.Meant = x.meant(hidden)
	fault(call, e)
	if _, err := x.s.c.Invoker.Invoke(ctx, x.p, call); err != nil {
		e = gate.Shown(err)
	}
	return &mcp.Error{Code: mcp.CodeInvalidParams, Message: e.Message, Data: errorData(e)}
}

// meant is the id of a tool of this view for toolkeep.Call.Meant.
func (x *exchange) meant(e *entry) string {
	if e == nil || !x.v.includes(e.newest()) {
		return ""
	}
	return e.id
}

// maxNear is how many near names an unknown one is looked for among those that the caller may see.
const maxNear = 5

// nearName returns the name of a tool of this view that differs by a typing mistake; "" for none.
func (x *exchange) nearName(name string) string {
	for _, meant := range suggest.Typos(name, x.names(), maxNear) {
		if x.v.kind != viewRelay && ownTools[meant] != nil || x.named(meant).has(x.sees) {
			return meant
		}
	}
	return ""
}

// names yields the names by which tools can be called in this view, also those that the caller may not see.
func (x *exchange) names() iter.Seq[string] {
	ix := x.s.index(x.p.Tenant)
	if x.v.kind == viewRelay {
		return slices.Values(slices.Sorted(maps.Keys(ix.ofUpstream(x.v.relay))))
	}
	return func(yield func(string) bool) {
		for _, name := range slices.Sorted(maps.Keys(ownTools)) {
			if !yield(name) {
				return
			}
		}
		for e := range ix.tools() {
			if !yield(e.name) {
				return
			}
		}
	}
}

// newCall fills in a call except for its tool. Errors go into the call's Fault, so that the
// pipeline refuses and records it.
func (x *exchange) newCall(arguments, meta []byte) *toolkeep.Call {
	c := &toolkeep.Call{Face: "mcp", Connected: true, ApprovalWait: approvalWait, Arguments: arguments}
	switch {
	case len(arguments) == 0 || arguments[0] == '{':
	case arguments[0] == 'n':
		c.Arguments = nil
	default:
		c.Arguments = nil
		fault(c, toolkeep.NewError(toolkeep.MalformedRequest, "arguments must be an object"))
	}
	if x.reply != nil {
		c.Told = x.reply.leaves
	}
	if x.ses != nil {
		c.Session = x.ses.public
	}
	x.s.gate.Call(gate.HTTP(x.header), c)
	gate.TakeMeta(c, meta)
	for name, v := range mcp.Members(meta) {
		if strings.HasPrefix(name, metaPrefix) {
			readCallMeta(c, name, v)
		} else if name == "traceparent" {
			if t, ok := mcp.Unquote(v); ok && gate.Traceparent(t) != "" {
				c.Traceparent, c.Tracestate = t, ""
				if state, ok := mcp.Unquote(mcp.Get(meta, "tracestate")); ok {
					c.Tracestate = gate.Tracestate(state)
				}
			}
		}
	}
	return c
}

func fault(c *toolkeep.Call, e *toolkeep.Error) {
	if c.Fault == nil {
		c.Fault = e
	}
}

// readCallMeta reads one of our own keys. An unknown key is refused, since it may be a typo.
func readCallMeta(c *toolkeep.Call, name string, v []byte) {
	text := func(to *string) {
		s, ok := mcp.Unquote(v)
		if !ok {
			fault(c, toolkeep.NewError(toolkeep.MalformedRequest, "_meta[%q] must be a string", name))
			return
		}
		*to = s
	}
	truth := func(to *bool) {
		if string(v) != "true" && string(v) != "false" {
			fault(c, toolkeep.NewError(toolkeep.MalformedRequest, "_meta[%q] must be true or false", name))
			return
		}
		*to = string(v) == "true"
	}
	switch name {
	case metaKey:
		header := c.Key
		text(&c.Key)
		if header != "" && c.Key != header {
			fault(c, toolkeep.NewError(toolkeep.InvalidParameters, "the header Idempotency-Key and _meta[%q] mean the same and have different values; send one of them", name))
		}
	case gate.MetaToken, gate.MetaSignature, gate.MetaTimestamp, gate.MetaRequestID: // TakeMeta has taken them
	case metaVersion:
		text(&c.Range)
	case metaAgent:
		text(&c.Subject)
	case metaPlan:
		text(&c.Plan)
	case metaTask:
		text(&c.Task)
	case metaParent:
		text(&c.Parent)
	case metaPriority:
		text((*string)(&c.Priority))
	case metaAsync:
		truth(&c.Async)
	case metaApproval:
		truth(&c.RequireApproval)
	case metaNoCache:
		truth(&c.SkipCache)
	case metaTimeout:
		ms, err := strconv.ParseFloat(string(v), 64)
		if err != nil || ms < 1 || ms > float64(maxTimeout.Milliseconds()) {
			fault(c, toolkeep.NewError(toolkeep.MalformedRequest, "_meta[%q] must be a number of milliseconds from 1 to %d", name, maxTimeout.Milliseconds()))
			return
		}
		c.Timeout = time.Duration(ms * float64(time.Millisecond))
	default:
		fault(c, toolkeep.NewError(toolkeep.MalformedRequest, "the key %q of _meta is not known; there are %s", toolkeep.ClipBytes(name, 100), strings.Join(callKeys, ", ")))
	}
}

// invoke runs the call and appends its CallToolResult. e is nil if the tool was named by an id the
// caller may not see.
func (x *exchange) invoke(ctx context.Context, m *mcp.Message, call *toolkeep.Call, e *entry, meta, dst []byte) ([]byte, error) {
	token := mcp.Get(meta, mcp.MetaProgressToken)
	answers := mcp.Get(m.Params, "requestState") != nil || mcp.Get(m.Params, "inputResponses") != nil
	if call.Signature != nil && answers { // it does not cover them, and Acting refuses it
		_, err := x.acting(meta)
		return nil, err
	}
	if !x.modern {
		return x.carryOut(ctx, call, e, token, dst)
	}
	return x.askable(ctx, m, dst, call.Tool+"\x00"+call.Range, call.Arguments, func(ctx context.Context, x *exchange, dst []byte) ([]byte, error) {
		return x.carryOut(ctx, call, e, token, dst)
	})
}

func (x *exchange) carryOut(ctx context.Context, call *toolkeep.Call, e *entry, token, dst []byte) ([]byte, error) {
	call.Caller = x.caller(token)
	res, err := x.s.c.Invoker.Invoke(ctx, x.p, call)
	if err == nil && res.Error != nil && x.modern {
		if e := missingCapability(res.Error); e != nil {
			return nil, e
		}
	}
	if err != nil {
		shown := gate.Shown(err)
		if shown.Code == toolkeep.ToolNotFound && !x.byID && shown.Details["tool_id"] == call.Tool {
			return nil, shown
		}
		return x.appendFailure(dst, shown, nil, e), nil
	}
	return x.appendResult(dst, res, e), nil
}

// missingCapability passes on which client capability an MCP upstream misses. The client and the
// upstream agree on capabilities; in 2026-07-28 a missing one is a protocol error.
func missingCapability(e *toolkeep.Error) *mcp.Error {
	if e.Code != toolkeep.MCPError || fmt.Sprint(e.Details["jsonrpc_code"]) != strconv.Itoa(mcp.CodeMissingCapability) {
		return nil
	}
	out := &mcp.Error{Code: mcp.CodeMissingCapability, Message: e.Message}
	if data, ok := e.Details["data"]; ok {
		out.Data = canon.Append(nil, data)
	}
	return out
}

// caller is the connection to the client while a call runs.
func (x *exchange) caller(token []byte) toolkeep.Caller {
	if len(token) > 0 && token[0] != '"' && token[0] != '-' && (token[0] < '0' || token[0] > '9') {
		token = nil // not a valid progress token
	}
	asks := x.park != nil || x.ses != nil && !x.modern && askable(x.caps)
	switch {
	case asks:
		return askingCaller{caller{x, token}}
	case token != nil, x.v.kind == viewRelay:
		return caller{x, token}
	}
	return nil
}

type caller struct {
	x     *exchange
	token []byte
}

var (
	_ toolkeep.Caller             = caller{}
	_ toolkeep.Notifier           = caller{}
	_ toolkeep.ProgressCounter    = caller{}
	_ toolkeep.LegacyReporter     = caller{}
	_ toolkeep.Asker              = askingCaller{}
	_ toolkeep.BatchAsker         = askingCaller{}
	_ toolkeep.CapabilityReporter = askingCaller{}
)

// Progress implements toolkeep.Caller.
func (c caller) Progress(p toolkeep.Progress) {
	text := p.Message
	if text == "" {
		text = p.Phase
	}
	c.Count(strconv.AppendInt(nil, int64(p.Percent), 10), []byte("100"), text)
}

// Count passes on the progress of an MCP upstream as raw numbers; total is nil if the upstream gave
// none.
func (c caller) Count(done, total []byte, message string) {
	if c.token == nil {
		return
	}
	b := append([]byte(`{"progressToken":`), c.token...)
	b = append(append(b, `,"progress":`...), done...)
	if total != nil {
		b = append(append(b, `,"total":`...), total...)
	}
	b = appendText(b, `,"message":`, message)
	c.x.send(mcp.NotificationProgress, append(b, '}'), progressKey+string(c.token))
}

// Notify passes on what an MCP upstream sends during the call, such as log messages. Only relay
// views forward it, since only there the client faces that one server.
func (c caller) Notify(method string, params []byte) {
	if c.x.v.kind == viewRelay && method != mcp.NotificationProgress {
		requestPeer{c.x}.Notify(method, params)
	}
}

// Legacy reports whether the client speaks a revision up to 2025-11-25.
func (c caller) Legacy() bool { return !c.x.modern }

type askingCaller struct{ caller }

// Capabilities returns the client's capabilities as raw JSON.
func (c askingCaller) Capabilities() []byte { return c.x.caps }

// Ask implements toolkeep.Asker.
func (c askingCaller) Ask(ctx context.Context, method string, params []byte) (result []byte, err error) {
	defer goesOn(ctx, &err, toolkeep.PauseTimeout(ctx)) // a person may take longer than the tool
	if c.x.park != nil {
		return c.x.park.ask(ctx, method, params)
	}
	return c.x.askClient(ctx, method, params)
}

// goesOn ends a pause. The answer is of no use to a call that ended while it waited to go on.
func goesOn(ctx context.Context, err *error, resume func()) {
	resume()
	if *err == nil {
		*err = ctx.Err()
	}
}

// AskAll sends several questions at once: inputRequests and the result are the raw objects of
// 2026-07-28, and names are kept. It exists for upstreams of that revision.
func (c askingCaller) AskAll(ctx context.Context, inputRequests []byte) (inputResponses []byte, err error) {
	defer goesOn(ctx, &err, toolkeep.PauseTimeout(ctx))
	var list []*inputRequest
	for name, v := range mcp.Members(inputRequests) {
		if len(list) == maxOpen {
			return nil, noAnswer("the server has too many questions")
		}
		list = append(list, &inputRequest{name: name, method: mcp.Text(v, "method"), params: clone(mcp.Get(v, "params"))})
	}
	names := make([]string, len(list)) // put may rename them for the client
	for i, q := range list {
		names[i] = q.name
	}
	var answers [][]byte
	if c.x.park != nil {
		answers, err = c.x.park.askAll(ctx, list)
	} else {
		answers, err = c.x.askClientAll(ctx, list)
	}
	if err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for i, a := range answers {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(canon.AppendString(out, names[i]), ':'), a...)
	}
	return append(out, '}'), nil
}

// askClientAll sends all questions at the same time to a client with a session.
func (x *exchange) askClientAll(ctx context.Context, list []*inputRequest) ([][]byte, error) {
	answers := make([][]byte, len(list))
	failed := make([]error, len(list))
	var all sync.WaitGroup
	for i, q := range list {
		all.Go(func() { answers[i], failed[i] = x.askClient(ctx, q.method, q.params) })
	}
	all.Wait()
	return answers, errors.Join(failed...)
}

var (
	_ toolkeep.Caller = caller{}
	_ toolkeep.Asker  = askingCaller{}
)

func appendInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}
