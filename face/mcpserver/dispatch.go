package mcpserver

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// dispatch runs one request and appends its result to dst. The error is an *mcp.Error or is
// converted by rpcError. What is no call counts against the agent's limits; a ping does not, because those keep a session alive, nor do the
// answers to questions of a request that was counted.
func (x *exchange) dispatch(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	if m.Method != mcp.MethodCallTool && m.Method != mcp.MethodPing && !x.resumes(m) {
		if err := x.count(ctx, x.p); err != nil {
			return nil, err
		}
	}
	switch m.Method {
	case mcp.MethodCallTool:
		return x.callTool(ctx, m, dst)
	case mcp.MethodListTools:
		data, err := x.list(m, dst)
		if err == nil {
			x.asStream()
		}
		return data, err
	}
	if x.modern {
		switch m.Method {
		case mcp.MethodDiscover:
			return x.discover(ctx, dst)
		case mcp.MethodInitialize, mcp.MethodPing, mcp.MethodSetLevel, mcp.MethodSubscribe, mcp.MethodUnsubscribe:
			return nil, mcp.NewError(mcp.CodeMethodNotFound, m.Method+" is not in revision "+x.version)
		}
	} else {
		switch m.Method {
		case mcp.MethodPing:
			return append(dst, "{}"...), nil
		case mcp.MethodInitialize:
			return nil, mcp.NewError(mcp.CodeInvalidRequest, "initialize must be the only message of its POST")
		case mcp.MethodDiscover, mcp.MethodListen:
			return nil, mcp.NewError(mcp.CodeMethodNotFound, m.Method+" is in revision 2026-07-28 and later; send its _meta and headers")
		}
	}
	if err := inLowerCase(m.Params); err != nil {
		return nil, err
	}
	if x.v.kind == viewRelay {
		return x.relayed(ctx, m, dst)
	}
	switch m.Method {
	case mcp.MethodListResources:
		return x.listResources(ctx, m, dst)
	case mcp.MethodListResourceTemplates:
		return x.listTemplates(ctx, m, dst)
	case mcp.MethodReadResource:
		return x.readResource(ctx, m, dst)
	case mcp.MethodListPrompts:
		return x.listPrompts(ctx, m, dst)
	case mcp.MethodGetPrompt:
		return x.getPrompt(ctx, m, dst)
	case mcp.MethodComplete:
		return x.complete(ctx, m, dst)
	case mcp.MethodSetLevel:
		if _, ok := mcp.Unquote(mcp.Get(m.Params, "level")); !ok {
			return nil, mcp.NewError(mcp.CodeInvalidParams, "logging/setLevel needs params.level, a string")
		}
		return append(dst, "{}"...), nil // these views send no log messages
	}
	return nil, mcp.NewError(mcp.CodeMethodNotFound, "there is no method "+toolkeep.ClipBytes(m.Method, 100)+" here")
}

// resumes reports whether a request that is no call brings a requestState of this server, with which nothing new begins; see askable.
func (x *exchange) resumes(m *mcp.Message) bool {
	if !x.modern || m.Method != mcp.MethodGetPrompt && m.Method != mcp.MethodReadResource {
		return false
	}
	state := mcp.Get(m.Params, "requestState")
	return state != nil && x.s.stateNode(state) != ""
}
