package mcpserver

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// Limits of the conversation that find_tools reads.
const (
	maxMessages = 500
	maxText     = 64 << 10  // bytes read of one message
	maxSent     = 512 << 10 // bytes of a question, of which discover.MaxQuestion characters are read
)

// contextArgs are the arguments of find_tools that ask for a context instead of a list.
var contextArgs = []string{"phase", "messages", "tool_ids", "budget_tokens"}

// contextMessage is one step of a conversation, as the model passes it.
type contextMessage struct {
	Role      string        `json:"role"`
	Content   assembly.Text `json:"content"`
	ToolCalls []struct {
		ToolID string `json:"tool_id"`
	} `json:"tool_calls"`
	ToolID string        `json:"tool_id"`
	Error  *contextError `json:"error"`
}

// contextError has the members of a failed call's structured content.
type contextError struct {
	Code        string `json:"code"`
	Class       string `json:"class"`
	Message     string `json:"message"`
	Retryable   *bool  `json:"retryable"`
	RetryAfterS int    `json:"retry_after_s"`
}

// conversation returns the session a question belongs to, as calls name it.
func (x *exchange) conversation() string {
	if x.ses != nil {
		return x.ses.public
	}
	if id := gate.HTTP(x.header).Session(); len(id) <= x.s.limits.KeyBytes {
		return id
	}
	return ""
}

// session returns the session a search is for.
func (x *exchange) session() discover.Session {
	return discover.Session{Tenant: x.p.Tenant, Subject: x.p.Person(), ID: x.conversation()}
}

// toolContext answers find_tools with a context for the model's phase of the conversation: as
// Markdown in the text, and as data in the structured content, each within the budget. category
// limits the tools.
func (x *exchange) toolContext(ctx context.Context, query, category string, got map[string][]byte, dst []byte) ([]byte, error) {
	r, err := x.contextRequest(query, got)
	if err != nil {
		x.read(audit.Read{What: audit.ReadContext, Query: query, Err: err})
		return x.ownFailure(dst, err), nil
	}
	start := time.Now()
	r = x.s.guide.Gather(ctx, r, assembly.Asker{Session: x.session(), Audience: x.audience(category), Visible: func(t *toolkeep.Tool) bool {
		return (category == "" || t.Manifest.Category == category) && x.sees(t)
	}})
	r.Format = assembly.Markdown
	text, bErr := assembly.Build(r)
	if bErr != nil {
		return x.ownFailure(dst, bErr), nil
	}
	r.Format = assembly.JSON
	data, bErr := assembly.Build(r)
	if bErr != nil {
		return x.ownFailure(dst, bErr), nil
	}
	dst = append(dst, `{"content":[{"type":"text","text":`...)
	dst = canon.AppendString(dst, text.Markdown())
	dst = append(append(dst, `}],"structuredContent":`...), data.JSON()...)
	dst = appendRetrieval(dst, x.record(usage.OfContext(&r, text, assembly.Asker{Session: x.session()}, time.Since(start))))
	dst = x.finish(dst)
	ids := make([]string, len(text.DetailedTools))
	for i, d := range text.DetailedTools {
		ids[i] = d.ToolID
	}
	x.foundTools(ids)
	return dst, nil
}

// contextRequest reads the arguments. E3301, E3312.
func (x *exchange) contextRequest(query string, got map[string][]byte) (r assembly.Request, err *toolkeep.Error) {
	r.Query = query
	phase, err := textArg(got, "phase", false, 64)
	if err != nil {
		return r, err
	}
	r.Phase = assembly.Phase(phase)
	if got["budget_tokens"] != nil {
		n, err := numberArg(got, "budget_tokens", assembly.MinBudget, assembly.MaxBudget, 0)
		if err != nil {
			return r, err
		}
		r.Budget = int(n)
	}
	if raw := got["tool_ids"]; raw != nil {
		if json.Unmarshal(raw, &r.Chosen) != nil {
			return r, invalidArg("tool_ids", "type", "must be a list of tool ids")
		}
		for i, id := range r.Chosen {
			r.Chosen[i] = x.namedID(id)
		}
	}
	if raw := got["messages"]; raw != nil {
		var list []contextMessage
		if json.Unmarshal(raw, &list) != nil {
			return r, invalidArg("messages", "type", "must be a list of objects with role, content (a string, or a list of parts), tool_calls, tool_id and error")
		}
		if len(list) > maxMessages {
			return r, invalidArg("messages", "maxItems", "has more than 500 messages; send the newest")
		}
		for _, m := range list {
			to, ok := x.message(m)
			if !ok {
				return r, invalidArg("messages", "enum", "each has the role system, user, assistant or tool")
			}
			r.Messages = append(r.Messages, to)
		}
	}
	return r, nil
}

func invalidArg(name, rule, why string) *toolkeep.Error {
	return toolkeep.FaultError(toolkeep.InvalidParameters, "the argument "+name+" "+why, toolkeep.Fault{Pointer: "/" + name, Rule: rule, Message: why})
}

func (x *exchange) message(m contextMessage) (assembly.Message, bool) {
	role := assembly.Role(m.Role)
	switch role {
	case assembly.System, assembly.User, assembly.Assistant, assembly.Tool:
	default:
		return assembly.Message{}, false
	}
	to := assembly.Message{Role: role, Content: toolkeep.ClipBytes(string(m.Content), maxText), ToolID: x.namedID(m.ToolID)}
	for _, c := range m.ToolCalls {
		to.ToolCalls = append(to.ToolCalls, assembly.ToolCall{ToolID: x.namedID(c.ToolID)})
	}
	if e := m.Error; e != nil {
		to.ToolError = &assembly.Failure{Code: assembly.Code(e.Code), Class: e.Class, Message: e.Message, Retryable: e.Retryable, RetryAfterS: e.RetryAfterS}
	}
	return to, true
}

// namedID returns the id of a tool's listed name, or the text as it is.
func (x *exchange) namedID(name string) string {
	if id := x.idOf(name, x.sees); id != "" {
		return id
	}
	return name
}

// foundTools adds a search's results to the list of a session of view auto.
func (x *exchange) foundTools(ids []string) {
	if x.v.kind == viewAuto && x.ses != nil && x.ses.add(ids) && x.listing().search {
		x.toolsChanged()
	}
}

// wantsContext reports whether the arguments of find_tools ask for a context.
func wantsContext(got map[string][]byte) bool {
	for _, name := range contextArgs {
		if got[name] != nil {
			return true
		}
	}
	return false
}

// asks reports whether the arguments include a conversation, so that query may be left out.
func asks(got map[string][]byte) bool { return !mcp.IsNull(got["messages"]) }
