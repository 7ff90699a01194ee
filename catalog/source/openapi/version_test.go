package openapi

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

const versioned = `openapi: 3.0.0
info: {title: Shop, version: 1.0.0}
servers: [{url: "https://shop.example.com"}]
paths:
  /items:
    get:
      operationId: list
      summary: Lists items.
      parameters:
        - {name: page, in: query, schema: {type: integer}}
      responses: {200: {description: ok, content: {application/json: {schema: {$ref: '#/components/schemas/Item'}}}}}
    post:
      operationId: add
      requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/Item'}}}}
      responses: {201: {description: ok}}
components:
  schemas:
    Item: {type: object, properties: {name: {type: string}}}
`

// published returns the tools of a plan as a catalogue would.
func published(t *testing.T, plan *Plan) func(string) *toolkeep.Tool {
	t.Helper()
	tools := map[string]*toolkeep.Tool{}
	for _, p := range plan.Tools {
		tool, err := catalog.ParseManifest(p.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		tools[tool.ID] = tool
	}
	return func(id string) *toolkeep.Tool { return tools[id] }
}

func changes(plan *Plan) string {
	var out []string
	for _, p := range plan.Tools {
		out = append(out, strings.TrimPrefix(p.Name, "shop.")+" "+p.Change+" "+p.Version)
	}
	return strings.Join(out, ", ")
}

func TestReimport(t *testing.T) {
	first := readText(t, versioned, Options{})
	if got := changes(first); got != "list new 1.0.0, add new 1.0.0" {
		t.Fatal(got)
	}
	previous := published(t, first)
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing", "", "", "list unchanged 1.0.0, add unchanged 1.0.0"},
		{"the document's version", "version: 1.0.0", "version: 7.1.0", "list unchanged 1.0.0, add unchanged 1.0.0"},
		{"another operation", "paths:\n", "paths:\n  /first: {get: {operationId: first, responses: {200: {description: ok}}}}\n", "first new 1.0.0, list unchanged 1.0.0, add unchanged 1.0.0"},
		{"an unused schema", "    Item:", "    Other: {type: string}\n    Item:", "list unchanged 1.0.0, add unchanged 1.0.0"},
		{"a text", "Lists items.", "Lists all items.", "list patch 1.0.1, add unchanged 1.0.0"},
		{"an optional parameter", "        - {name: page", "        - {name: size, in: query, schema: {type: integer}}\n        - {name: page", "list minor 1.1.0, add unchanged 1.0.0"},
		{"a required parameter", "        - {name: page", "        - {name: size, in: query, required: true, schema: {type: integer}}\n        - {name: page", "list major 2.0.0, add unchanged 1.0.0"},
		{"a parameter less", "        - {name: page, in: query, schema: {type: integer}}", "        - {name: x, in: cookie, schema: {}}", "list major 2.0.0, add unchanged 1.0.0"},
		{"a shared schema", "{name: {type: string}}", "{name: {type: string}, more: {type: string}}", "list minor 1.1.0, add minor 1.1.0"},
		{"an operation less", "operationId: add", "operationId: insert", "list unchanged 1.0.0, insert new 1.0.0"},
	} {
		text := strings.Replace(versioned, c.old, c.new, 1)
		if c.old != "" && text == versioned {
			t.Fatalf("%s: nothing was replaced", c.name)
		}
		plan := readText(t, text, Options{Previous: previous})
		if got := changes(plan); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		for _, p := range plan.Tools {
			if old := previous(p.Name); p.Change == "unchanged" && !bytes.Equal(p.Manifest, old.Raw) {
				t.Errorf("%s: the unchanged %s has another manifest", c.name, p.Name)
			}
		}
	}
}

func TestNamesStayWithTheirOperations(t *testing.T) {
	doc := func(paths ...string) string {
		return "openapi: 3.0.0\ninfo: {title: Shop, version: '1'}\nservers: [{url: 'https://shop.example.com'}]\npaths:\n" + strings.Join(paths, "")
	}
	op := func(path string) string {
		return "  " + path + ": {get: {operationId: same, responses: {200: {description: ok}}}}\n"
	}
	declared := func(path, name string) string { // with a parameter of that name in the path
		return "  '" + path + "': {get: {operationId: dots, parameters: [{name: '" + name + "', in: path, required: true, schema: {type: string}}], responses: {200: {description: ok}}}}\n"
	}
	names := func(plan *Plan) map[string]string {
		out := map[string]string{}
		for _, p := range plan.Tools {
			out[p.Path] = p.Name
		}
		return out
	}
	// {.x} is a name in one path and an expression of RFC 6570 in the other.
	first := readText(t, doc(op("/a"), op("/b"), declared("/d/{.x}", ".x"), declared("/e/{.x}", "x")), Options{})
	before := names(first)
	if before["/a"] != "shop.same" || !strings.HasPrefix(before["/b"], "shop.same_") {
		t.Fatal(before)
	}
	// Operations are added around, including one before all others that claims the name.
	after := names(readText(t, doc(op("/0"), op("/a"), op("/aa"), op("/b"), op("/c"), declared("/f/{.x}", "x"), declared("/e/{.x}", "x"), declared("/d/{.x}", ".x")), Options{Previous: published(t, first)}))
	for path, name := range before {
		if after[path] != name {
			t.Errorf("%s was %s and is now %s", path, name, after[path])
		}
	}
	// A refused operation keeps its name.
	refused := "  /a: {get: {operationId: same, security: [{none: []}], responses: {200: {description: ok}}}}\n"
	if got := names(readText(t, doc(refused, op("/b")), Options{})); got["/b"] != before["/b"] {
		t.Errorf("a refusal renamed another operation: %v", got)
	}
}

func TestManifestSurvivesPublishedByOthers(t *testing.T) {
	plan := readText(t, versioned, Options{})
	tool, err := catalog.ParseManifest(bytes.Replace(plan.Tools[0].Manifest, []byte(`"version":"1.0.0"`), []byte(`"version":"3.2.1-rc.1"`), 1))
	if err != nil {
		t.Fatal(err)
	}
	previous := func(id string) *toolkeep.Tool {
		if id == tool.ID {
			return tool
		}
		return nil
	}
	if got := changes(readText(t, versioned, Options{Previous: previous})); got != "list unchanged 3.2.1-rc.1, add new 1.0.0" {
		t.Error(got)
	}
	changed := strings.Replace(versioned, "Lists items.", "Lists.", 1)
	if got := changes(readText(t, changed, Options{Previous: previous})); got != "list patch 3.2.1, add new 1.0.0" {
		t.Error(got)
	}
}

// TestWhatLeft: tools whose operation left the document are named, and a moved path is told.
func TestWhatLeft(t *testing.T) {
	const head = "openapi: 3.0.3\ninfo: {title: What leaves, version: '1'}\nservers: [{url: 'https://api.example.com'}]\npaths:\n"
	op := func(path, id string) string {
		return "  " + path + ": {get: {operationId: " + id + ", responses: {'200': {description: ok}}}}\n"
	}
	published := map[string]*toolkeep.Tool{}
	o := Options{Location: "v1.yaml", Namespace: "left", Document: []byte(head + op("/a", "a") + op("/b", "b") + op("/c", "c"))}
	first := read(t, o)
	for _, tool := range first.Tools {
		m, err := catalog.ParseManifest(tool.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		published[tool.Name] = m
	}
	o.Location, o.Document = "v2.yaml", []byte(head+op("/a", "a")+op("/see", "c"))
	asked := map[string]int{}
	o.Previous = func(id string) *toolkeep.Tool { asked[id]++; return published[id] }
	o.Published = func(namespace string) []string {
		if namespace != "left" {
			t.Errorf("the namespace is %q", namespace)
		}
		return []string{"left.a", "left.b", "left.c", "left.unknown"}
	}
	plan := read(t, o)
	for id, n := range asked {
		if n > 1 {
			t.Errorf("%s is looked up %d times", id, n)
		}
	}
	if fmt.Sprint(plan.Gone) != "[left.b]" {
		t.Errorf("gone are %v", plan.Gone)
	}
	all := strings.Join(plan.Warnings, "\n")
	for _, want := range []string{"left.b@1.0.0 deprecated", "left.c moved: it was GET /c and is GET /see"} {
		if !strings.Contains(all, want) {
			t.Errorf("the warnings do not have %q: %s", want, all)
		}
	}
	if strings.Contains(all, "left.a") || plan.Tools[0].Change != "unchanged" || plan.Tools[1].Change == "unchanged" {
		t.Errorf("%s %+v", all, plan.Tools)
	}
}

// TestLostSecret: an import that leaves out a secret which the published version has says so.
func TestLostSecret(t *testing.T) {
	const text = "openapi: 3.0.3\ninfo: {title: Keys, version: '1'}\nservers: [{url: 'https://api.example.com'}]\n" +
		"components: {securitySchemes: {token: {type: http, scheme: bearer}}}\nsecurity: [{token: []}]\n" +
		"paths:\n  /a: {get: {operationId: a, responses: {'200': {description: ok}}}}\n  /b: {get: {operationId: b, responses: {'200': {description: ok}}}}\n"
	with := Options{Auth: map[string]string{"token": "env://TOKEN"}}
	with.Previous = published(t, readText(t, text, with))
	if plan := readText(t, text, with); len(plan.Warnings) != 0 {
		t.Errorf("the same secret: %v", plan.Warnings)
	}
	without := Options{Previous: with.Previous}
	plan := readText(t, text, without)
	if got := strings.Join(plan.Warnings, "\n"); !strings.Contains(got, "2 tools had a secret for the scheme token") || !strings.Contains(got, "--secret token=REFERENCE") {
		t.Errorf("the warnings are %q", got)
	}
	other := Options{Previous: with.Previous, Auth: map[string]string{"token": "env://OTHER"}}
	if plan := readText(t, text, other); len(plan.Warnings) != 0 || plan.Tools[0].Change == "unchanged" {
		t.Errorf("another secret: %v, %s", plan.Warnings, plan.Tools[0].Change)
	}
}
