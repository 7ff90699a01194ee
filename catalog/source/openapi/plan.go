package openapi

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"

	"github.com/toolkeep/toolkeep"
)

// parts is everything known about an operation.
type parts struct {
	op     *operation
	server *server
	sec    *security
	params []*param
	body   *requestBody
	arg    string // the argument for the body
	answer *answer

	parameters any // JSON Schemas, self-contained
	result     any
	examples   []any
}

// maxBindingMembers is the executor's limit for a binding.
const maxBindingMembers = 900

// plan builds the tool of an operation, or returns why it cannot.
func (d *document) plan(op *operation) (*PlannedTool, string) {
	if op.bad != "" {
		return nil, op.bad
	}
	switch {
	case op.method == "TRACE":
		return nil, "the method TRACE is not sent: its answer repeats the request with its credentials"
	case op.method != strings.ToUpper(op.method):
		return nil, fmt.Sprintf("the method %s is not in capitals", toolkeep.Clip(op.method, 64))
	}
	p := &parts{op: op}
	for _, step := range []func(*parts) string{d.findPlaces, d.findArguments, d.makeParameters} {
		if reason := step(p); reason != "" {
			return nil, reason
		}
	}
	d.makeResult(p)
	p.examples = d.examples(p)
	return d.finish(p)
}

// findPlaces determines server, credentials and response.
func (d *document) findPlaces(p *parts) (reason string) {
	if p.answer, reason = d.answerOf(p.op); reason != "" {
		return reason
	}
	if p.sec, reason = d.securityOf(p.op); reason != "" {
		return reason
	}
	if p.server, reason = d.serverOf(p.op); reason != "" {
		return reason
	}
	warning, reason := p.sec.fit(p.server.url)
	if reason != "" {
		return reason
	}
	if warning != "" {
		d.warn("%s: one way to authenticate is left out: %s", p.op.label(), warning)
	}
	switch inside := isInside(p.server.url.Hostname()); {
	case inside && p.server.trusted:
		d.warn("tools call %s, an address inside of your own network", p.server.url.Host)
	case inside:
		d.warn("tools call %s, an address inside of your own network, and their calls will be refused (E3505); if that is meant, import with --server %s",
			p.server.url.Host, p.server.url)
	}
	return ""
}

// isInside reports whether a host is an address that only this machine or its network can reach.
func isInside(host string) bool {
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast())
}

// findArguments determines the parameters and the body.
func (d *document) findArguments(p *parts) string {
	params, swaggerBody, form, reason := d.parameters(p.op, p.sec)
	if reason != "" {
		return reason
	}
	if p.body, reason = d.body(p.op, swaggerBody, form); reason != "" {
		return reason
	}
	p.params = params
	nameArguments(p.params)
	if p.body != nil {
		taken := map[string]bool{}
		for _, q := range p.params {
			taken[q.arg] = true
		}
		p.arg = "body"
		if taken[p.arg] {
			p.arg = freeName("request_body", taken)
		}
		taken[p.arg] = true
		if len(p.body.others) > 0 {
			p.body.typeArg = freeName("content_type", taken)
		}
	}
	for _, q := range p.params {
		if strings.ContainsRune(q.name, 0) {
			return "the name of a parameter holds a NUL character"
		}
	}
	if members(p.binding()) > maxBindingMembers {
		return fmt.Sprintf("it has %d parameters, which is more than a tool can have", len(p.params))
	}
	return ""
}

func members(v any) int {
	m := measure{}
	m.of(v, 0)
	return m.members
}

// makeParameters builds the schema of the arguments.
func (d *document) makeParameters(p *parts) string {
	root := &def{}
	props := map[string]any{}
	required, linked := []any{}, map[*def]bool{}
	add := func(one *def, arg string, need bool, about func(map[string]any)) {
		for _, l := range one.refs {
			if !linked[l.to] {
				linked[l.to] = true
				root.refs = append(root.refs, l)
			}
		}
		frag := asMap(one.frag)
		about(frag)
		props[arg] = frag
		if need {
			required = append(required, arg)
		}
	}
	var kept []*param
	for _, q := range p.params {
		one := d.convert(q.schema, request)
		if one.err != "" {
			return fmt.Sprintf("parameter %q: %s", toolkeep.Clip(q.name, 80), one.err)
		}
		if reason := unsendable(q, one.frag); reason != "" {
			if reason = d.leaveOut(p.op, q, reason); reason != "" {
				return reason
			}
			continue
		}
		kept = append(kept, q)
		add(one, q.arg, q.required, func(f map[string]any) { d.aboutParam(q, f) })
	}
	p.params = kept
	if p.body != nil {
		one := d.convert(p.body.anySchema(), request)
		switch {
		case one.err != "":
			return "body: " + one.err
		case (&prospect{maxLookNodes}).kinds(one.frag, 0) != 0:
			add(one, p.arg, p.body.required, func(f map[string]any) { setDescription(f, p.body.description) })
		case p.body.required:
			return "no value satisfies the schema of its body"
		default:
			d.warn("%s: its optional body is left out: no value satisfies its schema", p.op.label())
			p.body = nil
		}
	}
	if p.body != nil {
		if p.body.typeArg != "" {
			props[p.body.typeArg] = p.body.typeSchema()
		}
	}
	frag := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		frag["required"] = required
	}
	root.frag = frag
	b, reason := newBundle(root)
	if reason != "" {
		return reason
	}
	if len(b.cut) > 0 {
		d.warn("%s: a schema of its arguments refers to itself for the very same value; that reference is left out", p.op.label())
	}
	tree, lost := b.tree(maxParameters)
	if tree == nil {
		return "the schema of its arguments " + lost
	}
	if lost != "" {
		d.warn("%s: the schema of its arguments %s", p.op.label(), lost)
	}
	p.parameters = tree
	return ""
}

// asMap returns a fragment to which keywords can be added.
func asMap(frag any) map[string]any {
	switch f := frag.(type) {
	case map[string]any:
		return f
	case bool:
		if !f {
			return map[string]any{"not": map[string]any{}}
		}
	}
	return map[string]any{}
}

func setDescription(f map[string]any, text string) {
	text = strings.TrimSpace(clean(text))
	if text == "" {
		return
	}
	// The conversion's note about the default stays at the end.
	if old, ok := f["description"].(string); ok {
		if i := strings.LastIndex(old, "Default: "); i >= 0 {
			text = strings.TrimRight(text, " \n") + " " + old[i:]
		}
	}
	f["description"] = text
}

func (d *document) aboutParam(q *param, f map[string]any) {
	setDescription(f, q.node.text("description"))
	if q.arg != q.name && q.arg != q.name+"_"+q.in {
		sent := fmt.Sprintf("Sent as %q.", toolkeep.Clip(clean(q.name), 100))
		if text, ok := f["description"].(string); ok {
			sent = strings.TrimRight(text, " \n") + " " + sent
		}
		f["description"] = sent
	}
	if q.node.flag("deprecated") {
		f["deprecated"] = true
	}
	if _, ok := f["examples"]; ok {
		return
	}
	if kept := smallExamples(d.exampleValues(q.node)); len(kept) > 0 {
		f["examples"] = kept
	}
}

// makeResult builds the schema of the result. If that fails it is left out: the operation can be
// called without.
func (d *document) makeResult(p *parts) {
	if p.answer.schema == nil || p.op.method == "HEAD" {
		return
	}
	root := d.convert(p.answer.schema, response)
	reason := root.err
	var b *bundle
	if reason == "" {
		b, reason = newBundle(root)
	}
	if reason != "" {
		d.warn("%s: its result has no schema: %s", p.op.label(), reason)
		return
	}
	tree, lost := b.tree(maxResult)
	if tree == nil {
		d.warn("%s: its result has no schema: it %s", p.op.label(), lost)
		return
	}
	if lost != "" {
		d.warn("%s: the schema of its result %s", p.op.label(), lost)
	}
	if m, ok := tree.(map[string]any); ok && len(m) == 0 && !p.answer.items {
		return
	}
	if p.answer.items {
		tree = listOf(tree)
	}
	p.result = tree
}

// listOf returns the schema of a list of items. Definitions move to the root, where references look
// for them.
func listOf(item any) map[string]any {
	list := map[string]any{"type": "array", "items": item}
	m, ok := item.(map[string]any)
	if defs, there := m["$defs"]; ok && there {
		m = maps.Clone(m)
		delete(m, "$defs")
		list["items"], list["$defs"] = m, defs
	}
	return list
}

// exampleValues returns the examples of a parameter or a media type, its own before those of its
// schema.
func (d *document) exampleValues(o *object) []any {
	var out []any
	for _, e := range d.namedExamples(o) {
		out = append(out, e.value)
	}
	return out
}

type namedExample struct {
	name  string
	value any
}

func (d *document) namedExamples(o *object) []namedExample {
	if o == nil {
		return nil
	}
	for _, k := range []string{"example", "x-example"} {
		if o.has(k) {
			v, reason := d.follow(o.get(k))
			if reason != "" {
				return nil
			}
			return []namedExample{{"", v}}
		}
	}
	if m, reason := d.object(o.get("examples"), "examples"); reason == "" {
		var out []namedExample
		for _, k := range m.keys {
			e, reason := d.object(m.vals[k], "example")
			if reason != "" {
				continue
			}
			for _, key := range []string{"value", "dataValue"} {
				if e.has(key) {
					name := e.text("summary")
					if name == "" {
						name = k
					}
					v, reason := d.follow(e.get(key))
					if reason == "" {
						out = append(out, namedExample{name, v})
					}
					break
				}
			}
			if len(out) == maxExamples {
				break
			}
		}
		return out
	}
	s, reason := d.object(o.get("schema"), "schema")
	if reason != "" {
		return nil
	}
	if l, ok := s.get("examples").([]any); ok && len(l) > 0 {
		return []namedExample{{"", l[0]}}
	}
	if s.has("example") {
		return []namedExample{{"", s.get("example")}}
	}
	return nil
}

const maxExampleInput = 8 << 10

// examples builds sample calls from the document's examples: the required parameters and the body.
// The catalogue validates them.
func (d *document) examples(p *parts) []any {
	input := map[string]any{}
	for _, q := range p.params {
		if !q.required {
			continue
		}
		vals := d.exampleValues(q.node)
		if len(vals) == 0 {
			return nil
		}
		v, ok := plainValue(vals[0])
		if !ok || v == nil {
			return nil
		}
		input[q.arg] = v
	}
	summary := toolkeep.Clip(firstLine(p.op.op.text("summary")), 200)
	if summary == "" {
		summary = p.op.label()
	}
	var bodies []namedExample
	if p.body != nil {
		if p.body.media != nil {
			bodies = d.namedExamples(p.body.media)
		} else if s, reason := d.object(p.body.schema, "schema"); reason == "" && s.has("example") {
			bodies = []namedExample{{"", s.get("example")}}
		}
		if len(bodies) == 0 && p.body.required {
			return nil
		}
	}
	if len(bodies) == 0 {
		if len(input) == 0 {
			return nil
		}
		return []any{map[string]any{"scenario": summary, "input": input}}
	}
	var out []any
	for _, b := range bodies {
		v, ok := plainValue(b.value)
		if !ok || v == nil {
			continue
		}
		one := map[string]any{p.arg: v}
		for k, e := range input {
			one[k] = e
		}
		if len(canon.Append(nil, one)) > maxExampleInput {
			continue
		}
		scenario := toolkeep.Clip(firstLine(b.name), 200)
		if scenario == "" {
			scenario = summary
		}
		out = append(out, map[string]any{"scenario": scenario, "input": one})
	}
	return out
}

// firstLine returns the first non-empty line of a text.
func firstLine(s string) string {
	for line := range strings.Lines(clean(s)) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			return line
		}
	}
	return ""
}

// passwords lists the pointers of password arguments, so that records leave them out.
func passwords(tree any) []any {
	root, _ := tree.(map[string]any)
	defs, _ := root["$defs"].(map[string]any)
	var out []any
	var walk func(v any, at string, depth int)
	walk = func(v any, at string, depth int) {
		m, ok := v.(map[string]any)
		if !ok || depth > 6 || len(out) >= 50 {
			return
		}
		if name, ok := m["$ref"].(string); ok {
			walk(defs[strings.TrimPrefix(name, "#/$defs/")], at, depth+1)
		}
		if m["format"] == "password" && !slices.Contains(out, any(at)) {
			out = append(out, at)
		}
		for _, inPlace := range []bool{false, true} {
			for p, below := range schema.Below(m) {
				if inPlace && p.Keyword.InPlace {
					walk(below, at, depth+1)
				} else if !inPlace && p.Keyword.Name == "properties" {
					walk(below, at+canon.Pointer(p.Name), depth+1)
				}
			}
		}
	}
	walk(tree, "", 0)
	return out
}
