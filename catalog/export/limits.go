package export

import (
	"encoding/json"
	"fmt"
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
			v.subset(&openaiRules)
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
			v.subset(&anthropicRules)
		}
	case Gemini:
		v.subset(&geminiRules)
	}
	return v.faults
}

type validator struct {
	at     string
	root   map[string]any
	faults []toolkeep.Fault
}

func (v *validator) fault(at, rule, format string, args ...any) {
	if len(v.faults) < toolkeep.MaxFaults {
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
			v.bad(under(at, n), n, "%s is not allowed here", n)
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

// subset checks that the schema keeps to the rules.
func (v *validator) subset(r *rules) {
	schema.Walk(v.root, func(at string, s map[string]any) bool {
		kinds := types(s["type"])
		for _, k := range keys(s) {
			switch {
			case !r.has(k):
				v.bad(under(at, k), "unsupported", "the provider does not have %s", k)
			case !r.takes(k, s[k]):
				v.bad(under(at, k), k, "the provider does not have this %s", k)
			case k != "$ref" && s["$ref"] != nil:
				v.bad(under(at, k), "$ref", "nothing may stand beside a $ref")
			}
		}
		for _, k := range kinds {
			if !scalarTypes[k] && k != "object" && k != "array" {
				v.bad(under(at, "type"), "enum", "there is no type %q", toolkeep.Clip(k, 40))
			}
		}
		if len(kinds) == 0 && !r.anything && !has(s, "anyOf", "$ref", "enum", "const") {
			v.bad(under(at, "type"), "required", "the schema has no type")
		}
		if r.closed && slices.Contains(kinds, "object") && s["additionalProperties"] != false {
			v.bad(under(at, "additionalProperties"), "additionalProperties", "the object is not closed")
		}
		if !r.anything && slices.Contains(kinds, "array") && s["items"] == nil {
			v.bad(under(at, "items"), "required", "an array says what is in it")
		}
		values, _ := s["enum"].([]any)
		for _, e := range values {
			if k := kindOf(e); !r.values[k] {
				v.bad(under(at, "enum"), "enum", "a value of an enum is a %s", k)
			}
		}
		if p, _ := s["properties"].(map[string]any); r.required {
			required := strs(s["required"])
			slices.Sort(required)
			if !slices.Equal(required, keys(p)) {
				v.bad(under(at, "required"), "required", "it does not list exactly the properties")
			}
		}
		return true
	})
	if v.recursive() {
		v.bad("", "recursion", "the schema leads back to itself")
	}
}

// recursive reports whether a reference leads back to a schema that holds it.
func (v *validator) recursive() bool {
	const busy, done = 1, 2
	state := map[string]int{}
	c := converter{root: v.root}
	var back func(s map[string]any) bool
	back = func(s map[string]any) bool {
		return !schema.Walk(s, func(_ string, m map[string]any) bool {
			ref, ok := m["$ref"].(string)
			if !ok || state[ref] == done {
				return true
			}
			if state[ref] == busy {
				return false
			}
			state[ref] = busy
			target, _, _ := c.resolve(ref)
			if t, ok := target.(map[string]any); ok && back(t) {
				return false
			}
			state[ref] = done
			return true
		})
	}
	return back(v.root)
}

// openai checks the sizes of OpenAI's strict mode.
func (v *validator) openai() {
	properties, text, values := 0, 0, 0
	schema.Walk(v.root, func(at string, s map[string]any) bool {
		for _, k := range []string{"properties", "$defs"} {
			named, _ := s[k].(map[string]any)
			for name := range named {
				text += utf8.RuneCountInString(name)
			}
			if k == "properties" {
				properties += len(named)
			}
		}
		list, _ := s["enum"].([]any)
		own := 0
		for _, e := range list {
			own += length(e)
		}
		if len(list) > openaiLongEnum && own > openaiEnumText {
			v.bad(under(at, "enum"), "enum", "the %d values have %d characters; at most %d are allowed", len(list), own, openaiEnumText)
		}
		values += len(list)
		text += own + length(s["const"])
		return true
	})
	if properties > openaiProperties {
		v.bad("", "properties", "there are %d properties; at most %d are allowed", properties, openaiProperties)
	}
	if text > openaiText {
		v.bad("", "length", "names and values have %d characters; at most %d are allowed", text, openaiText)
	}
	if values > openaiEnum {
		v.bad("", "enum", "all enums have %d values; at most %d may be", values, openaiEnum)
	}
	if len(v.faults) == 0 { // without recursion
		if d := depth(v.root); d > openaiDepth {
			v.bad("", "depth", "objects are nested %d deep; at most %d levels may be", d, openaiDepth)
		}
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

// depth returns the nesting depth of objects in a schema without recursion.
func depth(root map[string]any) int {
	known := map[string]int{}
	c := converter{root: root}
	var of func(v any) int
	of = func(v any) int {
		s, _ := v.(map[string]any)
		if ref, ok := s["$ref"].(string); ok {
			if _, ok := known[ref]; !ok {
				target, _, _ := c.resolve(ref)
				known[ref] = of(target)
			}
			return known[ref]
		}
		deepest := 0
		for p, child := range schema.Below(s) {
			if p.Keyword.Name != "$defs" {
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
		return fmt.Sprintf("Anthropic accepts at most %d strict tools a request", anthropicStrict)
	case r.optional+optional > anthropicOptional:
		return fmt.Sprintf("Anthropic accepts at most %d optional properties in all strict tools of a request; with this tool's %d there would be more", anthropicOptional, optional)
	case r.unions+unions > anthropicUnions:
		return fmt.Sprintf("Anthropic accepts at most %d properties of several types in all strict tools of a request; with this tool's %d there would be more", anthropicUnions, unions)
	}
	r.tools, r.optional, r.unions = r.tools+1, r.optional+optional, r.unions+unions
	return ""
}
