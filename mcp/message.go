package mcp

import (
	"bytes"
	"strconv"

	"github.com/toolkeep/toolkeep/canon"
)

// Message is one JSON-RPC 2.0 message: a request, a notification or an answer.
// Params, Result and Err.Data of a message that Parse made are slices of the
// bytes it was given and stay valid as long as those do not change.
type Message struct {
	// ID is the raw JSON string or number, as it was written. nil for a
	// notification and for the error answer to a request whose id nobody could
	// read.
	ID     []byte
	Method string // "" for an answer
	Params []byte // raw JSON object, nil where there is none
	Result []byte // raw JSON, as a rule an object; nil unless the message is a good answer
	Err    *Error // set if the message is a bad answer

	// Related is set by transport.HTTP alone, on what a server asks or tells on the
	// stream that answers one of our requests: that request's id.
	Related []byte
	// Lost is set by a transport alone, on an answer it made up itself because the
	// true one will not come: the stream broke, the message was too large. Err is
	// set as well, with CodeLost.
	Lost error
}

// IsRequest tells whether the message wants an answer.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification tells whether the message is one that gets no answer.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse tells whether the message is an answer.
func (m *Message) IsResponse() bool { return m.Method == "" }

// Append writes the message as one line of JSON without a line break behind dst.
// Line breaks that stand between the tokens of Params, Result or Err.Data are
// left out; everything else of them is written as it is, so that they must be
// JSON. An answer with neither Result nor Err has the result {}.
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

// size is about how many bytes Append writes.
func (m *Message) size() int {
	n := 64 + len(m.ID) + len(m.Method) + len(m.Params) + len(m.Result)
	if m.Err != nil {
		n += 32 + len(m.Err.Message) + len(m.Err.Data)
	}
	return n
}

// Bytes is Append to a new slice.
func (m *Message) Bytes() []byte { return m.Append(make([]byte, 0, m.size())) }

// appendLine writes JSON without the line breaks between its tokens. A string
// cannot hold one, so each is white space.
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

// Error is a JSON-RPC error: what a peer answered, or what Parse says is wrong
// with a message, ready to be sent back.
type Error struct {
	Code    int64
	Message string
	Data    []byte // raw JSON, nil where there is none
}

// NewError makes an Error without data.
func NewError(code int64, message string) *Error { return &Error{Code: code, Message: message} }

// Error gives code and message. The message of an upstream is text from outside.
func (e *Error) Error() string {
	return "JSON-RPC error " + strconv.FormatInt(e.Code, 10) + ": " + e.Message
}

// Append writes the error as a JSON object behind dst.
func (e *Error) Append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"code":`...), e.Code, 10)
	dst = canon.AppendString(append(dst, `,"message":`...), e.Message)
	if len(e.Data) > 0 {
		dst = appendLine(append(dst, `,"data":`...), e.Data)
	}
	return append(dst, '}')
}

// Reply makes the answer to the request with the id.
func Reply(id, result []byte) *Message { return &Message{ID: id, Result: result} }

// Refuse makes the error answer to the request with the id; id nil stands for a
// request whose id could not be read.
func Refuse(id []byte, err *Error) *Message { return &Message{ID: id, Err: err} }

// Codes of JSON-RPC and of MCP.
const (
	CodeParse          = -32700 // the text is not JSON
	CodeInvalidRequest = -32600 // the JSON is no message
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602 // from 2026-07-28 on also an unknown resource
	CodeInternal       = -32603

	CodeResourceNotFound   = -32002 // up to 2025-11-25
	CodeSessionNotFound    = -32001 // not in the specification: what the TypeScript SDK's servers send with HTTP 404
	CodeHeaderMismatch     = -32020 // a header says something else than the body, 2026-07-28
	CodeMissingCapability  = -32021 // the client lacks what the request needs, 2026-07-28
	CodeUnsupportedVersion = -32022 // data.supported lists what the server speaks, 2026-07-28
	CodeURLElicitation     = -32042 // the user must visit a URL first

	// CodeLost never stands on the wire: see Message.Lost.
	CodeLost = -32099
)
