package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep/canon"
)

// Names of headers, in the spelling of net/http.
const (
	HeaderSession     = "Mcp-Session-Id"
	HeaderVersion     = "Mcp-Protocol-Version"
	HeaderLastEventID = "Last-Event-Id"
	HeaderMethod      = "Mcp-Method" // 2026-07-28: the body's method
	HeaderName        = "Mcp-Name"   // 2026-07-28: the tool, prompt, resource or task that the body names
	HeaderParamPrefix = "Mcp-Param-" // 2026-07-28: arguments that a tool's schema marks with x-mcp-header
)

const (
	base64Prefix = "=?base64?"
	base64Suffix = "?="

	// maxSafe is the largest integer that an IEEE double tells from its neighbours.
	maxSafe = 1<<53 - 1
	// maxParams is how many x-mcp-header marks one schema may have.
	maxParams = 64
	// maxSchemaDepth is how deep in a schema marks are looked for.
	maxSchemaDepth = 50
)

// EncodeHeader makes any text a header value (2026-07-28): as it is where it is
// printable ASCII without space at its ends, else in base64 as =?base64?…?=.
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

// DecodeHeader is the way back. The error says that the base64 is broken.
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

// Name is what the header Mcp-Name says of the message: params.name of tools/call
// and prompts/get, params.uri of resources/read, params.taskId of tasks/get,
// tasks/update and tasks/cancel. ok is false for other methods and where the
// member is missing or no string.
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

// Version is the revision that the message says of itself in its _meta, as
// requests of 2026-07-28 do; "" where it does not.
func (m *Message) Version() string { return Text(m.Params, "_meta", MetaProtocolVersion) }

// HeaderParam is one argument of a tool that rides as a header as well.
type HeaderParam struct {
	Path   []string // names of the argument, from the outermost object inwards
	Header string   // without Mcp-Param-
}

// HeaderParams finds the properties that a tool's inputSchema marks with
// x-mcp-header, also those of inner objects. The error says which mark breaks the
// rules: a name that is no HTTP token or stands twice, a property that is not a
// string, an integer or a boolean. A client does not offer such a tool.
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
	case !ok || !isToken(header):
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

func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// Value is what the header says of a call's arguments, not encoded. there is
// false where the argument is absent or null, fits where it has a value that no
// header can hold: an object, an array, a number that is no integer within
// ±(2^53-1).
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

// integer reads a number that is an integer by value, such as 5, 5.0 and 5e0.
func integer(s string) (int64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !canon.IsNumber(s) || f != float64(int64(f)) || f > maxSafe || f < -maxSafe {
		return 0, false
	}
	return int64(f), true
}

// SetHeaders sets the headers that revision 2026-07-28 wants beside the message:
// Mcp-Method and Mcp-Name on requests and notifications, and for tools/call one
// Mcp-Param- header an entry of params. It does nothing for answers.
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

// CheckHeaders is the server's side of SetHeaders: nil, or an *Error of
// CodeHeaderMismatch that says which header does not say what the body says.
// Answers have no headers to check.
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
		return nil // an empty value may get lost on the way
	case len(got) == 1 && Get(arguments, p.Path...)[0] != '"':
		// 5 and 5.0 are one number.
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
	// Some clients send text beyond ASCII as it is, where base64 is due.
	if got != want && values[0] != want {
		return mismatch("the header " + name + " does not say what the body says")
	}
	return nil
}

func mismatch(text string) *Error { return NewError(CodeHeaderMismatch, "header mismatch: "+text) }
