package catalog

import (
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// unhonouredField is a field of a manifest that this build does not honour.
type unhonouredField struct {
	pointer string
	// asks tells whether a value of the field asks for anything; nil: any value does.
	asks func(v any) bool
	// refused is the code that a call ends with, "" if the call runs without what the field asks for. demanded, then
	// set, is asks for a decoded manifest.
	refused  toolkeep.Code
	demanded func(m *toolkeep.Manifest) bool
	why      string // of refused
}

// unhonoured is the only list of these fields. A change that honours a field removes its line.
var unhonoured = []unhonouredField{
	{pointer: "/checkpoint"},
	{pointer: "/compatibility_range"},
	{pointer: "/cost"},
	{pointer: "/document_dependencies", asks: func(v any) bool { list, _ := v.([]any); return len(list) > 0 },
		refused:  toolkeep.DocumentUnavailable,
		demanded: func(m *toolkeep.Manifest) bool { return len(m.DocumentDependencies) > len("[]") },
		why:      "the tool depends on documents (document_dependencies) and this build has no document bridge"},
	{pointer: "/execution/bandwidth_mbps", asks: positive},
	{pointer: "/execution/cpu_millicores"},
	{pointer: "/execution/disk_mb", asks: positive},
	{pointer: "/execution/memory_mb"},
	{pointer: "/execution/sandbox", asks: func(v any) bool { return v != "none" },
		refused:  toolkeep.SandboxUnavailable,
		demanded: func(m *toolkeep.Manifest) bool { return m.Execution.Sandbox != "" && m.Execution.Sandbox != "none" },
		why:      "the tool demands isolation (execution.sandbox) and this build has no sandbox"},
	{pointer: "/health", asks: noEndpoint}, // then there is nothing to probe
}

func noEndpoint(v any) bool {
	m, _ := v.(map[string]any)
	return m["endpoint"] == nil || m["endpoint"] == ""
}

func positive(v any) bool { n, ok := number(v); return !ok || n.Sign() > 0 }

// Unmet returns the refusal of a tool whose manifest demands what cannot be met, nil for any other: E3925 for isolation,
// E3941 for documents, E3723 for strict results without a schema.
func Unmet(m *toolkeep.Manifest) *toolkeep.Error {
	for _, f := range unhonoured {
		if f.refused != "" && f.demanded(m) {
			e := toolkeep.NewError(f.refused, "%s; it never runs without", f.why).With("field", f.pointer)
			e.Retryable = false // this build will not have it later
			return e
		}
	}
	if strictWithoutSchema(m) {
		return toolkeep.NewError(toolkeep.ResultSchemaMissing, "%s", noResultSchema).With("field", "/result/strict")
	}
	return nil
}

func strictWithoutSchema(m *toolkeep.Manifest) bool {
	return m.Result != nil && m.Result.StrictAsked && len(m.ResultSchema) == 0
}

const noResultSchema = "the manifest asks for strict results (result.strict) and has no result_schema to check them by; add the schema, or remove result.strict"

// warnUnhonoured warns of what Unmet refuses, with that code, and of the other fields of a manifest that this build does
// not honour, with one E3015 that names them all.
func warnUnhonoured(t *toolkeep.Tool) []toolkeep.Warning {
	tree, err := parseTree(t.Raw)
	if err != nil {
		return nil // impossible: it was parsed before
	}
	var out []toolkeep.Warning
	var ignored []string
	if strictWithoutSchema(t.Manifest) {
		out = append(out, refusing(toolkeep.ResultSchemaMissing, noResultSchema, "/result/strict"))
	}
	for _, f := range unhonoured {
		v, there := canon.Lookup(tree, f.pointer)
		switch {
		case !there || f.asks != nil && !f.asks(v):
		case f.refused != "":
			out = append(out, refusing(f.refused, f.why, f.pointer))
		default:
			ignored = append(ignored, f.pointer)
		}
	}
	if len(ignored) > 0 {
		out = append(out, toolkeep.Warning{Code: toolkeep.FieldIgnored, Message: "this build ignores " + strings.Join(ignored, ", ") + " of the manifest; calls run without what they ask for",
			Details: map[string]any{"fields": ignored}})
	}
	return out
}

func refusing(code toolkeep.Code, why, pointer string) toolkeep.Warning {
	return toolkeep.Warning{Code: code, Message: why + "; every call is refused with " + string(code), Details: map[string]any{"fields": []string{pointer}}}
}
