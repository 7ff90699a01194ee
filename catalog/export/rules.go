package export

import "encoding/json"

// rules are the subset of JSON Schema that a form accepts.
type rules struct {
	who        string
	closed     bool // every object has additionalProperties false
	required   bool // every property is required; optional ones are nullable
	oneOf      bool
	tuples     bool            // prefixItems
	constant   bool            // const
	open       bool            // additionalProperties may be a schema
	anything   bool            // a schema may omit the type
	bounded    bool            // minItems is 0 or 1 and there are no other bounds
	values     map[string]bool // kinds of enum values
	keywords   map[string]bool // kept unchanged
	formats    map[string]bool // nil is any
	limitNames bool            // Anthropic's limits apply to argument names
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

var (
	openaiRules = rules{
		who: "OpenAI's strict mode", closed: true, required: true, constant: true,
		values: set("string", "number", "boolean", "null"),
		keywords: set("title", "description", "pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
			"minItems", "maxItems"),
		formats: set("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
	}
	anthropicRules = rules{
		who: "Anthropic's strict mode", closed: true, constant: true, bounded: true, limitNames: true,
		values:   set("string", "number", "boolean", "null"),
		keywords: set("title", "description", "default", "pattern", "format", "minItems"),
		formats:  set("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
	}
	geminiRules = rules{
		who: "Gemini", oneOf: true, tuples: true, open: true, anything: true,
		values:   set("string", "number"),
		keywords: set("title", "description", "format", "minimum", "maximum", "minItems", "maxItems"),
	}
)

// has reports whether the form has a keyword.
func (r *rules) has(k string) bool {
	switch k {
	case "type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "$ref", "$defs":
		return true
	case "const":
		return r.constant
	case "oneOf":
		return r.oneOf
	case "prefixItems":
		return r.tuples
	}
	return r.keywords[k]
}

// takes reports whether the form has a keyword with this value.
func (r *rules) takes(k string, v any) bool {
	switch k {
	case "format":
		name, _ := v.(string)
		return r.formats == nil || r.formats[name]
	case "minItems":
		return !r.bounded || v == json.Number("0") || v == json.Number("1")
	}
	return true
}

// descriptive keywords say nothing about which values are valid.
var descriptive = set("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")

// silent keywords mean nothing to a model or a provider.
var silent = set("$schema", "$id", "$comment", "$anchor", "$vocabulary", "$defs", "definitions")
