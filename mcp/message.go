package mcp

import (
	"bytes"
	"strconv"

	"github.com/toolkeep/toolkeep/canon"
)

// Message is one JSON-RPC 2.0 message: a request, a notification or a response. Params,
// Result and Err.Data of a parsed message are slices of Parse's input, valid while that
// does not change.
type Message struct {
	// ID is the raw JSON string or number. It is nil for a notification, and for an
	// error response to a request whose id could not be read.
	ID     []byte
	Method string // "" for an answer
	Params []byte // raw JSON object, or nil
	Result []byte // raw JSON, usually an object; nil unless the message is a successful response
	Err    *Error // set if the message is an error response

	// Related is set by transport.HTTP alone, on server requests and notifications that
	// arrive on the response stream of a request: that request's id.
	Related []byte
	// Lost is set by a transport alone, on a response it created because the real one
	// will not come: the stream broke, the message was too large. Err is then set too,
	// with CodeLost.
	Lost error
}

// IsRequest reports whether the message expects a response.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification reports whether the message is a notification.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse reports whether the message is a response.
func (m *Message) IsResponse() bool { return m.Method == "" }

// Append appends the message to dst as JSON on one line. Line breaks between the tokens
// of Params, Result and Err.Data are dropped; otherwise they are written unchanged, so
// they must be JSON. A response with neither Result nor Err gets the result {}.
func (m *Message) Append(dst []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	switch {
	case m.ID != nil:
		dst = append(append(dst, `,"id":`...), m.ID...)
	case m.Method == "":
		dst = append(dst, `,"id":null`...)
	}
	switch {
	case m.Method != "":
		dst = canon.AppendString(append(dst, `,"method":`...), m.Method)
		if len(m.Params) > 0 {
			dst = appendLine(append(dst, `,"params":`...), m.Params)
		}
	case m.Err != nil:
		dst = m.Err.Append(append(dst, `,"error":`...))
	case len(m.Result) > 0:
		dst = appendLine(append(dst, `,"result":`...), m.Result)
	default:
		dst = append(dst, `,"result":{}`...)
	}
	return append(dst, '}')
}

// size estimates the bytes that Append writes.
func (m *Message) size() int {
	n := 64 + len(m.ID) + len(m.Method) + len(m.Params) + len(m.Result)
	if m.Err != nil {
		n += 32 + len(m.Err.Message) + len(m.Err.Data)
	}
	return n
}

// Bytes is Append to a new slice.
func (m *Message) Bytes() []byte { return m.Append(make([]byte, 0, m.size())) }

// appendLine appends JSON without the line breaks between its tokens. A string cannot
// contain one, so each is white space.
func appendLine(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\n')
		part := raw
		if i >= 0 {
			part = raw[:i]
		}
		for {
			j := bytes.IndexByte(part, '\r')
			if j < 0 {
				dst = append(dst, part...)
				break
			}
			dst = append(dst, part[:j]...)
			part = part[j+1:]
		}
		if i < 0 {
			return dst
		}
		raw = raw[i+1:]
	}
}

// Error is a JSON-RPC error: a peer's error response, or Parse's error for a faulty
// message, ready to be sent back.
type Error struct {
	Code    int64
	Message string
	Data    []byte // raw JSON, or nil
}

// NewError returns an Error without data.
func NewError(code int64, message string) *Error { return &Error{Code: code, Message: message} }

// Error returns code and message. An upstream's message is untrusted text.
func (e *Error) Error() string {
	return "JSON-RPC error " + strconv.FormatInt(e.Code, 10) + ": " + e.Message
}

// Append appends the error to dst as a JSON object.
func (e *Error) Append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"code":`...), e.Code, 10)
	dst = canon.AppendString(append(dst, `,"message":`...), e.Message)
	if len(e.Data) > 0 {
		dst = appendLine(append(dst, `,"data":`...), e.Data)
	}
	return append(dst, '}')
}

// Reply returns the response to the request with the id.
func Reply(id, result []byte) *Message { return &Message{ID: id, Result: result} }

// Refuse returns the error response to the request with the id; a nil id means that the
// request's id could not be read.
func Refuse(id []byte, err *Error) *Message { return &Message{ID: id, Err: err} }

// Error codes of JSON-RPC and MCP.
const (
	CodeParse          = -32700 // the text is not JSON
	CodeInvalidRequest = -32600 // the JSON is not a message
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602 // since 2026-07-28 also an unknown resource
	CodeInternal       = -32603

	CodeResourceNotFound   = -32002 // up to 2025-11-25
	CodeSessionNotFound    = -32001 // not in the specification: servers of the TypeScript SDK send it with HTTP 404
	CodeHeaderMismatch     = -32020 // a header differs from the body, 2026-07-28
	CodeMissingCapability  = -32021 // the client lacks a required capability, 2026-07-28
	CodeUnsupportedVersion = -32022 // data.supported lists the server's revisions, 2026-07-28
	CodeURLElicitation     = -32042 // the user must visit a URL first

	// CodeLost is never sent: see Message.Lost.
	CodeLost = -32099
)
