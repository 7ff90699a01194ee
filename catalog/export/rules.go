package export

// rules are the part of JSON Schema that a form takes.
type rules struct {
	who        string
	closed     bool // every object has additionalProperties false
	required   bool // every property is required; optional ones are null where they are absent
	recursion  bool // a schema may lead back to itself
	lazy       bool // but only through an optional property
	oneOf      bool
	tuples     bool            // prefixItems
	constant   bool            // const
	open       bool            // additionalProperties may be a schema
	anything   bool            // a schema may say nothing of the type
	bounded    bool            // minItems is 0 or 1 and nothing else bounds
	values     map[string]bool // kinds of values of an enum
	keywords   map[string]bool // that are kept as they are
	formats    map[string]bool // nil is any
	limitNames bool            // the names of the arguments are limited as Anthropic does
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

// silent says nothing that a model or a provider reads.
var silent = set("$schema", "$id", "$comment", "$anchor", "$vocabulary", "$defs", "definitions")
