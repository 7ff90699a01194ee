package assembly

import (
	"regexp"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Role of who said a message.
type Role string

// Roles, as providers name them.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is one step of a conversation.
type Message struct {
	Role      Role
	Content   string
	ToolCalls []ToolCall // of an assistant
	ToolID    string     // of a tool's answer: whose it is; "" is the last one called
	ToolError *Failure   // of a tool's answer: that it failed
}

// ToolCall is a call that an assistant wants made.
type ToolCall struct{ ToolID string }

// Detect finds the phase of a conversation. The first rule that fits decides:
//
//  1. An error is given with the request, or one of the newest calls failed, no new call
//     was made since, and the user has not spoken twice since: error recovery.
//  2. A call of the newest assistant message has not been answered: execution
//     preparation.
//  3. Tools are named with the request, a tool has answered, or an assistant has spoken:
//     tool selection, for the index of all tools was seen before.
//  4. Otherwise: initial planning.
//
// The reason is for a reader.
func Detect(messages []Message, chosen []string, failure *Failure) (Phase, string) {
	if failure != nil {
		return ErrorRecovery, "an error is given"
	}
	if _, ok := lastFailure(messages); ok {
		return ErrorRecovery, "the newest answer of a tool failed"
	}
	if waits(messages) {
		return ExecutionPreparation, "a call waits for its answer"
	}
	if len(chosen) > 0 {
		return ToolSelection, "tools are named"
	}
	for _, m := range messages {
		if m.Role == Assistant || m.Role == Tool {
			return ToolSelection, "the conversation is under way"
		}
	}
	return InitialPlanning, "nothing was answered yet"
}

// waits tells whether calls of the newest assistant message have no answer. What the
// user says after a call gives it up.
func waits(messages []Message) bool {
	answers := 0
	for _, m := range slices.Backward(messages) {
		switch {
		case m.Role == User:
			return false
		case m.Role == Tool:
			answers++
		case m.Role == Assistant:
			if len(m.ToolCalls) > 0 {
				return answers < len(m.ToolCalls)
			}
			// The assistant has gone on from what was answered.
			if answers > 0 {
				return false
			}
		}
	}
	return false
}

// lastFailure is the newest error among the answers to the newest calls: several calls of
// one message are one step, in which a later success does not undo an earlier failure. A
// user who has spoken twice since talks of something else.
func lastFailure(messages []Message) (*Failure, bool) {
	spoken := 0
	for i, m := range slices.Backward(messages) {
		switch {
		case m.Role == User:
			if spoken++; spoken == 2 {
				return nil, false
			}
		case m.Role == Assistant && len(m.ToolCalls) > 0:
			return nil, false
		case m.Role == Tool && m.ToolError != nil:
			f := *m.ToolError
			if f.ToolID == "" {
				f.ToolID = m.ToolID
			}
			if f.ToolID == "" {
				f.ToolID = answered(messages, i)
			}
			if f.Message == "" {
				f.Message = m.Content
			}
			return &f, true
		}
	}
	return nil, false
}

// answered is the tool whose answer stands at i: the answers to several calls come in
// their order, and one without a message of calls before it belongs to the last one.
func answered(messages []Message, i int) string {
	nth := 0
	for _, m := range slices.Backward(messages[:i]) {
		if m.Role == Tool {
			nth++
		}
		if m.Role == Assistant && len(m.ToolCalls) > 0 {
			return m.ToolCalls[min(nth, len(m.ToolCalls)-1)].ToolID
		}
	}
	return ""
}

// called are the tools of the newest assistant message that calls any. done tells that all
// those calls have their answers and that the user has spoken since.
func called(messages []Message) (ids []string, done bool) {
	answers, spoken := 0, false
	for _, m := range slices.Backward(messages) {
		switch {
		case m.Role == User:
			spoken = true
		case m.Role == Tool:
			answers++
		case m.Role == Assistant && len(m.ToolCalls) > 0:
			for _, c := range m.ToolCalls {
				ids = append(ids, c.ToolID)
			}
			return ids, spoken && answers >= len(ids)
		}
	}
	return nil, false
}

// toolName is what a tool's id looks like in a text, or its name at a provider.
var toolName = regexp.MustCompile(`[a-z][a-z0-9-]{0,31}(?:\.|__)[A-Za-z_][A-Za-z0-9_-]{0,63}`)

// mentioned are what may be tools in the newest text of the assistant, in its order: a
// model that has chosen often says so before it calls.
func mentioned(messages []Message) []string {
	for _, m := range slices.Backward(messages) {
		if m.Role == Assistant && m.Content != "" {
			text := m.Content
			if len(text) > 16<<10 {
				text = text[len(text)-16<<10:] // what was decided stands at the end
			}
			return toolName.FindAllString(text, MaxChosen)
		}
	}
	return nil
}

// Query is what the newest message of the user says that says anything, "" without one: some
// hold pictures alone, or what tools answered.
func Query(messages []Message) string {
	for _, m := range slices.Backward(messages) {
		if m.Role == User && strings.TrimSpace(m.Content) != "" {
			return m.Content
		}
	}
	return ""
}

// Code reads a code of the error catalogue, "" if there is none of that name.
func Code(s string) toolkeep.Code {
	if c := toolkeep.Code(s); c.Info().Code == c {
		return c
	}
	return ""
}
