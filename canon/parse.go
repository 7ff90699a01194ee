package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
)

// Limits limits what Parse accepts. A zero or negative field means its default.
type Limits struct {
	Bytes      int64 // length of the text in bytes; default 1 MiB
	Depth      int   // nesting of arrays and objects together; default 50, at most 10,000
	Properties int   // properties in all objects of the document together; default 1000
	Elements   int   // elements in all arrays of the document together; default 100,000
}

const (
	defaultBytes      = 1 << 20
	defaultDepth      = 50
	defaultProperties = 1000
	defaultElements   = 100_000
	maxDepth          = 10_000 // jsontext's own limit

	maxNumberText = 1100 // a double written in full needs up to 1,077 digits
	maxExponent   = 9999
)

func (l Limits) filled() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Depth <= 0 {
		l.Depth = defaultDepth
	}
	l.Depth = min(l.Depth, maxDepth)
	if l.Properties <= 0 {
		l.Properties = defaultProperties
	}
	if l.Elements <= 0 {
		l.Elements = defaultElements
	}
	return l
}

// ErrNumber is the cause of an E3330 for a number that is too long or too large.
var ErrNumber = errors.New("a number is out of bounds")

// Parse parses one JSON value (RFC 8259), optionally surrounded by whitespace.
//
// The error is a *toolkeep.Error with details "pointer" (JSON Pointer to the place) and "offset" (in bytes from the
// start):
//   - E3311: not UTF-8, a NUL character (raw or as \u0000), half of a surrogate
//     pair, a name twice in one object, nesting over the limit
//   - E3312: not JSON, or text after the value
//   - E3330: over the limit of bytes, properties or elements, or a number of
//     more than 1100 characters or with an exponent beyond ±9999, which would
//     cost far more to compute with than its text suggests
//
// The strings of the tree may share memory with one copy of data, never with data itself.
func Parse(data []byte, l Limits) (any, error) {
	l = l.filled()
	if int64(len(data)) > l.Bytes {
		return nil, toolkeep.NewError(toolkeep.RequestTooLarge,
			"the JSON text has %d bytes, at most %d are allowed", len(data), l.Bytes).
			With("pointer", "").With("offset", l.Bytes)
	}
	p := parsers.Get().(*parser)
	p.reset(data, l)
	v, err := p.document()
	p.release()
	if err != nil {
		return nil, err
	}
	return v, nil
}

// ParseObject is Parse for a value that must be an object. Data of length 0 is
// the empty object; any other JSON value is E3312.
func ParseObject(data []byte, l Limits) (map[string]any, error) {
	if len(data) == 0 {
		return map[string]any{}, nil
	}
	v, err := Parse(data, l)
	if err != nil {
		return nil, err
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest,
			"the JSON value is %s and must be an object", kindOf(v)).With("pointer", "").With("offset", 0)
	}
	return obj, nil
}

// parser is the state of one Parse. It is pooled, because making the decoder's tables costs more than reading a
// small document.
type parser struct {
	dec        jsontext.Decoder
	buf        *bytes.Buffer
	data       []byte
	text       string // copy of data that the tree's strings point into
	limits     Limits
	properties int
	elements   int
	depth      int
	nul        bool // data contains an escaped NUL
	loose      bool // of two equal names the last counts
	doubled    bool // that happened
	scratch    []byte
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

func (p *parser) reset(data []byte, l Limits) {
	p.buf = bytes.NewBuffer(data)
	// Duplicate names are found in the map that is built anyway, which is cheaper than the decoder's own check.
	p.dec.Reset(p.buf, jsontext.AllowDuplicateNames(true))
	p.data, p.text, p.limits = data, string(data), l
	p.properties, p.elements, p.depth = 0, 0, 0
	p.loose, p.doubled = false, false
	p.nul = bytes.Contains(data, []byte(`\u0000`))
}

// release drops the caller's bytes before the parser returns to the pool.
func (p *parser) release() {
	p.buf, p.data, p.text = nil, nil, ""
	p.dec.Reset(strings.NewReader(""))
	parsers.Put(p)
}

func (p *parser) document() (any, error) {
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.ReadToken(); err != io.EOF {
		if bytes.IndexByte(p.data[p.dec.InputOffset():], 0) >= 0 {
			return nil, p.syntax(err)
		}
		return nil, p.fail(toolkeep.MalformedRequest, "there is text after the JSON value; send one value only")
	}
	return v, nil
}

func (p *parser) value() (any, error) {
	switch p.dec.PeekKind() {
	case '{':
		return p.object()
	case '[':
		return p.array()
	}
	raw, err := p.dec.ReadValue()
	if err != nil {
		return nil, p.syntax(err)
	}
	switch raw[0] {
	case 'n':
		return nil, nil
	case 't':
		return true, nil
	case 'f':
		return false, nil
	case '"':
		return p.string(raw)
	}
	end := int(p.dec.InputOffset())
	n := json.Number(p.text[end-len(raw) : end])
	if !Bounded(n) {
		return nil, p.fail(toolkeep.RequestTooLarge,
			"a number has more than %d characters or an exponent beyond ±%d", maxNumberText, maxExponent).Because(ErrNumber)
	}
	return n, nil
}

// string returns the value of the string last read, which is raw in its quotes.
func (p *parser) string(raw []byte) (string, error) {
	end := int(p.dec.InputOffset())
	inner := p.text[end-len(raw)+1 : end-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	// ReadValue checked the text, so unquoting cannot fail.
	p.scratch, _ = jsontext.AppendUnquote(p.scratch[:0], raw)
	if p.nul && bytes.IndexByte(p.scratch, 0) >= 0 {
		return "", p.fail(toolkeep.InvalidEncoding, "a string holds a NUL character; leave it out")
	}
	return string(p.scratch), nil
}

func (p *parser) object() (any, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	obj := make(map[string]any)
	for p.dec.PeekKind() != '}' {
		raw, err := p.dec.ReadValue()
		if err != nil {
			return nil, p.syntax(err)
		}
		name, err := p.string(raw)
		if err != nil {
			return nil, err
		}
		if p.properties++; p.properties > p.limits.Properties {
			return nil, p.fail(toolkeep.RequestTooLarge,
				"the document has more than %d properties", p.limits.Properties)
		}
		before := len(obj)
		obj[name] = nil
		if len(obj) == before && p.loose {
			p.doubled = true
		} else if len(obj) == before {
			return nil, p.fail(toolkeep.InvalidEncoding, "a name stands twice in one object; keep one of them")
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		if v != nil {
			obj[name] = v
		}
	}
	return obj, p.leave()
}

func (p *parser) array() (any, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	list := []any{}
	for p.dec.PeekKind() != ']' {
		if p.elements++; p.elements > p.limits.Elements {
			return nil, p.fail(toolkeep.RequestTooLarge,
				"the document has more than %d array elements", p.limits.Elements)
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, p.leave()
}

func (p *parser) enter() error {
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	if p.depth++; p.depth > p.limits.Depth {
		return p.fail(toolkeep.InvalidEncoding,
			"arrays and objects are nested deeper than %d levels", p.limits.Depth)
	}
	return nil
}

func (p *parser) leave() error {
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	p.depth--
	return nil
}

// fail makes an error at the place last read.
func (p *parser) fail(code toolkeep.Code, format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(code, format, args...).
		With("pointer", string(p.dec.StackPointer())).
		With("offset", p.dec.InputOffset())
}

// syntax converts the decoder's error and separates encoding faults from grammar faults.
func (p *parser) syntax(err error) error {
	pointer, offset := string(p.dec.StackPointer()), p.dec.InputOffset()
	var s *jsontext.SyntacticError
	if errors.As(err, &s) {
		pointer, offset = string(s.JSONPointer), s.ByteOffset
	}
	e := toolkeep.NewError(toolkeep.MalformedRequest, "the text is not JSON at byte %d", offset)
	rest := p.data[min(int(offset), len(p.data)):]
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		offset = int64(len(p.data))
		e = toolkeep.NewError(toolkeep.MalformedRequest, "the JSON text ends too early")
		if len(p.data) == 0 {
			e.Message = "there is no JSON value"
		}
	case !utf8.Valid(p.data):
		offset = firstInvalid(p.data)
		e = toolkeep.NewError(toolkeep.InvalidEncoding, "the text is not UTF-8 at byte %d", offset)
	case len(rest) > 0 && rest[0] == 0:
		e = toolkeep.NewError(toolkeep.InvalidEncoding, "there is a NUL byte at byte %d", offset)
	case LoneSurrogate(rest):
		e = toolkeep.NewError(toolkeep.InvalidEncoding,
			"the escape at byte %d is half of a surrogate pair and no character", offset)
	case errors.Is(err, jsontext.ErrNonStringName):
		e = toolkeep.NewError(toolkeep.MalformedRequest, "the name of a property must be a string, at byte %d", offset)
	}
	return e.With("pointer", pointer).With("offset", offset).Because(err)
}

func firstInvalid(data []byte) int64 {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return int64(i)
		}
		i += n
	}
	return int64(len(data))
}

// LoneSurrogate reports whether b starts with the escape of a surrogate. The decoder stops only at unpaired ones.
func LoneSurrogate(b []byte) bool {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' || b[2]|0x20 != 'd' || !isHex(b[4]) || !isHex(b[5]) {
		return false
	}
	return strings.IndexByte("89abcdefABCDEF", b[3]) >= 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "a number"
}
