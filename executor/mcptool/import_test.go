package mcptool

import (
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/inspect"
)

// TestImportedToolsRun takes definitions through the importer, the catalogue's checks,
// a call and the inspection of its result.
func TestImportedToolsRun(t *testing.T) {
	e := start(t, newServer(t))
	defs := [][]byte{
		[]byte(`{"name":"echo","inputSchema":{"type":"object"},"outputSchema":{"type":"object","$defs":{"n":{"type":"integer"}},"properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}}`),
		[]byte(`{"name":"any/name at all, 日本","inputSchema":{}}`),
	}
	plan, err := source.Read(t.Context(), defs, source.Options{Server: "test"})
	if err != nil || len(plan.Tools) != 2 {
		t.Fatalf("%+v %v", plan, err)
	}
	var tools []*toolkeep.Tool
	for _, p := range plan.Tools {
		tool, err := catalog.ParseManifest(p.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		if faults := e.Check(tool.Manifest); len(faults) > 0 {
			t.Errorf("%s: %+v", tool.ID, faults)
		}
		tools = append(tools, tool)
	}
	for args, code := range map[string]toolkeep.Code{`{"n":5}`: "", `{"n":"x"}`: toolkeep.ResultSchemaViolation, `{}`: toolkeep.ResultSchemaViolation} {
		out, err := e.Execute(t.Context(), execution(tools[0], object(t, args)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := inspect.New(inspect.Config{}).Inspect(tools[0], out, nil)
		if err != nil {
			t.Fatal(err)
		}
		if (code == "") != (len(got.Warnings) == 0) || code != "" && got.Warnings[0].Code != code {
			t.Errorf("%s: %v, want %q", args, got.Warnings, code)
		}
	}
	if _, err := run(t, e, execution(tools[1], nil)); err == nil || err.Message != "MCP error -32602: unknown tool" {
		t.Errorf("%v", err)
	}
}
