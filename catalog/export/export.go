package export

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/mcp"
)

// Form is the output format.
type Form string

const (
	OpenAI    Form = "openai"           // tools of Chat Completions
	Responses Form = "openai-responses" // tools of OpenAI's Responses API
	Anthropic Form = "anthropic"        // tools of Messages
	Gemini    Form = "gemini"           // tools of generateContent
	MCP       Form = "mcp"              // the result of tools/list
	LangChain Form = "langchain"        // arguments of StructuredTool
)

// Forms lists all of them.
func Forms() []Form { return []Form{OpenAI, Responses, Anthropic, Gemini, MCP, LangChain} }

// Options are the options of Export.
type Options struct {
	Form Form
	// Strict asks OpenAI and Anthropic to make the model keep to the schema, which works only for a part of JSON
	// Schema. The other forms have no strict mode.
	Strict bool
}

// Loss is a part of a tool that the form cannot express.
type Loss struct {
	Tool    string `json:"tool"`
	Pointer string `json:"pointer" doc:"JSON Pointer into the tool's parameters_schema; empty is the whole"`
	Lost    string `json:"lost" doc:"the keyword or thing"`
	Why     string `json:"why"`
}

// Left is a tool that the form cannot express.
type Left struct {
	Tool   string `json:"tool"`
	Reason string `json:"reason"`
}

// Named maps a name to its tool.
type Named struct {
	Name    string `json:"name"`
	Tool    string `json:"tool"`
	Version string `json:"version"`
	Strict  bool   `json:"strict" doc:"the provider keeps the model to the schema"`
}

// Result is an export.
type Result struct {
	Document []byte // JSON as the provider takes it
	Names    []Named
	Losses   []Loss
	LeftOut  []Left
	Warnings []string
}

// MaxBytes is the maximum size of a document.
const MaxBytes = 32 << 20

// Export writes the tools, ordered by id, each in one version.
//
// Errors: E3310 for an unknown form, or a document over MaxBytes.
func Export(tools []*toolkeep.Tool, o Options) (*Result, error) {
	if !slices.Contains(Forms(), o.Form) {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "there is no form %q; use openai, openai-responses, anthropic, gemini, mcp and langchain", toolkeep.Clip(string(o.Form), 40))
	}
	tools = slices.Clone(tools)
	slices.SortStableFunc(tools, func(a, b *toolkeep.Tool) int { return strings.Compare(a.ID, b.ID) })
	res := &Result{Names: []Named{}, Losses: []Loss{}, LeftOut: []Left{}}
	names := namesOf(tools)
	request := newRequest()
	var entries []any
	size := 0
	for _, t := range tools {
		name := names[t.ID]
		entry, strict, losses, reason := one(t, name, o, request)
		if reason != "" {
			res.LeftOut = append(res.LeftOut, Left{t.ID, reason})
			continue
		}
		res.Names = append(res.Names, Named{name, t.ID, t.Version, strict})
		res.Losses = append(res.Losses, losses...)
		entries = append(entries, entry)
		if size += len(canon.Append(nil, entry)); size > MaxBytes {
			return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the export has over %d MiB; choose fewer tools, such as those of one namespace", MaxBytes>>20)
		}
	}
	res.Document = canon.Append(nil, document(o.Form, entries))
	if n := len(entries); n > maxFunctions && (o.Form == OpenAI || o.Form == Responses) {
		res.Warnings = append(res.Warnings, fmt.Sprintf("OpenAI accepts at most %d functions a request; these are %d", maxFunctions, n))
	}
	return res, nil
}

// namesOf returns each tool's name at the MCP face. An id that is too long is named by its hash; if that equals
// another tool's own name, the other tool is named by its hash too.
func namesOf(tools []*toolkeep.Tool) map[string]string {
	names, taken := make(map[string]string, len(tools)), make(map[string]bool, len(tools))
	for _, long := range []bool{true, false} {
		for _, t := range tools {
			name, hashed := mcp.ToolName(t.ID), mcp.NameWithHash(t.ID)
			if long != (name == hashed) {
				continue
			}
			if taken[name] {
				name = hashed
			}
			names[t.ID], taken[name] = name, true
		}
	}
	return names
}

// maxFunctions is OpenAI's limit per request (API reference, tools).
const maxFunctions = 128

// document returns the complete document of a form.
func document(f Form, entries []any) any {
	if entries == nil {
		entries = []any{}
	}
	switch f {
	case Gemini:
		return []any{map[string]any{"functionDeclarations": entries}}
	case MCP:
		return map[string]any{"tools": entries}
	}
	return entries
}

// one writes one tool. If strict is requested but impossible, the tool is written without, and that is a loss.
func one(t *toolkeep.Tool, name string, o Options, request *request) (entry map[string]any, strict bool, losses []Loss, reason string) {
	strict = o.Strict && (o.Form == OpenAI || o.Form == Responses || o.Form == Anthropic)
	var loosened string
	if strict {
		var schema map[string]any
		schema, losses, reason = parameters(t, o.Form, true)
		if reason == "" {
			entry = write(t, name, o.Form, schema, true)
			reason = faulty(o.Form, true, entry)
		}
		if reason == "" && o.Form == Anthropic {
			reason = request.takes(schema)
		}
		if reason == "" {
			return entry, true, losses, ""
		}
		loosened = reason
	}
	schema, losses, reason := parameters(t, o.Form, false)
	if reason != "" {
		return nil, false, nil, reason
	}
	entry = write(t, name, o.Form, schema, false)
	if reason := faulty(o.Form, false, entry); reason != "" {
		return nil, false, nil, reason
	}
	if loosened != "" {
		losses = append([]Loss{{t.ID, "", "strict", loosened}}, losses...)
	}
	return entry, false, losses, ""
}

// faulty returns why an entry cannot be sent, "" if it can.
func faulty(f Form, strict bool, entry map[string]any) string {
	faults := Validate(f, strict, entry)
	if len(faults) == 0 {
		return ""
	}
	at := cmp.Or(faults[0].Pointer, "the whole")
	return toolkeep.Clip("at "+at+": "+faults[0].Message, 400)
}

// write makes the entry of a form.
func write(t *toolkeep.Tool, name string, f Form, schema map[string]any, strict bool) map[string]any {
	m := t.Manifest
	entry := map[string]any{"name": name, "description": m.Description}
	switch f {
	case OpenAI:
		entry["parameters"] = schema
		if strict {
			entry["strict"] = true
		}
		return map[string]any{"type": "function", "function": entry}
	case Responses:
		// The Responses API treats a function without this member as strict.
		entry["type"], entry["parameters"], entry["strict"] = "function", schema, strict
	case Anthropic:
		entry["input_schema"] = schema
		if strict {
			entry["strict"] = true
		}
	case Gemini:
		entry["parametersJsonSchema"] = schema
	case LangChain:
		entry["args_schema"] = schema
	case MCP:
		return writeMCP(t, name, schema)
	}
	return entry
}

// writeMCP returns the tool as the MCP face shows it: tools from an MCP server as that server wrote them.
func writeMCP(t *toolkeep.Tool, name string, schema map[string]any) map[string]any {
	m := t.Manifest
	if m.Execution.Kind == "mcp" {
		if raw, err := source.Definition(t); err == nil {
			if def, err := canon.ParseObject(raw, treeLimits); err == nil {
				def["name"] = name
				delete(def, "execution")
				return def
			}
		}
	}
	entry := map[string]any{"name": name, "description": m.Description, "inputSchema": schema}
	if m.ToolName != "" {
		entry["title"] = m.ToolName
	}
	if len(m.Icons) > 0 {
		entry["icons"] = []any(m.Icons)
	}
	if mcp.Text(m.ResultSchema, "type") == "object" {
		if result, err := canon.Parse(m.ResultSchema, treeLimits); err == nil {
			entry["outputSchema"] = result
		}
	}
	writes := m.SideEffects == "writes"
	hints := map[string]any{"readOnlyHint": !writes, "idempotentHint": m.Idempotent || !writes, "openWorldHint": m.SideEffects != "none"}
	if writes && m.Risk != "low" {
		hints["destructiveHint"] = true
	}
	entry["annotations"] = hints
	return entry
}

// treeLimits are the limits of a manifest.
var treeLimits = canon.Limits{Bytes: catalog.MaxManifestBytes, Depth: catalog.MaxManifestDepth, Properties: 20_000, Elements: 100_000}

// parameters returns the schema of the tool's arguments in the form's subset of JSON Schema.
func parameters(t *toolkeep.Tool, f Form, strict bool) (schema map[string]any, losses []Loss, reason string) {
	tree, err := canon.Parse(t.Manifest.ParametersSchema, treeLimits)
	if err != nil {
		return nil, nil, "its parameters_schema cannot be read"
	}
	c := &converter{tool: t.ID, root: tree, budget: maxNodes}
	switch {
	case f == MCP || f == LangChain:
		schema, reason = c.object0()
	case f == Gemini:
		schema, reason = c.subset(&geminiRules)
	case strict && f == Anthropic:
		schema, reason = c.subset(&anthropicRules)
	case strict:
		schema, reason = c.subset(&openaiRules)
	default:
		schema, reason = c.verbatim(f)
	}
	return schema, c.lossList(), reason
}
