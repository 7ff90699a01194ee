package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
)

// askedSearch notes what is searched for.
type askedSearch struct {
	fakeSearch
	ask discover.Query
}

func (s *askedSearch) Find(_ context.Context, q discover.Query, _ func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report) {
	s.ask = q
	return []discover.Match{{Tool: demoTool(), Score: 0.8, Parts: discover.Parts{Semantic: 0.1, Keyword: 0.2, History: 0.3, Success: 0.4, Complexity: 0.5, Action: -1, Learned: 0.6, Named: true}}},
		discover.Report{Strategy: q.Strategy, Weights: discover.DefaultWeights}
}

func TestSearchExplains(t *testing.T) {
	s := newSystem()
	search := &askedSearch{fakeSearch: func(string, int, func(*toolkeep.Tool) bool) []discover.Match { return nil }}
	s.catalog.list = func(catalog.Filter) ([]catalog.Summary, int) { return nil, 1 }
	s.Search = search
	w := s.do(t, "GET", "/api/v1/tools/retrieval/search?q=x&strategy=session&explain=true", "", "X-Session-ID: s-1")
	wantStatus(t, w, 200)
	d := decode(t, w)["data"].(map[string]any)
	got := d["lightweightIndex"].([]any)[0].(map[string]any)["explanation"].(map[string]any)
	for part, want := range map[string]any{"semantic": number("0.1"), "keyword": number("0.2"), "history": number("0.3"), "success": number("0.4"), "complexity": number("0.5"), "action": number("-1"), "learned": number("0.6"), "named": true} {
		if got[part] != want {
			t.Errorf("%s is %v", part, got[part])
		}
	}
	md := d["metadata"].(map[string]any)
	if by := md["weights"].(map[string]any); by["semantic"] != number("0.4") || by["keyword"] != number("0.3") || by["history"] != number("0.2") || by["success"] != number("0.1") || by["complexity"] != number("0.1") {
		t.Errorf("%v", by)
	}
	if md["retrievalStrategy"] != "session" || search.ask.Session.ID != "s-1" || search.ask.Session.Tenant == "" || search.ask.Session.Subject == "" {
		t.Errorf("%v %+v", md, search.ask)
	}
	w = s.do(t, "GET", "/api/v1/tools/retrieval/search?q=x&strategy=category&category=utility", "")
	wantStatus(t, w, 200)
	d = decode(t, w)["data"].(map[string]any)
	if search.ask.Strategy != discover.Category || search.ask.Category != "utility" {
		t.Errorf("%+v", search.ask)
	}
	if one := d["lightweightIndex"].([]any)[0].(map[string]any); one["explanation"] != nil || d["metadata"].(map[string]any)["weights"] != nil {
		t.Errorf("explained without being asked: %v", d)
	}
}

// TestSearchIndex: maxTools caps the whole tools alone. The index goes on by rank within its
// budget, and the rest is counted.
func TestSearchIndex(t *testing.T) {
	s := newSystem()
	tools := make([]discover.Match, 100)
	for i := range tools {
		tools[i] = discover.Match{Score: float64(100 - i), Tool: &toolkeep.Tool{ID: fmt.Sprintf("demo.t%03d", i), Version: "1.0.0",
			Manifest: &toolkeep.Manifest{Category: "utility", ShortDescription: strings.Repeat("does it ", 12), ParametersSchema: []byte(`{"type":"object"}`)}}}
	}
	s.Search = manySearch{fakeSearch(func(_ string, n int, _ func(*toolkeep.Tool) bool) []discover.Match { return tools[:min(n, len(tools))] })}
	record := &fakeUsage{}
	s.Retrievals = record
	w := s.do(t, "GET", "/api/v1/tools/retrieval/search?q=x&maxTools=2", "")
	wantStatus(t, w, 200)
	var got struct {
		Data struct {
			LightweightIndex []struct {
				ToolID string `json:"toolId"`
			} `json:"lightweightIndex"`
			IndexRest     assembly.Rest     `json:"indexRest"`
			DetailedTools []json.RawMessage `json:"detailedTools"`
		} `json:"data"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	d := got.Data
	if n := len(d.LightweightIndex); len(d.DetailedTools) != 2 || n < 20 || n > 60 || d.IndexRest.Tools != 120-n || len(d.IndexRest.Categories) != 2 {
		t.Errorf("%d whole, %d lines, %+v", len(d.DetailedTools), n, d.IndexRest)
	}
	if r := record.retrieved; len(r) != 1 || r[0].Found != len(d.LightweightIndex) || len(r[0].Tools) < 20 || r[0].Tools[19].Tool != "demo.t019" {
		t.Errorf("not all that is shown is recorded: %+v", r)
	}
	for i, e := range d.LightweightIndex {
		if e.ToolID != tools[i].Tool.ID {
			t.Errorf("line %d is %s", i, e.ToolID)
		}
	}
	raw, err := json.Marshal(decode(t, w)["data"].(map[string]any)["lightweightIndex"])
	if n := assembly.Tokens(string(raw)); err != nil || n > 3000 {
		t.Errorf("the index has %d tokens: %v", n, err)
	}
}

type manySearch struct{ fakeSearch }

func (manySearch) Count(discover.Query, func(*toolkeep.Tool) bool) map[string]int {
	return map[string]int{"utility": 110, "mail": 10}
}

// reads notes what the audit is told.
type reads []audit.Read

func (l *reads) Read(_ *toolkeep.Principal, r audit.Read) { *l = append(*l, r) }

// TestLongSearch takes a question of 16,000 characters in the body, and tells where there are more.
func TestLongSearch(t *testing.T) {
	s := newSystem()
	index := discover.New(discover.Config{})
	index.Update(slices.Values([]toolkeep.Version{{Tool: demoTool(), Life: toolkeep.Lifecycle{State: toolkeep.Active}}}))
	s.Search = index
	var read reads
	s.Reads = &read
	filler := strings.Repeat("日 ", discover.MaxQuestion/2-10)
	for q, cut := range map[string]bool{"hash it": false, filler + "hash it": false, filler + "hash it, " + filler: true} {
		body, err := json.Marshal(map[string]any{"q": q, "limit": 1})
		if err != nil {
			t.Fatal(err)
		}
		w := s.do(t, "POST", "/api/v1/tools/retrieval/search", string(body))
		wantStatus(t, w, 200)
		d := decode(t, w)["data"].(map[string]any)
		one, md := d["detailedTools"].([]any)[0].(map[string]any), d["metadata"].(map[string]any)
		if told, _ := md["queryCut"].(bool); one["toolId"] != "demo.hash" || told != cut || one["examples"] == nil {
			t.Errorf("%d bytes: %v, %v", len(q), one["toolId"], md)
		}
	}
	problem(t, s.do(t, "POST", "/api/v1/tools/retrieval/search", `{"q":"`+strings.Repeat("q", 64_001)+`"}`), toolkeep.InvalidParameters)
	problem(t, s.do(t, "POST", "/api/v1/tools/retrieval/search", `{"q":"a\u0000b"}`), toolkeep.InvalidEncoding)
	problem(t, s.do(t, "POST", "/api/v1/tools/retrieval/search", `{"q":"hash","strategy":"category"}`), toolkeep.MalformedRequest)
	if last := read[len(read)-1]; last.What != audit.ReadSearch || last.Query != "hash" { // of those that find something it has an event
		t.Errorf("the audit is told of %q", last.Query)
	}
}

func TestChoices(t *testing.T) {
	s := newSystem()
	const at = "/api/v1/namespaces/pets/choices"
	wantStatus(t, s.do(t, "PUT", at, `{"title":"Pets","exclude":["tag:admin"],"shared":true}`), 204)
	problem(t, s.do(t, "PUT", at, `{"title":"Pets"}`, "Authorization: Bearer agent"), toolkeep.PermissionDenied)
	problem(t, s.do(t, "GET", at, "", "Authorization: Bearer agent"), toolkeep.PermissionDenied)
	problem(t, s.do(t, "PUT", at, `{"exclude":["tag:admin"]}`), toolkeep.MissingParameter)
	w := s.do(t, "GET", at, "")
	if wantStatus(t, w, 200); len(s.catalog.said) != 1 || s.catalog.said[0] != "pets Pets {[] [tag:admin] []} true" || !strings.Contains(w.Body.String(), `"choices":[{"title":"Pets","exclude":["tag:admin"]}]`) {
		t.Errorf("%q, %s", s.catalog.said, w.Body)
	}
}

func TestSetAbout(t *testing.T) {
	s := newSystem()
	wantStatus(t, s.do(t, "PUT", "/api/v1/namespaces/pets/about", `{"about":"Sells pets"}`), 204)
	problem(t, s.do(t, "PUT", "/api/v1/namespaces/pets/about", `{"about":"Sells pets"}`, "Authorization: Bearer agent"), toolkeep.PermissionDenied)
	problem(t, s.do(t, "PUT", "/api/v1/namespaces/pets/about", `{}`), toolkeep.MissingParameter)
	wantStatus(t, s.do(t, "PUT", "/api/v1/namespaces/pets/about", `{"about":"Pets","import":true}`), 204)
	if len(s.catalog.said) != 2 || !strings.HasSuffix(s.catalog.said[0], ` pets "Sells pets" false 0`) || !strings.HasSuffix(s.catalog.said[1], ` pets "Pets" false 1`) {
		t.Errorf("%q", s.catalog.said)
	}
}
