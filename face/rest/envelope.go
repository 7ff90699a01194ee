package rest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/suggest"
)

// maxSeconds bounds timeouts and lifetimes that a caller may ask for: a week.
const maxSeconds = 7 * 24 * 3600

// decoders hold the state of one pass over a body, nothing of the body itself.
var decoders = sync.Pool{New: func() any { return new(pooledDecoder) }}

type pooledDecoder struct {
	jsontext.Decoder
	src bytes.Buffer
}

func (d *pooledDecoder) read(body []byte) {
	d.src = *bytes.NewBuffer(body)
	// Names are checked by hand where they mean something to the envelope; those
	// inside of parameters are checked where parameters are parsed.
	d.Reset(&d.src, jsontext.AllowDuplicateNames(true))
}

// envelope reads BC-2's ToolInvokeRequest, with BC-6's names beside it, into a
// Call. The first thing found wrong stays as the call's Fault and reading goes
// on, so that the record of the refused call says what was asked for.
type envelope struct {
	call   *toolkeep.Call
	dryRun bool

	gate *gate.Gate
	dec  *jsontext.Decoder
	body []byte
	// Which field set a value, to name both of a contradiction.
	keyFrom, subjectFrom, timeoutFrom, planFrom, taskFrom string
}

// The fields of each object, for the message about an unknown one and for the
// test against the document.
var (
	envelopeFields = []string{"tool_id", "tool_version", "invocation_id", "agent_context", "parameters", "resource_limits",
		"document_context", "checkpoint_config", "execution_options", "dry_run", "agent_id", "request_id", "skip_cache",
		"cache_override_ttl", "timeout_seconds", "plan_id", "task_id", "context", "parent_invocation_id", "capability_token"}
	agentFields      = []string{"agent_did", "tenant_id", "user_did", "session_id"}
	limitFields      = []string{"cpu_millicore_limit", "memory_mb_limit", "timeout_seconds", "network_bandwidth_mbps"}
	documentFields   = []string{"document_refs", "version_pinning", "query"}
	checkpointFields = []string{"enable_checkpointing", "checkpoint_interval_seconds", "resume_from_checkpoint_id"}
	optionFields     = []string{"async_mode", "priority", "idempotency_key", "require_approval"}
	contextFields    = []string{"plan_id", "task_id", "env"}
)

// decodeCall reads the body into a call that has what the headers say. What is
// wrong is the call's Fault.
func (a *API) decodeCall(body []byte, c *toolkeep.Call) (dryRun bool) {
	e := envelope{call: c, gate: a.gate, body: body}
	if c.Key != "" {
		e.keyFrom = "the header Idempotency-Key"
	}
	if !utf8.Valid(body) {
		e.fault(toolkeep.NewError(toolkeep.InvalidEncoding, "the body is not valid UTF-8"))
		return false
	}
	d := decoders.Get().(*pooledDecoder)
	d.read(body)
	e.dec = &d.Decoder
	e.document()
	d.read(nil)
	decoders.Put(d)
	return e.dryRun
}

func (e *envelope) fault(err *toolkeep.Error) {
	if e.call.Fault == nil {
		e.call.Fault = err
	}
}

func (e *envelope) malformed(format string, args ...any) {
	e.fault(toolkeep.NewError(toolkeep.MalformedRequest, format, args...))
}

func first(h http.Header, key string) string {
	if vs := h[key]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}

func (e *envelope) document() {
	if e.dec.PeekKind() != '{' {
		if _, err := e.dec.ReadValue(); err != nil {
			e.syntax(err)
			return
		}
		e.malformed("the body must be a JSON object with tool_id and parameters")
		return
	}
	if !e.object("", envelopeFields, e.member) {
		return
	}
	if _, err := e.dec.ReadToken(); err != io.EOF {
		e.malformed("something stands after the JSON object of the body")
	}
	if e.call.Tool == "" {
		e.malformed("tool_id is missing: send namespace.name")
	}
}

// object reads an object's members. It returns false if the text is broken and
// nothing more can be read. null counts as an object without members.
func (e *envelope) object(path string, fields []string, member func(i int, name string) bool) bool {
	switch e.dec.PeekKind() {
	case 'n':
		return e.skip()
	case '{':
	default:
		e.malformed("%s must be an object", path)
		return e.skip()
	}
	if _, err := e.dec.ReadToken(); err != nil {
		return e.syntax(err)
	}
	seen := 0
	for e.dec.PeekKind() == '"' {
		raw, err := e.dec.ReadValue()
		if err != nil {
			return e.syntax(err)
		}
		i := fieldIndex(fields, raw)
		switch {
		case i < 0:
			e.unknown(path, fields, raw)
			if !e.skip() {
				return false
			}
			continue
		case seen&(1<<i) != 0:
			e.fault(toolkeep.NewError(toolkeep.InvalidEncoding, "%s stands twice in the body", join(path, fields[i])))
			if !e.skip() {
				return false
			}
			continue
		}
		seen |= 1 << i
		if !member(i, join(path, fields[i])) {
			return false
		}
	}
	if _, err := e.dec.ReadToken(); err != nil {
		return e.syntax(err)
	}
	return true
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fieldIndex finds a quoted name; -1 if it is none of the fields.
func fieldIndex(fields []string, raw []byte) int {
	name := raw[1 : len(raw)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name, _ = jsontext.AppendUnquote(nil, raw)
	}
	for i, f := range fields {
		if f == string(name) {
			return i
		}
	}
	return -1
}

func (e *envelope) unknown(path string, fields []string, raw []byte) {
	name, _ := jsontext.AppendUnquote(nil, raw)
	sent := toolkeep.ClipBytes(string(name), 100)
	near := suggest.Nearest(sent, fields)
	err := toolkeep.NewError(toolkeep.MalformedRequest, "the field %s is not known; the nearest known one is %s",
		join(path, sent), join(path, near)).With("field", join(path, sent)).With("nearest", join(path, near))
	e.fault(err)
}

func (e *envelope) syntax(err error) bool {
	var syn *jsontext.SyntacticError
	where := ""
	if errors.As(err, &syn) {
		where = " at byte " + strconv.FormatInt(syn.ByteOffset, 10)
		if canon.LoneSurrogate(e.body[min(int(syn.ByteOffset), len(e.body)):]) {
			e.fault(toolkeep.NewError(toolkeep.InvalidEncoding, "the body has an escape that is no valid character%s", where))
			return false
		}
	}
	e.malformed("the body is not JSON%s", where)
	return false
}

func (e *envelope) skip() bool {
	if err := e.dec.SkipValue(); err != nil {
		return e.syntax(err)
	}
	return true
}

// member reads one field of the envelope.
func (e *envelope) member(_ int, name string) bool {
	c := e.call
	switch name {
	case "tool_id":
		return e.str(name, func(v string) { c.Tool = v })
	case "tool_version":
		return e.str(name, func(v string) { c.Range = v })
	case "invocation_id":
		return e.str(name, func(v string) { c.ID = v })
	case "parent_invocation_id":
		return e.str(name, func(v string) { c.Parent = v })
	case "agent_id":
		return e.str(name, func(v string) { e.subject(v, name) })
	case "request_id":
		return e.str(name, func(v string) { e.key(v, name) })
	case "plan_id":
		return e.str(name, func(v string) { e.same(&c.Plan, &e.planFrom, v, name) })
	case "task_id":
		return e.str(name, func(v string) { e.same(&c.Task, &e.taskFrom, v, name) })
	case "capability_token":
		return e.str(name, func(string) { e.fault(e.gate.Token()) })
	case "dry_run":
		return e.boolean(name, func(v bool) { e.dryRun = v })
	case "skip_cache":
		return e.boolean(name, func(v bool) { c.SkipCache = v })
	case "cache_override_ttl":
		return e.seconds(name, func(d time.Duration) { c.CacheTTL = d })
	case "timeout_seconds":
		return e.seconds(name, func(d time.Duration) { e.timeout(d, name) })
	case "parameters":
		return e.parameters()
	case "agent_context":
		return e.object(name, agentFields, e.agent)
	case "resource_limits":
		return e.object(name, limitFields, e.limit)
	case "document_context":
		return e.object(name, documentFields, e.documents)
	case "checkpoint_config":
		return e.object(name, checkpointFields, e.checkpoint)
	case "execution_options":
		return e.object(name, optionFields, e.option)
	default: // context
		return e.object(name, contextFields, e.context)
	}
}

func (e *envelope) parameters() bool {
	kind := e.dec.PeekKind()
	if kind != '{' && kind != 'n' && kind != 0 {
		e.malformed("parameters must be an object")
		return e.skip()
	}
	raw, err := e.dec.ReadValue()
	if err != nil {
		return e.syntax(err)
	}
	if kind == '{' {
		// The decoder reads from the body itself, so the bytes stay.
		end := int(e.dec.InputOffset())
		e.call.Arguments = e.body[end-len(raw) : end : end]
	}
	return true
}

func (e *envelope) agent(i int, name string) bool {
	c := e.call
	switch agentFields[i] {
	case "agent_did":
		return e.str(name, func(v string) { e.subject(v, name) })
	case "tenant_id":
		return e.str(name, func(v string) { c.Tenant = v })
	case "user_did":
		return e.str(name, func(v string) { e.text(&c.User, v, name) })
	default:
		return e.str(name, func(v string) { e.text(&c.Session, v, name) })
	}
}

func (e *envelope) limit(i int, name string) bool {
	if limitFields[i] == "timeout_seconds" {
		return e.seconds(name, func(d time.Duration) { e.timeout(d, name) })
	}
	return e.only(name, "sandbox limits", "null")
}

func (e *envelope) documents(_ int, name string) bool {
	return e.only(name, "document context", "null", "[]", "false", `""`)
}

func (e *envelope) checkpoint(i int, name string) bool {
	switch checkpointFields[i] {
	case "enable_checkpointing":
		return e.only(name, "checkpoints", "null", "true", "false")
	case "checkpoint_interval_seconds":
		return e.only(name, "checkpoints", "null", "30")
	default:
		return e.only(name, "checkpoints", "null")
	}
}

func (e *envelope) option(i int, name string) bool {
	c := e.call
	switch optionFields[i] {
	case "async_mode":
		return e.boolean(name, func(v bool) { c.Async = v })
	case "require_approval":
		return e.boolean(name, func(v bool) { c.RequireApproval = v })
	case "idempotency_key":
		return e.str(name, func(v string) { e.key(v, name) })
	default:
		return e.str(name, func(v string) {
			switch p := toolkeep.Priority(v); p {
			case toolkeep.Low, toolkeep.Normal, toolkeep.High:
				c.Priority = p
			default:
				e.malformed("%s must be low, normal or high", name)
			}
		})
	}
}

func (e *envelope) context(i int, name string) bool {
	switch contextFields[i] {
	case "plan_id":
		return e.str(name, func(v string) { e.same(&e.call.Plan, &e.planFrom, v, name) })
	case "task_id":
		return e.str(name, func(v string) { e.same(&e.call.Task, &e.taskFrom, v, name) })
	default:
		return e.only(name, "an environment for the tool", "null", "{}")
	}
}

// only accepts the values that ask for nothing; a wish that this build cannot
// fulfil is refused and not passed over.
func (e *envelope) only(name, what string, allowed ...string) bool {
	raw, err := e.dec.ReadValue()
	if err != nil {
		return e.syntax(err)
	}
	text := string(raw)
	if len(raw) > 1 && (raw[0] == '{' || raw[0] == '[') {
		text = strings.Map(func(r rune) rune {
			if strings.ContainsRune(" \t\r\n", r) {
				return -1
			}
			return r
		}, text)
	}
	for _, a := range allowed {
		if text == a {
			return true
		}
	}
	e.fault(toolkeep.NewError(toolkeep.MalformedRequest, "%s is not in this build: leave %s out", what, name).With("field", name))
	return true
}

// str reads a string; null counts as absent.
func (e *envelope) str(name string, set func(string)) bool {
	switch e.dec.PeekKind() {
	case 'n':
		return e.skip()
	case '"':
	default:
		e.malformed("%s must be a string", name)
		return e.skip()
	}
	tok, err := e.dec.ReadToken()
	if err != nil {
		return e.syntax(err)
	}
	// The pipeline checks length and characters.
	if v := tok.String(); v != "" {
		set(v)
	}
	return true
}

func (e *envelope) boolean(name string, set func(bool)) bool {
	switch e.dec.PeekKind() {
	case 'n':
		return e.skip()
	case 't', 'f':
	default:
		e.malformed("%s must be true or false", name)
		return e.skip()
	}
	tok, err := e.dec.ReadToken()
	if err != nil {
		return e.syntax(err)
	}
	set(tok.Bool())
	return true
}

func (e *envelope) seconds(name string, set func(time.Duration)) bool {
	if e.dec.PeekKind() == 'n' {
		return e.skip()
	}
	raw, err := e.dec.ReadValue()
	if err != nil {
		return e.syntax(err)
	}
	s, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || s < 0.001 || s > maxSeconds {
		e.malformed("%s must be a number of seconds above 0 and at most %d", name, maxSeconds)
		return true
	}
	set(time.Duration(s * float64(time.Second)))
	return true
}

// text sets a value that a header may have set before.
func (e *envelope) text(to *string, v, name string) {
	if *to != "" && *to != v {
		e.malformed("%s and the header for it have different values", name)
		return
	}
	*to = v
}

// same sets a value that another field may have set before.
func (e *envelope) same(to, from *string, v, name string) {
	if *from != "" && *to != v {
		e.malformed("%s and %s have different values", *from, name)
		return
	}
	*to, *from = v, name
}

func (e *envelope) subject(v, name string) { e.same(&e.call.Subject, &e.subjectFrom, v, name) }

// key sets the idempotency key, which has three names; wire.md gives their
// contradiction a code of its own.
func (e *envelope) key(v, name string) {
	if e.keyFrom != "" && e.call.Key != v {
		e.fault(toolkeep.NewError(toolkeep.InvalidParameters, "%s and %s are one thing and have different values", e.keyFrom, name))
		return
	}
	e.call.Key, e.keyFrom = v, name
}

func (e *envelope) timeout(d time.Duration, name string) {
	if e.timeoutFrom != "" && e.call.Timeout != d {
		e.malformed("%s and %s have different values", e.timeoutFrom, name)
		return
	}
	e.call.Timeout, e.timeoutFrom = d, name
}
