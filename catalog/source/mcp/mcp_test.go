package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/schema"
)

func read(t testing.TB, o Options, defs ...[]byte) *Plan {
	t.Helper()
	if o.Server == "" {
		o.Server = "calc"
	}
	plan, err := Read(t.Context(), defs, o)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// published returns the tools of a plan as a catalogue would.
func published(t testing.TB, plan *Plan) (previous func(string) *toolkeep.Tool, ids []string) {
	t.Helper()
	tools := map[string]*toolkeep.Tool{}
	for _, p := range plan.Tools {
		tool, err := catalog.ParseManifest(p.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		tools[tool.ID] = tool
		ids = append(ids, tool.ID)
	}
	return func(id string) *toolkeep.Tool { return tools[id] }, ids
}

func one(t testing.TB, plan *Plan) (PlannedTool, *toolkeep.Tool) {
	t.Helper()
	if len(plan.Tools) != 1 {
		t.Fatalf("%d tools, refused %+v", len(plan.Tools), plan.Refused)
	}
	tool, err := catalog.ParseManifest(plan.Tools[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Tools[0], tool
}

func changes(plan *Plan) string {
	var out []string
	for _, p := range plan.Tools {
		s := p.ID + " " + p.Change + " " + p.Version
		if p.Additive {
			s += " additive"
		}
		out = append(out, s)
	}
	for _, r := range plan.Refused {
		out = append(out, r.ID+" refused")
	}
	return strings.Join(out, ", ")
}

func TestManifest(t *testing.T) {
	raw := []byte(`{"name":"get-weather","title":"Weather","description":"Gives the weather.\nOf a city.",
		"icons":[{"src":"https://example.com/i.png","mimeType":"image/png"}],
		"inputSchema":{"type":"object","properties":{"city":{"type":"string","x-hint":{"a":[1.50,null]}}},"required":["city"]},
		"outputSchema":{"type":"object","properties":{"t":{"type":"number"}}},
		"annotations":{"title":"other","readOnlyHint":true,"idempotentHint":true,"destructiveHint":true,"openWorldHint":true},
		"execution":{"taskSupport":"optional"},"_meta":{"com.example/a":{"b":1}},"vendor":[true]}`)
	for _, trust := range []bool{false, true} {
		plan := read(t, Options{Server: "meteo", Namespace: "wx", TrustAnnotations: trust, Timeout: 1500 * time.Millisecond}, raw)
		p, tool := one(t, plan)
		m := tool.Manifest
		if p.ID != "wx.get-weather" || p.Tool != "get-weather" || p.Version != "1.0.0" || p.Change != "new" || len(p.Findings) != 0 {
			t.Errorf("%+v", p)
		}
		if m.ToolName != "Weather" || m.Description != "Gives the weather.\nOf a city." || m.ShortDescription != "Gives the weather." ||
			m.Execution.Kind != "mcp" || m.Execution.TimeoutMS != 1500 || string(m.Execution.Binding) != `{"server":"meteo","tool":"get-weather"}` ||
			m.Source.Type != "mcp" || m.Source.Digest != p.Digest || m.Source.Metadata["server"] != "meteo" || len(m.Icons) != 1 || m.Risk != "medium" {
			t.Errorf("%+v", m)
		}
		if want := map[bool]string{false: "writes", true: "reads"}[trust]; m.SideEffects != want || m.Idempotent != trust {
			t.Errorf("trusted %t: %s, idempotent %t", trust, m.SideEffects, m.Idempotent)
		}
		if got, want := string(m.ParametersSchema), `{"properties":{"city":{"type":"string","x-hint":{"a":[1.5,null]}}},"required":["city"],"type":"object"}`; got != want {
			t.Errorf("parameters: %s", got)
		}
		if got, want := string(m.ResultSchema), `{"properties":{"structuredContent":{"properties":{"t":{"type":"number"}},"type":"object"}},"required":["structuredContent"],"type":"object"}`; got != want {
			t.Errorf("result: %s", got)
		}
		if got, want := string(m.Annotations), `{"mcp":{"_meta":{"com.example/a":{"b":1}},"annotations":{"destructiveHint":true,"idempotentHint":true,"openWorldHint":true,"readOnlyHint":true,"title":"other"},"execution":{"taskSupport":"optional"},"vendor":[true]}}`; got != want {
			t.Errorf("annotations: %s", got)
		}
		checkDefinition(t, tool)
	}
	// An explicit harmless hint changes nothing.
	_, tool := one(t, read(t, Options{TrustAnnotations: true}, def(t, "a", "b", `{"annotations":{"destructiveHint":false,"readOnlyHint":false}}`)))
	if tool.Manifest.Risk != "low" || tool.Manifest.SideEffects != "writes" {
		t.Errorf("%+v", tool.Manifest)
	}
}

// TestDefinitionSurvives round-trips definitions of every shape through the manifest.
func TestDefinitionSurvives(t *testing.T) {
	for _, extra := range []string{
		`{}`,
		`{"title":""}`,
		`{"title":5}`,
		`{"title":"` + strings.Repeat("t", 300) + `"}`,
		`{"description":""}`,
		`{"description":null}`,
		`{"description":"` + strings.Repeat("long ", 3000) + `"}`,
		`{"description":" spaces around \n"}`,
		`{"icons":[]}`,
		`{"icons":"none"}`,
		`{"icons":[1,2]}`,
		`{"icons":[{},{},{},{},{},{},{},{},{},{}]}`,
		`{"inputSchema":{}}`,
		`{"inputSchema":true}`,
		`{"outputSchema":{}}`,
		`{"outputSchema":true}`,
		`{"outputSchema":null}`,
		`{"outputSchema":7}`,
		`{"outputSchema":{"type":"nonsense"}}`,
		`{"outputSchema":{"$ref":"https://example.com/elsewhere.json"}}`,
		`{"outputSchema":{"$id":"https://example.com/own","$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"}}}}`,
		`{"outputSchema":{"$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"}}}}`,
		`{"outputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","definitions":{"a":{"type":"object"}}}}`,
		`{"outputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","allOf":[true],"definitions":{"a":{"type":"object"}}}}`,
		`{"outputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","allOf":[{"$ref":"#/definitions/a"}],"definitions":{"a":{"type":"object"}}}}`,
		`{"outputSchema":{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"x":{"$ref":"#/definitions/a"}},"definitions":{"a":{"type":"string"}}}}`,
		`{"annotations":null}`,
		`{"annotations":[1]}`,
		`{"annotations":{"title":"   "}}`,
		`{"mcp":{"mcp":1},"version":"9.9.9","source":{"digest":"x"},"absent":["name"]}`,
	} {
		raw := def(t, "a", "Does something.", extra)
		plan := read(t, Options{}, raw)
		p, tool := one(t, plan)
		checkDefinition(t, tool)
		// A second import changes nothing, byte for byte.
		previous, ids := published(t, plan)
		again := read(t, Options{Previous: previous, Published: ids}, raw)
		if got := changes(again); got != "calc.a unchanged 1.0.0" || !bytes.Equal(again.Tools[0].Manifest, tool.Raw) {
			t.Errorf("%.100s: %s", extra, got)
		}
		if digest, err := Digest(raw); err != nil || digest != p.Digest {
			t.Errorf("%.100s: %v", extra, err)
		}
	}
	// No description at all.
	plan := read(t, Options{}, []byte(`{"name":"a","inputSchema":{}}`))
	_, tool := one(t, plan)
	checkDefinition(t, tool)
	if tool.Manifest.Description == "" || tool.Manifest.ToolName != "a" {
		t.Errorf("%+v", tool.Manifest)
	}
	other, err := catalog.ParseManifest([]byte(`{"schema_version":1,"tool_id":"a.b","version":"1.0.0","description":"x","parameters_schema":{},"execution":{"kind":"builtin","binding":{"name":"echo"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Definition(other); err == nil {
		t.Error("a tool of another kind has a definition")
	}
}

func TestRefused(t *testing.T) {
	deep := strings.Repeat(`{"not":`, 70) + `{}` + strings.Repeat(`}`, 70)
	plan := read(t, Options{},
		def(t, "good", "Works."),
		[]byte(`{"name":"noschema"}`),
		[]byte(`{"name":"null","inputSchema":null}`),
		[]byte(`{"inputSchema":{}}`),
		[]byte(`{"name":"","inputSchema":{}}`),
		[]byte(`{"name":7,"inputSchema":{}}`),
		[]byte(`[]`),
		[]byte(`"x"`),
		[]byte(`{"name":"cut"`),
		nil,
		def(t, "good", "Works otherwise."),
		def(t, "array", "x", `{"inputSchema":{"type":"array"}}`),
		def(t, "lost", "x", `{"inputSchema":{"properties":{"a":{"$ref":"#/$defs/none"}}}}`),
		def(t, "away", "x", `{"inputSchema":{"$ref":"file:///etc/passwd"}}`),
		def(t, "number", "x", `{"inputSchema":{"maximum":18446744073709551617}}`),
		def(t, "pattern", "x", `{"inputSchema":{"properties":{"a":{"pattern":"("}}}}`),
		[]byte(`{"name":"deep","inputSchema":`+deep+`}`),
		[]byte(`{"name":"twice","name":"again","inputSchema":{}}`),
		[]byte(`{"name":"nul","description":"a\u0000b","inputSchema":{}}`),
		[]byte(`{"name":"`+strings.Repeat("n", 600)+`","inputSchema":{}}`),
		[]byte(`{"name":"large","inputSchema":{},"description":"`+strings.Repeat("x", 1<<20)+`"}`),
		def(t, "last", "Works too."),
		def(t, "task", "x", `{"execution":{"taskSupport":"required"}}`),
	)
	if got := changes(plan); !strings.HasPrefix(got, "calc.good new 1.0.0, calc.last new 1.0.0, ") {
		t.Errorf("%s", got)
	}
	want := []string{"1 noschema inputSchema", "2 null inputSchema", "3  no name", "4  no name", "5  no name", "6  object", "7  object", "8  read", "9  empty",
		"10  twice", "11 array /inputSchema", "12 lost leads nowhere", "13 away leaves the schema", "14 number RFC 8785", "15 pattern must be a regex",
		"16 deep ", "17  twice", "18 nul NUL", "19  600 bytes", "20 large bytes", "22 task taskSupport"}
	if len(plan.Refused) != len(want) {
		t.Fatalf("%d refused, want %d: %+v", len(plan.Refused), len(want), plan.Refused)
	}
	for i, r := range plan.Refused {
		parts := strings.SplitN(want[i], " ", 3)
		if fmt.Sprint(r.Index) != parts[0] || r.Tool != parts[1] || !strings.Contains(r.Reason, parts[2]) || r.Digest == "" || len(r.Reason) > 1000 {
			t.Errorf("got %d %q %q, want %s", r.Index, r.Tool, r.Reason, want[i])
		}
		if (r.ID == "") != (r.Tool == "") {
			t.Errorf("%d: id %q of tool %q", i, r.ID, r.Tool)
		}
	}
}

func TestReadRefusesOptions(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx context.Context
		o   Options
	}{
		"no server":     {t.Context(), Options{Namespace: "a"}},
		"bad namespace": {t.Context(), Options{Server: "a", Namespace: "A"}},
		"bad server":    {t.Context(), Options{Server: "a b"}},
		"cancelled":     {cancelled, Options{Server: "a"}},
	} {
		_, err := Read(c.ctx, [][]byte{def(t, "a", "b")}, c.o)
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.ImportFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	id := regexp.MustCompile(`^calc\.[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	names := []string{"plain", "get-user", "get_user", "get.user", "get/user", "users:list", "2nd", "-x", "日本", "ünïcode", strings.Repeat("long", 40), strings.Repeat("long", 40) + "er", " ", "a b", "a  b"}
	var defs [][]byte
	for _, n := range names {
		defs = append(defs, def(t, n, "Does something."))
	}
	plan := read(t, Options{}, defs...)
	got := map[string]string{}
	seen := map[string]bool{}
	for _, p := range plan.Tools {
		if !id.MatchString(p.ID) || seen[p.ID] {
			t.Errorf("%q has the id %q", p.Tool, p.ID)
		}
		seen[p.ID], got[p.Tool] = true, p.ID
		tool, err := catalog.ParseManifest(p.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		checkDefinition(t, tool)
		if toolOf(tool) != p.Tool {
			t.Errorf("the binding of %q names %q", p.Tool, toolOf(tool))
		}
	}
	if len(got) != len(names) {
		t.Fatalf("%d of %d tools: %+v", len(got), len(names), plan.Refused)
	}
	for name, want := range map[string]string{"plain": "calc.plain", "get-user": "calc.get-user", "get_user": "calc.get_user"} {
		if got[name] != want {
			t.Errorf("%s is %s", name, got[name])
		}
	}
	if !strings.HasPrefix(got["get.user"], "calc.get_user_") || !strings.HasPrefix(got["日本"], "calc.tool_") || !strings.HasPrefix(got["2nd"], "calc._2nd_") {
		t.Errorf("%v", got)
	}

	// Another order results in the same ids.
	for i, j := 0, len(defs)-1; i < j; i, j = i+1, j-1 {
		defs[i], defs[j] = defs[j], defs[i]
	}
	for _, p := range read(t, Options{}, defs...).Tools {
		if got[p.Tool] != p.ID {
			t.Errorf("%q was %s and is %s", p.Tool, got[p.Tool], p.ID)
		}
	}

	// A tool that takes over another's name does not take its id.
	previous, ids := published(t, plan)
	thief := strings.TrimPrefix(got["get.user"], "calc.")
	after := read(t, Options{Previous: previous, Published: ids}, def(t, thief, "Does something else."))
	if len(after.Tools) == 0 || after.Tools[0].Tool != thief || after.Tools[0].ID == got["get.user"] || after.Tools[0].Change != ChangeNew {
		t.Errorf("%s", changes(after))
	}
	if n := strings.Count(changes(after), " gone "); n != len(names) {
		t.Errorf("%d tools are gone, want %d", n, len(names))
	}
	both := read(t, Options{Previous: previous}, def(t, thief, "x"), def(t, "get.user", "Does something."))
	if len(both.Tools) != 2 || both.Tools[1].ID != got["get.user"] || both.Tools[0].ID == both.Tools[1].ID {
		t.Errorf("%s", changes(both))
	}
}

func TestReimport(t *testing.T) {
	base := `{"inputSchema":{"type":"object","properties":{"a":{"type":"integer","description":"First."},"m":{"enum":["x","y"]}},"required":["a"]},` +
		`"outputSchema":{"type":"object","properties":{"sum":{"type":"integer"}},"required":["sum"]},"annotations":{"readOnlyHint":true}}`
	first := read(t, Options{TrustAnnotations: true}, def(t, "add", "Adds.", base), def(t, "sub", "Subtracts."))
	previous, ids := published(t, first)
	sub := "calc.sub unchanged 1.0.0"
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing", "", "", "calc.add unchanged 1.0.0, " + sub},
		{"words", "First.", "First number.", "calc.add patch 1.0.1, " + sub},
		{"an optional parameter", `"m":`, `"b":{"type":"integer"},"m":`, "calc.add minor 1.1.0 additive, " + sub},
		{"an optional parameter that speaks to the model", `"m":`, `"b":{"description":"<IMPORTANT>"},"m":`, "calc.add minor 1.1.0, " + sub},
		{"a value more", `["x","y"]`, `["x","y","z"]`, "calc.add minor 1.1.0 additive, " + sub},
		{"a value less", `["x","y"]`, `["x"]`, "calc.add major 2.0.0, " + sub},
		{"a required parameter", `"required":["a"]`, `"required":["a","m"]`, "calc.add major 2.0.0, " + sub},
		{"nothing required", `"required":["a"]`, `"required":[]`, "calc.add minor 1.1.0 additive, " + sub},
		{"another type", `"integer","description"`, `"string","description"`, "calc.add major 2.0.0, " + sub},
		{"a result less", `"required":["sum"]`, `"required":[]`, "calc.add major 2.0.0, " + sub},
		{"it writes now", `"readOnlyHint":true`, `"readOnlyHint":false`, "calc.add major 2.0.0, " + sub},
		{"more and other words", `"description":"First."}`, `"description":"1st"},"b":{}`, "calc.add minor 1.1.0, " + sub},
		{"a schema that cannot be used", `"type":"object","properties":{"a"`, `"type":"array","properties":{"a"`, sub + ", calc.add refused"},
		{"a hint more", `"readOnlyHint":true`, `"readOnlyHint":true,"openWorldHint":false`, "calc.add patch 1.0.1, " + sub},
	} {
		text := strings.Replace(base, c.old, c.new, 1)
		if c.old != "" && text == base {
			t.Fatalf("%s: nothing was replaced", c.name)
		}
		plan := read(t, Options{TrustAnnotations: true, Previous: previous, Published: ids}, def(t, "add", "Adds.", text), def(t, "sub", "Subtracts."))
		if got := changes(plan); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	plan := read(t, Options{TrustAnnotations: true, Previous: previous, Published: ids}, def(t, "add", "Adds.", base))
	if got := changes(plan); got != "calc.add unchanged 1.0.0, calc.sub gone 1.0.0" || plan.Tools[1].Manifest != nil || plan.Tools[1].Tool != "sub" {
		t.Errorf("%s", got)
	}
	// A title that repeats the name still makes a different definition, so it must be pinned.
	plan = read(t, Options{Previous: previous}, def(t, "sub", "Subtracts.", `{"title":"sub"}`))
	if got := changes(plan); got != "calc.sub patch 1.0.1" {
		t.Errorf("%s", got)
	}
	_, tool := one(t, plan)
	checkDefinition(t, tool)
}

// TestSchemasSurvive uses keywords that importers tend to lose, and checks that they still apply to
// values.
func TestSchemasSurvive(t *testing.T) {
	const tree = `{"$dynamicAnchor":"node","type":"object","properties":{"value":{"type":"integer"},"children":{"type":"array","items":{"$dynamicRef":"#node"}}},"required":["value"]}`
	for _, c := range []struct{ name, schema, good, bad string }{
		{"$defs", `{"type":"object","$defs":{"p":{"type":"integer","minimum":1}},"properties":{"a":{"$ref":"#/$defs/p"}}}`, `{"a":1}`, `{"a":0}`},
		{"$anchor", `{"type":"object","$defs":{"p":{"$anchor":"here","type":"integer"}},"properties":{"a":{"$ref":"#here"}}}`, `{"a":1}`, `{"a":"x"}`},
		{"allOf", `{"type":"object","allOf":[{"required":["a"]},{"properties":{"a":{"const":5}}}]}`, `{"a":5}`, `{"a":6}`},
		{"if then else", `{"type":"object","if":{"properties":{"k":{"const":"x"}},"required":["k"]},"then":{"required":["a"]},"else":{"required":["b"]}}`, `{"k":"x","a":1}`, `{"k":"x","b":1}`},
		{"$dynamicRef", tree, `{"value":1,"children":[{"value":2}]}`, `{"value":1,"children":[{"children":[]}]}`},
		{"recursion to the root", `{"type":"object","properties":{"next":{"$ref":"#"},"n":{"type":"integer"}},"additionalProperties":false}`, `{"next":{"next":{"n":1}}}`, `{"next":{"x":1}}`},
		{"$id inside", `{"type":"object","$id":"https://example.com/s","$defs":{"p":{"$id":"p","type":"string"}},"properties":{"a":{"$ref":"p"}}}`, `{"a":"x"}`, `{"a":1}`},
		{"unevaluatedProperties", `{"type":"object","allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, `{"a":1}`, `{"b":1}`},
		{"dependentRequired", `{"type":"object","dependentRequired":{"a":["b"]}}`, `{"a":1,"b":1}`, `{"a":1}`},
		{"draft-07", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"p":{"$id":"#p","type":"integer"}},"properties":{"a":{"$ref":"#p"},"l":{"items":[{"type":"string"}],"additionalItems":false}}}`, `{"a":1,"l":["x"]}`, `{"a":1,"l":["x",1]}`},
		{"draft-07 with $ref at the root", `{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","definitions":{"a":{"type":"object","required":["n"],"properties":{"n":{"$ref":"#/definitions/a"},"z":{}}, "additionalProperties":false}}}`, "", `{"n":1}`},
		{"draft-04", `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","definitions":{"p":{"type":"integer","minimum":0,"exclusiveMinimum":true}},"properties":{"a":{"$ref":"#/definitions/p"}}}`, `{"a":1}`, `{"a":0}`},
		{"prefixItems and contains", `{"type":"object","properties":{"l":{"prefixItems":[{"type":"string"}],"contains":{"const":1},"minContains":2}}}`, `{"l":["x",1,1]}`, `{"l":["x",1]}`},
	} {
		plan := read(t, Options{}, def(t, "a", "b", `{"inputSchema":`+c.schema+`,"outputSchema":`+c.schema+`}`))
		_, tool := one(t, plan)
		checkDefinition(t, tool)
		if len(plan.Warnings) != 0 {
			t.Errorf("%s: %v", c.name, plan.Warnings)
		}
		want, err := canon.JCS([]byte(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(tool.Manifest.ParametersSchema, want) {
			t.Errorf("%s: parameters_schema is %s", c.name, tool.Manifest.ParametersSchema)
		}
		if got := OutputSchema(tool.Manifest); !bytes.Equal(got, want) {
			t.Errorf("%s: OutputSchema is %s", c.name, got)
		}
		in, err := schema.Compile(tool.Manifest.ParametersSchema)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		out, err := schema.Compile(tool.Manifest.ResultSchema)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for text, good := range map[string]bool{c.good: true, c.bad: false} {
			if text == "" {
				continue
			}
			if got := len(in.Validate(t.Context(), value(t, text))) == 0; got != good {
				t.Errorf("%s: the arguments %s are valid: %t", c.name, text, got)
			}
			if got := len(out.Validate(t.Context(), value(t, `{"content":[],"structuredContent":`+text+`}`))) == 0; got != good {
				t.Errorf("%s: the result %s is valid: %t", c.name, text, got)
			}
		}
		if len(out.Validate(t.Context(), value(t, `{"content":[]}`))) == 0 {
			t.Errorf("%s: a result without structured content is valid", c.name)
		}
	}
}

func value(t testing.TB, s string) any {
	t.Helper()
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestOutputSchemaIsLeftOut keeps a tool whose outputSchema cannot be used.
func TestOutputSchemaIsLeftOut(t *testing.T) {
	for _, output := range []string{`{"type":"nonsense"}`, `{"$ref":"#/$defs/none"}`, `{"$ref":"https://example.com/x"}`, `7`, `{"$schema":"https://example.com/draft"}`} {
		plan := read(t, Options{}, def(t, "a", "b", `{"outputSchema":`+output+`}`))
		_, tool := one(t, plan)
		if tool.Manifest.ResultSchema != nil || OutputSchema(tool.Manifest) != nil || len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "outputSchema") {
			t.Errorf("%s: %s %v", output, tool.Manifest.ResultSchema, plan.Warnings)
		}
		checkDefinition(t, tool)
	}
}

// TestBounded covers everything a hostile server can make large.
func TestBounded(t *testing.T) {
	t.Run("too many", func(t *testing.T) {
		var defs [][]byte
		for i := range 30 {
			defs = append(defs, def(t, fmt.Sprintf("t%d", i), "x"))
		}
		plan := read(t, Options{MaxTools: 10}, defs...)
		if len(plan.Tools) != 10 || len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "30 tools") {
			t.Errorf("%d tools, %v", len(plan.Tools), plan.Warnings)
		}
	})
	t.Run("ten thousand", func(t *testing.T) {
		defs := make([][]byte, 10_001)
		for i := range defs {
			defs[i] = fmt.Appendf(nil, `{"name":"tool%d","description":"Does the thing number %d.","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`, i, i)
		}
		plan := read(t, Options{}, defs...)
		if len(plan.Tools) != 10_000 || len(plan.Warnings) != 1 {
			t.Fatalf("%d tools, %v", len(plan.Tools), plan.Warnings)
		}
		previous, ids := published(t, plan)
		again := read(t, Options{Previous: previous, Published: ids}, defs...)
		for _, p := range again.Tools {
			if p.Change != ChangeUnchanged {
				t.Fatalf("%+v", p)
			}
		}
	})
	t.Run("large schema", func(t *testing.T) {
		properties := map[string]any{}
		for i := range 6_000 {
			properties[fmt.Sprintf("property_%d", i)] = map[string]any{"type": "string", "maxLength": i}
		}
		raw := canonJSON(t, map[string]any{"name": "large", "inputSchema": map[string]any{"type": "object", "properties": properties}})
		plan := read(t, Options{}, raw, def(t, "small", "x"))
		if len(plan.Tools)+len(plan.Refused) != 2 || plan.Tools[len(plan.Tools)-1].ID != "calc.small" {
			t.Errorf("%s", changes(plan))
		}
	})
	t.Run("cycle", func(t *testing.T) {
		plan := read(t, Options{}, def(t, "a", "x", `{"inputSchema":{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}}`),
			def(t, "b", "x", `{"inputSchema":{"type":"object","allOf":[{"$ref":"#"}]}}`))
		if len(plan.Tools)+len(plan.Refused) != 2 {
			t.Errorf("%s", changes(plan))
		}
	})
	t.Run("explosion", func(t *testing.T) {
		defs := map[string]any{"d40": map[string]any{"type": "object"}}
		for i := range 40 {
			next := map[string]any{"$ref": fmt.Sprintf("#/$defs/d%d", i+1)}
			defs[fmt.Sprintf("d%d", i)] = map[string]any{"allOf": []any{next, next}}
		}
		raw := canonJSON(t, map[string]any{"name": "a", "inputSchema": map[string]any{"type": "object", "$ref": "#/$defs/d0", "$defs": defs}})
		plan := read(t, Options{}, raw)
		if len(plan.Refused) != 1 || !strings.Contains(plan.Refused[0].Reason, "ways") {
			t.Errorf("%+v", plan)
		}
	})
	t.Run("many warnings", func(t *testing.T) {
		var defs [][]byte
		for i := range maxWarnings + 50 {
			defs = append(defs, fmt.Appendf(nil, `{"name":"t%d","inputSchema":{},"outputSchema":7}`, i))
		}
		if plan := read(t, Options{}, defs...); len(plan.Warnings) != maxWarnings {
			t.Errorf("%d warnings", len(plan.Warnings))
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"name":"a","inputSchema":{"type":"object"}}`), []byte(`{"name":"a","description":"b","inputSchema":{"$defs":{"a":{}},"$ref":"#/$defs/a"}}`))
	f.Add([]byte(`{"name":"a/b","title":"x","description":"<IMPORTANT>","inputSchema":true,"outputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/x","definitions":{"x":{}}}}`), []byte(`{"name":"a.b"}`))
	f.Add([]byte("{\"name\":\"s\u0435nd\u200b\",\"inputSchema\":{},\"icons\":[{\"src\":\"data:x\"}],\"annotations\":{\"readOnlyHint\":true}}"), []byte(`[`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		plan, err := Read(t.Context(), [][]byte{a, b}, Options{Server: "calc", TrustAnnotations: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Tools)+len(plan.Refused) != 2 {
			t.Fatalf("%d tools and %d refused of 2", len(plan.Tools), len(plan.Refused))
		}
		for _, r := range plan.Refused {
			if strings.Contains(r.Reason, "a bug in the importer") {
				t.Error(r.Reason)
			}
		}
		for _, p := range plan.Tools {
			tool, err := catalog.ParseManifest(p.Manifest)
			if err != nil {
				t.Fatal(err)
			}
			checkDefinition(t, tool)
		}
		Diff(a, b)
		if json.Valid(a) {
			if changes := Diff(a, a); len(changes) > 0 && changes[0].Message != "the new definition cannot be read" && changes[0].Message != "the old definition cannot be read" && changes[0].Message != "the definition cannot become a tool" {
				t.Errorf("a definition differs from itself: %+v", changes)
			}
		}
	})
}
