package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func parsed(t testing.TB, extra ...string) *toolkeep.Tool {
	t.Helper()
	tool, err := ParseManifest(manifest("a.b", "1.0.0", extra...))
	if err != nil {
		t.Fatalf("%v %v", err, faultsOf(t, err))
	}
	return tool
}

func TestCompareSchemas(t *testing.T) {
	const object = `{"type":"object","properties":`
	for _, c := range []struct {
		name, old, new string
		in, out        string // bump as parameters_schema and as result_schema; "" is not tested
		at             string // pointer of the first difference as parameters
	}{
		{"same", object + `{"a":{"type":"string"}}}`, object + `{"a":{"type":"string"}}}`, BumpNone, BumpNone, ""},
		{"optional added", object + `{}}`, object + `{"a":{}}}`, BumpMinor, BumpMinor, "/parameters_schema/properties/a"},
		{"required added", object + `{}}`, object + `{"a":{}},"required":["a"]}`, BumpMajor, BumpMinor, "/parameters_schema/properties/a"},
		{"required added with default", object + `{}}`, object + `{"a":{"default":1}},"required":["a"]}`, BumpMinor, "", ""},
		{"removed", object + `{"a":{}}}`, object + `{}}`, BumpMajor, BumpMajor, "/parameters_schema/properties/a"},
		{"became required", object + `{"a":{}}}`, object + `{"a":{}},"required":["a"]}`, BumpMajor, BumpMinor, "/parameters_schema/properties/a"},
		{"no longer required", object + `{"a":{}},"required":["a"]}`, object + `{"a":{}}}`, BumpMinor, BumpMajor, ""},
		{"default of a required one gone", object + `{"a":{"default":1}},"required":["a"]}`, object + `{"a":{}},"required":["a"]}`, BumpMajor, "", ""},
		{"bare required", `{"type":"object"}`, `{"type":"object","required":["z"]}`, BumpMajor, BumpMinor, "/parameters_schema/properties/z"},
		{"type changed", object + `{"a":{"type":"string"}}}`, object + `{"a":{"type":"integer"}}}`, BumpMajor, BumpMajor, "/parameters_schema/properties/a/type"},
		{"type widened", object + `{"a":{"type":"integer"}}}`, object + `{"a":{"type":"number"}}}`, BumpMinor, BumpMajor, ""},
		{"type narrowed", object + `{"a":{"type":["string","null"]}}}`, object + `{"a":{"type":"string"}}}`, BumpMajor, BumpMinor, ""},
		{"type said by enum", object + `{"a":{"enum":["x"]}}}`, object + `{"a":{"type":"string","enum":["x"]}}}`, BumpPatch, BumpPatch, ""},
		{"enum value removed", object + `{"a":{"enum":["x","y"]}}}`, object + `{"a":{"enum":["x"]}}}`, BumpMajor, BumpMinor, "/parameters_schema/properties/a/enum"},
		{"enum value added", object + `{"a":{"enum":["x"]}}}`, object + `{"a":{"enum":["x","y"]}}}`, BumpMinor, BumpMajor, ""},
		{"enum lifted", object + `{"a":{"type":"string","enum":["x"]}}}`, object + `{"a":{"type":"string"}}}`, BumpMinor, BumpMajor, ""},
		{"enum new", object + `{"a":{"type":"string"}}}`, object + `{"a":{"type":"string","enum":["x"]}}}`, BumpMajor, BumpMinor, ""},
		{"const changed", object + `{"a":{"const":"x"}}}`, object + `{"a":{"const":"y"}}}`, BumpMajor, BumpMajor, ""},
		{"const lifted", object + `{"a":{"type":"string","const":"x"}}}`, object + `{"a":{"type":"string"}}}`, BumpMinor, BumpMajor, ""},
		{"const became an enum", object + `{"a":{"const":"x"}}}`, object + `{"a":{"enum":["x","y"]}}}`, BumpMinor, BumpMajor, ""},
		{"enum became a const", object + `{"a":{"enum":["x","y"]}}}`, object + `{"a":{"const":"y"}}}`, BumpMajor, BumpMinor, ""},
		{"format changed", object + `{"a":{"format":"date"}}}`, object + `{"a":{"format":"date-time"}}}`, BumpMajor, BumpMajor, "/parameters_schema/properties/a/format"},
		{"format lifted", object + `{"a":{"format":"date"}}}`, object + `{"a":{}}}`, BumpMinor, BumpMajor, ""},
		{"format changed in a list", object + `{"a":{"items":{"format":"date"}}}}`, object + `{"a":{"items":{"format":"date-time"}}}}`, BumpMajor, BumpMajor, ""},
		{"const of a variant changed", object + `{"a":{"oneOf":[{"const":"x"},{"type":"null"}]}}}`, object + `{"a":{"oneOf":[{"const":"y"},{"type":"null"}]}}}`, BumpMajor, BumpMajor, ""},
		{"enum reordered", object + `{"a":{"enum":["x","y"]}}}`, object + `{"a":{"enum":["y","x"]}}}`, BumpPatch, BumpPatch, ""},
		{"const is an enum of one", object + `{"a":{"const":"x"}}}`, object + `{"a":{"enum":["x"]}}}`, BumpPatch, BumpPatch, ""},
		{"minimum raised", object + `{"a":{"minimum":1}}}`, object + `{"a":{"minimum":2}}}`, BumpMajor, BumpMinor, "/parameters_schema/properties/a/minimum"},
		{"minimum lowered", object + `{"a":{"minimum":2}}}`, object + `{"a":{"minimum":1.5}}}`, BumpMinor, BumpMinor, ""},
		{"maxLength lowered", object + `{"a":{"maxLength":9}}}`, object + `{"a":{"maxLength":8}}}`, BumpMajor, BumpMinor, ""},
		{"maxLength new", object + `{"a":{}}}`, object + `{"a":{"maxLength":8}}}`, BumpMajor, BumpMinor, ""},
		{"minItems 0 is nothing", object + `{"a":{}}}`, object + `{"a":{"minItems":0}}}`, BumpPatch, BumpPatch, ""},
		{"pattern changed", object + `{"a":{"pattern":"a"}}}`, object + `{"a":{"pattern":"b"}}}`, BumpMajor, BumpMajor, ""},
		{"pattern lifted", object + `{"a":{"pattern":"a"}}}`, object + `{"a":{}}}`, BumpMinor, BumpMajor, ""},
		{"format added", object + `{"a":{}}}`, object + `{"a":{"format":"email"}}}`, BumpMajor, BumpMinor, ""},
		{"multipleOf finer", object + `{"a":{"multipleOf":0.3}}}`, object + `{"a":{"multipleOf":0.1}}}`, BumpMinor, "", ""},
		{"multipleOf coarser", object + `{"a":{"multipleOf":0.1}}}`, object + `{"a":{"multipleOf":0.3}}}`, BumpMajor, "", ""},
		{"closed", object + `{}}`, object + `{},"additionalProperties":false}`, BumpMajor, BumpMinor, "/parameters_schema/additionalProperties"},
		{"opened", object + `{},"additionalProperties":false}`, object + `{}}`, BumpMinor, BumpMinor, ""},
		{"others narrowed", object + `{},"additionalProperties":{"type":["string","null"]}}`, object + `{},"additionalProperties":{"type":"string"}}`, BumpMajor, BumpMinor, ""},
		{"deep", object + `{"a":{"items":` + object + `{"b":{"type":"string"}}}}}}`, object + `{"a":{"items":` + object + `{"b":{"type":"null"}}}}}}`, BumpMajor, BumpMajor, "/parameters_schema/properties/a/items/properties/b/type"},
		{"tuple", object + `{"a":{"prefixItems":[{"type":"string"}]}}}`, object + `{"a":{"prefixItems":[{"type":"string"},{"type":"string"}]}}}`, BumpMajor, BumpMinor, ""},
		{"uniqueItems", object + `{"a":{}}}`, object + `{"a":{"uniqueItems":true}}}`, BumpMajor, BumpMinor, ""},
		{"description", object + `{"a":{}}}`, object + `{"a":{"description":"new"}}}`, BumpPatch, BumpPatch, "/parameters_schema/properties/a/description"},
		{"through a reference", object + `{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`, object + `{"a":{"type":"string"}}}`, BumpPatch, BumpPatch, ""},
		{"behind a reference", object + `{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`, object + `{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"null"}}}`, BumpMajor, BumpMajor, "/parameters_schema/properties/a/type"},
		{"allOf joined", object + `{"a":{},"b":{}},"required":["b"]}`, `{"type":"object","allOf":[` + object + `{"a":{}}},` + object + `{"b":{}},"required":["b"]}]}`, BumpPatch, BumpPatch, ""},
		{"recursive equal", object + `{"n":{"$ref":"#"}}}`, object + `{"n":{"$ref":"#"}},"title":"x"}`, BumpPatch, BumpPatch, ""},
		{"recursive changed", object + `{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":` + object + `{"c":{"$ref":"#/$defs/n"},"v":{"type":"integer"}}}}}`,
			object + `{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":` + object + `{"c":{"$ref":"#/$defs/n"},"v":{"type":"string"}}}}}`, BumpMajor, BumpMajor, "/parameters_schema/properties/n/properties/v/type"},
		{"variant added", object + `{"a":{"anyOf":[{"type":"string"}]}}}`, object + `{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, BumpMinor, BumpMajor, ""},
		{"variant removed", object + `{"a":{"oneOf":[{"type":"string"},{"type":"null"}]}}}`, object + `{"a":{"oneOf":[{"type":"string"}]}}}`, BumpMajor, BumpMinor, ""},
		{"variants reordered", object + `{"a":{"oneOf":[{"type":"string"},{"type":"null"}]}}}`, object + `{"a":{"oneOf":[{"type":"null"},{"type":"string"}]}}}`, BumpPatch, BumpPatch, ""},
		{"plain becomes variant", object + `{"a":{"type":"string"}}}`, object + `{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, BumpMinor, BumpMajor, ""},
		{"not changed", object + `{"a":{"not":{"const":1}}}}`, object + `{"a":{"not":{"const":2}}}}`, BumpMajor, BumpMajor, ""},
		{"property became false", object + `{"a":{}}}`, object + `{"a":false}}`, BumpMajor, BumpMinor, ""},
		{"endless variants of itself", `{"type":"object","anyOf":[{"$ref":"#"},{"properties":{"a":{}}}]}`, `{"type":"object","anyOf":[{"$ref":"#"},{"properties":{"b":{}}}]}`, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Compare(parsed(t, `{"parameters_schema":`+c.old+`}`), parsed(t, `{"parameters_schema":`+c.new+`}`))
			if c.in != "" && in.Bump != c.in {
				t.Errorf("as parameters %s, want %s: %+v", in.Bump, c.in, in.Differences)
			}
			if c.at != "" && in.Differences[0].Pointer != c.at {
				t.Errorf("at %s, want %s", in.Differences[0].Pointer, c.at)
			}
			out := Compare(parsed(t, `{"result_schema":`+c.old+`}`), parsed(t, `{"result_schema":`+c.new+`}`))
			if c.out != "" && out.Bump != c.out {
				t.Errorf("as result %s, want %s: %+v", out.Bump, c.out, out.Differences)
			}
			for _, d := range append(in.Differences, out.Differences...) {
				if !strings.HasPrefix(d.Pointer, "/") || d.Message == "" {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}

func TestCompareManifests(t *testing.T) {
	for _, c := range []struct{ name, old, new, want, at string }{
		{"now writes", `{"side_effects":"reads"}`, `{"side_effects":"writes"}`, BumpMajor, "/side_effects"},
		{"now reads", `{"side_effects":"none"}`, `{"side_effects":"reads"}`, BumpMinor, "/side_effects"},
		{"approval", `{}`, `{"requires_approval":true}`, BumpMajor, "/requires_approval"},
		{"no approval", `{"requires_approval":true}`, `{}`, BumpMinor, "/requires_approval"},
		{"role added to none", `{}`, `{"required_roles":["a"]}`, BumpMajor, "/required_roles"},
		{"role removed", `{"required_roles":["a","b"]}`, `{"required_roles":["a"]}`, BumpMajor, "/required_roles"},
		{"role added", `{"required_roles":["a"]}`, `{"required_roles":["a","b"]}`, BumpMinor, "/required_roles"},
		{"roles lifted", `{"required_roles":["a"]}`, `{}`, BumpMinor, "/required_roles"},
		{"permission level", `{}`, `{"permission_levels":["role:x"]}`, BumpMajor, "/permission_levels"},
		{"public", `{}`, `{"permission_levels":["public"]}`, BumpNone, ""},
		{"auth", `{}`, `{"auth":[{"type":"bearer","secret":"env://X"}]}`, BumpMajor, "/auth"},
		{"auth by choice", `{}`, `{"auth":[{"type":"bearer","secret":"env://X"},{"type":"none"}]}`, BumpPatch, "/auth"},
		{"kind", `{}`, `{"execution":{"kind":"http"}}`, BumpPatch, "/execution"},
		{"description", `{}`, `{"description":"other"}`, BumpPatch, "/description"},
		{"result described", `{}`, `{"result_schema":{}}`, BumpMinor, "/result_schema"},
		{"result not described", `{"result_schema":{}}`, `{}`, BumpMajor, "/result_schema"},
		{"examples", `{}`, `{"examples":[{"scenario":"x"}]}`, BumpPatch, "/examples"},
		{"vendor key", `{}`, `{"x-a/b":1}`, BumpPatch, "/x-a~1b"},
		{"a default said", `{}`, `{"risk":"low"}`, BumpNone, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Compare(parsed(t, c.old), parsed(t, c.new))
			if got.Bump != c.want {
				t.Fatalf("got %s, want %s: %+v", got.Bump, c.want, got.Differences)
			}
			if c.at != "" && got.Differences[0].Pointer != c.at {
				t.Errorf("at %s, want %s", got.Differences[0].Pointer, c.at)
			}
		})
	}
	t.Run("only the number", func(t *testing.T) {
		a, err := ParseManifest(manifest("a.b", "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := ParseManifest(manifest("a.b", "1.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		if got := Compare(a, b); got.Bump != BumpNone {
			t.Errorf("%+v", got)
		}
	})
}

func TestCompareEnds(t *testing.T) {
	// Each level refers twice to the next; fully expanded that is 2^40 nodes.
	var defs strings.Builder
	for i := range 40 {
		fmt.Fprintf(&defs, `"d%d":{"properties":{"l":{"$ref":"#/$defs/d%d"},"r":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	schema := func(leaf string) *toolkeep.Tool {
		raw := []byte(`{"parameters_schema":{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{` + defs.String() + `"d40":` + leaf + `}}}`)
		return &toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{}, Raw: raw}
	}
	if got := Compare(schema(`{"type":"string"}`), schema(`{"type":"null"}`)); got.Bump != BumpMajor {
		t.Errorf("%+v", got)
	}
	// Nested variants: every pair would be tried at every level.
	nested := func(leaf string) *toolkeep.Tool {
		s := leaf
		for range 12 {
			s = `{"anyOf":[{"properties":{"a":` + s + `}},{"properties":{"b":` + s + `}}]}`
			if len(s) > 100_000 {
				break
			}
		}
		return &toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{}, Raw: []byte(`{"parameters_schema":` + s + `}`)}
	}
	if got := Compare(nested(`{"type":"string"}`), nested(`{"type":"null"}`)); got.Bump != BumpMajor {
		t.Errorf("%+v", got)
	}
}
