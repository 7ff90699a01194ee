package openapi

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
)

// binding returns execution.binding, as executor/httptool reads it. Members with default values are
// left out.
func (p *parts) binding() map[string]any {
	b := map[string]any{"method": p.op.method, "server": p.server.url.String(), "path": p.op.template.sent}
	var params []any
	for _, q := range p.params {
		m := map[string]any{"name": q.name, "arg": q.arg, "in": q.in}
		if q.style != "" {
			m["style"] = q.style
		}
		if q.explode {
			m["explode"] = true
		}
		if q.reserved {
			m["allow_reserved"] = true
		}
		if q.allowEmpty {
			m["allow_empty"] = true
		}
		if q.content != "" {
			m["content"] = q.content
		}
		if q.xml != nil {
			m["xml"] = q.xml
		}
		if len(q.items) > 0 {
			m["item_styles"] = q.items
		}
		if q.deepLists != "" {
			m["deep_lists"] = q.deepLists
		}
		params = append(params, m)
	}
	if len(params) > 0 {
		b["parameters"] = params
	}
	if p.body != nil {
		m := p.body.binding()
		m["arg"] = p.arg
		if p.body.required {
			m["required"] = true
		}
		if len(p.body.others) > 0 {
			var others []any
			for _, o := range p.body.others {
				others = append(others, o.binding())
			}
			m["others"], m["type_arg"] = others, p.body.typeArg
		}
		b["body"] = m
	}
	if p.answer.accept != "" {
		b["headers"] = map[string]any{"Accept": p.answer.accept}
	}
	if len(p.answer.types) > 0 {
		var types []any
		for _, t := range p.answer.types {
			types = append(types, t)
		}
		b["response_types"] = types
	}
	if p.answer.pages != nil {
		b["pagination"] = p.answer.pages
	}
	return b
}

// core returns the manifest without version and source, the tool's identity.
func (d *document) core(p *parts) map[string]any {
	op := p.op
	m := map[string]any{
		"schema_version":    1,
		"tool_id":           d.namespace + "." + op.name,
		"tool_name":         toolName(op),
		"description":       description(op),
		"category":          category(op),
		"parameters_schema": p.parameters,
		// Many services violate their own documents: a mismatched result is a warning to the caller
		// and not a failure.
		"result":       map[string]any{"strict": false},
		"side_effects": "writes",
		"idempotent":   slices.Contains([]string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "QUERY"}, op.method),
		"risk":         "low",
		"execution":    map[string]any{"kind": "http", "binding": p.binding()},
	}
	switch op.method {
	case "GET", "HEAD", "OPTIONS", "QUERY":
		m["side_effects"] = "reads"
	case "DELETE":
		m["risk"] = "medium"
	}
	if s := shortDescription(op); s != "" {
		m["short_description"] = s
	}
	if tags := toolTags(op); len(tags) > 0 {
		m["tags"] = tags
	}
	if p.result != nil {
		m["result_schema"] = p.result
	}
	if p.server.trusted {
		m["permissions"] = map[string]any{"network": []any{
			map[string]any{"host": p.server.url.Hostname(), "port": port(p.server.url)},
		}}
	}
	if len(p.sec.auth) > 0 {
		m["auth"] = p.sec.auth
	}
	if len(p.examples) > 0 {
		m["examples"] = p.examples
	}
	if secret := passwords(p.parameters); len(secret) > 0 {
		m["redact"] = secret
	}
	return m
}

func toolName(op *operation) string {
	if s := firstLine(op.op.text("summary")); s != "" {
		return toolkeep.Clip(s, 200)
	}
	if op.id != "" {
		return toolkeep.Clip(op.id, 200)
	}
	return toolkeep.Clip(op.label(), 200)
}

const maxDescription = 8000

func description(op *operation) string {
	summary := strings.TrimSpace(clean(op.op.text("summary")))
	text := strings.TrimSpace(clean(op.op.text("description")))
	switch {
	case text == "":
		text = summary
	case summary != "" && !strings.HasPrefix(text, summary):
		text = summary + "\n\n" + text
	}
	if text == "" {
		text = op.label()
		if name := spoken(op.id); name != "" {
			text = name + " (" + text + ")"
		}
	}
	return toolkeep.Clip(text, maxDescription)
}

var sentenceEnd = regexp.MustCompile(`[.!?]\s`)

func shortDescription(op *operation) string {
	s := firstLine(op.op.text("summary"))
	if s == "" {
		s = firstLine(op.op.text("description"))
	}
	if i := sentenceEnd.FindStringIndex(s); i != nil && utf8.RuneCountInString(s) > 100 {
		s = s[:i[0]+1]
	}
	return toolkeep.Clip(s, 100)
}

func toolTags(op *operation) []any {
	var tags []any
	list, _ := op.op.get("tags").([]any)
	for _, e := range list {
		s, _ := scalarText(e)
		s = toolkeep.Clip(strings.Join(strings.Fields(clean(s)), " "), 64)
		if s != "" && !slices.Contains(tags, any(s)) && len(tags) < 63 {
			tags = append(tags, s)
		}
	}
	if op.op.flag("deprecated") && !slices.Contains(tags, any("deprecated")) {
		tags = append(tags, "deprecated")
	}
	return tags
}

func category(op *operation) string {
	if list, _ := op.op.get("tags").([]any); len(list) > 0 {
		s, _ := scalarText(list[0])
		if c := slug(s, 64, '_'); c != "" {
			return c
		}
	}
	return "external_api"
}

// source returns the tool's origin. Its digest covers only this operation, so that changes
// elsewhere in the document change no tool.
func (d *document) source(p *parts, core map[string]any) toolkeep.SourceSpec {
	meta := map[string]any{"title": d.title, "document_version": d.infoVersion, "method": p.op.method, "path": p.op.path}
	if p.op.id != "" {
		meta["operation_id"] = toolkeep.Clip(p.op.id, 300)
	}
	if len(d.opt.Overlays) > 0 {
		var list []any
		for _, o := range d.opt.Overlays {
			list = append(list, canon.Digest(o.Text))
		}
		meta["overlays"] = list
	}
	if n := len(p.server.others); n > 0 {
		var list []any
		for _, s := range p.server.others[:min(n, 20)] {
			list = append(list, s)
		}
		meta["servers"] = list
	}
	return toolkeep.SourceSpec{Type: "openapi", URI: d.main.name, Digest: canon.Digest(canon.Append(nil, core)), Metadata: meta}
}

// finish validates the manifest as publishing will, and assigns its version. The document's version
// says nothing about one operation.
func (d *document) finish(p *parts) (*PlannedTool, string) {
	for {
		core := d.core(p)
		tool, err := source.Settle(core, d.source(p, core), d.opt.Previous)
		if err == nil {
			return &PlannedTool{Tool: tool, Method: p.op.method, Path: p.op.path, OperationID: p.op.id}, ""
		}
		if !d.giveUp(p, err) {
			return nil, "its manifest is refused: " + toolkeep.Clip(catalog.FaultText(err), 600)
		}
	}
}

// giveUp removes optional parts the catalogue refuses: invalid examples, a result schema.
func (d *document) giveUp(p *parts, err error) bool {
	bad := map[string]bool{}
	for _, f := range catalog.Faults(err) {
		switch first := firstToken(f.Pointer); first {
		case "result_schema", "examples":
			bad[first] = true
		default:
			return false
		}
	}
	switch {
	case bad["result_schema"] && p.result != nil:
		d.warn("%s: its result has no schema: %s", p.op.label(), toolkeep.Clip(catalog.FaultText(err), 300))
		p.result = nil
	case bad["examples"] && p.examples != nil:
		p.examples = p.validExamples(err)
	default:
		return false
	}
	return true
}

// validExamples keeps the examples without faults.
func (p *parts) validExamples(err error) []any {
	wrong := map[string]bool{}
	for _, f := range catalog.Faults(err) {
		if tokens := strings.Split(f.Pointer, "/"); len(tokens) > 2 && tokens[1] == "examples" {
			wrong[tokens[2]] = true
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	var keep []any
	for i, e := range p.examples {
		if !wrong[strconv.Itoa(i)] {
			keep = append(keep, e)
		}
	}
	return keep
}

func firstToken(pointer string) string {
	tokens := strings.Split(pointer, "/")
	if len(tokens) < 2 {
		return ""
	}
	return tokens[1]
}
