//go:build !race

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

// nested returns a value of that depth: objects with the member "c", and at the end a leaf.
func nested(depth int, object, leaf string) string {
	return strings.Repeat(`{`+object+`"c":`, depth) + leaf + strings.Repeat(`}`, depth)
}

// TestBranchesAreNotMultiplied: where two branches lead to the same part of a value, each of them would check it,
// and each level would double the work. Every keyword that branches, alone and in pairs, at a depth at which that
// would never end.
func TestBranchesAreNotMultiplied(t *testing.T) {
	const part = `{"properties":{"c":{"$ref":"#"}}}`
	branching := map[string]string{
		"anyOf":                 `"anyOf":[{"required":["x"],"properties":{"c":{"$ref":"#"}}},` + part + `]`,
		"oneOf":                 `"oneOf":[{"required":["x"],"properties":{"c":{"$ref":"#"}}},` + part + `]`,
		"allOf":                 `"allOf":[` + part + `,` + part + `]`,
		"not":                   `"not":{"not":` + part + `},"properties":{"c":{"$ref":"#"}}`,
		"if":                    `"if":` + part + `,"then":` + part + `,"else":` + part,
		"dependentSchemas":      `"dependentSchemas":{"c":` + part + `},"properties":{"c":{"$ref":"#"}}`,
		"properties":            `"properties":{"c":{"$ref":"#"}},"patternProperties":{"^c":{"$ref":"#"}}`,
		"additionalProperties":  `"allOf":[{"additionalProperties":{"$ref":"#"}}],"properties":{"c":{"$ref":"#"}}`,
		"unevaluatedProperties": `"anyOf":[{"properties":{"d":true}},` + part + `],"unevaluatedProperties":{"$ref":"#"}`,
		"$dynamicRef":           `"$dynamicAnchor":"n","allOf":[{"properties":{"c":{"$dynamicRef":"#n"}}},{"properties":{"c":{"$dynamicRef":"#n"}}}]`,
		"$ref":                  `"$ref":"#/$defs/p","properties":{"c":{"$ref":"#"}},"$defs":{"p":` + part + `}`,
	}
	const depth = 180
	for name, keyword := range branching {
		s := compile(t, `{"type":"object",`+keyword+`}`)
		for _, leaf := range []string{`{}`, `1`} {
			v := parse(t, nested(depth, "", leaf))
			steps, valid, limited := s.Steps(v)
			if limited || steps > 100*depth*depth {
				t.Errorf("%s: %d steps, limited %v", name, steps, limited)
			}
			if name != "$dynamicRef" && name != "not" && valid != (leaf == `{}`) {
				t.Errorf("%s: %s is valid: %v", name, leaf, valid)
			}
			s.Prepare(context.Background(), v.(map[string]any))
			s.Coerce(context.Background(), v)
		}
	}
}

// TestFaultsOfDeepUnions: of a tree of tagged nodes the faults name the node that is wrong and not the root.
func TestFaultsOfDeepUnions(t *testing.T) {
	var forms []string
	for _, tag := range []string{"t0", "t1", "t2", "t3"} {
		forms = append(forms, `{"required":["type"],"properties":{"type":{"const":"`+tag+`"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}},"n":{"type":"integer"}}}`)
	}
	for _, union := range []string{"anyOf", "oneOf"} {
		s := compile(t, `{"properties":{"n":{"$ref":"#/$defs/node"}},"$defs":{"node":{"`+union+`":[`+strings.Join(forms, ",")+`]}}}`)
		for leaf, want := range map[string]string{
			`{"type":"zz"}`:         "fits none of the 4 forms allowed",
			`{"type":"t2","n":"x"}`: "must be integer",
		} {
			v := strings.Repeat(`{"type":"t0","children":[`, 90) + leaf + strings.Repeat(`]}`, 90)
			_, f := s.Prepare(context.Background(), map[string]any{"n": parse(t, v)})
			if len(f) != 1 || !strings.HasPrefix(f[0].Pointer, "/n"+strings.Repeat("/children/0", 90)) || !strings.HasPrefix(f[0].Message, want) {
				t.Errorf("%s %s: %.300v", union, leaf, f)
			}
		}
	}
}

// TestCheckIsBounded: what would take longer than the size of the value allows ends with one fault that says so.
func TestCheckIsBounded(t *testing.T) {
	var patterns, bounds []string
	for i := range 3000 {
		patterns = append(patterns, fmt.Sprintf(`"^a*%d":{"type":"string"}`, i))
		bounds = append(bounds, fmt.Sprintf(`{"minimum":%d.5}`, i))
	}
	names := map[string]any{}
	for i := range 3000 {
		names[strings.Repeat("a", 200)+fmt.Sprint(i)] = "x"
	}
	numbers := make([]any, 20_000)
	for i := range numbers {
		numbers[i] = json.Number("9e9999")
	}
	for what, c := range map[string]struct {
		schema string
		value  any
	}{
		"names × patterns": {`{"patternProperties":{` + strings.Join(patterns, ",") + `}}`, names},
		"numbers × bounds": {`{"items":{"allOf":[` + strings.Join(bounds, ",") + `]}}`, numbers},
		"equal numbers":    {`{"uniqueItems":true,"items":{"type":"number"}}`, distinct(20_000)},
	} {
		f := compile(t, c.schema).Validate(context.Background(), c.value)
		if len(f) != 1 || f[0].Rule != "limit" || !strings.Contains(f[0].Message, "steps") {
			t.Errorf("%s: %.300v", what, f)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	list := make([]any, 100_000)
	if f := compile(t, `{"items":{"type":"null"}}`).Validate(ctx, list); len(f) != 1 || !strings.Contains(f[0].Message, "canceled") {
		t.Errorf("%.300v", f)
	}
	if f := compile(t, `{"items":{"type":"null"}}`).Validate(context.Background(), list); f != nil {
		t.Errorf("a long list of right elements: %v", f)
	}
}

// distinct returns numbers that differ and all have the hash of infinity.
func distinct(n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = json.Number(fmt.Sprintf("%de9000", i+1))
	}
	return out
}

// maker makes random schemas and values of few names and kinds, so that they often meet.
type maker struct{ *rand.Rand }

func (m maker) of(words ...string) string { return words[m.IntN(len(words))] }

func (m maker) schema(depth int) string {
	if depth == 0 || m.IntN(8) == 0 {
		return m.of(`true`, `false`, `{}`, `{"type":"integer"}`, `{"type":"string"}`, `{"const":1}`, `{"enum":["a",null]}`, `{"minimum":1}`, `{"$ref":"#/$defs/d"}`,
			`{"maxLength":1}`, `{"type":["object","null"]}`, `{"multipleOf":2}`, `{"format":"date"}`, `{"pattern":"^a"}`, `{"$dynamicRef":"#dyn"}`, `{"$ref":"#/$defs/r"}`)
	}
	sub := func() string { return m.schema(depth - 1) }
	list := func() string {
		out := []string{sub()}
		for range m.IntN(3) {
			out = append(out, sub())
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	seen := map[string]bool{}
	var parts []string
	for range 1 + m.IntN(3) {
		k := m.of("anyOf", "oneOf", "allOf", "not", "if", "properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains",
			"dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "required", "uniqueItems", "propertyNames", "minContains", "type", "dependentRequired")
		if seen[k] {
			continue
		}
		seen[k] = true
		switch k {
		case "anyOf", "oneOf", "allOf", "prefixItems":
			parts = append(parts, `"`+k+`":`+list())
		case "if":
			parts = append(parts, `"if":`+sub()+`,"then":`+sub()+`,"else":`+sub())
		case "properties", "dependentSchemas":
			parts = append(parts, `"`+k+`":{"a":`+sub()+`,"b":`+sub()+`}`)
		case "patternProperties":
			parts = append(parts, `"patternProperties":{"^a":`+sub()+`}`)
		case "required":
			parts = append(parts, `"required":["`+m.of("a", "b")+`"]`)
		case "dependentRequired":
			parts = append(parts, `"dependentRequired":{"a":["b"]}`)
		case "uniqueItems":
			parts = append(parts, `"uniqueItems":true`)
		case "minContains":
			parts = append(parts, `"contains":`+sub()+`,"minContains":`+m.of("0", "2")+`,"maxContains":2`)
			seen["contains"] = true
		case "contains":
			seen["minContains"] = true
			parts = append(parts, `"contains":`+sub())
		case "type":
			parts = append(parts, `"type":`+m.of(`"object"`, `"array"`, `["array","object"]`, `["integer","string","object"]`))
		default:
			parts = append(parts, `"`+k+`":`+sub())
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (m maker) value(depth int) string {
	if depth == 0 || m.IntN(4) == 0 {
		return m.of(`1`, `1.0`, `2`, `-3.5`, `"a"`, `"ab"`, `null`, `true`, `[]`, `{}`, `"2026-01-31"`)
	}
	var parts []string
	if m.IntN(2) == 0 {
		for range m.IntN(4) {
			parts = append(parts, m.value(depth-1))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	for _, name := range []string{"a", "b", "ab"} {
		if m.IntN(2) == 0 {
			parts = append(parts, `"`+name+`":`+m.value(depth-1))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// TestSameVerdictAsLibrary compares with the library that compiles the schemas: the verdict is the same, and what is
// refused has a fault.
func TestSameVerdictAsLibrary(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 400
	}
	m := maker{rand.New(rand.NewPCG(1, 2))}
	refused := 0
	for range n {
		raw := m.schema(3)
		if raw[0] == '{' {
			rest := strings.TrimPrefix(raw, "{")
			if rest != "}" {
				rest = "," + rest
			}
			raw = `{"$defs":{"d":{"properties":{"a":{"$ref":"#"}}},"r":{"$id":"other","$dynamicAnchor":"dyn","items":{"$dynamicRef":"#dyn"},"properties":{"b":{"$ref":"/#"}}},"x":{"$dynamicAnchor":"dyn"}}` + rest
		}
		s, err := schema.Compile([]byte(raw))
		if err != nil {
			refused++
			continue
		}
		for range 4 {
			text := m.value(4)
			v := parse(t, text)
			want := s.LibraryAccepts(v)
			faults := s.Validate(context.Background(), v)
			if (len(faults) == 0) != want {
				t.Fatalf("schema %s\nvalue %s\nthe library accepts it: %v, the faults are %v", raw, text, want, faults)
			}
			for _, f := range faults {
				if _, ok := canon.Lookup(v, f.Pointer); f.Message == "does not match the schema" || !ok {
					t.Fatalf("schema %s\nvalue %s\nfault %+v", raw, text, f)
				}
			}
		}
	}
	if refused > n/2 {
		t.Errorf("%d of %d schemas do not compile", refused, n)
	}
}
