package export

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/schema"
)

// Published limits; doc.go names their sources.
const (
	openaiProperties = 5000
	openaiDepth      = 10
	openaiText       = 120_000 // characters of names, enum and const values
	openaiEnum       = 1000    // values of all enums
	openaiLongEnum   = 250     // an enum with more values
	openaiEnumText   = 15_000  // may have this many characters

	anthropicStrict   = 20 // strict tools per request
	anthropicOptional = 24 // optional properties in all of them
	anthropicUnions   = 16 // properties of several types in all of them
)

var (
	toolNames = map[Form]*regexp.Regexp{
		OpenAI: regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`), Responses: regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`),
		Anthropic: regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`), Gemini: regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$`),
		MCP: regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`), LangChain: regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`),
	}
	anthropicProperty = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
)

// schemaMember is the member for the arguments schema, by form.
var schemaMember = map[Form]string{
	OpenAI: "parameters", Responses: "parameters", Anthropic: "input_schema", Gemini: "parametersJsonSchema", MCP: "inputSchema", LangChain: "args_schema",
}

// Validate checks one tool in a form's document against the provider's published limits. Pointers are relative to
// the tool. nil is valid.
func Validate(f Form, strict bool, tool map[string]any) []toolkeep.Fault {
	v := &validator{}
	at := ""
	if f == OpenAI {
		if tool["type"] != "function" {
			v.fault("/type", "const", "the type of a tool is function")
		}
		inner, ok := tool["function"].(map[string]any)
		if !ok {
			v.fault("/function", "required", "there is no function")
			return v.faults
		}
		at, tool = "/function", inner
	}
	if f == Responses && tool["type"] != "function" {
		v.fault("/type", "const", "the type of a tool is function")
	}
	name, _ := tool["name"].(string)
	if pattern := toolNames[f]; pattern == nil || !pattern.MatchString(name) {
		v.fault(at+"/name", "pattern", "the name %q does not match %v", toolkeep.Clip(name, 80), toolNames[f])
	}
	if d, ok := tool["description"].(string); !ok || d == "" {
		v.fault(at+"/description", "required", "there is no description")
	}
	member := schemaMember[f]
	s, ok := tool[member].(map[string]any)
	if !ok {
		v.fault(under(at, member), "type", "the schema of the arguments is an object")
		return v.faults
	}
	v.at, v.root = under(at, member), s
	if s["type"] != "object" {
		v.bad("/type", "const", "the arguments are an object")
	}
	v.references()
	switch f {
	case OpenAI, Responses:
		v.none("", s, "oneOf", "anyOf", "allOf", "enum", "const", "not")
		if _, ok := s["properties"].(map[string]any); !ok {
			v.bad("/properties", "required", "the schema has no properties")
		}
		if strict {
			v.openai()
		}
	case Anthropic:
		v.none("", s, "oneOf", "anyOf", "allOf")
		properties, _ := s["properties"].(map[string]any)
		for _, name := range keys(properties) {
			if !anthropicProperty.MatchString(name) {
				v.bad(under("/properties", name), "pattern", "the name does not match %s", anthropicProperty)
			}
		}
		if strict {
			v.anthropic()
		}
	case Gemini:
		v.gemini()
	}
	return v.faults
}

type validator struct {
	at     string
	root   map[string]any
	faults []toolkeep.Fault
}

const maxFaults = 100

func (v *validator) fault(at, rule, format string, args ...any) {
	if len(v.faults) < maxFaults {
		v.faults = append(v.faults, toolkeep.Fault{Pointer: at, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
}

// bad records a fault within the schema.
func (v *validator) bad(at, rule, format string, args ...any) {
	v.fault(v.at+at, rule, format, args...)
}

func (v *validator) none(at string, s map[string]any, names ...string) {
	for _, n := range names {
		if _, ok := s[n]; ok {
			v.bad(under(at, n), n, "%s may not stand here", n)
		}
	}
}

// only allows only the given keywords.
func (v *validator) only(at string, s map[string]any, allowed map[string]bool) {
	for _, k := range keys(s) {
		if !allowed[k] {
			v.bad(under(at, k), "unsupported", "the provider does not have %s", k)
		}
	}
}

// references checks that every reference is local and has a target.
func (v *validator) references() {
	schema.Walk(v.root, func(at string, s map[string]any) bool {
		ref, ok := s["$ref"].(string)
		if !ok {
			return true
		}
		c := converter{root: v.root}
		if _, _, ok := c.resolve(ref); !ok && (!strings.HasPrefix(ref, "#") || strings.HasPrefix(ref, "#/")) {
			v.bad(under(at, "$ref"), "$ref", "the reference leads nowhere")
		}
		return true
	})
}

var scalarTypes = set("string", "number", "integer", "boolean", "null")

// closedObjects requires additionalProperties false in every object.
func (v *validator) closedObjects(at string, s map[string]any) {
	if slices.Contains(types(s["type"]), "object") && s["additionalProperties"] != false {
		v.bad(under(at, "additionalProperties"), "additionalProperties", "the object is not closed")
	}
}

func (v *validator) typeKnown(at string, s map[string]any) {
	kinds := types(s["type"])
	if len(kinds) == 0 && !has(s, "anyOf", "$ref", "enum", "const") {
		v.bad(under(at, "type"), "required", "the schema has no type")
	}
	for _, k := range kinds {
		if !scalarTypes[k] && k != "object" && k != "array" {
			v.bad(under(at, "type"), "enum", "there is no type %q", toolkeep.Clip(k, 40))
		}
	}
}

var (
	openaiKeywords = set("type", "title", "description", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf",
		"$ref", "$defs", "pattern", "format", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "minItems", "maxItems")
	openaiFormats = set("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")

	anthropicKeywords = set("type", "title", "description", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf",
		"allOf", "$ref", "$defs", "definitions", "default", "pattern", "format", "minItems")
	anthropicFormats = set("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")

	geminiKeywords = set("$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems",
		"maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering")
)

// openai checks the limits of OpenAI's strict mode.
func (v *validator) openai() {
	properties, text, values := 0, 0, 0
	schema.Walk(v.root, func(at string, s map[string]any) bool {
		v.only(at, s, openaiKeywords)
		v.typeKnown(at, s)
		v.closedObjects(at, s)
		if _, ok := s["$ref"]; ok && len(s) > 1 {
			v.bad(under(at, "$ref"), "$ref", "nothing may stand beside a $ref")
		}
		if f, ok := s["format"]; ok && !openaiFormats[fmt.Sprint(f)] {
			v.bad(under(at, "format"), "format", "the provider does not have the format")
		}
		p, _ := s["properties"].(map[string]any)
		required := strs(s["required"])
		for name := range p {
			properties++
			text += utf8.RuneCountInString(name)
		}
		for _, name := range keys(p) {
			if !slices.Contains(required, name) {
				v.bad(under(at, "required"), "required", "%q is not required", toolkeep.Clip(name, 80))
			}
		}
		for _, name := range required {
			if _, ok := p[name]; !ok {
				v.bad(under(at, "required"), "required", "%q is no property", toolkeep.Clip(name, 80))
			}
		}
		if slices.Contains(types(s["type"]), "array") && s["items"] == nil {
			v.bad(under(at, "items"), "required", "an array says what is in it")
		}
		defs, _ := s["$defs"].(map[string]any)
		for name := range defs {
			text += utf8.RuneCountInString(name)
		}
		list, _ := s["enum"].([]any)
		own := 0
		for _, e := range list {
			own += length(e)
			if k := kindOf(e); k == "object" || k == "array" {
				v.bad(under(at, "enum"), "enum", "a value of an enum is an %s", k)
			}
		}
		if len(list) > openaiLongEnum && own > openaiEnumText {
			v.bad(under(at, "enum"), "enum", "the %d values have %d characters; at most %d may", len(list), own, openaiEnumText)
		}
		values += len(list)
		text += own + length(s["const"])
		return true
	})
	if properties > openaiProperties {
		v.bad("", "properties", "there are %d properties; at most %d may be", properties, openaiProperties)
	}
	if text > openaiText {
		v.bad("", "length", "names and values have %d characters; at most %d may", text, openaiText)
	}
	if values > openaiEnum {
		v.bad("", "enum", "all enums have %d values; at most %d may", values, openaiEnum)
	}
	if d := depth(v.root); d > openaiDepth {
		v.bad("", "depth", "objects are nested %d deep; at most %d levels may be", d, openaiDepth)
	}
}

// length counts the characters of a value that counts as text.
func length(e any) int {
	switch e := e.(type) {
	case string:
		return utf8.RuneCountInString(e)
	case json.Number:
		return len(e)
	}
	return 0
}

// depth returns the nesting depth of objects, through references too. A reference back to a schema in progress
// counts no further.
func depth(root map[string]any) int {
	known, busy := map[string]int{}, map[string]bool{}
	var of func(v any) int
	of = func(v any) int {
		s, ok := v.(map[string]any)
		if !ok {
			return 0
		}
		deepest := 0
		if ref, ok := s["$ref"].(string); ok {
			if d, ok := known[ref]; ok {
				return d
			}
			c := converter{root: root}
			if target, _, ok := c.resolve(ref); ok && ref != "#" && !busy[ref] {
				busy[ref] = true
				known[ref] = of(target)
				busy[ref] = false
				return known[ref]
			}
			return 0
		}
		for p, child := range schema.Below(s) {
			if k := p.Keyword.Name; k != "$defs" && k != "definitions" {
				deepest = max(deepest, of(child))
			}
		}
		if slices.Contains(types(s["type"]), "object") {
			deepest++
		}
		return deepest
	}
	return of(root)
}

// anthropic checks the limits of Anthropic's strict mode for one tool.
func (v *validator) anthropic() {
	schema.Walk(v.root, func(at string, s map[string]any) bool {
		v.only(at, s, anthropicKeywords)
		v.typeKnown(at, s)
		v.closedObjects(at, s)
		if f, ok := s["format"]; ok && !anthropicFormats[fmt.Sprint(f)] {
			v.bad(under(at, "format"), "format", "the provider does not have the format")
		}
		if n, ok := s["minItems"]; ok && n != json.Number("0") && n != json.Number("1") {
			v.bad(under(at, "minItems"), "minItems", "minItems is 0 or 1")
		}
		list, _ := s["allOf"].([]any)
		for _, e := range list {
			if m, _ := e.(map[string]any); m["$ref"] != nil {
				v.bad(under(at, "allOf"), "allOf", "an allOf holds no $ref")
			}
		}
		values, _ := s["enum"].([]any)
		for _, e := range values {
			if k := kindOf(e); k == "object" || k == "array" {
				v.bad(under(at, "enum"), "enum", "a value of an enum is an %s", k)
			}
		}
		return true
	})
	if name := cycle(v.root, false); name != "" {
		v.bad(under("/$defs", name), "recursion", "the schema leads back to itself")
	}
}

// gemini checks the limits of responseJsonSchema, which parametersJsonSchema shares.
func (v *validator) gemini() {
	schema.Walk(v.root, func(at string, s map[string]any) bool {
		v.only(at, s, geminiKeywords)
		if _, ok := s["$ref"]; ok {
			for _, k := range keys(s) {
				if k[0] != '$' {
					v.bad(under(at, k), "$ref", "nothing but $… may stand beside a $ref")
				}
			}
		}
		values, _ := s["enum"].([]any)
		for _, e := range values {
			if k := kindOf(e); k != "string" && k != "number" {
				v.bad(under(at, "enum"), "enum", "a value of an enum is a string or a number, not %s", k)
			}
		}
		return true
	})
	if name := requiredCycle(v.root); name != "" {
		v.bad(under("/$defs", name), "recursion", "the schema leads back to itself without an optional property between")
	}
}

// requiredCycle returns a definition that refers back to itself through required properties only, "" for none.
func requiredCycle(root map[string]any) string { return cycle(root, true) }

// cycle returns a definition that refers back to itself. With lazy, paths through optional properties do not count.
// "#" is the root.
func cycle(root map[string]any, lazy bool) string {
	defs, _ := root["$defs"].(map[string]any)
	body := maps.Clone(root)
	delete(body, "$defs")
	// leads lists the definitions that a schema refers to.
	var leads func(v any, to map[string]bool)
	leads = func(v any, to map[string]bool) {
		s, ok := v.(map[string]any)
		if !ok {
			return
		}
		if ref, ok := s["$ref"].(string); ok {
			to[strings.TrimPrefix(ref, "#/$defs/")] = true
		}
		required := strs(s["required"])
		for p, child := range schema.Below(s) {
			switch p.Keyword.Name {
			case "$defs", "definitions":
				continue
			case "properties":
				if lazy && !slices.Contains(required, p.Name) {
					continue
				}
			}
			leads(child, to)
		}
	}
	edges := map[string][]string{}
	add := func(name string, s any) {
		to := map[string]bool{}
		leads(s, to)
		edges[name] = slices.Sorted(maps.Keys(to))
	}
	add("#", body)
	for _, name := range keys(defs) {
		add(name, defs[name])
	}
	state := map[string]int{} // 1 in progress, 2 done
	var walk func(name string) string
	walk = func(name string) string {
		state[name] = 1
		for _, next := range edges[name] {
			if state[next] == 1 {
				return next
			}
			if state[next] == 0 {
				if found := walk(next); found != "" {
					return found
				}
			}
		}
		state[name] = 2
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(edges)) {
		if state[name] == 0 {
			if found := walk(name); found != "" {
				return found
			}
		}
	}
	return ""
}

// request counts what Anthropic limits over all strict tools of a request.
type request struct{ tools, optional, unions int }

func newRequest() *request { return &request{} }

// takes counts a tool if it fits with the others, else returns why not.
func (r *request) takes(s map[string]any) string {
	optional, unions := 0, 0
	schema.Walk(s, func(_ string, s map[string]any) bool {
		p, _ := s["properties"].(map[string]any)
		required := strs(s["required"])
		for name := range p {
			if !slices.Contains(required, name) {
				optional++
			}
		}
		if s["anyOf"] != nil || len(types(s["type"])) > 1 {
			unions++
		}
		return true
	})
	switch {
	case r.tools+1 > anthropicStrict:
		return fmt.Sprintf("Anthropic takes at most %d strict tools a request", anthropicStrict)
	case r.optional+optional > anthropicOptional:
		return fmt.Sprintf("Anthropic takes at most %d optional properties in all strict tools of a request; with this tool's %d there would be more", anthropicOptional, optional)
	case r.unions+unions > anthropicUnions:
		return fmt.Sprintf("Anthropic takes at most %d properties of several types in all strict tools of a request; with this tool's %d there would be more", anthropicUnions, unions)
	}
	r.tools, r.optional, r.unions = r.tools+1, r.optional+optional, r.unions+unions
	return ""
}
