package mcpserver

import (
	"fmt"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/schema"
)

// Official clients throw a result away if the tool has an outputSchema and the result, unless it has
// isError, has no structuredContent or one that breaks the schema. No result of ours is such a one,
// whatever the tool answers, and its text always arrives.
func TestStructuredContentFitsWhatWasAdvertised(t *testing.T) {
	s := newSystem(t)
	const person = `{"type":"object","title":"Person","properties":{"id":{"type":"integer","description":"Number"},"name":{"type":"string"}},"required":["id","name"]}`
	s.publish(
		manifest("demo.strict", `,"result_schema":`+person),
		manifest("demo.loose", `,"result_schema":`+person+`,"result":{"strict":false}`),
		manifest("demo.hides", `,"result_schema":`+person+`,"result":{"sensitive_fields":["/id"]}`),
		mcpManifest("staff", "find", `,"result_schema":{"type":"object","properties":{"structuredContent":`+person+`},"required":["structuredContent"]}`),
	)
	s.start()
	shown := map[string]*schema.Schema{}
	list := s.post("/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	for def := range mcp.Elements([]byte(list.result(t, "tools"))) {
		if output := mcp.Get(def, "outputSchema"); output != nil {
			sc, err := schema.Compile(output)
			if err != nil {
				t.Fatalf("%s: %v", output, err)
			}
			shown[mcp.Text(def, "name")] = sc
		}
	}
	if len(shown) != 4 {
		t.Fatalf("%d schemas in %s", len(shown), list.body)
	}
	const good = `{"id":1,"name":"Ada"}`
	for tool, sc := range shown {
		outputs := map[string]string{"good": good, "cut": `{"truncated_preview":"{"}`, "waiting": ""}
		if tool != "demo__strict" {
			outputs["null name"], outputs["a list"], outputs["nothing"] = `{"id":1,"name":null}`, `[1]`, ``
		}
		for name, output := range outputs {
			r := &toolkeep.Result{InvocationID: "i", ToolVersion: "1.0.0", State: toolkeep.CallSucceeded, Output: []byte(output)}
			switch {
			case name == "waiting":
				r.State, r.Output = toolkeep.CallQueued, nil
			case name == "cut":
				r.Truncated = true
			case tool == "staff__find" && output == "":
				r.Output = []byte(`{"content":[{"type":"text","text":"said"}]}`)
			case tool == "staff__find":
				r.Output = fmt.Appendf(nil, `{"content":[{"type":"text","text":"said"}],"structuredContent":%s}`, output)
			}
			s.server.c.Invoker = answering(r, nil)
			for _, version := range []string{"2025-06-18", mcp.V20260728} {
				a := s.post("/mcp/all", own("", tool, `{"text":"a"}`), "Mcp-Protocol-Version: 2025-06-18")
				if version == mcp.V20260728 {
					a = s.modern("/mcp/all", "tools/call", `{"name":"`+tool+`","arguments":{}}`, "{}")
				}
				if mcp.Text([]byte(a.result(t, "content", "0")), "text") == "" && a.result(t, "content") == "[]" {
					t.Errorf("%s, %s: no text in %s", tool, name, a.body)
				}
				structured := []byte(a.result(t, "structuredContent"))
				if a.result(t, "isError") == "true" {
					if tool != "demo__strict" || name == "good" || len(structured) > 0 {
						t.Errorf("%s, %s: %s", tool, name, a.body)
					}
					continue
				}
				tree, err := canon.Parse(structured, canon.Limits{})
				if err != nil {
					t.Errorf("%s, %s: %v in %s", tool, name, err, a.body)
					continue
				}
				if faults := sc.Validate(t.Context(), tree); len(faults) > 0 {
					t.Errorf("%s, %s: %v", tool, name, faults)
				}
				if name == "good" && !mcp.IsObject(structured) || name == "good" && string(mcp.Get(structured, "id")) != "1" {
					t.Errorf("%s: %s", tool, a.body)
				}
			}
			// call_tool has no outputSchema, so that nothing is left out.
			r.Truncated = false
			a := s.post("/mcp/search", own("", "call_tool", `{"tool_id":"`+map[bool]string{true: "staff.find", false: "demo." + tool[len(tool)-6:]}[tool == "staff__find"]+`","arguments":{}}`))
			if name == "good" && string(mcp.Get([]byte(a.result(t, "structuredContent")), "id")) != "1" {
				t.Errorf("%s: %s", tool, a.body)
			}
		}
	}
}
