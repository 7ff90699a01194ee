package mcp

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/promptscan"
)

// Kind is the execution.kind of the tools.
const Kind = "mcp"

const (
	maxTitle       = 200
	maxDescription = 8000
	maxIcons       = 8
)

// core returns the manifest without version and source, the tool's identity. absent are the
// manifest members missing in the definition.
func (o *Options) core(tree map[string]any, id, tool string, result any) (m map[string]any, absent []any) {
	rest := maps.Clone(tree)
	m = map[string]any{
		"schema_version":    1,
		"tool_id":           id,
		"category":          "mcp",
		"parameters_schema": tree["inputSchema"],
		"side_effects":      "writes",
		"risk":              "low",
		"execution":         map[string]any{"kind": Kind, "binding": map[string]any{"server": o.Server, "tool": tool}},
	}
	if o.Timeout > 0 {
		m["execution"].(map[string]any)["timeout_ms"] = max(o.Timeout.Milliseconds(), 1)
	}
	delete(rest, "name")
	delete(rest, "inputSchema")

	hints, _ := tree["annotations"].(map[string]any)
	if title, ok := tree["title"].(string); ok && title != "" {
		m["tool_name"] = toolkeep.Clip(title, maxTitle)
		if m["tool_name"] == title {
			delete(rest, "title")
		}
	} else {
		title, _ = hints["title"].(string)
		m["tool_name"] = toolkeep.Clip(orElse(title, tool), maxTitle)
		absent = absentUnless(absent, tree, "title")
	}
	if text, ok := tree["description"].(string); ok && text != "" {
		m["description"] = toolkeep.Clip(text, maxDescription)
		if m["description"] == text {
			delete(rest, "description")
		}
	} else {
		m["description"] = toolkeep.Clip("The tool "+tool+" of the MCP server "+o.Server+", which says no more about it.", maxDescription)
		absent = absentUnless(absent, tree, "description")
	}
	if s := shortDescription(m["description"].(string)); s != "" {
		m["short_description"] = s
	}
	if icons, ok := tree["icons"].([]any); ok && len(icons) <= maxIcons && allObjects(icons) {
		m["icons"] = icons
		delete(rest, "icons")
	}
	if result != nil {
		m["result_schema"] = result
		if same(outputOf(result), tree["outputSchema"]) {
			delete(rest, "outputSchema")
		}
	}
	if hints["readOnlyHint"] == true && o.TrustAnnotations {
		m["side_effects"] = "reads"
	}
	if hints["idempotentHint"] == true && o.TrustAnnotations {
		m["idempotent"] = true
	}
	if hints["destructiveHint"] == true {
		m["risk"] = "medium"
	}
	if len(rest) > 0 {
		m["annotations"] = map[string]any{"mcp": rest}
	}
	return m, absent
}

func absentUnless(absent []any, tree map[string]any, name string) []any {
	if _, has := tree[name]; has {
		return absent
	}
	return append(absent, name)
}

func orElse(s, d string) string {
	if strings.TrimSpace(s) == "" {
		return d
	}
	return s
}

var sentenceEnd = regexp.MustCompile(`[.!?]\s`)

// shortDescription returns the first sentence of the first line.
func shortDescription(s string) string {
	for line := range strings.Lines(s) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}
		if i := sentenceEnd.FindStringIndex(line); i != nil && utf8.RuneCountInString(line) > 100 {
			line = line[:i[0]+1]
		}
		return toolkeep.Clip(line, 100)
	}
	return ""
}

func allObjects(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(map[string]any); return !ok })
}

// same compares trees by content; numbers by their text.
func same(a, b any) bool { return string(canon.Append(nil, a)) == string(canon.Append(nil, b)) }

func (o *Options) encode(core map[string]any, version, digest, tool string, absent []any) []byte {
	m := maps.Clone(core)
	m["version"] = version
	meta := map[string]any{"server": o.Server, "tool": tool}
	if len(absent) > 0 {
		meta["absent"] = absent
	}
	m["source"] = map[string]any{"type": "mcp", "digest": digest, "metadata": meta}
	return canon.Append(nil, m)
}

// tool plans one definition; nil if it is refused.
func (r *reader) tool(d *definition) *PlannedTool {
	id := r.o.Namespace + "." + d.name
	digest, err := Digest(d.raw)
	if err != nil {
		d.refuse("the definition has no RFC 8785 form: %s", readFault(err))
		return nil
	}
	d.digest = digest
	if schema, has := d.tree["inputSchema"]; !has || schema == nil {
		d.refuse("the definition has no inputSchema")
		return nil
	}
	if execution, _ := d.tree["execution"].(map[string]any); execution["taskSupport"] == "required" {
		d.refuse("the tool can only be called as a task (execution.taskSupport is required), which is not supported yet")
		return nil
	}
	var result any
	if output, has := d.tree["outputSchema"]; has && output != nil {
		result = resultSchema(output)
		if result == nil {
			r.warn("%s: its outputSchema is no schema and is not checked", shown(d.tool))
		}
	}
	t := &PlannedTool{ID: id, Tool: d.tool, Digest: digest, Version: catalog.FirstVersion, Change: ChangeNew}
	old := r.previous(id)
	if old != nil {
		t.Version = old.Version
	}
	for {
		core, absent := r.o.core(d.tree, id, d.tool, result)
		if old != nil && pinned(old) == digest && catalog.SameContent(old, core) {
			t.Change, t.Manifest = ChangeUnchanged, old.Raw
			break
		}
		t.Manifest = r.o.encode(core, t.Version, digest, d.tool, absent)
		if t.Checked, err = catalog.Check(t.Manifest); err == nil {
			break
		}
		if result == nil || !only(catalog.Faults(err), "/result_schema") {
			d.refuse("%s", toolkeep.Clip(promptscan.Visible(refusal(err)), 600))
			return nil
		}
		// The tool works without; annotations.mcp preserves it.
		r.warn("%s: its outputSchema is not checked: %s", shown(d.tool), toolkeep.Clip(promptscan.Visible(refusal(err)), 300))
		result = nil
	}
	t.Findings = scan(d.tree, r.o.Server, r.o.Known, r.own)
	if t.Change == ChangeUnchanged || old == nil {
		return t
	}
	version, change, ok := catalog.NextVersion(old, t.Checked.Tool())
	if !ok {
		d.refuse("the published version %s is not a SemVer version", toolkeep.Clip(old.Version, 60))
		return nil
	}
	if t.Checked, err = t.Checked.Renumbered(version); err != nil {
		d.refuse("%s", toolkeep.Clip(promptscan.Visible(refusal(err)), 600))
		return nil
	}
	t.Version, t.Change, t.Manifest = version, change, t.Checked.Raw()
	t.Additive = r.additive(old, d, t)
	return t
}

// additive reports whether a policy that accepts only additive changes may accept the change.
func (r *reader) additive(old *toolkeep.Tool, d *definition, t *PlannedTool) bool {
	if t.Change == catalog.BumpMajor {
		return false
	}
	before, err := Definition(old)
	if err != nil {
		return false
	}
	for _, c := range Diff(before, d.raw) {
		if c.Kind != catalog.KindAdditive {
			return false
		}
	}
	was, err := canon.ParseObject(before, definitionLimits)
	if err != nil {
		return false
	}
	found := scan(was, r.o.Server, r.o.Known, r.own)
	for _, f := range t.Findings {
		if f.Severity == High && !slices.Contains(found, f) {
			return false
		}
	}
	return true
}

// pinned returns the digest of a tool's definition.
func pinned(t *toolkeep.Tool) string {
	if t.Manifest == nil || t.Manifest.Source == nil {
		return ""
	}
	return t.Manifest.Source.Digest
}

// only reports whether there are faults and all are at or below the pointer.
func only(faults []toolkeep.Fault, pointer string) bool {
	for _, f := range faults {
		if f.Pointer != pointer && !strings.HasPrefix(f.Pointer, pointer+"/") {
			return false
		}
	}
	return len(faults) > 0
}

// refusal describes a fault in terms of the definition.
func refusal(err error) string {
	faults := catalog.Faults(err)
	if len(faults) == 0 {
		return catalog.FaultText(err)
	}
	return "at " + inDefinition(faults[0].Pointer) + ": " + faults[0].Message
}

func shown(tool string) string { return toolkeep.Clip(promptscan.OneLine(tool), 80) }

// Definition restores the definition a tool was published with from its manifest, in RFC 8785 form:
// its digest is the tool's source.digest.
//
// Errors: E3008 if the tool was not made by this package, E3003 if its stored manifest is damaged.
func Definition(t *toolkeep.Tool) ([]byte, error) {
	t, err := t.Whole()
	if err != nil {
		return nil, err
	}
	tree, err := canon.ParseObject(t.Raw, canon.Limits{Bytes: catalog.MaxManifestBytes, Depth: catalog.MaxManifestDepth, Properties: 20_000, Elements: 100_000})
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the manifest of %s cannot be read", t.ID).Because(err)
	}
	name := toolOf(t)
	if name == "" {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "%s was not made from the definition of an MCP server", t.ID)
	}
	def := map[string]any{"name": name}
	move := func(from, to string) {
		if v, has := tree[from]; has {
			def[to] = v
		}
	}
	move("parameters_schema", "inputSchema")
	move("tool_name", "title")
	move("description", "description")
	move("icons", "icons")
	if v, has := tree["result_schema"]; has {
		def["outputSchema"] = outputOf(v)
	}
	source, _ := tree["source"].(map[string]any)
	meta, _ := source["metadata"].(map[string]any)
	absent, _ := meta["absent"].([]any)
	for _, v := range absent {
		if s, ok := v.(string); ok {
			delete(def, s)
		}
	}
	// Members that were cut or moved are preserved here.
	annotations, _ := tree["annotations"].(map[string]any)
	rest, _ := annotations["mcp"].(map[string]any)
	maps.Copy(def, rest)
	return canon.JCS(canon.Append(nil, def))
}
