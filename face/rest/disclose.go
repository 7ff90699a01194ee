package rest

import (
	"context"
	"strconv"
	"time"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/face/gate"
)

// ToolContextRequest asks for a context: what a language model is to know of the tools
// in its phase of a conversation (Discovery 6).
type ToolContextRequest struct {
	Q        string           `json:"q,omitempty" doc:"what is to be done, in words; 16,000 characters are read; absent: the user's newest message"`
	Phase    string           `json:"phase,omitempty" enum:"initial_planning,tool_selection,execution_preparation,error_recovery" doc:"absent: detected from error, messages and toolIds"`
	Messages []ContextMessage `json:"messages,omitempty" maxItems:"500" doc:"the conversation so far, oldest first; nothing of it is kept"`
	ToolIDs  []string         `json:"toolIds,omitempty" maxItems:"20" doc:"tools that were chosen; the first come first"`
	Error    *ContextError    `json:"error,omitempty" doc:"what went wrong, for error_recovery"`
	Budget   int              `json:"budget,omitempty" minimum:"500" maximum:"100000" doc:"tokens (o200k_base) at most; absent: what the settings search.budgets.* say for the phase"`
	Format   string           `json:"format,omitempty" enum:"json,markdown" doc:"default json; the tokens are counted in it"`
	CountAll bool             `json:"countAll,omitempty" doc:"tell in metadata.tokensOfAll what all tools would take"`
	Learn    *bool            `json:"learn,omitempty" doc:"false: the context is recorded for the audit, nothing is learned from it, and it has no X-Retrieval-ID; default true"`
}

// ContextMessage is one step of a conversation.
type ContextMessage struct {
	Role      string            `json:"role" enum:"system,user,assistant,tool"`
	Content   contextText       `json:"content,omitzero"`
	ToolCalls []ContextToolCall `json:"toolCalls,omitempty" maxItems:"100" doc:"of an assistant: calls that it wants made"`
	ToolID    string            `json:"toolId,omitempty" maxLength:"4096" doc:"of a tool's answer: whose it is"`
	ToolError *ContextError     `json:"toolError,omitempty" doc:"of a tool's answer: that it failed"`
}

// wantsText is said of a message's text that is none.
const wantsText = "must be a string, or a list of parts with a type, those of text with their text as a string"

// contextText is a message's text, or a list of its parts, as it came.
type contextText struct{ object }

// describe is for the document, and for what is refused before it is read.
func (contextText) describe(*components) tree {
	part := tree{"type": "object", "additionalProperties": true, "required": []string{"type"},
		"properties": tree{"type": tree{"type": "string", "minLength": 1}, "text": tree{"description": "of a part of text: the text"}}}
	return tree{"description": "what it says, or a list of parts as OpenAI and Anthropic have them, of which the text is read and the rest passed over",
		"oneOf": []any{tree{"type": []string{"string", "null"}}, tree{"type": "array", "items": part}}}
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
	assembly.Context
}

// contextData is a ToolContext as it was counted, byte by byte.
type contextData struct{ object }

func (contextData) describe(c *components) tree { return c.ref(ToolContext{}) }

type toolContextOutput struct {
	RetrievalID string `header:"X-Retrieval-ID" doc:"by which feedback names this context"`
	Body        struct {
		Status string      `json:"status" enum:"success"`
		Data   contextData `json:"data"`
	} `nameHint:"ToolContextAnswer"`
}

func (a *API) disclose(ctx context.Context, p *toolkeep.Principal, in *toolContextInput) (*toolContextOutput, error) {
	start, as := time.Now(), a.asker(p, in.SessionHeader)
	r, err := in.Body.request()
	if err != nil {
		return nil, err
	}
	r.Rename(func(name string) string { return a.toolID(p, name) })
	r = a.guide.Gather(ctx, r, as)
	c, err := assembly.Build(r)
	if err != nil {
		return nil, err
	}
	out := &toolContextOutput{RetrievalID: a.retrieved(p, usage.OfContext(&r, c, as, time.Since(start)), in.SessionHeader, unlessFalse(in.Body.Learn))}
	out.Body.Status = "success"
	out.Body.Data.object = c.JSON()
	if c.Format() == assembly.Markdown {
		raw, err := gate.Marshal(struct {
			Markdown string            `json:"markdown"`
			Metadata assembly.Metadata `json:"metadata"`
		}{c.Markdown(), c.Metadata})
		if err != nil {
			return nil, err
		}
		out.Body.Data.object = raw
	}
	return out, nil
}

// request reads what was sent; the document's bounds were checked. E3301, E3311.
func (in *ToolContextRequest) request() (assembly.Request, error) {
	if err := discover.CheckQuery(in.Q); err != nil {
		return assembly.Request{}, err
	}
	r := assembly.Request{Query: in.Q, Phase: assembly.Phase(in.Phase), Chosen: in.ToolIDs, Failure: in.Error.failure(), Budget: in.Budget, Format: assembly.Format(in.Format), CountAll: in.CountAll}
	for i, m := range in.Messages {
		var said assembly.Text
		if m.Content.object != nil {
			if err := strict.Unmarshal(m.Content.object, &said); err != nil {
				fault := toolkeep.Fault{Pointer: "/messages/" + strconv.Itoa(i) + "/content", Rule: "type", Message: wantsText}
				return r, toolkeep.FaultsError(toolkeep.InvalidParameters, "body.messages["+strconv.Itoa(i)+"].content: "+fault.Message, []toolkeep.Fault{fault})
			}
		}
		to := assembly.Message{Role: assembly.Role(m.Role), Content: string(said), ToolID: m.ToolID, ToolError: m.ToolError.failure()}
		for _, c := range m.ToolCalls {
			to.ToolCalls = append(to.ToolCalls, assembly.ToolCall{ToolID: c.ToolID})
		}
		r.Messages = append(r.Messages, to)
	}
	return r, nil
}

func (e *ContextError) failure() *assembly.Failure {
	if e == nil {
		return nil
	}
	return &assembly.Failure{ToolID: e.ToolID, Code: assembly.Code(e.ErrorCode), Class: e.Class, Message: e.Message, Retryable: e.Retryable, RetryAfterS: e.RetryAfterS}
}
