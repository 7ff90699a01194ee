package mcpserver

import (
	"encoding/json"
	"errors"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// messageDepth is the maximum nesting of a message; the pipeline applies its own limit to arguments
// and records violations.
const messageDepth = 200

// unreadable converts a parse error of a body into the catalogued error.
func unreadable(body []byte, e *mcp.Error) *mcp.Error {
	cause := toolkeep.NewError(toolkeep.MalformedRequest, "%s", e.Message)
	if _, err := canon.Parse(body, canon.Limits{Bytes: int64(len(body)) + 1, Depth: messageDepth, Properties: 1 << 30, Elements: 1 << 30}); err != nil {
		cause = toolkeep.AsError(err)
	}
	out := *e
	out.Data = errorData(cause)
	return &out
}

// errorData returns the data member of a JSON-RPC error for a catalogued error.
func errorData(e *toolkeep.Error) []byte {
	info := e.Code.Info()
	b := append([]byte(nil), `{"code":`...)
	b = canon.AppendString(b, string(info.Code))
	b = append(b, `,"name":`...)
	b = canon.AppendString(b, info.Name)
	b = append(b, `,"class":`...)
	b = canon.AppendString(b, e.Class())
	b = appendBool(b, `,"retryable":`, e.Retryable)
	if n := e.RetryAfterSeconds(); n > 0 {
		b = appendInt(b, `,"retry_after_s":`, int64(n))
	}
	b = appendText(b, `,"invocation_id":`, e.InvocationID)
	if d := details(e); d != nil {
		b = append(append(b, `,"details":`...), d...)
	}
	return append(b, '}')
}

// details marshals an error's details; nil if there are none. content and structured_content are an
// upstream's own result and are sent elsewhere.
func details(e *toolkeep.Error) []byte {
	d := e.Details
	if _, ok := d[detailContent]; ok {
		d = map[string]any{}
		for k, v := range e.Details {
			if k != detailContent && k != detailStructured {
				d[k] = v
			}
		}
	}
	if len(d) == 0 {
		return nil
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return nil
	}
	return raw
}

// rpcError converts any error into a JSON-RPC error.
func (s *Server) rpcError(err error) *mcp.Error {
	var own *mcp.Error
	if errors.As(err, &own) {
		return own
	}
	e := gate.Shown(err)
	code := int64(mcp.CodeInternal)
	switch e.Code.Info().BC6 {
	case "VALIDATION_ERROR":
		code = mcp.CodeInvalidParams
	case "NOT_FOUND":
		code = mcp.CodeInvalidParams
	}
	if e.Code == toolkeep.InternalError {
		s.failed.Error("an MCP request failed", "error", err, "cause", errors.Unwrap(e))
	}
	return &mcp.Error{Code: code, Message: e.Message, Data: errorData(e)}
}

func appendText(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return canon.AppendString(append(b, name...), s)
}

func appendBool(b []byte, name string, v bool) []byte {
	b = append(b, name...)
	if v {
		return append(b, "true"...)
	}
	return append(b, "false"...)
}
