package function

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(t *testing.T, data string, edit ...func(*Options)) (*source.Plan, error) {
	t.Helper()
	o := Options{Name: "dir/My Tools.json", Data: []byte(data), URL: "https://api.example.com/run"}
	for _, f := range edit {
		f(&o)
	}
	return Read(o)
}

// one reads a file with one function that becomes a tool.
func one(t *testing.T, data string, edit ...func(*Options)) *toolkeep.Manifest {
	t.Helper()
	plan, err := read(t, data, edit...)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if len(plan.Tools) != 1 || len(plan.Refused) != 0 {
		t.Fatalf("%s: %d tools, refused %v", data, len(plan.Tools), plan.Refused)
	}
	tool, err := catalog.ParseManifest(plan.Tools[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	return tool.Manifest
}

// TestForms reads the same function in every form.
func TestForms(t *testing.T) {
	const schema = `{"properties":{"n":{"minimum":1.50,"type":"number"}},"required":["n"],"type":"object"}`
	for name, c := range map[string]struct {
		data string
		form Form
		also string // annotations
	}{
		"Chat Completions": {`[{"type":"function","function":{"name":"f","description":"Does it.","strict":true,"parameters":SCHEMA}}]`, OpenAI, `{"openai":{"strict":true}}`},
		"Responses":        {`[{"type":"function","name":"f","description":"Does it.","strict":null,"parameters":SCHEMA}]`, OpenAI, ``},
		"functions":        {`{"model":"m","functions":[{"name":"f","description":"Does it.","parameters":SCHEMA}]}`, OpenAI, ``},
		"Anthropic":        {`{"tools":[{"type":"custom","name":"f","description":"Does it.","input_schema":SCHEMA,"cache_control":{"type":"ephemeral"}}]}`, Anthropic, `{"anthropic":{"cache_control":{"type":"ephemeral"}}}`},
		"Gemini":           {`{"functionDeclarations":[{"name":"f","description":"Does it.","parametersJsonSchema":SCHEMA,"behavior":"BLOCKING"}]}`, Gemini, `{"gemini":{"behavior":"BLOCKING"}}`},
		"Gemini, Python":   {`[{"function_declarations":[{"name":"f","description":"Does it.","parameters_json_schema":SCHEMA}]}]`, Gemini, ``},
		"LangChain":        {`[{"name":"f","description":"Does it.","args_schema":SCHEMA,"return_direct":false}]`, LangChain, `{"langchain":{"return_direct":false}}`},
		"tools/list":       {`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"f","description":"Does it.","inputSchema":SCHEMA}]}}`, MCP, ``},
		"alone":            {`{"name":"f","description":"Does it.","input_schema":SCHEMA}`, Anthropic, ``},
	} {
		t.Run(name, func(t *testing.T) {
			data := strings.ReplaceAll(c.data, "SCHEMA", schema)
			for _, form := range []Form{Auto, c.form} {
				m := one(t, data, func(o *Options) { o.Form = form })
				if m.ToolID != "my-tools.f" || m.Description != "Does it." || string(m.ParametersSchema) != strings.Replace(schema, "1.50", "1.5", 1) {
					t.Errorf("%s %q %s", m.ToolID, m.Description, m.ParametersSchema)
				}
				if string(m.Annotations) != c.also {
					t.Errorf("annotations %s, want %s", m.Annotations, c.also)
				}
				if m.Source.Metadata["form"] != string(c.form) || m.Source.Metadata["function"] != "f" || m.SideEffects != "writes" || m.Idempotent {
					t.Errorf("%+v", m.Source)
				}
			}
		})
	}
}

func TestBinding(t *testing.T) {
	for _, c := range []struct{ url, name, server, path string }{
		{"https://api.example.com", "f", "https://api.example.com", "/f"},
		{"https://api.example.com/a/b/", "f", "https://api.example.com", "/a/b/f"},
		{"http://127.0.0.1:9000/a%2Fb/{name}/call", "f", "http://127.0.0.1:9000", "/a%2Fb/f/call"},
		{"https://api.example.com/x", "a/b {c}", "https://api.example.com", "/x/a%2Fb%20%7Bc%7D"},
	} {
		m := one(t, `[{"name":`+string(canon.Append(nil, c.name))+`,"input_schema":{}}]`, func(o *Options) {
			o.URL, o.Method, o.SideEffects = c.url, "put", "reads"
			o.Auth = &toolkeep.AuthSpec{Type: "api_key", Secret: "env://X", In: "header", Name: "X-Key"}
		})
		want := fmt.Sprintf(`{"body":{"all":true,"content_type":"application/json"},"method":"PUT","path":%q,"server":%q}`, c.path, c.server)
		if string(m.Execution.Binding) != want || m.Execution.Kind != "http" {
			t.Errorf("%s: %s, want %s", c.url, m.Execution.Binding, want)
		}
		if m.SideEffects != "reads" || !m.Idempotent || len(m.Auth) != 1 || m.Auth[0].Name != "X-Key" || len(m.Permissions.Network) != 1 || m.Permissions.Network[0].Port == 0 {
			t.Errorf("%s: %+v %+v", c.url, m.Auth, m.Permissions)
		}
	}
	m := one(t, `[{"name":"f","input_schema":{}}]`, func(o *Options) {
		o.Builtins = map[string]Builtin{"f": {Kind: "builtin", Binding: []byte(`{"name":"echo"}`), SideEffects: "none", Idempotent: true, Result: []byte(`{"type":"object"}`)}}
	})
	if m.Execution.Kind != "builtin" || string(m.Execution.Binding) != `{"name":"echo"}` || m.SideEffects != "none" || string(m.ResultSchema) != `{"type":"object"}` {
		t.Errorf("%+v", m)
	}
}

// TestGeminiDialect converts OpenAPI's dialect to JSON Schema.
func TestGeminiDialect(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"OBJECT","properties":{"a":{"type":"STRING","format":"enum","enum":["x","y"]}},"required":["a"],"propertyOrdering":["a"]}`:       `{"properties":{"a":{"enum":["x","y"],"type":"string"}},"required":["a"],"type":"object"}`,
		`{"type":"OBJECT","properties":{"a":{"type":"INTEGER","nullable":true,"enum":["1","20"]}}}`:                                               `{"properties":{"a":{"enum":[1,20,null],"type":["integer","null"]}},"type":"object"}`,
		`{"type":"OBJECT","properties":{"a":{"type":"ARRAY","items":{"type":"NUMBER"},"minItems":"1","max_items":"3"}}}`:                          `{"properties":{"a":{"items":{"type":"number"},"maxItems":3,"minItems":1,"type":"array"}},"type":"object"}`,
		`{"type":"OBJECT","properties":{"a":{"any_of":[{"type":"STRING"},{"type":"BOOLEAN"}],"nullable":true}}}`:                                  `{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"boolean"},{"type":"null"}]}},"type":"object"}`,
		`{"type":"OBJECT","properties":{"a":{"ref":"#/defs/A"}},"defs":{"A":{"type":"STRING","example":"x"}}}`:                                    `{"$defs":{"A":{"examples":["x"],"type":"string"}},"properties":{"a":{"$ref":"#/$defs/A"}},"type":"object"}`,
		`{"type":"OBJECT","properties":{"type":{"type":"STRING"},"nullable":{"type":"TYPE_UNSPECIFIED"}},"additionalProperties":{"type":"NULL"}}`: `{"additionalProperties":{"type":"null"},"properties":{"nullable":{},"type":{"type":"string"}},"type":"object"}`,
	} {
		m := one(t, `{"functionDeclarations":[{"name":"f","parameters":`+in+`}]}`)
		if string(m.ParametersSchema) != want {
			t.Errorf("%s\ngives %s\nwant  %s", in, m.ParametersSchema, want)
		}
	}
	m := one(t, `{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT"},"response":{"type":"OBJECT","properties":{"r":{"type":"STRING"}}}}]}`)
	if string(m.ResultSchema) != `{"properties":{"r":{"type":"string"}},"type":"object"}` || m.StrictResult() {
		t.Errorf("%s", m.ResultSchema)
	}
}

func TestLangChain(t *testing.T) {
	m := one(t, `[{"name":"f","args":{"q":{"type":"string"},"k":{"type":"integer","default":3}}}]`)
	if got := string(m.ParametersSchema); got != `{"properties":{"k":{"default":3,"type":"integer"},"q":{"type":"string"}},"required":["q"],"type":"object"}` {
		t.Errorf("args: %s", got)
	}
	m = one(t, `[{"title":"find_it","description":"Finds.","type":"object","properties":{"q":{"title":"Q","type":"string"}},"required":["q"]}]`)
	if m.ToolID != "my-tools.find_it" || m.Source.Type != "langchain" || m.Description != "Finds." {
		t.Errorf("%s %+v", m.ToolID, m.Source)
	}
}

func TestMCPHints(t *testing.T) {
	m := one(t, `{"tools":[{"name":"f","title":"A title","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`)
	if m.ToolName != "A title" || m.SideEffects != "reads" || !m.Idempotent || string(m.ResultSchema) != `{"type":"object"}` {
		t.Errorf("%+v", m)
	}
	m = one(t, `{"tools":[{"name":"f","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true,"idempotentHint":true}}]}`)
	if m.SideEffects != "writes" || !m.Idempotent || m.Risk != "medium" {
		t.Errorf("%+v", m)
	}
}

// TestRefused: every refused function is named with its reason, and the others become tools.
func TestRefused(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"web_search_20250305","name":"web_search"}`:         "executed by its provider",
		`{"googleSearch":{}}`:                                        `"googleSearch" is executed by its provider`,
		`{"type":"custom","name":"code","description":"Runs code."}`: "of type custom: it takes one text",
		`{"type":"custom","name":"code","format":{"type":"grammar","syntax":"lark","definition":"start: x"}}`: "of type custom",
		`{"type":"custom","custom":{"name":"code","format":{"type":"text"}}}`:                                 "of type custom",
		`{}`: "an empty object",
		`7`:  "it is not an object",
		`{"name":"g","input_schema":{"type":"array"}}`:                `of type "array"`,
		`{"name":"g","input_schema":{"type":["string","null"]}}`:      "of another type than object",
		`{"name":"g","input_schema":false}`:                           "allows no call",
		`{"name":"g","input_schema":[]}`:                              "no JSON Schema",
		`{"name":"g","input_schema":{"properties":{"a":{"type":7}}}}`: "/parameters_schema/properties/a/type",
		`{"name":"g","input_schema":{"$ref":"file:///etc/passwd"}}`:   "its manifest is refused",
		`{"input_schema":{}}`:                                         "it has no name",
		`{"name":"f","input_schema":{}}`:                              "another function of this name",
		`{"name":"!!!","input_schema":{}}`:                            "no letter or digit",
		`{"name":"g","args_schema":"SearchInput"}`:                    "the name of a class",
		`{"name":"g","args":[]}`:                                      "not an object of properties",
	} {
		plan, err := read(t, `[{"name":"f","input_schema":{}},`+in+`]`)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if len(plan.Tools) != 1 || plan.Items != 2 || len(plan.Refused) != 1 || plan.Refused[0].Origin == "" || !strings.Contains(plan.Refused[0].Reason, want) {
			t.Errorf("%s: %d tools, refused %+v, want %s", in, len(plan.Tools), plan.Refused, want)
		}
	}
	plan, err := read(t, `[{"name":"f","input_schema":{}},{"name":"g","inputSchema":{}}]`, func(o *Options) { o.Form = Anthropic })
	if err != nil || len(plan.Tools) != 1 || len(plan.Refused) != 1 || !strings.Contains(plan.Refused[0].Reason, "it looks like that of mcp") {
		t.Errorf("%+v %v", plan, err)
	}
}

func TestFileRefused(t *testing.T) {
	for _, c := range []struct {
		data string
		edit func(*Options)
		want string
	}{
		{`nope`, nil, "not JSON"},
		{`{"a":1,"a":2}`, nil, "not JSON"},
		{`[]`, nil, "holds no functions"},
		{`{"tools":[]}`, nil, "holds no functions"},
		{`"text"`, nil, "holds no functions"},
		{`[]`, func(o *Options) { o.URL = "" }, "say what executes"},
		{`[]`, func(o *Options) { o.URL = "ftp://a" }, "absolute http"},
		{`[]`, func(o *Options) { o.URL = "https://u:p@a" }, "user or password"},
		{`[]`, func(o *Options) { o.URL = "https://a?b" }, "neither query"},
		{`[]`, func(o *Options) { o.URL = "https://{name}.a" }, "path of the URL alone"},
		{`[]`, func(o *Options) { o.URL = "https://a/{id}" }, "no other braces"},
		{`[]`, func(o *Options) { o.Method = "GET" }, "POST, PUT or PATCH"},
		{`[]`, func(o *Options) { o.SideEffects = "some" }, "none, reads or writes"},
		{`[]`, func(o *Options) { o.Namespace = "No" }, `"No" is not a namespace`},
		{`[{"name":"f","input_schema":{}}]`, func(o *Options) { o.Builtins = map[string]Builtin{"g": {}} }, `no function "g"`},
	} {
		_, err := read(t, c.data, func(o *Options) {
			if c.edit != nil {
				c.edit(o)
			}
		})
		var e *toolkeep.Error
		if !errors.As(err, &e) || e.Code != toolkeep.ImportFailed || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v, want %s", c.data, err, c.want)
		}
	}
}

// TestNames keeps valid tool names and replaces the others.
func TestNames(t *testing.T) {
	long := strings.Repeat("very_long_", 8)
	plan, err := read(t, `[{"name":"Good-name_1","input_schema":{}},{"name":"a.b","input_schema":{}},{"name":"a b","input_schema":{}},{"name":"`+long+`1","input_schema":{}},{"name":"`+long+`2","input_schema":{}}]`)
	if err != nil || len(plan.Tools) != 5 {
		t.Fatalf("%+v %v", plan, err)
	}
	seen := map[string]bool{}
	for _, tool := range plan.Tools {
		if seen[tool.Name] {
			t.Errorf("%s stands for two functions", tool.Name)
		}
		seen[tool.Name] = true
	}
	if !seen["my-tools.Good-name_1"] || !seen["my-tools.a_b"] {
		t.Errorf("%v", seen)
	}
}

// TestAgain: a changed tool gets the version its change requires.
func TestAgain(t *testing.T) {
	const first = `[{"name":"f","description":"Does it.","input_schema":{"type":"object","properties":{"a":{"type":"string"}}}}]`
	plan, err := read(t, first)
	if err != nil {
		t.Fatal(err)
	}
	published, err := catalog.ParseManifest(plan.Tools[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		first: "unchanged 1.0.0",
		strings.Replace(first, `"type":"string"}}`, `"type":"string"},"b":{"type":"string"}}`, 1): "minor 1.1.0",
		strings.Replace(first, `{"type":"string"}}`, `{"type":"integer"}}`, 1):                    "major 2.0.0",
	} {
		plan, err := read(t, in, func(o *Options) { o.Previous = func(string) *toolkeep.Tool { return published } })
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Tools[0].Change + " " + plan.Tools[0].Version; got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzRead: any file gives a plan or an error, and every planned tool can be published.
func FuzzRead(f *testing.F) {
	f.Add(`{"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}`, "")
	f.Add(`{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","nullable":true,"defs":{"a":{"ref":"#/defs/a"}}}}]}`, "gemini")
	f.Add(`[{"name":"f","args":{"a":true}},{"title":"t","properties":{}}]`, "langchain")
	f.Add(`{"result":{"tools":[{"name":"a/b","inputSchema":true}]}}`, "mcp")
	f.Fuzz(func(t *testing.T, data, form string) {
		plan, err := Read(Options{Name: "f.json", Data: []byte(data), Form: Form(form), URL: "https://example.com"})
		if err != nil {
			return
		}
		if len(plan.Tools)+len(plan.Refused) != plan.Items {
			t.Fatalf("%d tools and %d refused are not %d", len(plan.Tools), len(plan.Refused), plan.Items)
		}
		for _, tool := range plan.Tools {
			if _, err := catalog.ParseManifest(tool.Manifest); err != nil {
				t.Fatalf("%s: %v", tool.Manifest, err)
			}
		}
	})
}
