package rest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
)

const contextPath = "/api/v1/tools/retrieval/context"

// contextSystem has demo.hash, demo.sign that goes with it, and demo.veiled that nobody
// sees, over a real index.
func contextSystem() *system {
	s := newSystem()
	tool := func(id string, edit func(*toolkeep.Manifest)) *toolkeep.Tool {
		t := demoTool()
		m := *t.Manifest
		m.ToolID = id
		edit(&m)
		t.ID, t.Manifest, t.Digest = id, &m, "sha256:"+id
		return t
	}
	x := discover.New(discover.Config{})
	x.Update(func(yield func(toolkeep.Version) bool) {
		for _, t := range []*toolkeep.Tool{
			tool("demo.hash", func(m *toolkeep.Manifest) {
				m.Relationships = json.RawMessage(`{"pairings":[{"tool_id":"demo.sign","sequence":"after"},{"tool_id":"demo.veiled","sequence":"before"}],"alternatives":["demo.veiled"],"dependencies":["demo.veiled"]}`)
				m.CommonErrors = json.RawMessage(`[{"error":"the text is too long","resolution":"hash it in parts"},{"error":"disk full"}]`)
			}),
			tool("demo.sign", func(m *toolkeep.Manifest) { m.Description = "Signs a hash\n# Heading" }),
			tool("demo.veiled", func(m *toolkeep.Manifest) { m.Description = "veiled hash" }),
		} {
			if !yield(toolkeep.Version{Tool: t, Life: toolkeep.Lifecycle{State: toolkeep.Active}}) {
				return
			}
		}
	})
	s.Search = x
	s.Visible = func(_ *toolkeep.Principal, t *toolkeep.Tool) bool { return t.ID != "demo.veiled" }
	return s
}

// contextOf asks and checks what holds of every context.
func contextOf(t *testing.T, s *system, body string) (data ToolContext) {
	t.Helper()
	w := s.do(t, "POST", contextPath, body)
	wantStatus(t, w, 200)
	var answer struct {
		Status string
		Data   json.RawMessage
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Status != "success" {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if err := json.Unmarshal(answer.Data, &data); err != nil {
		t.Fatal(err)
	}
	text := string(answer.Data)
	if data.Markdown != "" {
		text = data.Markdown
	}
	if n := assembly.Tokens(text); n != data.Metadata.TokensUsed || n > data.Metadata.TokenBudget {
		t.Errorf("%d tokens, said %d of %d: %s", n, data.Metadata.TokensUsed, data.Metadata.TokenBudget, text)
	}
	if strings.Contains(w.Body.String(), "veiled") || data.Metadata.TotalToolsAvailable != 2 {
		t.Errorf("%s", w.Body)
	}
	return data
}

func TestToolContext(t *testing.T) {
	s := contextSystem()
	d := contextOf(t, s, `{"q":"hash a text"}`)
	if d.Metadata.Phase != assembly.InitialPlanning || len(d.LightweightIndex) != 2 || d.LightweightIndex[0].ToolID != "demo.hash" || d.Metadata.Degraded == "" {
		t.Errorf("%+v", d)
	}
	d = contextOf(t, s, `{"messages":[{"role":"user","content":"hash a text"},{"role":"assistant","content":"demo.hash can do it"}]}`)
	if d.Metadata.Phase != assembly.ToolSelection || len(d.DetailedTools) != 2 || d.DetailedTools[0].ToolID != "demo.hash" || len(d.Examples) == 0 {
		t.Errorf("%+v", d)
	}
	d = contextOf(t, s, `{"messages":[{"role":"user","content":"hash"},{"role":"assistant","toolCalls":[{"toolId":"demo.hash"}]}]}`)
	if d.Metadata.Phase != assembly.ExecutionPreparation || len(d.Patterns) != 1 || d.Patterns[0].ToolID != "demo.sign" || d.Patterns[0].Sequence != "after" {
		t.Errorf("%+v", d)
	}
	d = contextOf(t, s, `{"messages":[{"role":"user","content":"hash"},{"role":"assistant","toolCalls":[{"toolId":"demo.hash"}]},{"role":"tool","toolError":{"errorCode":"E3310","message":"the text was too long"}}],"budget":2000}`)
	if d.Metadata.Phase != assembly.ErrorRecovery || d.Metadata.TokenBudget != 2000 || d.Recovery == nil || d.Recovery.ToolID != "demo.hash" || d.Recovery.Class != "VALIDATION_ERROR" ||
		len(d.ErrorPatterns) != 1 || d.ErrorPatterns[0].Resolution != "hash it in parts" || len(d.Alternatives) != 1 || d.Alternatives[0].ToolID != "demo.sign" {
		t.Errorf("%+v", d)
	}
	d = contextOf(t, s, `{"toolIds":["demo.hash","demo.veil"],"phase":"error_recovery","error":{"retryable":true,"retryAfterS":3,"class":"RATE_LIMIT"}}`)
	if d.Recovery == nil || !d.Recovery.Retryable || d.Recovery.RetryAfterS != 3 || d.Recovery.ToolID != "demo.hash" {
		t.Errorf("%+v", d)
	}
	d = contextOf(t, s, `{"q":"sign","format":"markdown","phase":"tool_selection"}`)
	if !strings.Contains(d.Markdown, "## demo.sign\n") || strings.Contains(d.Markdown, "\n# Heading") || len(d.LightweightIndex) != 0 {
		t.Errorf("%s", d.Markdown)
	}
	d = contextOf(t, s, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"hash"},{"type":"text","text":"a text"}]},`+
		`{"role":"assistant","content":null,"toolCalls":[{"toolId":"demo.hash"}]},{"role":"tool","content":[{"type":"text","text":"7"}]},{"role":"user","content":[{"type":"image","source":{}}]}]}`)
	if d.Metadata.Phase != assembly.ToolSelection || len(d.DetailedTools) == 0 || d.DetailedTools[0].ToolID != "demo.hash" {
		t.Errorf("%+v", d)
	}
	contextOf(t, s, `{}`)
	// As many messages as there may be, each of which calls a tool.
	message := `{"role":"assistant","content":"x","toolCalls":[{"toolId":"demo.hash"}],"toolId":"demo.hash"},`
	contextOf(t, s, `{"messages":[`+strings.Repeat(message, 499)+`{"role":"user","content":"hash"}]}`)
}

func TestToolContextRefuses(t *testing.T) {
	s := contextSystem()
	for body, code := range map[string]toolkeep.Code{
		`{"phase":"lunch"}`:                                           toolkeep.InvalidParameters,
		`{"budget":499}`:                                              toolkeep.InvalidParameters,
		`{"format":"html"}`:                                           toolkeep.InvalidParameters,
		`{"messages":[{"role":"narrator"}]}`:                          toolkeep.InvalidParameters,
		`{"messages":[{}]}`:                                           toolkeep.MissingParameter,
		`{"messages":[{"role":"user","content":5}]}`:                  toolkeep.InvalidParameters,
		`{"messages":[{"role":"user","content":["hello"]}]}`:          toolkeep.InvalidParameters,
		`{"messages":[{"role":"user","content":[{"text":"hello"}]}]}`: toolkeep.MissingParameter,
		`{"messages":[{"role":"user","content":[{"type":"text","text":["hello"]}]}]}`: toolkeep.InvalidParameters,
		`{"tool_ids":["demo.hash"]}`: toolkeep.MalformedRequest,
		`[]`:                         toolkeep.InvalidParameters,
	} {
		problem(t, s.do(t, "POST", contextPath, body), code)
	}
	for wrong, fault := range map[string]string{
		`5`:                          `{"pointer":"/messages/1/content","rule":"type","message":"must be null, string or array, not the value sent"}`,
		`[{"text":"a"}]`:             `{"pointer":"/messages/1/content/0","rule":"required","message":"the property \"type\" is missing; it must be string"}`,
		`[{"type":"text"}]`:          `{"pointer":"/messages/1/content","rule":"type","message":"must be a string, or a list of parts`,
		`[{"type":"text","text":7}]`: `{"pointer":"/messages/1/content","rule":"type","message":"must be a string, or a list of parts`,
	} {
		w := s.do(t, "POST", contextPath, `{"messages":[{"role":"user"},{"role":"user","content":`+wrong+`}]}`)
		if !strings.Contains(w.Body.String(), fault) {
			t.Errorf("%s: %s", wrong, w.Body)
		}
	}
	if w := s.do(t, "POST", contextPath, `{"messages":[{"role":"user"},{"role":"user","content":[{"type":"text"}]}]}`); !strings.Contains(w.Body.String(), `"pointer":"/messages/1/content"`) {
		t.Errorf("%s", w.Body)
	}
}
