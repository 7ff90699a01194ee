package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

// Header names in net/http's spelling.
const (
	HeaderSession     = "Mcp-Session-Id"
	HeaderVersion     = "Mcp-Protocol-Version"
	HeaderLastEventID = "Last-Event-Id"
	HeaderMethod      = "Mcp-Method" // 2026-07-28: the body's method
	HeaderName        = "Mcp-Name"   // 2026-07-28: the tool, prompt, resource or task named in the body
	HeaderParamPrefix = "Mcp-Param-" // 2026-07-28: arguments marked with x-mcp-header in a tool's schema
)

const (
	base64Prefix = "=?base64?"
	base64Suffix = "?="

	// maxSafe is the largest integer that a double represents unambiguously.
	maxSafe = 1<<53 - 1
	// maxParams bounds the x-mcp-header marks of one schema.
	maxParams = 64
	// maxSchemaDepth bounds how deep a schema is searched for marks.
	maxSchemaDepth = 50
)

// EncodeHeader encodes text as a header value (2026-07-28): printable ASCII without
// surrounding space as it is, anything else in base64 as =?base64?…?=.
func EncodeHeader(v string) string {
	if !needsBase64(v) {
		return v
	}
	return base64Prefix + base64.StdEncoding.EncodeToString([]byte(v)) + base64Suffix
}

func needsBase64(v string) bool {
	if v == "" {
		return false
	}
	if v[0] == ' ' || v[len(v)-1] == ' ' {
		return true
	}
	for i := 0; i < len(v); i++ {
		if v[i] < 0x20 || v[i] > 0x7e {
			return true
		}
	}
	return strings.HasPrefix(v, base64Prefix) && strings.HasSuffix(v, base64Suffix)
}

// DecodeHeader reverses EncodeHeader. It fails on invalid base64.
func DecodeHeader(v string) (string, error) {
	inner, ok := strings.CutPrefix(v, base64Prefix)
	if !ok {
		return v, nil
	}
	if inner, ok = strings.CutSuffix(inner, base64Suffix); !ok {
		return v, nil
	}
	plain, err := base64.StdEncoding.DecodeString(inner)
	if err != nil {
		return "", errors.New("the value between =?base64? and ?= is not base64")
	}
	return string(plain), nil
}

// Name returns the message's value of the header Mcp-Name: params.name of tools/call
// and prompts/get, params.uri of resources/read, params.taskId of tasks/get,
// tasks/update and tasks/cancel. ok is false for other methods and if the member is
// missing or not a string.
func (m *Message) Name() (name string, ok bool) {
	var member string
	switch m.Method {
	case MethodCallTool, MethodGetPrompt:
		member = "name"
	case MethodReadResource:
		member = "uri"
	case MethodGetTask, MethodUpdateTask, MethodCancelTask:
		member = "taskId"
	default:
		return "", false
	}
	return Unquote(Get(m.Params, member))
}

// Version returns the revision in the message's _meta, as in requests of 2026-07-28, or
// "".
func (m *Message) Version() string { return Text(m.Params, "_meta", MetaProtocolVersion) }

// HeaderParam is one argument of a tool that is also sent as a header.
type HeaderParam struct {
	Path   []string // argument names, from the outermost object inwards
	Header string   // without the prefix Mcp-Param-
}

// HeaderParams finds the properties that a tool's inputSchema marks with x-mcp-header,
// also in nested objects. The error names the invalid mark: a name that is not an HTTP
// token or is a duplicate, or a property that is not a string, an integer or a boolean.
// A client must not offer such a tool.
func HeaderParams(inputSchema []byte) ([]HeaderParam, error) {
	s := paramScan{seen: make(map[string]bool)}
	if err := s.properties(inputSchema, nil); err != nil {
		return nil, err
	}
	return s.out, nil
}

type paramScan struct {
	out  []HeaderParam
	seen map[string]bool
}

func (s *paramScan) properties(schema []byte, path []string) error {
	if len(path) > maxSchemaDepth {
		return nil
	}
	for name, property := range Members(Get(schema, "properties")) {
		if !IsObject(property) {
			continue
		}
		here := append(path[:len(path):len(path)], name)
		if mark := Get(property, "x-mcp-header"); mark != nil {
			if err := s.mark(here, mark, Text(property, "type")); err != nil {
				return err
			}
		}
		if err := s.properties(property, here); err != nil {
			return err
		}
	}
	return nil
}

func (s *paramScan) mark(path []string, mark []byte, kind string) error {
	at := fmt.Sprintf("x-mcp-header of the property %q", strings.Join(path, "."))
	header, ok := Unquote(mark)
	lower := strings.ToLower(header)
	switch {
	case !ok || !egress.IsToken(header):
		return errors.New(at + " must be the name of an HTTP header")
	case kind != "string" && kind != "integer" && kind != "boolean":
		return errors.New(at + " stands on a type other than string, integer and boolean")
	case s.seen[lower]:
		return errors.New(at + " is the name of another property's header too")
	case len(s.out) >= maxParams:
		return fmt.Errorf("the schema has more than %d x-mcp-header marks", maxParams)
	}
	s.seen[lower] = true
	s.out = append(s.out, HeaderParam{Path: path, Header: header})
	return nil
}

// Value returns the header's value for a call's arguments, not encoded. there is false
// if the argument is absent or null. fits is false if a header cannot hold its value:
// an object, an array, or a number that is not an integer within ±(2^53-1).
func (p HeaderParam) Value(arguments []byte) (value string, there, fits bool) {
	raw := Get(arguments, p.Path...)
	if raw == nil || raw[0] == 'n' {
		return "", false, true
	}
	switch raw[0] {
	case '"':
		value, _ = Unquote(raw)
		return value, true, true
	case 't', 'f':
		return string(raw), true, true
	}
	n, ok := integer(string(raw))
	return strconv.FormatInt(n, 10), true, ok
}

// integer parses a number with an integer value, such as 5, 5.0 or 5e0.
func integer(s string) (int64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !canon.IsNumber(s) || f != float64(int64(f)) || f > maxSafe || f < -maxSafe {
		return 0, false
	}
	return int64(f), true
}

// SetHeaders sets the headers that revision 2026-07-28 requires: Mcp-Method and
// Mcp-Name on requests and notifications, and for tools/call one Mcp-Param- header per
// entry of params. It does nothing for responses.
func SetHeaders(h http.Header, m *Message, params []HeaderParam) {
	if m.Method == "" {
		return
	}
	h.Set(HeaderMethod, EncodeHeader(m.Method))
	if name, ok := m.Name(); ok {
		h.Set(HeaderName, EncodeHeader(name))
	}
	if m.Method != MethodCallTool || len(params) == 0 {
		return
	}
	arguments := Get(m.Params, "arguments")
	for _, p := range params {
		if v, there, fits := p.Value(arguments); there && fits {
			h.Set(HeaderParamPrefix+p.Header, EncodeHeader(v))
		}
	}
}

// CheckHeaders is the server's side of SetHeaders. It returns nil, or an *Error with
// CodeHeaderMismatch that names the header that differs from the body. Responses have
// no such headers.
func CheckHeaders(h http.Header, m *Message, params []HeaderParam) *Error {
	if m.Method == "" {
		return nil
	}
	if e := checkHeader(h, HeaderMethod, m.Method); e != nil {
		return e
	}
	if name, ok := m.Name(); ok {
		if e := checkHeader(h, HeaderName, name); e != nil {
			return e
		}
	}
	if m.Method != MethodCallTool || len(params) == 0 {
		return nil
	}
	arguments := Get(m.Params, "arguments")
	for _, p := range params {
		if e := p.check(h, arguments); e != nil {
			return e
		}
	}
	return nil
}

func (p HeaderParam) check(h http.Header, arguments []byte) *Error {
	header := HeaderParamPrefix + p.Header
	want, there, fits := p.Value(arguments)
	switch got := h.Values(header); {
	case !there && len(got) == 0:
		return nil
	case !there:
		return mismatch("the header " + header + " stands for an argument that is absent or null; leave it out")
	case !fits:
		return mismatch("the argument of the header " + header + " is neither a string, a boolean nor an integer within ±(2^53-1)")
	case len(got) == 0 && want == "":
		return nil // intermediaries may drop an empty value
	case len(got) == 1 && Get(arguments, p.Path...)[0] != '"':
		// 5 and 5.0 are the same number.
		a, okA := integer(got[0])
		b, okB := integer(want)
		if okA && okB && a == b {
			return nil
		}
	}
	return checkHeader(h, header, want)
}

func checkHeader(h http.Header, name, want string) *Error {
	values := h.Values(name)
	if len(values) == 0 {
		return mismatch("the header " + name + " is missing")
	}
	if len(values) > 1 {
		return mismatch("the header " + name + " stands more than once")
	}
	got, err := DecodeHeader(values[0])
	if err != nil {
		return mismatch("the header " + name + ": " + err.Error())
	}
	// Some clients send non-ASCII text raw instead of in base64.
	if got != want && values[0] != want {
		return mismatch("the header " + name + " does not say what the body says")
	}
	return nil
}

func mismatch(text string) *Error { return NewError(CodeHeaderMismatch, "header mismatch: "+text) }
