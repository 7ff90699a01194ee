package rest

import (
	"context"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
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
