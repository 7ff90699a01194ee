package gate

import (
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Limits of Text.
const (
	maxSaid       = 2 << 10  // bytes of the upstream's words
	maxTextFaults = 16 << 10 // bytes of the lines of faults
)

// said are the details that hold an upstream's words, in the order in which they are shown:
// those of HTTP, of gRPC, and of a JSON-RPC error.
var said = []string{"body", "grpc_message", "grpc_details", "data"}

// Text returns an error as text that stands alone, because most clients show nothing else to a
// model: code, name and message; the upstream's own words, at most 2 KiB; each fault on a line,
// unless the message has it; what to do.
func Text(e *toolkeep.Error) string {
	info := e.Code.Info()
	var b strings.Builder
	b.WriteString(string(info.Code) + " " + info.Name + ": " + e.Message)
	if at, ok := e.Details["url"].(string); ok && e.Code == toolkeep.LoginRequired {
		b.WriteString("; details.url is " + at)
	}
	b.WriteString(retry(e))
	left := maxSaid
	for _, name := range said {
		if words := wordsOf(e.Details[name]); words != "" && left > 0 {
			b.WriteString("\nThe upstream said: " + toolkeep.ClipBytes(words, left))
			left -= len(words)
		}
	}
	if !e.FaultSaid {
		writeFaults(&b, e)
	}
	if what := whatToDo(e); what != "" {
		b.WriteString("\n" + what)
	}
	return b.String()
}

// wordsOf returns text as it is and other values as JSON, "" for none.
func wordsOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return strings.TrimSpace(v)
	}
	return string(canon.Append(nil, v))
}

// writeFaults writes a line for each fault, and one that counts the rest.
func writeFaults(b *strings.Builder, e *toolkeep.Error) {
	faults, left := e.Faults(), maxTextFaults
	for i, f := range faults {
		line := "\n- " + f.Message
		if f.Pointer != "" {
			line = "\n- at " + f.Pointer + ": " + f.Message
		}
		if left -= len(line); left < 0 {
			b.WriteString("\n- " + toolkeep.MoreFaults(toolkeep.CountFaults(faults[i:])).Message)
			return
		}
		b.WriteString(line)
	}
}

// retry says in brackets when a retryable call may be repeated, "" if it is not retryable.
func retry(e *toolkeep.Error) string {
	switch {
	case e.Retryable && e.RetryAfterSeconds() > 0:
		return " (try again after " + e.RetryAfter.Round(1e9).String() + ")"
	case e.Retryable:
		return " (the same call may succeed later)"
	}
	return ""
}

// whatToDo is the advice that no message has, because it depends on more than the failure. The
// messages of refusals say themselves what to do.
func whatToDo(e *toolkeep.Error) string {
	info := e.Code.Info()
	switch {
	case info.Kind == toolkeep.KindRefusal && len(e.Faults()) > 0:
		return "Correct this and call again."
	case info.Kind != toolkeep.KindResult || e.Retryable || e.Code == toolkeep.OutcomeUnknown:
		return ""
	case e.Code == toolkeep.SecretAccessDenied:
		return "Calling again does not help: an operator has to check the tool's credential."
	case e.Class() == "VALIDATION_ERROR":
		return "The same call will fail again: change the arguments."
	case info.Retryable:
		return "It is unknown whether the call took effect: check before you repeat it."
	}
	return "The same call will probably fail again: change the arguments, or use another tool."
}
