package rest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
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

// maxSeconds bounds timeouts that a caller may ask for: a week.
const maxSeconds = 7 * 24 * 3600

// decoders hold the state of one pass over a body, nothing of the body itself.
var decoders = sync.Pool{New: func() any { return new(pooledDecoder) }}

type pooledDecoder struct {
	jsontext.Decoder
	src bytes.Buffer
	envelope
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

	dec  *jsontext.Decoder
	body []byte
	// Which field set a value, to name both of a contradiction.
	setters     [20]setter // as many as there are text fields and headers
	set         int
	timeoutFrom string
}

type setter struct {
	to   *string
	name string
}

// A field of the envelope is read by its reader.
type field struct {
	name string
	read reader
}

// reader reads the value of the field of this name. False: the text is broken, and
// nothing more can be read.
type reader func(e *envelope, name string) bool

// The fields of each object.
var (
	envelopeFields = []field{
		{"tool_id", readText(func(c *toolkeep.Call) *string { return &c.Tool })},
		{"tool_version", readText(func(c *toolkeep.Call) *string { return &c.Range })},
		{"invocation_id", readText(func(c *toolkeep.Call) *string { return &c.ID })},
		{"agent_context", readObject(agentFields)},
		{"parameters", (*envelope).parameters},
		{"resource_limits", readObject(limitFields)},
		{"document_context", readObject(documentFields)},
		{"checkpoint_config", readObject(checkpointFields)},
		{"execution_options", readObject(optionFields)},
		{"dry_run", readTruth(func(e *envelope) *bool { return &e.dryRun })},
		{"agent_id", readText(subject)},
		{"request_id", readText(key)},
		{"skip_cache", readTruth(func(e *envelope) *bool { return &e.call.SkipCache })},
		{"cache_override_ttl", readSeconds(float64(toolkeep.MaxCacheTTL/time.Second), "which is the tool's own lifetime", (*envelope).cacheTTL)},
		{"timeout_seconds", readSeconds(maxSeconds, "", (*envelope).timeout)},
		{"plan_id", readText(plan)},
		{"task_id", readText(task)},
		{"context", readObject(contextFields)},
		{"parent_invocation_id", readText(func(c *toolkeep.Call) *string { return &c.Parent })},
		{"capability_token", (*envelope).token},
	}
	agentFields = []field{
		{"agent_did", readText(subject)},
		{"tenant_id", readText(func(c *toolkeep.Call) *string { return &c.Tenant })},
		{"user_did", readText(func(c *toolkeep.Call) *string { return &c.User })},
		{"session_id", readText(func(c *toolkeep.Call) *string { return &c.Session })},
	}
	limitFields = []field{
		{"cpu_millicore_limit", readOnly("sandbox limits", "null")},
		{"memory_mb_limit", readOnly("sandbox limits", "null")},
		{"timeout_seconds", readSeconds(maxSeconds, "", (*envelope).timeout)},
		{"network_bandwidth_mbps", readOnly("sandbox limits", "null")},
	}
	documents      = readOnly("document context", "null", "[]", "false", `""`)
	documentFields = []field{{"document_refs", documents}, {"version_pinning", documents}, {"query", documents}}

	checkpointFields = []field{
		{"enable_checkpointing", readOnly("checkpoints", "null", "true", "false")},
		{"checkpoint_interval_seconds", readOnly("checkpoints", "null", "30")},
		{"resume_from_checkpoint_id", readOnly("checkpoints", "null")},
	}
	optionFields = []field{
		{"async_mode", readTruth(func(e *envelope) *bool { return &e.call.Async })},
		{"priority", (*envelope).priority},
		{"idempotency_key", readText(key)},
		{"require_approval", readTruth(func(e *envelope) *bool { return &e.call.RequireApproval })},
	}
	contextFields = []field{
		{"plan_id", readText(plan)},
		{"task_id", readText(task)},
		{"env", readOnly("an environment for the tool", "null", "{}")},
	}
)

// Members of a call that several fields set.
func subject(c *toolkeep.Call) *string { return &c.Subject }
func key(c *toolkeep.Call) *string     { return &c.Key }
func plan(c *toolkeep.Call) *string    { return &c.Plan }
func task(c *toolkeep.Call) *string    { return &c.Task }

// decodeCall reads the body into a call that has what the headers say. What is
// wrong is the call's Fault.
func (a *API) decodeCall(body []byte, c *toolkeep.Call) (dryRun bool) {
	d := decoders.Get().(*pooledDecoder)
	d.read(body)
	e := &d.envelope
	*e = envelope{call: c, body: body, dec: &d.Decoder, set: 3}
	e.setters[0], e.setters[1] = setter{&c.Key, "the header Idempotency-Key"}, setter{&c.Session, "the header X-Session-ID"}
	e.setters[2] = setter{&c.User, "the header X-User-ID"}
	if utf8.Valid(body) {
		e.document()
	} else {
		e.fault(toolkeep.NewError(toolkeep.InvalidEncoding, "the body is not valid UTF-8"))
	}
	dryRun = e.dryRun
	*e = envelope{}
	d.read(nil)
	decoders.Put(d)
	return dryRun
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
	if !e.object("", envelopeFields) {
		return
	}
	if _, err := e.dec.ReadToken(); err != io.EOF {
		e.malformed("there is text after the JSON object of the body")
	}
	if e.call.Tool == "" {
		e.malformed("tool_id is missing: send namespace.name")
	}
}

// object reads an object's members; null counts as an object without members.
func (e *envelope) object(path string, fields []field) bool {
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
		var ok bool
		switch i := fieldIndex(fields, raw); {
		case i < 0:
			e.unknown(path, fields, raw)
			ok = e.skip()
		case seen&(1<<i) != 0:
			e.fault(toolkeep.NewError(toolkeep.InvalidEncoding, "%s stands twice in the body", join(path, fields[i].name)))
			ok = e.skip()
		default:
			seen |= 1 << i
			ok = fields[i].read(e, join(path, fields[i].name))
		}
		if !ok {
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
func fieldIndex(fields []field, raw []byte) int {
	name := raw[1 : len(raw)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name, _ = jsontext.AppendUnquote(nil, raw)
	}
	for i, f := range fields {
		if f.name == string(name) {
			return i
		}
	}
	return -1
}

func (e *envelope) unknown(path string, fields []field, raw []byte) {
	name, _ := jsontext.AppendUnquote(nil, raw)
	sent := toolkeep.ClipBytes(string(name), 100)
	near := suggest.Nearest(sent, namesOf(fields))
	err := toolkeep.NewError(toolkeep.MalformedRequest, "the field %s is not known; the nearest known one is %s",
		join(path, sent), join(path, near)).With("field", join(path, sent)).With("nearest", join(path, near))
	e.fault(err)
}

func namesOf(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

func (e *envelope) syntax(err error) bool {
	var syn *jsontext.SyntacticError
	where := ""
	if errors.As(err, &syn) {
		where = " at byte " + strconv.FormatInt(syn.ByteOffset, 10)
		if canon.LoneSurrogate(e.body[min(int(syn.ByteOffset), len(e.body)):]) {
			e.fault(toolkeep.NewError(toolkeep.InvalidEncoding, "the body has an escape that is not a valid character%s", where))
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

func (e *envelope) parameters(string) bool {
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

// readOnly accepts the values that ask for nothing; a wish that this build cannot
// fulfil is refused and not passed over.
func readOnly(what string, allowed ...string) reader {
	return func(e *envelope, name string) bool {
		raw, err := e.dec.ReadValue()
		if err != nil {
			return e.syntax(err)
		}
		text := string(raw)
		if raw[0] == '{' || raw[0] == '[' {
			text = strings.Join(strings.Fields(text), "")
		}
		if !slices.Contains(allowed, text) {
			e.fault(toolkeep.NewError(toolkeep.MalformedRequest, "%s is not in this build: leave %s out", what, name).With("field", name))
		}
		return true
	}
}

func readObject(fields []field) reader {
	return func(e *envelope, name string) bool { return e.object(name, fields) }
}

// text reads a string; null and "" count as absent, and ok is false for them. The
// pipeline checks length and characters.
func (e *envelope) text(name string) (v string, ok, goOn bool) {
	switch e.dec.PeekKind() {
	case 'n':
		return "", false, e.skip()
	case '"':
	default:
		e.malformed("%s must be a string", name)
		return "", false, e.skip()
	}
	tok, err := e.dec.ReadToken()
	if err != nil {
		return "", false, e.syntax(err)
	}
	v = tok.String()
	return v, v != "", true
}

// readText sets a member of the call that another field or a header may have set
// before.
func readText(member func(*toolkeep.Call) *string) reader {
	return func(e *envelope, name string) bool {
		v, ok, goOn := e.text(name)
		if to := member(e.call); ok && *to != "" && *to != v {
			e.contradicts(to, name)
		} else if ok {
			*to = v
			e.setters[e.set], e.set = setter{to, name}, e.set+1
		}
		return goOn
	}
}

// contradicts refuses a second value; wire.md gives that of the idempotency key a code
// of its own.
func (e *envelope) contradicts(to *string, name string) {
	other := ""
	for _, s := range e.setters[:e.set] {
		if s.to == to {
			other = s.name
		}
	}
	code := toolkeep.MalformedRequest
	if to == &e.call.Key {
		code = toolkeep.InvalidParameters
	}
	e.fault(toolkeep.NewError(code, "%s and %s mean the same and have different values; send one of them", other, name))
}

func (e *envelope) token(name string) bool {
	v, ok, goOn := e.text(name)
	if ok {
		gate.TakeToken(e.call, name, v)
	}
	return goOn
}

func (e *envelope) priority(name string) bool {
	v, ok, goOn := e.text(name)
	switch p := toolkeep.Priority(v); p {
	case toolkeep.Low, toolkeep.Normal, toolkeep.High:
		e.call.Priority = p
	default:
		if ok {
			e.malformed("%s must be low, normal or high", name)
		}
	}
	return goOn
}

func readTruth(member func(*envelope) *bool) reader {
	return func(e *envelope, name string) bool {
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
		*member(e) = tok.Bool()
		return true
	}
}

// readSeconds reads a time of at most most seconds; 0 is one only if zero says what it means.
func readSeconds(most float64, zero string, set func(e *envelope, name string, d time.Duration)) reader {
	return func(e *envelope, name string) bool {
		if e.dec.PeekKind() == 'n' {
			return e.skip()
		}
		raw, err := e.dec.ReadValue()
		if err != nil {
			return e.syntax(err)
		}
		s, err := strconv.ParseFloat(string(raw), 64)
		switch {
		case zero != "" && (err != nil || s < 0 || s > most):
			e.malformed("%s must be a number of seconds from 0, %s, to %.0f", name, zero, most)
		case zero == "" && (err != nil || s < 0.001 || s > most):
			e.malformed("%s must be a number of seconds above 0 and at most %.0f", name, most)
		default:
			set(e, name, time.Duration(s*float64(time.Second)))
		}
		return true
	}
}

func (e *envelope) cacheTTL(_ string, d time.Duration) { e.call.CacheTTL = d }

func (e *envelope) timeout(name string, d time.Duration) {
	if e.timeoutFrom != "" && e.call.Timeout != d {
		e.malformed("%s and %s have different values", e.timeoutFrom, name)
		return
	}
	e.call.Timeout, e.timeoutFrom = d, name
}
