package export

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/schema"
)

func tool(t testing.TB, id, parameters string) *toolkeep.Tool {
	t.Helper()
	m, err := catalog.ParseManifest([]byte(`{"schema_version":1,"tool_id":` + string(canon.Append(nil, id)) +
		`,"version":"1.0.0","description":"A tool.","parameters_schema":` + parameters + `,"execution":{"kind":"builtin","binding":{"name":"echo"}}}`))
	if err != nil {
		t.Fatalf("%s: %v", parameters, err)
	}
	return m
}

// written returns one tool's schema in a form, and the losses as "pointer lost".
func written(t testing.TB, parameters string, o Options) (string, []string) {
	t.Helper()
	res, err := Export([]*toolkeep.Tool{tool(t, "a.tool", parameters)}, o)
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	for _, l := range res.Losses {
		lost = append(lost, l.Pointer+" "+l.Lost)
	}
	if len(res.LeftOut) > 0 {
		return "left out: " + res.LeftOut[0].Reason, lost
	}
	tree, err := canon.Parse(res.Document, canon.Limits{Properties: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	switch o.Form {
	case Gemini:
		tree = tree.([]any)[0].(map[string]any)["functionDeclarations"]
	case MCP:
		tree = tree.(map[string]any)["tools"]
	}
	entry := tree.([]any)[0].(map[string]any)
	if faults := Validate(o.Form, res.Names[0].Strict, entry); len(faults) > 0 {
		t.Errorf("%s: %+v", parameters, faults)
	}
	s := canon.Append(nil, schemaOf(o.Form, entry))
	if _, err := schema.Compile(s); err != nil {
		t.Errorf("%s gives %s: %v", parameters, s, err)
	}
	if o.Strict && !res.Names[0].Strict {
		lost = append(lost, "NOT STRICT")
	}
	return string(s), lost
}

// TestDocuments shows one tool in every form, byte for byte.
func TestDocuments(t *testing.T) {
	for form, want := range map[Form]string{
		OpenAI:    `[{"function":{"description":"A tool.","name":"a__tool","parameters":SCHEMA},"type":"function"}]`,
		Responses: `[{"description":"A tool.","name":"a__tool","parameters":SCHEMA,"strict":false,"type":"function"}]`,
		Anthropic: `[{"description":"A tool.","input_schema":SCHEMA,"name":"a__tool"}]`,
		Gemini:    `[{"functionDeclarations":[{"description":"A tool.","name":"a__tool","parametersJsonSchema":SCHEMA}]}]`,
		LangChain: `[{"args_schema":SCHEMA,"description":"A tool.","name":"a__tool"}]`,
		MCP: `{"tools":[{"annotations":{"idempotentHint":false,"openWorldHint":true,"readOnlyHint":false},"description":"A tool.",` +
			`"inputSchema":SCHEMA,"name":"a__tool"}]}`,
	} {
		const s = `{"properties":{"n":{"type":"number"}},"required":["n"],"type":"object"}`
		res, err := Export([]*toolkeep.Tool{tool(t, "a.tool", s)}, Options{Form: form})
		if err != nil {
			t.Fatal(err)
		}
		if want = strings.ReplaceAll(want, "SCHEMA", s); string(res.Document) != want || len(res.Losses) > 0 {
			t.Errorf("%s: %s %v\nwant %s", form, res.Document, res.Losses, want)
		}
		empty, err := Export(nil, Options{Form: form})
		if err != nil || !strings.Contains(string(empty.Document), "[]") {
			t.Errorf("%s of nothing: %s %v", form, empty.Document, err)
		}
	}
	if _, err := Export(nil, Options{Form: "cohere"}); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
		t.Errorf("an unknown form: %v", err)
	}
}

// TestNames: each tool gets a unique name that every provider accepts.
func TestNames(t *testing.T) {
	long := "a." + strings.Repeat("x", 64)
	ids := []string{"a.b", long, "a.b_2", "b-c.d-e_f"}
	// The hashed name of a long id may be the plain name of another.
	probe, err := Export([]*toolkeep.Tool{tool(t, long, `{"type":"object"}`)}, Options{Form: OpenAI})
	if err != nil {
		t.Fatal(err)
	}
	namespace, rest, _ := strings.Cut(probe.Names[0].Name, "__")
	ids = append(ids, namespace+"."+rest)
	var tools []*toolkeep.Tool
	for _, id := range ids {
		tools = append(tools, tool(t, id, `{"type":"object"}`))
	}
	for _, f := range Forms() {
		res, err := Export(tools, Options{Form: f})
		if err != nil || len(res.Names) != len(ids) {
			t.Fatalf("%s: %+v %v", f, res, err)
		}
		seen := map[string]bool{}
		for _, n := range res.Names {
			if seen[n.Name] || !slices.Contains(ids, n.Tool) || n.Version != "1.0.0" {
				t.Errorf("%s: %+v", f, n)
			}
			seen[n.Name] = true
		}
	}
	many := make([]*toolkeep.Tool, 129)
	for i := range many {
		many[i] = tool(t, fmt.Sprintf("a.tool_%d", i), `{"type":"object"}`)
	}
	res, err := Export(many, Options{Form: OpenAI})
	if err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "128") {
		t.Errorf("%v %v", res.Warnings, err)
	}
}

// TestTop: schemas whose top the providers refuse.
func TestTop(t *testing.T) {
	for _, c := range []struct {
		form     Form
		in, want string
		lost     []string
	}{
		{OpenAI, `true`, `{"properties":{},"type":"object"}`, nil},
		{Anthropic, `{"properties":{"a":{"pattern":"^x","minLength":2}}}`, `{"properties":{"a":{"minLength":2,"pattern":"^x"}},"type":"object"}`, nil},
		{Anthropic, `{"type":["object","null"]}`, `{"properties":{},"type":"object"}`, nil},
		{OpenAI, `{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"$ref":"#/$defs/B"}],"$defs":{"B":{"properties":{"b":{"type":"number"}},"required":["b"]}}}`,
			`{"$defs":{"B":{"properties":{"b":{"type":"number"}},"required":["b"]}},"properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["a","b"],"type":"object"}`, nil},
		{Anthropic, `{"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}}}}}`,
			`{"$defs":{"A":{"properties":{"a":{"$ref":"#/$defs/A"}},"type":"object"}},"properties":{"a":{"$ref":"#/$defs/A"}},"type":"object"}`, nil},
		{Anthropic, `{"type":"object","oneOf":[{"properties":{"a":{"type":"string"},"c":{"type":"string"}},"required":["a","c"]},{"properties":{"b":{"type":"string"},"c":{"type":"number"}},"required":["b","c"]}]}`,
			`{"properties":{"a":{"type":"string"},"b":{"type":"string"},"c":{"anyOf":[{"type":"string"},{"type":"number"}]}},"required":["c"],"type":"object"}`, []string{"/oneOf oneOf"}},
		{OpenAI, `{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]},{"required":["b"]}],"not":{"required":["z"]}}`,
			`{"properties":{"a":{}},"type":"object"}`, []string{"/anyOf anyOf", "/not not"}},
		{OpenAI, `{"anyOf":[{"properties":{"a":{"type":"string"}}}],"properties":{"b":{"$ref":"#/anyOf/0/properties/a"}}}`,
			`left out: its reference #/anyOf/0/properties/a leads into alternatives that cannot stand at the top; move what it refers to into $defs`, nil},
		{Anthropic, `{"type":"object","properties":{"a b":{},"$top":{},"ok.1-x_":{}},"required":["ok.1-x_"]}`,
			`{"properties":{"ok.1-x_":{}},"required":["ok.1-x_"],"type":"object"}`, []string{"/properties/$top property", "/properties/a b property"}},
		{Anthropic, `{"type":"object","properties":{"a b":{}},"required":["a b"]}`, `left out: Anthropic refuses the name of its required argument "a b"; names match ^[a-zA-Z0-9_.-]{1,64}$`, nil},
		{Anthropic, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"type":"array","items":[{"type":"string"}],"additionalItems":false},"items":{"type":"string"}},"dependencies":{"a":["items"]}}`,
			`{"dependentRequired":{"a":["items"]},"properties":{"a":{"items":false,"prefixItems":[{"type":"string"}],"type":"array"},"items":{"type":"string"}},"type":"object"}`, []string{"/$schema $schema"}},
		{MCP, `{"anyOf":[{"required":["a"]}]}`, `{"anyOf":[{"required":["a"]}],"type":"object"}`, nil},
	} {
		got, lost := written(t, c.in, Options{Form: c.form})
		if got != c.want || !slices.Equal(lost, c.lost) {
			t.Errorf("%s: %s\ngives %s\nwant  %s\nlost  %q\nwant  %q", c.form, c.in, got, c.want, lost, c.lost)
		}
	}
}

// TestOpenAIStrict: what OpenAI's strict mode can express.
func TestOpenAIStrict(t *testing.T) {
	strict := func(properties, required string) string {
		return `{"additionalProperties":false,"properties":` + properties + `,"required":` + required + `,"type":"object"}`
	}
	for _, c := range []struct {
		in, want string
		lost     []string
	}{
		{`{"type":"object","additionalProperties":false}`, strict(`{}`, `[]`), nil},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, strict(`{"a":{"type":"string"}}`, `["a"]`), []string{" additionalProperties"}},
		// Optional ones are null.
		{`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"string"},"b":{"enum":["x"]},"c":{"type":["integer","null"]},"d":{"type":"array","items":{"type":"string"}},"e":{"const":1}}}`,
			strict(`{"a":{"type":["string","null"]},"b":{"enum":["x",null],"type":["string","null"]},"c":{"type":["integer","null"]},"d":{"anyOf":[{"items":{"type":"string"},"type":"array"},{"type":"null"}]},"e":{"anyOf":[{"const":1,"type":"number"},{"type":"null"}]}}`,
				`["a","b","c","d","e"]`), []string{" required"}},
		// Supported keywords stay, others go.
		{`{"type":"object","additionalProperties":false,"required":["a","b","c"],"properties":{"a":{"type":"string","format":"date","pattern":"^[0-9]+$","minLength":1,"default":"x","x-own":1},"b":{"type":"integer","format":"int32","minimum":1.50,"multipleOf":2},"c":{"type":"array","items":{"type":"string","format":"binary","pattern":"(?=a)"},"maxItems":3,"uniqueItems":true}}}`,
			strict(`{"a":{"format":"date","pattern":"^[0-9]+$","type":"string"},"b":{"minimum":1.5,"multipleOf":2,"type":"integer"},"c":{"items":{"type":"string"},"maxItems":3,"type":"array"}}`, `["a","b","c"]`),
			[]string{"/properties/a/default default", "/properties/a/minLength minLength", "/properties/a/x-own x-own", "/properties/b/format format",
				"/properties/c/items/format format", "/properties/c/items/pattern pattern", "/properties/c/uniqueItems uniqueItems"}},
		// A property that cannot be expressed is dropped if optional.
		{`{"type":"object","additionalProperties":false,"required":["any"],"properties":{"map":{"type":"object","additionalProperties":{"type":"string"}},"pair":{"type":"array","prefixItems":[{}]},"any":{},"never":false}}`,
			strict(`{"any":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"null"}]}}`, `["any"]`),
			[]string{"/properties/any objects and arrays", "/properties/map property", "/properties/never property", "/properties/pair property"}},
		// Recursion is not written.
		{`{"type":"object","additionalProperties":false,"required":["tree"],"properties":{"tree":{"$ref":"#/$defs/Node"}},"$defs":{"Unused":{},"Node":{"type":"object","additionalProperties":false,"required":["children","root"],"properties":{"root":{"$ref":"#"},"children":{"type":"array","items":{"$ref":"#/$defs/Node"}}}}}}`,
			`{"$defs":{"Node":{"additionalProperties":false,"properties":{"children":{"items":{"$ref":"#/$defs/Node"},"type":"array"},"root":{"$ref":"#"}},"required":["children","root"],"type":"object"},"Unused":{}},"additionalProperties":false,"properties":{"tree":{"$ref":"#/$defs/Node"}},"required":["tree"],"type":"object"}`,
			[]string{" strict", "NOT STRICT"}},
		{`{"type":"object","additionalProperties":false,"properties":{"s":{"type":"string"},"self":{"$ref":"#"}}}`, strict(`{"s":{"type":["string","null"]}}`, `["s"]`), []string{" required", "/properties/self property"}},
		// allOf is merged, oneOf becomes anyOf.
		{`{"type":"object","additionalProperties":false,"required":["a","b"],"properties":{"a":{"allOf":[{"type":"string","maxLength":9},{"enum":["x","y"]},{"enum":["y","z"]}]},"b":{"oneOf":[{"type":"string"},{"type":"integer"},{"type":"string"}]}}}`,
			strict(`{"a":{"enum":["x","y"],"type":"string"},"b":{"anyOf":[{"type":"string"},{"type":"integer"}]}}`, `["a","b"]`),
			[]string{"/properties/a allOf", "/properties/a/allOf/2/enum enum", "/properties/a/maxLength maxLength", "/properties/b/oneOf oneOf"}},
		// Contradicting parts, and closed parts.
		{`{"type":"object","additionalProperties":false,"properties":{"a":{"allOf":[{"type":"string"},{"type":"integer"}]}}}`, strict(`{}`, `[]`), []string{"/properties/a property"}},
		{`{"type":"object","additionalProperties":false,"properties":{"a":{"allOf":[{"additionalProperties":false,"required":["x"],"properties":{"x":{"type":"string"}}},{"type":"object","properties":{"x":{"maxLength":3},"y":{"type":"string"}}}]}}}`,
			strict(`{}`, `[]`), []string{"/properties/a property", "/properties/a/allOf/1/properties/x second schema"}},
		// Objects of two parts.
		{`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"allOf":[{"$ref":"#/$defs/A"},{"type":["object","null"],"required":["y"],"properties":{"y":{"type":"string","maxLength":1}}}]}},"$defs":{"A":{"type":"object","required":["x"],"properties":{"x":{"type":"string","minLength":1}}}}}`,
			strict(`{"a":`+strict(`{"x":{"type":"string"},"y":{"type":"string"}}`, `["x","y"]`)+`}`, `["a"]`),
			[]string{" additionalProperties", "/$defs/A/properties/x/minLength minLength", "/properties/a allOf", "/properties/a/allOf/1/properties/y/maxLength maxLength"}},
		// A part of a schema that contains itself.
		{`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"object","additionalProperties":false,"required":["next"],"properties":{"next":{"allOf":[{"$ref":"#/$defs/A"},{"description":"x"}]}}}}}`,
			strict(`{}`, `[]`), []string{"/$defs/A/properties/next allOf", "/properties/a property"}},
		// Several types with an object or array among them.
		{`{"type":"object","additionalProperties":false,"properties":{"a":{"type":["array","null"],"items":{"type":"string"}},"b":{"type":["array","string"],"items":{"type":"string"}}},"required":["a"]}`,
			strict(`{"a":{"anyOf":[{"items":{"type":"string"},"type":"array"},{"type":"null"}]}}`, `["a"]`), []string{"/properties/a/type type", "/properties/b property"}},
		// Alternatives beside a schema.
		{`{"type":"object","additionalProperties":false,"required":["a","b"],"properties":{"a":{"type":"string","anyOf":[{"format":"date"},{"format":"time"}]},"b":{"type":"array","anyOf":[{"items":{"type":"string"}},{"items":{"type":"boolean"}}]}}}`,
			strict(`{"a":{"type":"string"},"b":{"anyOf":[{"items":{"type":"string"},"type":"array"},{"items":{"type":"boolean"},"type":"array"}]}}`, `["a","b"]`),
			[]string{"/properties/a/anyOf anyOf", "/properties/b/type type"}},
		// A tool that cannot be strict is written without strict.
		{`{"type":"object","additionalProperties":false,"required":["map"],"properties":{"map":{"type":"object"}}}`,
			`{"additionalProperties":false,"properties":{"map":{"type":"object"}},"required":["map"],"type":"object"}`, []string{" strict", "NOT STRICT"}},
	} {
		got, lost := written(t, c.in, Options{OpenAI, true})
		if got != c.want || !slices.Equal(lost, c.lost) {
			t.Errorf("%s\ngives %s\nwant  %s\nlost  %q\nwant  %q", c.in, got, c.want, lost, c.lost)
		}
	}
}

// TestOpenAILimits: tools too large for strict are written without it.
func TestOpenAILimits(t *testing.T) {
	deep := `{"type":"string"}`
	for range 10 {
		deep = `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":` + deep + `}}`
	}
	enum := func(n, length int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"%0*d"`, length, i))
		}
		return `{"enum":[` + strings.Join(list, ",") + `]}`
	}
	object := func(properties ...string) string {
		var list, names []string
		for i, p := range properties {
			list = append(list, fmt.Sprintf(`"p%d":%s`, i, p))
			names = append(names, fmt.Sprintf(`"p%d"`, i))
		}
		return `{"type":"object","additionalProperties":false,"properties":{` + strings.Join(list, ",") + `},"required":[` + strings.Join(names, ",") + `]}`
	}
	for name, c := range map[string]struct {
		in     string
		strict bool
	}{
		"10 levels":                     {deep, true},
		"11 levels":                     {object(deep), false},
		"11 levels through a reference": {`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"$ref":"#/$defs/D"}},"$defs":{"D":` + deep + `}}`, false},
		"5,000 properties":              {object(slices.Repeat([]string{`{"type":"null"}`}, 5000)...), true},
		"5,001 properties":              {object(slices.Repeat([]string{`{"type":"null"}`}, 5001)...), false},
		"1,000 values":                  {object(enum(500, 4), enum(500, 4)), true},
		"1,001 values":                  {object(enum(500, 4), enum(501, 4)), false},
		"250 long values":               {object(enum(250, 100)), true},
		"251 long values":               {object(enum(251, 100)), false},
		"much text":                     {object(slices.Repeat([]string{enum(200, 200)}, 4)...), false},
	} {
		res, err := Export([]*toolkeep.Tool{tool(t, "a.tool", c.in)}, Options{OpenAI, true})
		if err != nil || len(res.Names) != 1 || res.Names[0].Strict != c.strict {
			t.Errorf("%s: %+v %v %v", name, res.Names, res.LeftOut, err)
			continue
		}
		if !c.strict && (res.Losses[0].Lost != "strict" || res.Losses[0].Why == "") {
			t.Errorf("%s: %+v", name, res.Losses)
		}
	}
}

// TestAnthropicStrict: what Anthropic's strict mode can express, per tool and per request.
func TestAnthropicStrict(t *testing.T) {
	for _, c := range []struct {
		in, want string
		lost     []string
	}{
		{`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string","default":"x","format":"uri","maxLength":3},"b":{"type":"array","items":{"type":"number","minimum":1},"minItems":1,"maxItems":9},"c":{"type":"array","items":{"type":"boolean"},"minItems":2}}}`,
			`{"additionalProperties":false,"properties":{"a":{"default":"x","format":"uri","type":"string"},"b":{"items":{"type":"number"},"minItems":1,"type":"array"},"c":{"items":{"type":"boolean"},"type":"array"}},"required":["a"],"type":"object"}`,
			[]string{"/properties/a/maxLength maxLength", "/properties/b/items/minimum minimum", "/properties/b/maxItems maxItems", "/properties/c/minItems minItems"}},
		{`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"object","additionalProperties":false,"required":["n"],"properties":{"n":{"type":"string"},"next":{"$ref":"#/$defs/A"}}}}}`,
			`{"$defs":{"A":{"additionalProperties":false,"properties":{"n":{"type":"string"}},"required":["n"],"type":"object"}},"additionalProperties":false,"properties":{"a":{"$ref":"#/$defs/A"}},"required":["a"],"type":"object"}`,
			[]string{"/$defs/A/properties/next property"}},
	} {
		got, lost := written(t, c.in, Options{Anthropic, true})
		if got != c.want || !slices.Equal(lost, c.lost) {
			t.Errorf("%s\ngives %s\nwant  %s\nlost  %q\nwant  %q", c.in, got, c.want, lost, c.lost)
		}
	}
	var tools []*toolkeep.Tool
	for i := range 30 {
		tools = append(tools, tool(t, fmt.Sprintf("a.tool_%02d", i), `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string"}}}`))
	}
	count := func() (strict int) {
		res, err := Export(tools, Options{Anthropic, true})
		if err != nil || len(res.Names) != len(tools) {
			t.Fatalf("%+v %v", res, err)
		}
		for _, n := range res.Names {
			if n.Strict {
				strict++
			}
		}
		return strict
	}
	if n := count(); n != 20 {
		t.Errorf("%d strict tools, want 20", n)
	}
	for i := range tools {
		tools[i] = tool(t, tools[i].ID, `{"type":"object","additionalProperties":false,"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`)
	}
	if n := count(); n != 12 {
		t.Errorf("%d strict tools of 2 optional properties, want 12", n)
	}
	for i := range tools {
		tools[i] = tool(t, tools[i].ID, `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":["string","null"]}}}`)
	}
	if n := count(); n != 16 {
		t.Errorf("%d strict tools with a property of two types, want 16", n)
	}
}

// TestGemini: what parametersJsonSchema can express.
func TestGemini(t *testing.T) {
	for _, c := range []struct {
		in, want string
		lost     []string
	}{
		{`{"type":"object","properties":{"a":{"type":"string","minLength":1,"format":"whatever"},"b":{"oneOf":[{"type":"string"},{"type":"null"}]},"c":{"type":["array","null"],"items":{"type":"integer","minimum":1}},"d":{"type":"object","additionalProperties":{"type":"string","pattern":"x"}},"e":{}},"required":["a"]}`,
			`{"properties":{"a":{"format":"whatever","type":"string"},"b":{"oneOf":[{"type":"string"},{"type":"null"}]},"c":{"items":{"minimum":1,"type":"integer"},"type":["array","null"]},"d":{"additionalProperties":{"type":"string"},"type":"object"},"e":{}},"required":["a"],"type":"object"}`,
			[]string{"/properties/a/minLength minLength", "/properties/d/additionalProperties/pattern pattern"}},
		{`{"type":"object","properties":{"a":{"enum":["x",1,null,true]},"b":{"const":"x"},"c":{"type":"boolean","enum":[true]},"d":{"const":null}}}`,
			`{"properties":{"a":{"enum":["x",1]},"b":{"enum":["x"]},"c":{"type":"boolean"},"d":{"type":"null"}},"type":"object"}`,
			[]string{"/properties/a/enum/2 value of an enum", "/properties/a/enum/3 value of an enum", "/properties/b/const const", "/properties/c/enum/0 value of an enum", "/properties/d/const const"}},
		// Nothing beside a reference, and no recursion.
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/A","description":"x"}},"$defs":{"A":{"type":"object","properties":{"next":{"$ref":"#/$defs/A"}}}}}`,
			`{"$defs":{"A":{"properties":{},"type":"object"}},"properties":{"a":{"$ref":"#/$defs/A"}},"type":"object"}`,
			[]string{"/$defs/A/properties/next property", "/properties/a/description description"}},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"},"b":{"type":"string"}},"$defs":{"A":{"type":"object","required":["list"],"properties":{"list":{"type":"array","items":{"$ref":"#/$defs/A"}}}}}}`,
			`{"properties":{"b":{"type":"string"}},"type":"object"}`, []string{"/properties/a property"}},
		{`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"object","required":["list"],"properties":{"list":{"type":"array","items":{"$ref":"#/$defs/A"}}}}}}`,
			`left out: the required property "a" cannot be written: the required property "list" cannot be written: the schema leads back to itself, which is not exported for Gemini`, nil},
		{`{"type":"object","properties":{"a":{"type":"object","properties":{"x":{"type":"string"}},"anyOf":[{"required":["x"]},{"required":["y"]}]}},"if":{"required":["a"]},"then":{}}`,
			`{"properties":{"a":{"properties":{"x":{"type":"string"}},"type":"object"}},"type":"object"}`, []string{"/if if", "/properties/a/anyOf anyOf", "/then then"}},
	} {
		got, lost := written(t, c.in, Options{Form: Gemini})
		if got != c.want || !slices.Equal(lost, c.lost) {
			t.Errorf("%s\ngives %s\nwant  %s\nlost  %q\nwant  %q", c.in, got, c.want, lost, c.lost)
		}
	}
}

// TestBounded: conversion ends on schemas made to explode.
func TestBounded(t *testing.T) {
	var defs []string
	for i := range 40 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"properties":{"p%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"minProperties":1}]},"q%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"minProperties":2}]}}}]}`, i, i+1, i, i+1, i, i+1))
	}
	in := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` + strings.Join(defs, ",") + `,"d40":{"type":"object"}}}`
	var tree any
	if err := json.Unmarshal([]byte(in), &tree); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*rules{&openaiRules, &anthropicRules, &geminiRules} {
		c := &converter{tool: "a.tool", root: tree, budget: maxNodes}
		if _, reason := c.subset(r); reason == "" && c.budget < 0 {
			t.Errorf("%s: over its budget without a reason", r.who)
		}
	}
}

// FuzzExport: anything that the catalogue accepts is written within the limits or left out, the same each time.
func FuzzExport(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":["object","null"],"properties":{"a":{"$ref":"#/$defs/A"},"b":{"$ref":"#"}}}}}`,
		`{"oneOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"allOf":[{"$ref":"#/oneOf/0"}]}],"enum":[{}],"not":false}`,
		`{"properties":{"enum":{"enum":[1,"a",null,[]]},"$ref":{"type":"string"},"properties":{"items":[true],"prefixItems":[{}]}},"additionalProperties":{"anyOf":[{"type":"string"},false]}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"x":{"items":[{"$ref":"#/definitions/x"}]}},"properties":{"x":{"$ref":"#/definitions/x"}}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, parameters string) {
		if _, err := schema.Compile([]byte(parameters)); err != nil {
			return
		}
		one := &toolkeep.Tool{ID: "a.tool", Version: "1.0.0", Manifest: &toolkeep.Manifest{ToolID: "a.tool", Description: "A tool.", ParametersSchema: []byte(parameters)}}
		for _, form := range Forms() {
			for _, strict := range []bool{false, true} {
				res, err := Export([]*toolkeep.Tool{one}, Options{form, strict})
				if err != nil {
					t.Fatal(err)
				}
				again, err := Export([]*toolkeep.Tool{one}, Options{form, strict})
				if err != nil || string(again.Document) != string(res.Document) || fmt.Sprint(again.Losses) != fmt.Sprint(res.Losses) {
					t.Fatalf("%s (strict %t) differs the second time", form, strict)
				}
				if len(res.Names)+len(res.LeftOut) != 1 {
					t.Fatalf("%s (strict %t): neither written nor left out", form, strict)
				}
			}
		}
	})
}
