package export

// rules are the subset of JSON Schema that a form accepts.
type rules struct {
	who        string
	closed     bool // every object has additionalProperties false
	required   bool // every property is required; optional ones are nullable
	recursion  bool // a schema may refer back to itself
	lazy       bool // but only through an optional property
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
		who: "OpenAI's strict mode", closed: true, required: true, recursion: true, constant: true,
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
		who: "Gemini", recursion: true, lazy: true, oneOf: true, tuples: true, open: true, anything: true,
		values:   set("string", "number"),
		keywords: set("title", "description", "format", "minimum", "maximum", "minItems", "maxItems"),
	}
)

// silent keywords mean nothing to a model or a provider.
var silent = set("$schema", "$id", "$comment", "$anchor", "$vocabulary", "$defs", "definitions")
