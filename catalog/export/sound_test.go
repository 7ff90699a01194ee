package export

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

// harmless losses keep every valid value valid for the original: descriptive text, and restrictions.
var harmless = set("additionalProperties", "required", "description", "title", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
	"type", "values of other types", "$ref", "allOf", "alternative", "property", "objects and arrays", "const", "value of an enum", "strict", "$schema", "xml",
	"externalDocs", "nullable")

// TestWhatModelsSend generates arguments as an obedient model would, without nulls; the tool must accept them.
// Tools with harmful losses are skipped: there the gateway reports the faults.
func TestWhatModelsSend(t *testing.T) {
	sets := dataTools(t)
	if sets == nil {
		return
	}
	options := []Options{{OpenAI, false}, {OpenAI, true}, {Anthropic, false}, {Anthropic, true}, {Gemini, false}}
	tried := make([]int, len(options))
	total := 0
	for _, name := range sortedNames(sets) {
		for _, tool := range sets[name] {
			total++
			original, err := schema.Compile(tool.Manifest.ParametersSchema)
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range options {
				v, ok := sent(t, tool, o)
				if !ok {
					continue
				}
				tried[i]++
				if faults := original.Validate(t.Context(), v); len(faults) > 0 {
					t.Errorf("%s as %s (strict %t): %s refuses %s: %+v", name, o.Form, o.Strict, tool.ID, canon.Append(nil, v), faults[0])
				}
			}
		}
	}
	least := 1000
	if testing.Short() {
		least = 200
	}
	for i, o := range options {
		t.Logf("%s (strict %t): %d tools tried, %d left aside", o.Form, o.Strict, tried[i], total-tried[i])
		if tried[i] < least {
			t.Errorf("%s (strict %t): only %d tools were tried", o.Form, o.Strict, tried[i])
		}
	}
}

// sent generates arguments for an exported tool; ok is false if it is skipped.
func sent(t *testing.T, tool *toolkeep.Tool, o Options) (v any, ok bool) {
	t.Helper()
	res, err := Export([]*toolkeep.Tool{tool}, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Names) == 0 || slices.ContainsFunc(res.Losses, func(l Loss) bool { return !harmless[l.Lost] && !strings.HasPrefix(l.Lost, "x-") }) {
		return nil, false
	}
	s, _ := schemaOf(o.Form, entriesOf(t, o.Form, res.Document)[0]).(map[string]any)
	g := &generator{root: s}
	return g.value(s, 0) // usually because of a pattern
}

// generator generates a value that a schema allows.
type generator struct {
	root  map[string]any
	turns int
}

var samples = map[string]string{
	"date-time": "2026-03-01T12:00:00Z", "date": "2026-03-01", "time": "12:00:00Z", "duration": "P1D", "email": "ada@example.com", "hostname": "example.com",
	"ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "0190aaaa-0000-7000-8000-000000000000", "uri": "https://example.com/", "uri-reference": "/a", "regex": "a",
	"json-pointer": "/a", "idn-email": "ada@example.com", "iri": "https://example.com/", "uri-template": "/a", "idn-hostname": "example.com", "relative-json-pointer": "0",
	"iri-reference": "/a",
}

func (g *generator) value(v any, depth int) (any, bool) {
	s, ok := v.(map[string]any)
	if !ok {
		return "text", v != false
	}
	if depth > 12 || has(s, "pattern", "allOf", "not", "if", "propertyNames", "dependentRequired", "dependentSchemas", "contains", "minProperties", "uniqueItems") {
		return nil, false
	}
	if ref, ok := s["$ref"].(string); ok {
		if len(s) > 1 && !slices.Equal(keys(s), []string{"$ref", "description"}) {
			return nil, false
		}
		c := converter{root: g.root}
		target, _, ok := c.resolve(ref)
		if !ok {
			return nil, false
		}
		return g.value(target, depth+1)
	}
	if c, ok := s["const"]; ok {
		return c, true
	}
	if list, ok := s["enum"].([]any); ok {
		for range list { // null of a required argument would replace something else
			g.turns++
			if v := list[g.turns%len(list)]; v != nil {
				return v, true
			}
		}
		return nil, true
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		if list, ok := s[k].([]any); ok {
			if k == "oneOf" || has(s, "properties", "type", "required") {
				return nil, false // another alternative may fit too
			}
			for i := range list {
				if v, ok := g.value(list[(g.turns+i)%len(list)], depth+1); ok && v != nil {
					g.turns++
					return v, true
				}
			}
			return nil, allowsNull(s)
		}
	}
	kinds := slices.DeleteFunc(types(s["type"]), func(k string) bool { return k == "null" })
	if len(kinds) == 0 {
		if s["type"] != nil {
			return nil, true
		}
		return "text", !has(s, "format", "minLength", "items", "properties", "minimum")
	}
	switch kinds[0] {
	case "object":
		return g.object(s, depth)
	case "array":
		if s["prefixItems"] != nil {
			return nil, false
		}
		n, _ := number(s["minItems"])
		list := []any{}
		for range int(max(n, 1)) {
			e, ok := g.value(s["items"], depth+1)
			if s["items"] == nil {
				e, ok = "text", true
			}
			if !ok {
				return list, n == 0
			}
			list = append(list, e)
		}
		return list, true
	case "string":
		return text(s)
	case "boolean":
		return true, true
	}
	n, _ := number(s["minimum"])
	if low, ok := number(s["exclusiveMinimum"]); ok {
		n = low + 1
	}
	if high, ok := number(s["maximum"]); ok && n > high {
		n = high
	}
	if n != float64(int64(n)) || has(s, "multipleOf", "exclusiveMaximum") {
		return nil, false
	}
	return json.Number(string(canon.Append(nil, int64(n)))), true
}

func number(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

func text(s map[string]any) (any, bool) {
	least, _ := number(s["minLength"])
	most, bounded := number(s["maxLength"])
	out := "text"
	if f, ok := s["format"].(string); ok {
		if sample, known := samples[f]; known {
			out = sample
		}
	}
	for float64(len(out)) < least {
		out += "x"
	}
	if bounded && float64(len(out)) > most {
		out = out[:int(most)]
	}
	return out, s["format"] == nil || least == 0 && !bounded
}

// object generates every property it can; null ones are left out.
func (g *generator) object(s map[string]any, depth int) (any, bool) {
	out := map[string]any{}
	p, _ := s["properties"].(map[string]any)
	required := strs(s["required"])
	for _, name := range keys(p) {
		if depth > 6 && !slices.Contains(required, name) {
			continue
		}
		v, ok := g.value(p[name], depth+1)
		if !ok {
			if m, _ := p[name].(map[string]any); slices.Contains(required, name) && !allowsNull(m) {
				return nil, false
			}
			continue
		}
		if v != nil {
			out[name] = v
		} else if m, _ := p[name].(map[string]any); !allowsNull(m) {
			out[name] = v
		}
	}
	for _, name := range required {
		if _, ok := out[name]; !ok && p[name] == nil {
			out[name] = "text"
		}
	}
	return out, true
}
