package schema_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

// TestKeywordsOfMetaschemas: the table has every keyword of every draft, with the form in the draft's metaschema.
func TestKeywordsOfMetaschemas(t *testing.T) {
	// The metaschemas still describe these retired keywords.
	old := map[string]bool{"definitions": true, "dependencies": true, "$recursiveAnchor": true, "$recursiveRef": true}
	for _, draft := range []struct {
		url   string
		in    schema.Dialect
		count int
	}{
		{"http://json-schema.org/draft-04/schema", schema.Draft4, 34},
		{"http://json-schema.org/draft-06/schema", schema.Draft6, 37},
		{"http://json-schema.org/draft-07/schema", schema.Draft7, 46},
		{"https://json-schema.org/draft/2019-09/schema", schema.Draft2019, 59},
		{"https://json-schema.org/draft/2020-12/schema", schema.Draft2020, 61},
	} {
		meta, err := jsonschema.NewCompiler().Compile(draft.url)
		if err != nil {
			t.Fatal(err)
		}
		properties := map[string]*jsonschema.Schema{}
		for _, part := range append([]*jsonschema.Schema{meta}, meta.AllOf...) {
			if part.Ref != nil {
				part = part.Ref
			}
			for name, p := range part.Properties {
				properties[name] = p
			}
		}
		if len(properties) != draft.count {
			t.Errorf("%s describes %d keywords, not %d; the test does not find them all", draft.url, len(properties), draft.count)
		}
		for name, p := range properties {
			k := schema.Find(name)
			if k.Name == "" {
				t.Errorf("%s: the table has no %s", draft.url, name)
			} else if want := formOf(meta, p); k.Form != want {
				t.Errorf("%s: %s has the form %d, not %d", draft.url, name, k.Form, want)
			} else if k.In&draft.in == 0 && !old[name] {
				t.Errorf("%s: the table does not say that the draft has %s", draft.url, name)
			}
		}
	}
}

// formOf derives the form from a metaschema.
func formOf(meta, s *jsonschema.Schema) schema.Form {
	var isRoot func(v any) bool
	isRoot = func(v any) bool {
		s, _ := v.(*jsonschema.Schema)
		return s != nil && (s.Ref == meta || s.DynamicRef != nil || s.RecursiveRef != nil ||
			slices.ContainsFunc(s.AnyOf, func(s *jsonschema.Schema) bool { return isRoot(s) }))
	}
	switch {
	case isRoot(s):
		return schema.One
	case isRoot(s.AdditionalProperties):
		return schema.Map
	case isRoot(s.Items), isRoot(s.Items2020):
		return schema.List
	case s.Ref != nil:
		return formOf(meta, s.Ref)
	}
	return schema.Data
}

// TestKeywordsOfOpenAPI: the table has the keywords of OpenAPI 3.0's Schema Object.
func TestKeywordsOfOpenAPI(t *testing.T) {
	const all = "title multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems " +
		"maxProperties minProperties required enum type allOf oneOf anyOf not items properties additionalProperties description format default " +
		"nullable discriminator readOnly writeOnly xml externalDocs example deprecated"
	for _, name := range strings.Fields(all) {
		if schema.Find(name).In&schema.OpenAPI30 == 0 {
			t.Errorf("the table does not say that OpenAPI 3.0 has %s", name)
		}
	}
	for _, name := range []string{"if", "const", "$defs", "patternProperties"} {
		if schema.Find(name).In&schema.OpenAPI30 != 0 {
			t.Errorf("OpenAPI 3.0 has no %s", name)
		}
	}
	if k := schema.Find("x-other"); k != (schema.Keyword{}) {
		t.Errorf("an unknown keyword is %+v", k)
	}
}

// everyKeyword has a schema in each possible place, and keyword-like names in places for data.
const everyKeyword = `{
	"$ref": "#/$defs/a", "$defs": {"a": {"title": "$defs"}}, "definitions": {"a": {"title": "definitions"}},
	"allOf": [{"title": "allOf"}, true], "anyOf": [{"title": "anyOf"}], "oneOf": [{"title": "oneOf"}], "not": {"title": "not"},
	"if": {"title": "if"}, "then": {"title": "then"}, "else": {"title": "else"},
	"dependentSchemas": {"a": {"title": "dependentSchemas"}}, "dependencies": {"a": {"title": "dependencies"}, "b": ["c"]},
	"properties": {"items": {"title": "properties", "items": false}, "a/b": {"title": "a/b"}}, "patternProperties": {"~": {"title": "patternProperties"}},
	"additionalProperties": {"title": "additionalProperties"}, "unevaluatedProperties": {"title": "unevaluatedProperties"},
	"propertyNames": {"title": "propertyNames"}, "items": [{"title": "items"}], "prefixItems": [{"title": "prefixItems"}],
	"additionalItems": {"title": "additionalItems"}, "unevaluatedItems": {"title": "unevaluatedItems"}, "contains": {"title": "contains"},
	"contentSchema": {"title": "contentSchema"},
	"const": {"items": {"title": "no"}}, "enum": [{"items": {"title": "no"}}], "default": {"not": {"title": "no"}},
	"examples": [{"allOf": [{"title": "no"}]}], "required": ["items"], "x-mine": {"items": {"title": "no"}}, "unknown": {"not": {"title": "no"}}
}`

func TestWalk(t *testing.T) {
	root := parse(t, everyKeyword).(map[string]any)
	seen := map[string]bool{}
	var order []string
	schema.Walk(root, func(at string, s map[string]any) bool {
		if v, ok := canon.Lookup(root, at); !ok || !reflect.DeepEqual(v, s) {
			t.Errorf("%q is not the place of %v", at, s)
		}
		title, _ := s["title"].(string)
		seen[title] = true
		order = append(order, at)
		return true
	})
	for _, name := range []string{"$defs", "definitions", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies",
		"properties", "a/b", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames", "items", "prefixItems",
		"additionalItems", "unevaluatedItems", "contains", "contentSchema"} {
		if !seen[name] {
			t.Errorf("the schema under %s was not visited", name)
		}
	}
	if seen["no"] {
		t.Error("data was visited as a schema")
	}
	if !slices.IsSorted(order) {
		t.Errorf("the order is not that of keywords and names: %q", order)
	}
	count := 0
	if schema.Walk(root, func(string, map[string]any) bool { count++; return count < 3 }) || count != 3 {
		t.Errorf("a walk that was to end at the third schema ended at the %dth", count)
	}
}

// TestWalkEnds walks a tree that contains itself, which no parser makes.
func TestWalkEnds(t *testing.T) {
	loop := map[string]any{}
	loop["not"] = loop
	count := 0
	if !schema.Walk(loop, func(string, map[string]any) bool { count++; return true }) || count != 1000 {
		t.Errorf("%d schemas were visited", count)
	}
}

func TestReplace(t *testing.T) {
	root := parse(t, everyKeyword).(map[string]any)
	before := canon.Append(nil, root)
	count := 0
	out := schema.Replace(root, func(p schema.Place, v any) any {
		count++
		if found, ok := canon.Lookup(root, p.Pointer()); !ok || !reflect.DeepEqual(found, v) {
			t.Errorf("%q is not the place of %v", p.Pointer(), v)
		}
		return p.Pointer()
	})
	if after := canon.Append(nil, root); string(after) != string(before) {
		t.Errorf("the schema itself was changed: %s", after)
	}
	for name, v := range out {
		k := schema.Find(name)
		where := canon.Pointer(name)
		switch v := v.(type) {
		case []any:
			for i, e := range v {
				if k.Form != schema.Data && e != fmt.Sprintf("%s/%d", where, i) {
					t.Errorf("%s/%d is %v", where, i, e)
				}
			}
		case map[string]any:
			for key, e := range v {
				if _, list := e.([]any); k.Form == schema.Map && !list && e != where+canon.Pointer(key) {
					t.Errorf("%s holds %v for %q", where, e, key)
				}
			}
		default:
			if k.Form == schema.One && v != where {
				t.Errorf("%s is %v", where, v)
			}
		}
	}
	if !reflect.DeepEqual(out["const"], root["const"]) || count != 24 {
		t.Errorf("%d schemas were replaced; const is %v", count, out["const"])
	}
}

func TestApplied(t *testing.T) {
	for name, c := range map[string]struct{ schema, value, want string }{
		"itself":                {`{"title":"a"}`, `1`, "a=1"},
		"references":            {`{"$ref":"#/$defs/x","$defs":{"x":{"title":"a"}}}`, `1`, "a=1"},
		"in place":              {`{"allOf":[{"title":"a"}],"anyOf":[{"title":"b"}],"oneOf":[{"title":"c"}],"if":{"title":"d"},"then":{"title":"e"},"else":{"title":"f"}}`, `1`, "a=1 b=1 c=1 d=1 e=1 f=1"},
		"properties":            {`{"properties":{"x":{"title":"a"},"y":{"title":"b"}}}`, `{"x":1}`, "a=1"},
		"patterns":              {`{"patternProperties":{"^y":{"title":"a"}},"additionalProperties":{"title":"b"},"unevaluatedProperties":{"title":"c"}}`, `{"x":1}`, "a=1 b=1 c=1"},
		"dependent":             {`{"dependentSchemas":{"x":{"title":"a"},"y":{"title":"b"}},"dependencies":{"x":{"title":"c"}}}`, `{"x":1}`, `a={"x":1} c={"x":1}`},
		"elements":              {`{"prefixItems":[{"title":"a"}],"items":{"title":"b"},"contains":{"title":"c"},"unevaluatedItems":{"title":"d"}}`, `[1,2]`, "a=1 b=1 b=2 c=1 c=2 d=1 d=2"},
		"elements of old":       {`{"items":[{"title":"a"}],"additionalItems":{"title":"b"}}`, `[1,2]`, "a=1 b=1 b=2"},
		"a loop":                {`{"title":"a","$ref":"#"}`, `1`, strings.TrimSpace(strings.Repeat("a=1 ", 64))},
		"a loop through values": {`{"title":"a","properties":{"x":{"$ref":"#"}}}`, `{"x":{"x":1}}`, `a=1 a={"x":1} a={"x":{"x":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			if !schema.Applied(parse(t, c.schema), parse(t, c.value), func(v any, s map[string]any) {
				if title, ok := s["title"].(string); ok {
					got = append(got, title+"="+string(canon.Append(nil, v)))
				}
			}) {
				t.Error("it ended early")
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
	wide := parse(t, `{"anyOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}`)
	if schema.Applied(wide, "x", func(any, map[string]any) {}) {
		t.Error("a schema that leads to itself three times was looked at to its end")
	}
}

// FuzzWalk: Walk ends on every tree and reports correct places, and Replace with the identity changes nothing.
func FuzzWalk(f *testing.F) {
	f.Add([]byte(everyKeyword))
	f.Add([]byte(`{"items":[1,null,{"items":[[]]}],"properties":[],"allOf":{"a":{}},"not":1,"$ref":"#"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := canon.Parse(raw, canon.Limits{})
		if err != nil {
			return
		}
		var all func(v any) int
		all = func(v any) int {
			n := 0
			switch v := v.(type) {
			case map[string]any:
				n = 1
				for _, e := range v {
					n += all(e)
				}
			case []any:
				for _, e := range v {
					n += all(e)
				}
			}
			return n
		}
		count := 0
		schema.Walk(v, func(at string, s map[string]any) bool {
			count++
			if found, ok := canon.Lookup(v, at); !ok || !reflect.DeepEqual(found, s) {
				t.Fatalf("%q is not the place of %v", at, s)
			}
			if same := schema.Replace(s, func(_ schema.Place, v any) any { return v }); !reflect.DeepEqual(same, s) {
				t.Fatalf("Replace made %v of %v", same, s)
			}
			return true
		})
		if most := all(v); count > most {
			t.Fatalf("%d schemas were visited in a tree of %d objects", count, most)
		}
		schema.Applied(v, v, func(any, map[string]any) {})
	})
}
