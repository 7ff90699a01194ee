package assembly

import (
	"regexp"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Role is the author of a message.
type Role string

// Roles, with the providers' names.
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
	ToolID    string     // of a tool's answer: the tool; "" is the last one called
	ToolError *Failure   // of a tool's answer: its failure
}

// ToolCall is a call an assistant requests.
type ToolCall struct{ ToolID string }

// Detect finds the phase of a conversation. The first rule that matches decides:
//
//  1. The request has an error, or one of the newest calls failed, no new call
//     was made since, and the user has not spoken twice since: error recovery.
//  2. A call of the newest assistant message has no answer: execution
//     preparation.
//  3. The request names tools, a tool has answered, or an assistant has spoken:
//     tool selection, since the index of all tools was shown before.
//  4. Otherwise: initial planning.
//
// The reason is for human readers.
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

// waits reports whether calls of the newest assistant message have no answer. A user message after
// a call abandons it.
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
			// The assistant has continued after the answers.
			if answers > 0 {
				return false
			}
		}
	}
	return false
}

// lastFailure returns the newest error among the answers to the newest calls: several calls of one
// message are one step, in which a later success does not undo an earlier failure. A user who has
// spoken twice since has changed the subject.
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

// answered returns the tool of the answer at i: answers to several calls come in their order, and
// an answer without a preceding call message belongs to the last call.
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

// called returns the tools of the newest assistant message with calls. done reports that all those
// calls have answers and that the user has spoken since.
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

// toolName matches a tool's id in a text, or its name at a provider.
var toolName = regexp.MustCompile(`[a-z][a-z0-9-]{0,31}(?:\.|__)[A-Za-z_][A-Za-z0-9_-]{0,63}`)

// mentioned returns possible tool names in the assistant's newest text, in order: a model often
// names its choice before it calls.
func mentioned(messages []Message) []string {
	for _, m := range slices.Backward(messages) {
		if m.Role == Assistant && m.Content != "" {
			text := m.Content
			if len(text) > 16<<10 {
				text = text[len(text)-16<<10:] // decisions are at the end
			}
			return toolName.FindAllString(text, MaxChosen)
		}
	}
	return nil
}

// Query returns the newest user message with text, "" if there is none: some hold only pictures or
// tool answers.
func Query(messages []Message) string {
	for _, m := range slices.Backward(messages) {
		if m.Role == User && strings.TrimSpace(m.Content) != "" {
			return m.Content
		}
	}
	return ""
}

// Code parses a code of the error catalogue, "" if there is no such code.
func Code(s string) toolkeep.Code {
	if c := toolkeep.Code(s); c.Info().Code == c {
		return c
	}
	return ""
}
