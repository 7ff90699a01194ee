package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep/canon"
)

const (
	// DefaultMaxBytes is the size limit of a message if canon.Limits.Bytes is 0.
	DefaultMaxBytes = 100 << 20
	// DefaultDepth is the nesting limit of a message if canon.Limits.Depth is 0.
	DefaultDepth = 200
	// MaxBatch bounds the messages of a batch.
	MaxBatch = 100
	// MaxID bounds a message id in bytes, including quotes.
	MaxID = 1024

	maxDepth = 10_000 // jsontext's own limit
)

// Parse reads one message. It checks all of it: JSON by RFC 8259, UTF-8, no duplicate
// names in an object, and l's limits of bytes and nesting (0: 100 MB and 200 levels).
// l.Properties and l.Elements bound the whole message too, but only if set.
//
// The message's raw members are slices of data.
//
// A failure is an *Error: CodeParse if data is not JSON; CodeInvalidRequest if it is
// JSON but not a message, has a duplicate name or exceeds a limit. With
// CodeInvalidRequest a message may be returned too; it has only the id to answer with.
func Parse(data []byte, l canon.Limits) (*Message, error) {
	if e := bound(data, l); e != nil {
		return nil, e
	}
	p := parsers.Get().(*parser)
	p.reset(data)
	m, err := p.message()
	if m != nil { // the value was read to its end
		if behind := p.end(); behind != nil {
			m, err = nil, behind
		}
	}
	p.release()
	switch {
	case err == nil:
		return m, nil
	case m != nil && m.ID != nil:
		return &Message{ID: m.ID}, err
	}
	return nil, err
}

// ParseBatch is Parse for a possible batch: an array of 1 to 100 messages, as revision
// 2025-03-26 allows. Requests, notifications and responses may be mixed. batch reports
// whether it was an array. One bad message fails the whole batch. For a single message
// list and err are those of Parse.
func ParseBatch(data []byte, l canon.Limits) (list []*Message, batch bool, err error) {
	if skipSpace(data, 0) >= len(data) || data[skipSpace(data, 0)] != '[' {
		m, err := Parse(data, l)
		if m != nil {
			list = []*Message{m}
		}
		return list, false, err
	}
	if e := bound(data, l); e != nil {
		return nil, true, e
	}
	p := parsers.Get().(*parser)
	p.reset(data)
	defer p.release()
	list, e := p.batch()
	if e != nil {
		return nil, true, e
	}
	return list, true, nil
}

// Check reads one JSON value of any type as strictly as Parse. Use it before Get, Set
// and the like on text that Parse has not seen. The error is an *Error.
func Check(data []byte, l canon.Limits) error {
	if e := bound(data, l); e != nil {
		return e
	}
	p := parsers.Get().(*parser)
	p.reset(data)
	defer p.release()
	if _, err := p.dec.ReadValue(); err != nil {
		return p.syntax(err)
	}
	if e := p.end(); e != nil {
		return e
	}
	return nil
}

// parser is pooled: allocating the decoder's tables costs more than parsing a small
// message.
type parser struct {
	dec  jsontext.Decoder
	buf  bytes.Buffer
	data []byte
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

func (p *parser) reset(data []byte) {
	p.data = data
	p.buf = *bytes.NewBuffer(data)
	p.dec.Reset(&p.buf)
}

// release drops references to the caller's bytes before pooling.
func (p *parser) release() {
	p.data = nil
	p.buf = bytes.Buffer{}
	p.dec.Reset(&p.buf)
	parsers.Put(p)
}

// end refuses text after the value.
func (p *parser) end() *Error {
	if _, err := p.dec.ReadToken(); err != io.EOF {
		return NewError(CodeParse, "there is text after the message")
	}
	return nil
}

func (p *parser) batch() ([]*Message, *Error) {
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, p.syntax(err)
	}
	var (
		list []*Message
		bad  *Error
	)
	for p.dec.PeekKind() != ']' {
		if len(list) >= MaxBatch {
			return nil, NewError(CodeInvalidRequest, fmt.Sprintf("the batch has more than %d messages", MaxBatch))
		}
		m, err := p.message()
		if m == nil {
			return nil, err
		}
		if err != nil && bad == nil {
			bad = NewError(CodeInvalidRequest, fmt.Sprintf("message %d of the batch: %s", len(list), err.Message))
		}
		list = append(list, m)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, p.syntax(err)
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, NewError(CodeInvalidRequest, "the batch is empty")
	}
	if bad != nil {
		return nil, bad
	}
	return list, nil
}

// envelope is the state of a partly read message.
type envelope struct {
	m                   Message
	err                 []byte // raw
	version, method     bool
	hasID, nullID       bool
	hasResult, hasError bool
	problem             string // the first one
}

func (e *envelope) fault(problem string) {
	if e.problem == "" {
		e.problem = problem
	}
}

// message reads the next value. Faults of the message are reported only at its end,
// because invalid JSON takes precedence; the message is nil only if the end was not
// reached.
func (p *parser) message() (*Message, *Error) {
	if p.dec.PeekKind() != '{' {
		if _, err := p.dec.ReadValue(); err != nil {
			return nil, p.syntax(err)
		}
		return new(Message), NewError(CodeInvalidRequest, "a message must be a JSON object")
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, p.syntax(err)
	}
	e := new(envelope)
	for p.dec.PeekKind() != '}' {
		name, err := p.dec.ReadValue()
		if err != nil {
			return nil, p.syntax(err)
		}
		raw, err := p.dec.ReadValue()
		if err != nil {
			return nil, p.syntax(err)
		}
		e.member(name, raw[:len(raw):len(raw)])
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, p.syntax(err)
	}
	e.judge()
	if e.problem != "" {
		return &e.m, NewError(CodeInvalidRequest, e.problem)
	}
	return &e.m, nil
}

func (e *envelope) member(name, raw []byte) {
	if bytes.IndexByte(name, '\\') >= 0 {
		// The decoder has checked the text, so unquoting cannot fail.
		plain, _ := jsontext.AppendUnquote(nil, name)
		name = canon.AppendString(nil, string(plain))
	}
	null := raw[0] == 'n'
	switch string(name) {
	case `"jsonrpc"`:
		e.version = true
		if string(raw) != `"2.0"` {
			e.fault(`"jsonrpc" must be "2.0"`)
		}
	case `"id"`:
		e.hasID, e.nullID = !null, null
		switch {
		case null:
		case raw[0] != '"' && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9'):
			e.fault(`"id" must be a string or a number`)
		case len(raw) > MaxID:
			e.fault(`"id" is longer than ` + strconv.Itoa(MaxID) + " bytes")
		default:
			e.m.ID = raw
		}
	case `"method"`:
		e.method = true
		if raw[0] != '"' || len(raw) == 2 {
			e.fault(`"method" must be a string that is not empty`)
			return
		}
		e.m.Method = methodName(raw)
	case `"params"`:
		switch {
		case null:
		case raw[0] != '{':
			e.fault(`"params" must be an object`)
		default:
			e.m.Params = raw
		}
	case `"result"`:
		e.hasResult = true
		e.m.Result = raw
	case `"error"`:
		e.hasError = !null
		e.err = raw
	}
}

// judge determines the kind of message. A null error beside a result, or a null result
// beside an error, counts as absent: some servers write both.
func (e *envelope) judge() {
	if !e.version {
		e.fault(`"jsonrpc" is missing; it must be "2.0"`)
	}
	if e.method {
		if e.hasResult || e.hasError {
			e.fault(`"method" cannot stand beside "result" or "error"`)
		}
		if e.nullID {
			e.fault(`the "id" of a request must not be null`)
		}
		return
	}
	e.m.Params = nil
	if e.hasError {
		if e.hasResult && e.m.Result[0] != 'n' {
			e.fault(`"result" and "error" cannot stand together`)
		}
		e.m.Result = nil
		if e.m.Err = readError(e.err); e.m.Err == nil {
			e.fault(`"error" must be an object with a number "code" and a string "message"`)
		}
		return
	}
	switch {
	case !e.hasResult:
		e.fault(`there is no "method", no "result" and no "error"`)
	case !e.hasID:
		e.fault(`an answer with a "result" needs an "id"`)
	case e.m.Result[0] != '{' && e.m.Result[0] != 'n':
		e.fault(`"result" must be an object`)
	}
}

// readError reads a JSON-RPC error object; nil if raw is none.
func readError(raw []byte) *Error {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	e := &Error{Message: Text(raw, "message")}
	code := Get(raw, "code")
	n, err := strconv.ParseInt(string(code), 10, 64)
	if err != nil {
		// 1e3 and 5.0 are integers too in JSON.
		f, err := strconv.ParseFloat(string(code), 64)
		if n = int64(f); err != nil || float64(n) != f || f >= 1<<62 || f <= -1<<62 {
			return nil
		}
	}
	e.Code = n
	if data := Get(raw, "data"); data != nil && data[0] != 'n' {
		e.Data = data
	}
	return e
}

// syntax describes a decoder error without quoting the text.
func (p *parser) syntax(err error) *Error {
	var s *jsontext.SyntacticError
	offset := p.dec.InputOffset()
	if errors.As(err, &s) {
		offset = s.ByteOffset
	}
	at := " at byte " + strconv.FormatInt(offset, 10)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return NewError(CodeInvalidRequest, "a name stands twice in one object"+at)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return NewError(CodeParse, "the JSON text ends too early")
	case !utf8.Valid(p.data):
		return NewError(CodeParse, "the text is not UTF-8")
	}
	return NewError(CodeParse, "the text is not JSON"+at)
}

// bound checks the limits. Most messages have fewer brackets and colons than the
// limits, which is quick to count; only the others are walked.
func bound(data []byte, l canon.Limits) *Error {
	if l.Bytes <= 0 {
		l.Bytes = DefaultMaxBytes
	}
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	l.Depth = min(l.Depth, maxDepth)
	if int64(len(data)) > l.Bytes {
		return NewError(CodeInvalidRequest, fmt.Sprintf("the message has %d bytes, at most %d are allowed", len(data), l.Bytes))
	}
	if bytes.Count(data, []byte{'{'})+bytes.Count(data, []byte{'['}) <= l.Depth &&
		(l.Properties <= 0 || bytes.Count(data, []byte{':'}) <= l.Properties) &&
		(l.Elements <= 0 || bytes.Count(data, []byte{','}) < l.Elements) {
		return nil
	}
	depth, properties, elements := measure(data)
	switch {
	case depth > l.Depth:
		return NewError(CodeInvalidRequest, fmt.Sprintf("the message is nested deeper than %d levels", l.Depth))
	case l.Properties > 0 && properties > l.Properties:
		return NewError(CodeInvalidRequest, fmt.Sprintf("the message has more than %d properties", l.Properties))
	case l.Elements > 0 && elements > l.Elements:
		return NewError(CodeInvalidRequest, fmt.Sprintf("the message has more than %d array elements", l.Elements))
	}
	return nil
}

// measure walks a text that may not be JSON: its nesting depth, its properties in all
// objects and its elements in all arrays.
func measure(data []byte) (deepest, properties, elements int) {
	// One bit per level says whether it is an array; levels beyond the words count as
	// objects, and exceed every limit.
	var arrays [maxDepth/64 + 1]uint64
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = skipString(data, i) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
			if depth > maxDepth {
				return deepest, properties, elements
			}
			arrays[depth/64] &^= 1 << (depth % 64)
			if data[i] == '[' {
				arrays[depth/64] |= 1 << (depth % 64)
				if next := skipSpace(data, i+1); next < len(data) && data[next] != ']' {
					elements++
				}
			}
		case '}', ']':
			depth = max(depth-1, 0)
		case ':':
			properties++
		case ',':
			if arrays[depth/64]&(1<<(depth%64)) != 0 {
				elements++
			}
		}
	}
	return deepest, properties, elements
}

// methodName unquotes raw, without a copy for known MCP methods.
func methodName(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if known, ok := knownMethods[string(inner)]; ok {
		return known
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	plain, _ := jsontext.AppendUnquote(nil, raw)
	return string(plain)
}
