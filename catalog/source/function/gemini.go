package function

import (
	"encoding/json"
	"strings"

	"github.com/toolkeep/toolkeep/canon"
)

// either reads a member by its camelCase or its Python name.
func either(v map[string]any, camel, snake string) any {
	if x := v[camel]; x != nil {
		return x
	}
	return v[snake]
}

func readGemini(d *definition, v map[string]any) {
	d.take(v, "parameters", "parametersJsonSchema", "parameters_json_schema", "response", "responseJsonSchema", "response_json_schema")
	if s := either(v, "parametersJsonSchema", "parameters_json_schema"); s != nil {
		d.parameters = s
	} else if d.parameters != nil {
		d.parameters = fromDialect(d.parameters, 0)
	}
	if s := either(v, "responseJsonSchema", "response_json_schema"); s != nil {
		d.result = s
	} else if s := v["response"]; s != nil {
		d.result = fromDialect(s, 0)
	}
}

// dialectTypes are the types of Gemini's Schema, which are OpenAPI 3.0's in capitals
// (type.googleapis.com/google.ai.generativelanguage.v1beta.Schema).
var dialectTypes = map[string]string{
	"STRING": "string", "NUMBER": "number", "INTEGER": "integer", "BOOLEAN": "boolean", "ARRAY": "array", "OBJECT": "object", "NULL": "null",
}

// numeric are its 64-bit integers, which protobuf's JSON writes as text.
var numeric = map[string]bool{
	"minItems": true, "maxItems": true, "minLength": true, "maxLength": true, "minProperties": true, "maxProperties": true,
}

// camel maps the names that Python's library writes with underscores.
var camel = map[string]string{
	"any_of": "anyOf", "min_items": "minItems", "max_items": "maxItems", "min_length": "minLength", "max_length": "maxLength",
	"min_properties": "minProperties", "max_properties": "maxProperties", "property_ordering": "propertyOrdering",
	"additional_properties": "additionalProperties", "prefix_items": "prefixItems",
}

// fromDialect converts one schema of the dialect to JSON Schema.
func fromDialect(v any, depth int) any {
	s, ok := v.(map[string]any)
	if !ok || depth > 190 {
		return v
	}
	out := make(map[string]any, len(s))
	for name, value := range s {
		if to := camel[name]; to != "" {
			name = to
		}
		switch name {
		case "type", "nullable", "enum", "example", "propertyOrdering":
		case "format":
			if value != "enum" { // only repeats that there is an enum
				out[name] = value
			}
		case "properties", "defs":
			if m, ok := value.(map[string]any); ok {
				each := make(map[string]any, len(m))
				for k, p := range m {
					each[k] = fromDialect(p, depth+1)
				}
				value = each
			}
			if name == "defs" {
				name = "$defs"
			}
			out[name] = value
		case "items", "additionalProperties":
			out[name] = fromDialect(value, depth+1)
		case "anyOf", "prefixItems":
			if list, ok := value.([]any); ok {
				each := make([]any, len(list))
				for i, e := range list {
					each[i] = fromDialect(e, depth+1)
				}
				value = each
			}
			out[name] = value
		case "ref":
			if ref, ok := value.(string); ok {
				out["$ref"] = strings.Replace(ref, "#/defs/", "#/$defs/", 1)
			}
		default:
			if text, ok := value.(string); ok && numeric[name] && canon.IsNumber(text) {
				value = json.Number(text)
			}
			out[name] = value
		}
	}
	kind := typeOf(s, out)
	if list, ok := s["enum"].([]any); ok {
		out["enum"] = enumOf(list, kind, s["nullable"] == true)
	}
	if example, ok := s["example"]; ok {
		out["examples"] = []any{example}
	}
	return out
}

// typeOf sets the type, plus null if the dialect says nullable, and returns it.
func typeOf(s, out map[string]any) string {
	name, _ := s["type"].(string)
	kind := dialectTypes[strings.ToUpper(name)]
	nullable := s["nullable"] == true
	switch {
	case kind == "" && name != "" && strings.ToUpper(name) != "TYPE_UNSPECIFIED":
		out["type"] = s["type"] // the catalogue reports what is wrong with it
	case kind == "":
		if list, ok := out["anyOf"].([]any); ok && nullable {
			out["anyOf"] = append(list, map[string]any{"type": "null"})
		}
	case nullable && kind != "null":
		out["type"] = []any{kind, "null"}
	default:
		out["type"] = kind
	}
	return kind
}

// enumOf converts enum values, which are always text in the dialect, to their type.
func enumOf(list []any, kind string, nullable bool) []any {
	out := make([]any, 0, len(list)+1)
	for _, v := range list {
		text, ok := v.(string)
		if ok && (kind == "integer" || kind == "number") && canon.IsNumber(text) {
			v = json.Number(text)
		}
		if v == nil {
			nullable = false
		}
		out = append(out, v)
	}
	if nullable {
		out = append(out, nil)
	}
	return out
}
