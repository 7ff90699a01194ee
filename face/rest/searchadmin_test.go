package rest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
)

const invalidatePath, reindexPath = "/api/v1/tools/admin/cache/invalidate", "/api/v1/tools/admin/reindex"

func TestFlushSearch(t *testing.T) {
	s := newSystem()
	var got []string
	s.SearchAdmin = &fakeSearchAdmin{flush: func(scope, id string) error { got = append(got, scope+" "+id); return nil }}
	s.Invalidate = func(_ context.Context, _, id, _ string) (int, error) { got = append(got, "results "+id); return 3, nil }
	s.catalog.versions = func(id string) ([]toolkeep.Version, error) {
		if id != "demo.hash" {
			return nil, toolkeep.NewError(toolkeep.ToolNotFound, "no such tool")
		}
		return []toolkeep.Version{{Tool: demoTool()}}, nil
	}
	for _, c := range []struct {
		body, want string
		n          string
	}{
		{`{"scope":"all"}`, "all , results ", "3"},
		{`{"scope":"user","userId":"ann"}`, "user ann", "0"},
		{`{"scope":"tool","toolId":"demo.hash"}`, "tool demo.hash, results demo.hash", "3"},
		{`{"scope":"strategy","strategy":"hybrid"}`, "strategy hybrid", "0"},
	} {
		got = nil
		w := s.do(t, "DELETE", invalidatePath, c.body)
		wantStatus(t, w, 200)
		if m := decode(t, w); strings.Join(got, ", ") != c.want || m["invalidated"] != number(c.n) {
			t.Errorf("%s: %q %v", c.body, got, m)
		}
	}
	got = nil
	for body, words := range map[string]string{
		`{"scope":"user"}`:                                      "userId goes with scope user",
		`{"scope":"tool","userId":"ann"}`:                       "goes with scope",
		`{"scope":"strategy","strategy":"hybrid","toolId":"x"}`: "toolId goes with scope tool",
		`{"scope":"all","strategy":"hybrid"}`:                   "strategy goes with scope strategy",
	} {
		if p := problem(t, s.do(t, "DELETE", invalidatePath, body), toolkeep.MalformedRequest); !strings.Contains(p.Detail, words) {
			t.Errorf("%s: %s", body, p.Detail)
		}
	}
	problem(t, s.do(t, "DELETE", invalidatePath, `{"scope":"strategy","strategy":"luck"}`), toolkeep.InvalidParameters)
	problem(t, s.do(t, "DELETE", invalidatePath, `{"scope":"tool","toolId":"demo.hidden"}`), toolkeep.ToolNotFound)
	problem(t, s.do(t, "POST", "/cache/invalidate/demo.hidden", ""), toolkeep.ToolNotFound)
	if got != nil {
		t.Errorf("a refused request did %q", got)
	}
	// What cannot be stored is an error, and results stay.
	s.SearchAdmin = &fakeSearchAdmin{flush: func(string, string) error { return toolkeep.NewError(toolkeep.RecordUnavailable, "no store") }}
	problem(t, s.do(t, "DELETE", invalidatePath, `{"scope":"all"}`), toolkeep.RecordUnavailable)
	if got != nil {
		t.Errorf("a failed flush did %q", got)
	}
}

func TestReindex(t *testing.T) {
	s := newSystem()
	var got []string
	s.SearchAdmin = &fakeSearchAdmin{reindex: func(ids []string, embeddings bool) (int, error) {
		got = append(got, fmt.Sprint(ids == nil, ids, embeddings))
		return 7, nil
	}}
	s.catalog.resolve = func(_ *toolkeep.Principal, tool, _ string) (toolkeep.Version, []toolkeep.Warning, error) {
		if tool != "demo.hash" {
			return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "no such tool")
		}
		return toolkeep.Version{Tool: demoTool()}, nil, nil
	}
	for _, c := range []struct{ body, want, embeddings string }{
		{`{"scope":"all"}`, "true [] false", "0"},
		{`{"scope":"all","forceEmbeddingRegeneration":true}`, "true [] true", "7"},
		{`{"scope":"specific","toolIds":["demo.hash"],"forceEmbeddingRegeneration":false}`, "false [demo.hash] false", "0"},
	} {
		got = nil
		w := s.do(t, "POST", reindexPath, c.body)
		wantStatus(t, w, 202)
		if m := decode(t, w); strings.Join(got, ", ") != c.want || m["queued"] != number("7") || m["embeddings"] != number(c.embeddings) {
			t.Errorf("%s: %q %v", c.body, got, m)
		}
	}
	got = nil
	problem(t, s.do(t, "POST", reindexPath, `{"scope":"specific"}`), toolkeep.MalformedRequest)
	problem(t, s.do(t, "POST", reindexPath, `{"scope":"all","toolIds":["demo.hash"]}`), toolkeep.MalformedRequest)
	problem(t, s.do(t, "POST", reindexPath, `{"scope":"specific","toolIds":["demo.hash","demo.hidden"]}`), toolkeep.ToolNotFound)
	if got != nil {
		t.Errorf("a refused request did %q", got)
	}
	s.SearchAdmin = &fakeSearchAdmin{reindex: func([]string, bool) (int, error) { return 0, errors.New("boom") }}
	problem(t, s.do(t, "POST", reindexPath, `{"scope":"all"}`), toolkeep.InternalError)
}

// keeper is a search that says what it was asked.
type keeper struct {
	fakeSearch
	asked []discover.Query
}

func (k *keeper) Find(_ context.Context, q discover.Query, _ func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report) {
	k.asked = append(k.asked, q)
	return []discover.Match{{Tool: demoTool()}}, discover.Report{Strategy: discover.Hybrid, CacheHit: true}
}

// TestSearchNamesItsAudience: with everything that decides what may be found.
func TestSearchNamesItsAudience(t *testing.T) {
	s := newSystem()
	k := &keeper{}
	s.Search = k
	s.catalog.list = func(catalog.Filter) ([]catalog.Summary, int) { return nil, 0 }
	s.Audience = func(p *toolkeep.Principal, more ...string) string {
		return p.Tenant + "/" + p.Subject + "/" + strings.Join(more, "=")
	}
	for query, want := range map[string]string{
		"q=x":                       "",
		"q=x&category=text":         "text",
		"q=x&category=text&limit=3": "text",
	} {
		k.asked = nil
		w := s.do(t, "GET", "/api/v1/tools/retrieval/search?"+query, "")
		wantStatus(t, w, 200)
		if len(k.asked) != 1 || k.asked[0].Audience != "t/admin/" || k.asked[0].Category != want || k.asked[0].Session.Tenant != "t" || k.asked[0].Session.Subject != "admin" {
			t.Errorf("%s: %+v", query, k.asked)
		}
		if !strings.Contains(w.Body.String(), `"cacheHit":true`) {
			t.Errorf("%s", w.Body)
		}
	}
	// Without it nothing may be kept.
	s.Audience, k.asked = nil, nil
	wantStatus(t, s.do(t, "GET", "/api/v1/tools/retrieval/search?q=x", ""), 200)
	if k.asked[0].Audience != "" {
		t.Errorf("%+v", k.asked)
	}
}
