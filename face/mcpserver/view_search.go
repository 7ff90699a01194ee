package mcpserver

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/canon"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// ownTool answers one of the four tools of view search.
type ownTool func(ctx context.Context, x *exchange, m *mcp.Message, arguments, meta, dst []byte) ([]byte, error)

// ownTools can be called in every view except relays, listed or not.
var ownTools = map[string]ownTool{
	"find_tools":     findTools,
	"describe_tool":  describeTool,
	"call_tool":      callByID,
	"get_invocation": getInvocation,
}

// searchTools returns their definitions, sorted by name.
var searchTools = sync.OnceValue(func() [][]byte {
	return [][]byte{
		[]byte(`{"name":"call_tool","title":"Call a tool","description":` +
			`"Call one of Toolkeep's tools by its id. Find it with find_tools first. The answer is the tool's own; a failure says whether to try again.",` +
			`"inputSchema":{"type":"object","additionalProperties":false,"required":["tool_id"],"properties":{` +
			`"tool_id":{"type":"string","description":"id of the tool, such as weather.current, or its name weather__current"},` +
			`"arguments":{"type":"object","description":"the tool's arguments, as describe_tool shows its input_schema"},` +
			`"version":{"type":"string","description":"exact version or range such as ^1.2; leave it out for the latest"},` +
			`"idempotency_key":{"type":"string","description":"the same key with the same call is carried out once and answered again for 24 hours, or what the server sets"},` +
			`"wait":{"type":"boolean","description":"false answers at once with an invocation_id for get_invocation; default true"}}},` +
			`"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}}`),
		[]byte(`{"name":"describe_tool","title":"Describe a tool","description":` +
			`"Show one tool in full: what it does, its input_schema, what it returns, examples, and what it may change.",` +
			`"inputSchema":{"type":"object","additionalProperties":false,"required":["tool_id"],"properties":{` +
			`"tool_id":{"type":"string","description":"id or name of the tool"},` +
			`"version":{"type":"string","description":"exact version or range; leave it out for the latest"}}},` +
			`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`),
		[]byte(`{"name":"find_tools","title":"Find tools","description":` +
			`"Find tools by what they are for. Say in a sentence what you want to do; one search for several steps is fine. The best come first, each with its id and parameters.",` +
			`"inputSchema":{"type":"object","additionalProperties":false,"properties":{` +
			`"query":{"type":"string","minLength":1,"description":"what the tool should do, in words, or a tool's id; always needed, unless messages has what the user asks for"},` +
			`"limit":{"type":"integer","minimum":1,"maximum":20,"default":5,"description":"tools at most"},` +
			`"category":{"type":"string","maxLength":64,"description":"only tools of this category"},` +
			`"phase":{"enum":["initial_planning","tool_selection","execution_preparation","error_recovery"],"description":"answer with what to know in this phase of the work, whole tools with examples, instead of a list"},` +
			`"messages":{"type":"array","items":{"type":"object"},"description":"the conversation, from which the phase is found: {role, content, tool_calls: [{tool_id}], tool_id, error: {code, message}}"},` +
			`"tool_ids":{"type":"array","items":{"type":"string"},"description":"tools already chosen"},` +
			`"budget_tokens":{"type":"integer","minimum":500,"maximum":100000}}},` +
			`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`),
		[]byte(`{"name":"get_invocation","title":"Get an invocation","description":` +
			`"Ask for a call that answered with an invocation_id: how far it is, and its result once it has ended.",` +
			`"inputSchema":{"type":"object","additionalProperties":false,"required":["invocation_id"],"properties":{` +
			`"invocation_id":{"type":"string","description":"as the call answered it"},` +
			`"wait_s":{"type":"number","minimum":0,"maximum":60,"default":0,"description":"seconds to wait for the call to end"}}},` +
			`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`),
	}
})

// Own tools return an object, repeated as text for clients that read only text.
func (x *exchange) ownResult(dst, object []byte, retrieval ...string) []byte {
	dst = appendOwn(dst, object)
	for _, id := range retrieval {
		dst = appendRetrieval(dst, id)
	}
	return x.finish(dst)
}

// appendOwn appends all of an own tool's result but its end.
func appendOwn(dst, object []byte) []byte {
	dst = append(dst, `{"content":[{"type":"text","text":`...)
	dst = appendAsText(dst, object)
	return append(append(dst, `}],"structuredContent":`...), object...)
}

func (x *exchange) ownFailure(dst []byte, err error) []byte {
	return x.appendFailure(dst, gate.Shown(err), nil, nil)
}

// args reads the arguments of an own tool; an unknown one is refused.
func args(arguments []byte, known ...string) (map[string][]byte, *toolkeep.Error) {
	if !mcp.IsNull(arguments) && !mcp.IsObject(arguments) {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "arguments must be an object")
	}
	got := make(map[string][]byte, len(known))
	for name, v := range mcp.Members(arguments) {
		if !slices.Contains(known, name) {
			return nil, toolkeep.FaultError(toolkeep.InputValidationFailed, "the argument "+toolkeep.ClipBytes(name, 100)+" is not known; there are "+strings.Join(known, ", "),
				toolkeep.Fault{Pointer: canon.Pointer(toolkeep.ClipBytes(name, 100)), Rule: "additionalProperties", Message: "is not known"})
		}
		if !mcp.IsNull(v) {
			got[name] = v
		}
	}
	return got, nil
}

// textArg reads a string; a missing one is "" unless it is required.
func textArg(got map[string][]byte, name string, required bool, most int) (string, *toolkeep.Error) {
	raw, ok := got[name]
	if !ok {
		if !required {
			return "", nil
		}
		return "", toolkeep.FaultError(toolkeep.MissingParameter, "the argument "+name+" is missing", toolkeep.Fault{Rule: "required", Message: name + " is required"})
	}
	f := toolkeep.Fault{Pointer: "/" + name}
	s, ok := mcp.Unquote(raw)
	switch {
	case !ok:
		f.Rule, f.Message = "type", "must be a string"
	case len(s) > most:
		f.Rule, f.Message = "maxLength", "must be at most "+strconv.Itoa(most)+" bytes"
	case required && strings.TrimSpace(s) == "":
		f.Rule, f.Message = "minLength", "must not be empty"
	default:
		return s, nil
	}
	return "", toolkeep.FaultError(toolkeep.InvalidParameters, "the argument "+name+" must be a string of 1 to "+strconv.Itoa(most)+" bytes", f)
}

func numberArg(got map[string][]byte, name string, least, most, def float64) (float64, *toolkeep.Error) {
	raw, ok := got[name]
	if !ok {
		return def, nil
	}
	f, from, to := toolkeep.Fault{Pointer: "/" + name}, strconv.FormatFloat(least, 'f', -1, 64), strconv.FormatFloat(most, 'f', -1, 64)
	n, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64) // models often quote numbers
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(n):
		f.Rule, f.Message = "type", "must be a number"
	case n < least:
		f.Rule, f.Message = "minimum", "must be at least "+from
	case n > most:
		f.Rule, f.Message = "maximum", "must be at most "+to
	default:
		return n, nil
	}
	return 0, toolkeep.FaultError(toolkeep.InvalidParameters, "the argument "+name+" must be a number from "+from+" to "+to, f)
}

func findTools(ctx context.Context, x *exchange, _ *mcp.Message, arguments, _, dst []byte) ([]byte, error) {
	got, err := args(arguments, append([]string{"query", "limit", "category"}, contextArgs...)...)
	var query, category string
	var limit float64
	if err == nil {
		query, err = textArg(got, "query", !asks(got), maxSent)
	}
	if wrong := discover.CheckQuery(query); err == nil && wrong != nil {
		err = toolkeep.AsError(wrong)
	}
	if err == nil {
		category, err = textArg(got, "category", false, 64)
	}
	if err == nil {
		limit, err = numberArg(got, "limit", 1, 20, 5)
	}
	if err != nil {
		x.read(audit.Read{What: audit.ReadSearch, Query: query, Err: err})
		return x.ownFailure(dst, err), nil
	}
	if wantsContext(got) {
		return x.toolContext(ctx, query, category, got, dst)
	}
	if id := x.idOf(query, x.sees); id != "" {
		query = id
	}
	start, ask := time.Now(), discover.Query{Text: query, Limit: int(limit), Session: x.session(), Audience: x.audience(category)}
	found, report := x.s.c.Search.Find(ctx, ask, func(t *toolkeep.Tool) bool {
		return (category == "" || t.Manifest.Category == category) && x.sees(t)
	})
	retrieval := x.retrieved(ask, found, report, start)
	if len(found) == 0 {
		ask.Category = category
		return x.ownFailure(dst, discover.NoneFound(ask, report, retrieval)), nil
	}
	b := []byte(`{"tools":[`)
	ids := make([]string, 0, len(found))
	for i, f := range found {
		if i > 0 {
			b = append(b, ',')
		}
		whole, err := f.Tool.Whole()
		if err != nil {
			return x.ownFailure(dst, err), nil
		}
		m := whole.Manifest
		ids = append(ids, f.Tool.ID)
		b = canon.AppendString(append(b, `{"tool_id":`...), f.Tool.ID)
		b = canon.AppendString(append(b, `,"name":`...), mcp.ToolName(f.Tool.ID))
		b = appendText(b, `,"title":`, m.ToolName)
		text := m.ShortDescription
		if text == "" {
			text = toolkeep.ClipBytes(m.Description, 300)
		}
		b = canon.AppendString(append(b, `,"description":`...), text)
		b = canon.AppendString(append(b, `,"parameters":`...), signature(m.ParametersSchema))
		b = canon.AppendString(append(b, `,"side_effects":`...), m.SideEffects)
		b = append(b, '}')
	}
	b = append(b, ']')
	if report.Cut {
		b = canon.AppendString(append(b, `,"query_cut":`...), discover.CutNotice)
	}
	if !report.WordsAlone && report.Degraded != "" { // a better tool may be found in a minute
		b = canon.AppendString(append(b, `,"degraded":`...), report.Degraded)
	}
	dst = x.ownResult(dst, append(b, '}'), retrieval)
	x.foundTools(ids)
	return dst, nil
}

// toolsChanged announces to a session's client that its list has changed, on the request's stream
// if that takes notices.
func (x *exchange) toolsChanged() {
	if !x.send(mcp.NotificationToolsChanged, nil, mcp.NotificationToolsChanged) {
		x.ses.notify(mcp.NotificationToolsChanged, nil, mcp.NotificationToolsChanged)
	}
}

// signature lists a schema's properties in parameter notation: name: type, with a question mark for
// optional ones.
func signature(schema []byte) string {
	required := map[string]bool{}
	for name := range mcp.Elements(mcp.Get(schema, "required")) {
		if s, ok := mcp.Unquote(name); ok {
			required[s] = true
		}
	}
	var must, may []string
	for name, p := range mcp.Members(mcp.Get(schema, "properties")) {
		of := p
		if name, ok := strings.CutPrefix(mcp.Text(p, "$ref"), "#/$defs/"); ok {
			of = mcp.Get(schema, "$defs", strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
		}
		kind := mcp.Text(of, "type")
		if kind == "" {
			var kinds []string // of a list such as ["string", "null"]
			for k := range mcp.Elements(mcp.Get(of, "type")) {
				if s, ok := mcp.Unquote(k); ok && s != "null" {
					kinds = append(kinds, s)
				}
			}
			if kind = strings.Join(kinds, " or "); kind == "" {
				kind = "any"
			}
		}
		if list := mcp.Get(of, "enum"); list != nil && len(list) <= 100 {
			kind = "one of " + string(list)
		}
		if required[name] {
			must = append(must, name+": "+kind)
		} else {
			may = append(may, name+"?: "+kind)
		}
	}
	slices.Sort(must)
	slices.Sort(may)
	all := append(must, may...)
	const most = 24
	if len(all) > most {
		all = append(all[:most:most], strconv.Itoa(len(all)-most)+" more, see describe_tool")
	}
	return strings.Join(all, ", ")
}

// idOf returns the tool id for a name; "" if there is none that visible admits.
func (x *exchange) idOf(name string, visible func(*toolkeep.Tool) bool) string {
	if e := x.s.index(x.p.Tenant).name(name); e.has(visible) {
		return e.id
	}
	return ""
}

func describeTool(ctx context.Context, x *exchange, _ *mcp.Message, arguments, _, dst []byte) ([]byte, error) {
	got, err := args(arguments, "tool_id", "version")
	var id, version string
	if err == nil {
		id, err = textArg(got, "tool_id", true, x.s.limits.KeyBytes)
	}
	if err == nil {
		version, err = textArg(got, "version", false, x.s.limits.KeyBytes)
	}
	if err != nil {
		x.read(audit.Read{What: audit.ReadManifest, Tool: id, Version: version, Err: err})
		return x.ownFailure(dst, err), nil
	}
	if named := x.idOf(id, x.sees); named != "" {
		id = named
	}
	v, warnings, rErr := x.s.c.Catalog.Describe(ctx, x.p, id, version, x.sees)
	x.read(audit.Read{What: audit.ReadManifest, Tool: id, Version: version, Found: 1, Err: rErr})
	if rErr != nil {
		return x.ownFailure(dst, rErr), nil
	}
	return x.ownResult(dst, described(v, warnings)), nil
}

// maxDescribed is the size in bytes above which a description leaves parts out, starting with what
// a call needs least.
const maxDescribed = 48 << 10

func described(v toolkeep.Version, warnings []toolkeep.Warning) []byte {
	var b []byte
	for level := range 3 {
		if b = describedAt(v, warnings, level); len(b) <= maxDescribed {
			break
		}
	}
	return b
}

// describedAt leaves out nothing at level 0; at 1 the result description and long texts within the
// parameters; at 2 all texts within the parameters, and examples.
func describedAt(v toolkeep.Version, warnings []toolkeep.Warning, level int) []byte {
	m, out := v.Tool.Manifest, []byte(v.Tool.Manifest.ResultSchema)
	input := inputSchema(m.ParametersSchema)
	if m.Execution.Kind == kindMCP {
		out = source.OutputSchema(m)
	}
	var omitted []string
	if level > 0 && len(out) > 0 {
		out, omitted = nil, append(omitted, "output_schema")
	}
	if level > 0 {
		longest := 200
		if level > 1 {
			longest = 0
		}
		if short, cut := assembly.Shorten(input, longest); cut {
			input, omitted = short, append(omitted, "long descriptions within input_schema")
		}
	}
	b := canon.AppendString([]byte(`{"tool_id":`), v.Tool.ID)
	b = canon.AppendString(append(b, `,"name":`...), mcp.ToolName(v.Tool.ID))
	b = canon.AppendString(append(b, `,"version":`...), v.Tool.Version)
	if v.Life.Held != nil {
		b = canon.AppendString(append(b, `,"held":`...), v.Life.Held.Why)
	}
	b = appendText(b, `,"title":`, m.ToolName)
	b = canon.AppendString(append(b, `,"description":`...), m.Description)
	b = appendText(b, `,"explanation":`, m.Explanation)
	b = appendText(b, `,"input_guidance":`, m.InputGuidance)
	b = appendText(b, `,"category":`, m.Category)
	b = canon.AppendString(append(b, `,"side_effects":`...), m.SideEffects)
	b = appendBool(b, `,"idempotent":`, m.Idempotent)
	b = appendText(b, `,"risk":`, m.Risk)
	if m.RequiresApproval {
		b = append(b, `,"requires_approval":true`...)
	}
	b = append(append(b, `,"input_schema":`...), input...)
	if len(out) > 0 {
		b = append(append(b, `,"output_schema":`...), out...)
	}
	if level > 1 && len(m.Examples) > 0 {
		omitted = append(omitted, "examples")
	} else if len(m.Examples) > 0 {
		b = append(b, `,"examples":[`...)
		for i, e := range m.Examples[:min(len(m.Examples), 10)] {
			if i > 0 {
				b = append(b, ',')
			}
			b = canon.AppendString(append(b, `{"scenario":`...), e.Scenario)
			if len(e.Input) > 0 {
				b = append(append(b, `,"input":`...), e.Input...)
			}
			if len(e.Output) > 0 {
				b = append(append(b, `,"output":`...), e.Output...)
			}
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	b = appendWarnings(b, `,"warnings":`, warnings)
	if len(omitted) > 0 {
		b = append(b, `,"omitted":[`...)
		for i, part := range omitted {
			if i > 0 {
				b = append(b, ',')
			}
			b = canon.AppendString(b, part)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func callByID(ctx context.Context, x *exchange, m *mcp.Message, arguments, meta, dst []byte) ([]byte, error) {
	got, err := args(arguments, "tool_id", "arguments", "version", "idempotency_key", "wait")
	if err != nil {
		got = map[string][]byte{}
	}
	own := *x // the requests of a batch share x
	own.byID = true
	x = &own
	call := x.newCall(got["arguments"], meta)
	if err != nil {
		fault(call, err)
	}
	read := func(name string, to *string) {
		raw, ok := got[name]
		if !ok {
			return
		}
		s, ok := mcp.Unquote(raw)
		if !ok {
			fault(call, toolkeep.NewError(toolkeep.MalformedRequest, "%s must be a string", name))
			return
		}
		*to = s
	}
	read("tool_id", &call.Tool)
	read("version", &call.Range)
	read("idempotency_key", &call.Key)
	switch string(got["wait"]) {
	case "", "true":
	case "false":
		call.Async = true
	default:
		fault(call, toolkeep.NewError(toolkeep.MalformedRequest, "wait must be true or false"))
	}
	if call.Tool == "" {
		fault(call, toolkeep.NewError(toolkeep.MalformedRequest, "call_tool needs the argument tool_id, such as weather.current"))
	}
	ix := x.s.index(x.p.Tenant)
	e := ix.name(call.Tool)
	if e == nil {
		e = ix.id(call.Tool)
	}
	if e.has(x.as(call).exists) {
		call.Tool = e.id
	} else {
		if call.Meant = x.meant(e); x.v.kind == viewSet { // the pipeline does not check sets
			fault(call, toolkeep.NewError(toolkeep.ToolNotFound, "there is no tool %q in this set", toolkeep.ClipBytes(call.Tool, 100)))
		}
		e = nil
	}
	return x.invoke(ctx, m, call, e, meta, dst)
}

func getInvocation(ctx context.Context, x *exchange, _ *mcp.Message, arguments, _, dst []byte) ([]byte, error) {
	got, err := args(arguments, "invocation_id", "wait_s")
	var id string
	var wait float64
	if err == nil {
		id, err = textArg(got, "invocation_id", true, x.s.limits.KeyBytes)
	}
	if err == nil {
		wait, err = numberArg(got, "wait_s", 0, invocationMax.Seconds(), 0)
	}
	if err == nil && strings.ContainsRune(id, 0) {
		err = toolkeep.NewError(toolkeep.InvalidParameters, "invocation_id has a NUL character")
	}
	if err != nil {
		return x.ownFailure(dst, err), nil
	}
	if wait > 0 {
		x.await(ctx, id, time.Duration(wait*float64(time.Second)))
	}
	v, gErr := x.s.c.Calls.Get(ctx, x.p, id)
	if gErr != nil {
		return x.ownFailure(dst, gErr), nil
	}
	res, start := x.s.c.Calls.Result(v), len(dst)
	dst = appendOwn(dst, appendInvocation(nil, v, res))
	if x.s.gate.SignAnswer(x.p, res, dst[start:]) {
		dst = append(appendReceipt(append(dst, `,"_meta":{`...), res), '}')
	}
	return x.finish(dst), nil
}

// await returns when the call has ended, or after a time. Errors show up when the call is read.
func (x *exchange) await(ctx context.Context, id string, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for v, err := range x.s.c.Calls.Watch(ctx, x.p, id) {
		if err != nil || v.State.Ended() {
			return
		}
	}
}

// appendInvocation appends the same members for a call as REST.
func appendInvocation(b []byte, v *toolkeep.Invocation, r *toolkeep.Result) []byte {
	b = canon.AppendString(append(b, `{"invocation_id":`...), v.ID)
	b = canon.AppendString(append(b, `,"status":`...), v.State.BC2(v.Code))
	b = canon.AppendString(append(b, `,"state":`...), string(v.State))
	b = canon.AppendString(append(b, `,"tool_id":`...), v.ToolID)
	b = appendText(b, `,"tool_version":`, v.Version)
	b = canon.AppendString(append(b, `,"agent_id":`...), v.Subject)
	b = appendText(b, `,"user_id":`, v.OnBehalf)
	b = appendText(b, `,"actor_id":`, v.Actor)
	if by := v.AllowedBy(); by != nil {
		b = canon.Append(append(b, `,"allowed_by":`...), canon.Strings(by))
	}
	if v.Progress != (toolkeep.Progress{}) && !v.State.Ended() {
		b = appendInt(b, `,"progress_percent":`, int64(v.Progress.Percent))
		b = appendText(b, `,"current_phase":`, v.Progress.Phase)
		b = appendText(b, `,"progress_message":`, v.Progress.Message)
	}
	if !v.CreatedAt.IsZero() {
		b = appendText(b, `,"created_at":`, v.CreatedAt.UTC().Format(time.RFC3339Nano))
	}
	if r == nil {
		return append(b, '}')
	}
	if r.State.Ended() && len(r.Output) > 0 {
		b = append(append(b, `,"result":`...), r.Output...)
	}
	if r.Error != nil {
		e := gate.Shown(r.Error)
		b = append(b, `,"error":{`...)
		b = appendError(b, "", e, "")
		b = appendText(b, `,"message":`, e.Message)
		if d := details(e); d != nil {
			b = append(append(b, `,"details":`...), d...)
		}
		b = append(b, '}')
	}
	b = appendBool(b, `,"cached":`, r.Cached)
	b = appendBool(b, `,"truncated":`, r.Truncated)
	b = appendWarnings(b, `,"warnings":`, r.Warnings)
	if len(r.Attachments) > 0 {
		b = append(b, `,"attachments":[`...)
		for i, a := range r.Attachments {
			if i > 0 {
				b = append(b, ',')
			}
			b = canon.AppendString(append(b, `{"kind":`...), a.Kind)
			b = canon.AppendString(append(b, `,"url":`...), a.URL)
			b = appendText(b, `,"content_type":`, a.ContentType)
			b = append(appendText(appendInt(b, `,"bytes":`, a.Bytes), `,"sha256":`, a.SHA256), '}')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
