package mcp

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// outputID is the prefix of the $id a schema gets when it moves from a document's root into a
// property, so that its internal references still resolve. A hash of the schema follows: some
// clients refuse two schemas with the same $id.
const outputID = "urn:toolkeep:mcp:output:"

// OutputSchema is the outputSchema of the definition that a manifest was made
// of, nil if it has none or it is unusable.
func OutputSchema(m *toolkeep.Manifest) []byte {
	if len(m.ResultSchema) == 0 {
		return nil
	}
	tree, err := canon.Parse(m.ResultSchema, definitionLimits)
	if err != nil {
		return nil
	}
	output := outputOf(tree)
	if output == nil {
		return nil
	}
	return canon.Append(nil, output)
}

// resultSchema returns the schema of a CallToolResult whose structured content has the given
// schema; nil if that is not a schema.
func resultSchema(output any) any {
	inner := output
	wrapper := map[string]any{}
	switch o := output.(type) {
	case bool:
	case map[string]any:
		// The draft applies to the whole document.
		draft, _ := o["$schema"].(string)
		if draft != "" {
			wrapper["$schema"] = draft
		}
		inner = withID(o, draft)
	default:
		return nil
	}
	wrapper["type"] = "object"
	wrapper["properties"] = map[string]any{"structuredContent": inner}
	wrapper["required"] = []any{"structuredContent"}
	return wrapper
}

// withID gives the schema an $id if it needs one.
func withID(o map[string]any, draft string) map[string]any {
	key := "$id"
	if strings.Contains(draft, "draft-04") {
		key = "id"
	}
	if _, has := o[key]; has || !refersInside(o) {
		return o
	}
	out := maps.Clone(o)
	sum := canon.Hash(o)
	out[key] = outputID + hex.EncodeToString(sum[:8])
	ref, refers := o["$ref"]
	_, combined := o["allOf"]
	if old := oldDraft(draft); old && refers && !combined {
		// These drafts ignore keywords next to $ref, so $ref moves to a place of its own.
		delete(out, "$ref")
		out["allOf"] = []any{map[string]any{"$ref": ref}}
	}
	return out
}

func oldDraft(draft string) bool {
	return strings.Contains(draft, "draft-04") || strings.Contains(draft, "draft-06") || strings.Contains(draft, "draft-07")
}

// refersInside reports whether a reference points into the document.
func refersInside(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if s, ok := e.(string); ok {
				switch k {
				case "$ref", "$dynamicRef", "$recursiveRef":
					if strings.HasPrefix(s, "#") {
						return true
					}
				}
				continue
			}
			if refersInside(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, refersInside)
	}
	return false
}

// outputOf reverses resultSchema.
func outputOf(result any) any {
	wrapper, _ := result.(map[string]any)
	properties, _ := wrapper["properties"].(map[string]any)
	inner, ok := properties["structuredContent"].(map[string]any)
	if !ok {
		return properties["structuredContent"]
	}
	key := "$id"
	if !ours(inner[key]) {
		if key = "id"; !ours(inner[key]) {
			return inner
		}
	}
	out := maps.Clone(inner)
	delete(out, key)
	draft, _ := out["$schema"].(string)
	if parts, _ := out["allOf"].([]any); len(parts) == 1 && oldDraft(draft) {
		if only, _ := parts[0].(map[string]any); len(only) == 1 && only["$ref"] != nil {
			delete(out, "allOf")
			out["$ref"] = only["$ref"]
		}
	}
	return out
}

func ours(id any) bool {
	s, _ := id.(string)
	return strings.HasPrefix(s, outputID)
}
