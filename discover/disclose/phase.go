package disclose

import (
	"slices"

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
//  1. An error is given with the request, or the newest answer of a tool failed and no
//     new call was tried since: error recovery.
//  2. The newest assistant message calls tools that have not answered: execution
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
	for _, m := range slices.Backward(messages) {
		if m.Role == Tool || m.Role == User {
			break
		}
		if m.Role == Assistant && len(m.ToolCalls) > 0 {
			return ExecutionPreparation, "a call waits for its answer"
		}
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

// lastFailure is the error of the newest tool's answer, unless a call was made after it.
func lastFailure(messages []Message) (*Failure, bool) {
	for i, m := range slices.Backward(messages) {
		switch {
		case m.Role == Assistant && len(m.ToolCalls) > 0:
			return nil, false
		case m.Role == Tool:
			if m.ToolError == nil {
				return nil, false
			}
			f := *m.ToolError
			if f.ToolID == "" {
				f.ToolID = m.ToolID
			}
			if f.ToolID == "" {
				if ids := called(messages[:i]); len(ids) > 0 {
					f.ToolID = ids[len(ids)-1]
				}
			}
			if f.Message == "" {
				f.Message = m.Content
			}
			return &f, true
		}
	}
	return nil, false
}

// called are the tools of the newest assistant message that calls any.
func called(messages []Message) []string {
	for _, m := range slices.Backward(messages) {
		if m.Role != Assistant || len(m.ToolCalls) == 0 {
			continue
		}
		var ids []string
		for _, c := range m.ToolCalls {
			ids = append(ids, c.ToolID)
		}
		return ids
	}
	return nil
}

// Query is what the newest message of the user says, "" without one.
func Query(messages []Message) string {
	for _, m := range slices.Backward(messages) {
		if m.Role == User {
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
