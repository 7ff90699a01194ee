package rest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
)

// fakeLearned is what was learned for tenant t alone.
type fakeLearned struct {
	pairings []assembly.Pairing
	failures []assembly.SeenError
}

func (u fakeLearned) Pairings(tenant, tool string, n int) []assembly.Pairing {
	if tenant != "t" || tool != "demo.hash" {
		return nil
	}
	return u.pairings[:min(n, len(u.pairings))]
}

func (u fakeLearned) Failures(tenant, tool string) []assembly.SeenError {
	if tenant != "t" || tool != "demo.hash" {
		return nil
	}
	return u.failures
}

// relatedSystem is contextSystem with manifests as they are published, a catalogue that
// shows them, and things learned.
func relatedSystem(t *testing.T) *system {
	s := newSystem()
	tool := func(id, says, more string) *toolkeep.Tool {
		raw := fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":"1.0.0","description":%q,"parameters_schema":{"type":"object"},"execution":{"kind":"builtin","binding":{"name":"x"}}%s}`, id, says, more)
		tool, err := catalog.ParseManifest([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return tool
	}
	tools := []*toolkeep.Tool{
		tool("demo.hash", "Hash a text fast", `,"fallback":"demo.veiled@^1","examples":[{"scenario":"a word","input":{}}],"relationships":{"dependencies":["demo.veiled","demo.load"],"alternatives":["demo.veiled"],"pairings":[{"tool_id":"demo.sign","sequence":"after"},{"tool_id":"demo.veiled","sequence":"before"}]}`),
		tool("demo.load", "Load a file", ""),
		tool("demo.sign", "Sign a document", ""),
		tool("demo.digest", "Hash a text fast or slowly", ""),
		tool("demo.veiled", "Hash a text fast", ""),
	}
	x := discover.New(discover.Config{})
	x.Update(func(yield func(toolkeep.Version) bool) {
		for _, t := range tools {
			if !yield(toolkeep.Version{Tool: t, Life: toolkeep.Lifecycle{State: toolkeep.Active}}) {
				return
			}
		}
	})
	s.Search = x
	s.catalog.list = func(catalog.Filter) ([]catalog.Summary, int) { return nil, 4 }
	s.Visible = func(_ *toolkeep.Principal, t *toolkeep.Tool) bool { return t.ID != "demo.veiled" }
	s.catalog.resolve = func(_ *toolkeep.Principal, id, _ string) (toolkeep.Version, []toolkeep.Warning, error) {
		for _, tool := range tools {
			if tool.ID == id {
				return toolkeep.Version{Tool: tool, Life: toolkeep.Lifecycle{State: toolkeep.Active}}, nil, nil
			}
		}
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "there is no tool %s", toolkeep.ClipBytes(id, 100))
	}
	s.Guide = &assembly.Guide{Search: x, Budgets: assembly.Budgets{ErrorRecovery: 1200}, Usage: fakeLearned{
		pairings: []assembly.Pairing{{ToolID: "demo.veiled", Score: 0.9, Sequence: "before"}, {ToolID: "demo.sign", Score: 0.75, Sequence: "after"}, {ToolID: "demo.digest", Score: 0.5, Sequence: "parallel"}},
		failures: []assembly.SeenError{{Code: toolkeep.UpstreamTimeout, Count: 4, Resolution: "hash less at once"}}}}
	s.Analytics = func(tenant, id string) (usage.ToolAnalytics, bool) {
		return usage.ToolAnalytics{TotalExecutions: 12, SuccessRate: 0.75, AvgExecutionTimeMs: 8, ErrorPatterns: []usage.ToolErrorPattern{{ErrorType: "E3502", Frequency: 3}}}, tenant == "t" && id == "demo.hash"
	}
	return s
}

func TestRelated(t *testing.T) {
	s := relatedSystem(t)
	for query, want := range map[string][]string{
		"relationshipType=dependencies":              {"demo.load 1 manifest"},
		"relationshipType=pairings":                  {"demo.sign 1 manifest after", "demo.digest 0.5 usage parallel"},
		"relationshipType=pairings&maxResults=1":     {"demo.sign 1 manifest after"},
		"relationshipType=alternatives&maxResults=9": {"demo.digest search"},
	} {
		w := s.do(t, "GET", "/api/v1/tools/retrieval/related/demo.hash?"+query, "", "X-Session-ID: s-1")
		wantStatus(t, w, 200)
		var a struct {
			Status string
			Data   RelatedData
		}
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range a.Data.RelatedTools {
			line := r.ToolID
			if r.Source != "search" {
				line += fmt.Sprint(" ", r.RelationshipScore)
			} else if r.RelationshipScore <= 0 || r.RelationshipScore >= 1 {
				t.Errorf("%+v", r)
			}
			line = strings.TrimSpace(line + " " + r.Source + " " + r.Sequence)
			got = append(got, line)
			if !strings.Contains(string(r.Manifest), `"tool_id":"`+r.ToolID+`"`) || r.Version != "1.0.0" {
				t.Errorf("%+v", r)
			}
		}
		if a.Status != "success" || a.Data.SourceToolID != "demo.hash" || !slices.Equal(got, want) || strings.Contains(w.Body.String(), "veiled") {
			t.Errorf("%s: %q, want %q: %s", query, got, want, w.Body)
		}
	}
	path := "/api/v1/tools/retrieval/related/"
	problem(t, s.do(t, "GET", path+"demo.veiled?relationshipType=pairings", ""), toolkeep.ToolNotFound)
	problem(t, s.do(t, "GET", path+"no.such?relationshipType=pairings", ""), toolkeep.ToolNotFound)
	problem(t, s.do(t, "GET", path+"demo.hash", ""), toolkeep.MissingParameter)
	problem(t, s.do(t, "GET", path+"demo.hash?relationshipType=friends", ""), toolkeep.InvalidParameters)
	problem(t, s.do(t, "GET", path+"demo.hash?relationshipType=pairings&maxResults=11", ""), toolkeep.InvalidParameters)
	if w := s.do(t, "GET", path+"demo.load?relationshipType=pairings", ""); !strings.Contains(w.Body.String(), `"relatedTools":[]`) {
		t.Errorf("%s", w.Body)
	}
}

func TestManifestWithRelationshipsAndAnalytics(t *testing.T) {
	s := relatedSystem(t)
	read := func(query string) (d DetailedTool, body string) {
		t.Helper()
		w := s.do(t, "GET", "/api/v1/tools/retrieval/manifest/demo.hash"+query, "")
		wantStatus(t, w, 200)
		var a struct{ Data DetailedTool }
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(w.Body.String(), "veiled") || !json.Valid(a.Data.Manifest) {
			t.Errorf("%s: %s", query, w.Body)
		}
		return a.Data, w.Body.String()
	}
	d, body := read("")
	want := ToolRelationships{Dependencies: []string{"demo.load"}, Alternatives: []string{},
		CommonPairings: []ToolPairing{{"demo.sign", 0.75, "after", "manifest"}, {"demo.digest", 0.5, "parallel", "usage"}}}
	if d.Relationships == nil || fmt.Sprint(*d.Relationships) != fmt.Sprint(want) || d.Analytics != nil || len(d.Examples) != 1 {
		t.Errorf("%+v %s", d.Relationships, body)
	}
	// What is left of the manifest still says the rest.
	if !strings.Contains(string(d.Manifest), `"relationships":{"dependencies":["demo.load"],"pairings":[{"sequence":"after","tool_id":"demo.sign"}]}`) || strings.Contains(string(d.Manifest), "fallback") {
		t.Errorf("%s", d.Manifest)
	}
	if d, body = read("?includeRelationships=false&includeExamples=false&includeAnalytics=true"); d.Relationships != nil || len(d.Examples) != 0 || d.Analytics == nil || d.Analytics.TotalExecutions != 12 || len(d.Analytics.ErrorPatterns) != 1 ||
		strings.Contains(string(d.Manifest), `"relationships"`) || strings.Contains(string(d.Manifest), `"examples"`) || !strings.Contains(string(d.Manifest), `"parameters_schema"`) {
		t.Errorf("%s", body)
	}
	if d, body = read("?includeExamples=false"); d.Relationships == nil || !strings.Contains(string(d.Manifest), `"relationships"`) || strings.Contains(string(d.Manifest), `"examples"`) {
		t.Errorf("%s", body)
	}
	// Whoever sees all gets the manifest as it was published.
	s.Visible = func(*toolkeep.Principal, *toolkeep.Tool) bool { return true }
	w := s.do(t, "GET", "/api/v1/tools/retrieval/manifest/demo.hash", "")
	if !strings.Contains(w.Body.String(), `"fallback":"demo.veiled@^1"`) || !strings.Contains(w.Body.String(), `"dependencies":["demo.veiled","demo.load"]`) {
		t.Errorf("%s", w.Body)
	}
	// The search shows the same.
	s = relatedSystem(t)
	w = s.do(t, "GET", "/api/v1/tools/retrieval/search?q=hash+a+text", "", "X-Session-ID: s-1")
	if strings.Contains(w.Body.String(), "veiled") || !strings.Contains(w.Body.String(), `"commonPairings":[{"toolId":"demo.sign"`) || !strings.Contains(w.Body.String(), `"scenario"`) {
		t.Errorf("%s", w.Body)
	}
	w = s.do(t, "GET", "/api/v1/tools/retrieval/search?q=hash+a+text&includeExamples=false", "")
	if strings.Contains(w.Body.String(), `"scenario"`) || !strings.Contains(w.Body.String(), `"commonPairings":[{"toolId":"demo.sign"`) {
		t.Errorf("%s", w.Body)
	}
}

func TestContextsShowWhatWasLearned(t *testing.T) {
	s := relatedSystem(t)
	for body, want := range map[string]string{
		`{"toolIds":["demo.hash"],"phase":"execution_preparation"}`:         `{"toolId":"demo.digest","with":"demo.hash","relationship":"pairing","sequence":"parallel","shortDescription":"Hash a text fast or slowly","learned":true}`,
		`{"error":{"toolId":"demo.hash","errorCode":"E3502"}}`:              `"resolution":"hash less at once","seen":4`,
		`{"error":{"toolId":"demo.hash","errorCode":"E3310"},"budget":900}`: `"alternatives":[{"toolId":"demo.digest"`,
	} {
		w := s.do(t, "POST", contextPath, body)
		wantStatus(t, w, 200)
		if !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "veiled") {
			t.Errorf("%s: %s", body, w.Body)
		}
		if strings.Contains(body, "E3502") && !strings.Contains(w.Body.String(), `"tokenBudget":1200`) {
			t.Errorf("the budget of the settings is not used: %s", w.Body)
		}
	}
}

// TestToolIsShown: what an agent reads of a tool names no tool that does not exist for
// it, and the digest stays the published manifest's.
func TestToolIsShown(t *testing.T) {
	s := relatedSystem(t)
	for _, path := range []string{"/api/v1/tools/demo.hash", "/api/v1/tools/retrieval/manifest/demo.hash", "/api/v1/tools/retrieval/related/demo.sign?relationshipType=alternatives"} {
		w := s.do(t, "GET", path, "", "Authorization: Bearer agent")
		wantStatus(t, w, 200)
		if body := w.Body.String(); strings.Contains(body, "veiled") || strings.Contains(path, "demo.hash") && !strings.Contains(body, `"dependencies":["demo.load"]`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	v, _, err := s.catalog.Describe(t.Context(), nil, "demo.hash", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if m := decode(t, s.do(t, "GET", "/api/v1/tools/demo.hash", "", "Authorization: Bearer agent")); m["digest"] != v.Tool.Digest {
		t.Errorf("%v", m["digest"])
	}
}
