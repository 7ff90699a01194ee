package rest

import (
	"context"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/disclose"
)

// ToolContextRequest asks for a context: what a language model is to know of the tools
// in its phase of a conversation (Discovery 6).
type ToolContextRequest struct {
	Q        string           `json:"q,omitempty" maxLength:"2000" doc:"what is to be done, in words; absent: the user's newest message"`
	Phase    string           `json:"phase,omitempty" enum:"initial_planning,tool_selection,execution_preparation,error_recovery" doc:"absent: detected from error, messages and toolIds"`
	Messages []ContextMessage `json:"messages,omitempty" maxItems:"500" doc:"the conversation so far, oldest first; nothing of it is kept"`
	ToolIDs  []string         `json:"toolIds,omitempty" maxItems:"20" doc:"tools that were chosen; the first come first"`
	Error    *ContextError    `json:"error,omitempty" doc:"what went wrong, for error_recovery"`
	Budget   int              `json:"budget,omitempty" minimum:"500" maximum:"100000" doc:"tokens (o200k_base) at most; absent: what the settings search.budgets.* say for the phase"`
	Format   string           `json:"format,omitempty" enum:"json,markdown" doc:"default json; the tokens are counted in it"`
}

// ContextMessage is one step of a conversation.
type ContextMessage struct {
	Role      string            `json:"role" enum:"system,user,assistant,tool"`
	Content   string            `json:"content,omitempty"`
	ToolCalls []ContextToolCall `json:"toolCalls,omitempty" maxItems:"100" doc:"of an assistant: calls that it wants made"`
	ToolID    string            `json:"toolId,omitempty" maxLength:"4096" doc:"of a tool's answer: whose it is"`
	ToolError *ContextError     `json:"toolError,omitempty" doc:"of a tool's answer: that it failed"`
}

// ContextToolCall is one call in a message.
type ContextToolCall struct {
	ToolID string `json:"toolId" maxLength:"4096"`
}

// ContextError is a call that failed, as the answer to the call says it.
type ContextError struct {
	ToolID      string `json:"toolId,omitempty" maxLength:"4096" doc:"absent: the tool that was called last, or the first of toolIds"`
	ErrorCode   string `json:"errorCode,omitempty" maxLength:"64" doc:"code of the error catalogue, such as E3520"`
	Class       string `json:"class,omitempty" maxLength:"64" doc:"absent: the code's"`
	Message     string `json:"message,omitempty" maxLength:"8000"`
	Retryable   *bool  `json:"retryable,omitempty" doc:"absent: the code's"`
	RetryAfterS int    `json:"retryAfterS,omitempty" minimum:"0" maximum:"31536000"`
}

type toolContextInput struct {
	SessionHeader
	Body ToolContextRequest
}

// ToolContext is the context; which parts there are depends on the phase.
type ToolContext struct {
	Markdown string `json:"markdown,omitempty" doc:"the whole, where format is markdown; of the other parts there is then metadata alone"`
	disclose.Context
}

// contextData is a ToolContext as it was counted, byte by byte.
type contextData struct{ object }

// Schema is for the document.
func (contextData) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[ToolContext](), true, "ToolContext")
}

type toolContextOutput struct {
	RetrievalID string `header:"X-Retrieval-ID" doc:"by which feedback names this context"`
	Body        struct {
		Status string      `json:"status" enum:"success"`
		Data   contextData `json:"data"`
	} `nameHint:"ToolContextAnswer"`
}

func (a *API) disclose(ctx context.Context, p *toolkeep.Principal, in *toolContextInput) (*toolContextOutput, error) {
	start, as := time.Now(), a.asker(p, in.SessionHeader)
	r := a.guide.Gather(ctx, in.Body.request(), as)
	c, err := disclose.Build(r)
	if err != nil {
		return nil, err
	}
	out := &toolContextOutput{RetrievalID: a.disclosed(p, &r, c, as, start, in.UserAgent)}
	out.Body.Status = "success"
	out.Body.Data.object = c.JSON()
	if c.Format() == disclose.Markdown {
		raw, err := marshal(struct {
			Markdown string            `json:"markdown"`
			Metadata disclose.Metadata `json:"metadata"`
		}{c.Markdown(), c.Metadata})
		if err != nil {
			return nil, err
		}
		out.Body.Data.object = raw
	}
	return out, nil
}

// request reads what was sent; the document's bounds were checked.
func (in *ToolContextRequest) request() disclose.Request {
	r := disclose.Request{Query: in.Q, Phase: disclose.Phase(in.Phase), Chosen: in.ToolIDs, Failure: in.Error.failure(), Budget: in.Budget, Format: disclose.Format(in.Format)}
	for _, m := range in.Messages {
		to := disclose.Message{Role: disclose.Role(m.Role), Content: m.Content, ToolID: m.ToolID, ToolError: m.ToolError.failure()}
		for _, c := range m.ToolCalls {
			to.ToolCalls = append(to.ToolCalls, disclose.ToolCall{ToolID: c.ToolID})
		}
		r.Messages = append(r.Messages, to)
	}
	return r
}

func (e *ContextError) failure() *disclose.Failure {
	if e == nil {
		return nil
	}
	return &disclose.Failure{ToolID: e.ToolID, Code: disclose.Code(e.ErrorCode), Class: e.Class, Message: e.Message, Retryable: e.Retryable, RetryAfterS: e.RetryAfterS}
}
