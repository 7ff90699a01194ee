package rest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	learned "github.com/toolkeep/toolkeep/discover/usage"
)

// fakeUsage records searches and tells what a test gives it.
type fakeUsage struct {
	retrieved []learned.Retrieval
	feedback  func(*toolkeep.Principal, learned.Feedback) (string, bool, error)
	report    func(tenant string, from, to time.Time, by string) learned.Report
	train     func(tenant string) (learned.Training, error)
	reset     func(*toolkeep.Principal) error
	forget    func(p *toolkeep.Principal, user string) error
	known     learned.Known
}

func (f *fakeUsage) Retrieved(_ *toolkeep.Principal, r learned.Retrieval) string {
	f.retrieved = append(f.retrieved, r)
	return fmt.Sprint("retrieval-", len(f.retrieved))
}
func (f *fakeUsage) Feedback(_ context.Context, p *toolkeep.Principal, b learned.Feedback) (string, bool, error) {
	return f.feedback(p, b)
}
func (f *fakeUsage) Report(tenant string, from, to time.Time, by string) learned.Report {
	return f.report(tenant, from, to, by)
}
func (f *fakeUsage) Train(_ context.Context, tenant string) (learned.Training, error) {
	return f.train(tenant)
}
func (f *fakeUsage) ResetWeights(_ context.Context, p *toolkeep.Principal) error { return f.reset(p) }
func (f *fakeUsage) Known(context.Context, *toolkeep.Principal, string) (learned.Known, error) {
	return f.known, nil
}
func (f *fakeUsage) Forget(_ context.Context, p *toolkeep.Principal, user string) error {
	return f.forget(p, user)
}

func withUsage() (*system, *fakeUsage) {
	s, f := newSystem(), &fakeUsage{}
	s.Retrievals, s.Learning = f, f
	s.Search = fakeSearch(func(string, int, func(*toolkeep.Tool) bool) []discover.Match {
		return []discover.Match{{Tool: demoTool(), Score: 2, Parts: discover.Parts{Keyword: 1}}}
	})
	s.catalog.list = nil
	return s, f
}

func TestContextIsRecorded(t *testing.T) {
	s, f := withUsage()
	w := s.do(t, "POST", contextPath, `{"q":"hash a text","toolIds":["demo.hash"]}`, "X-Session-ID: s-1", "User-Agent: curl/8")
	wantStatus(t, w, 200)
	if got := w.Header().Get("X-Retrieval-ID"); got != "retrieval-1" || len(f.retrieved) != 1 {
		t.Fatalf("%q, %d", got, len(f.retrieved))
	}
	r := f.retrieved[0]
	want := discover.Session{Tenant: "t", Subject: "admin", ID: "s-1"}
	if r.Session != want || r.Query != "hash a text" || r.Strategy != learned.StrategyContext || r.Face != "rest" || r.Agent != "curl/8" ||
		!slices.Equal(r.Tools, []learned.Offered{{Tool: "demo.hash", Parts: discover.Parts{Keyword: 1}}}) {
		t.Errorf("%+v", r)
	}
}

func TestFeedback(t *testing.T) {
	const path = "/api/v1/tools/retrieval/feedback"
	s, f := withUsage()
	s.catalog.resolve = func(_ *toolkeep.Principal, tool, _ string) (toolkeep.Version, []toolkeep.Warning, error) {
		if tool != "demo.hash" {
			return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "no")
		}
		return toolkeep.Version{Tool: demoTool()}, nil, nil
	}
	var got learned.Feedback
	f.feedback = func(p *toolkeep.Principal, b learned.Feedback) (string, bool, error) {
		if p.Subject != "agent" {
			t.Errorf("%+v", p)
		}
		got = b
		return "r-1", b.Session == "again", nil
	}
	w := s.do(t, "POST", path, `{"retrievalId":"r-1","toolSelected":"demo.hash","relevance":0.75,"executionSuccess":false}`, "Authorization: Bearer agent")
	wantStatus(t, w, 200)
	if d := decode(t, w)["data"].(map[string]any); d["retrievalId"] != "r-1" || d["recorded"] != true {
		t.Errorf("%v", d)
	}
	if got.Retrieval != "r-1" || got.Tool != "demo.hash" || *got.Relevance != 0.75 || *got.Success || got.Query != "" {
		t.Errorf("%+v", got)
	}
	w = s.do(t, "POST", path, `{"sessionId":"again","query":"hash it","relevance":0}`, "Authorization: Bearer agent")
	if d := decode(t, w)["data"].(map[string]any); d["recorded"] != false || got.Session != "again" || got.Query != "hash it" || *got.Relevance != 0 || got.Success != nil {
		t.Errorf("%v %+v", d, got)
	}
	for body, code := range map[string]toolkeep.Code{
		`{"toolSelected":"demo.hash"}`:                                                 toolkeep.MalformedRequest, // of which search?
		`{"retrievalId":"r","query":"q","toolSelected":"demo.hash"}`:                   toolkeep.MalformedRequest,
		`{"retrievalId":"r","sessionId":"s","toolSelected":"demo.hash"}`:               toolkeep.MalformedRequest,
		`{"retrievalId":"r"}`:                                                          toolkeep.MalformedRequest, // says nothing
		`{"retrievalId":"r","relevance":1,"executionSuccess":true}`:                    toolkeep.MalformedRequest,
		`{"retrievalId":"r","toolSelected":"demo.hash","relevance":1.5}`:               toolkeep.InvalidParameters,
		`{"retrievalId":"r","toolSelected":"demo.hash","relevance":-0.1}`:              toolkeep.InvalidParameters,
		`{"retrievalId":"r","toolSelected":"other.tool"}`:                              toolkeep.ToolNotFound, // or hidden
		`{"retrievalId":"` + strings.Repeat("r", 65) + `","toolSelected":"demo.hash"}`: toolkeep.InvalidParameters,
	} {
		problem(t, s.do(t, "POST", path, body, "Authorization: Bearer agent"), code)
	}
	f.feedback = func(*toolkeep.Principal, learned.Feedback) (string, bool, error) {
		return "", false, toolkeep.NewError(toolkeep.ResourceNotFound, "no such search")
	}
	problem(t, s.do(t, "POST", path, `{"retrievalId":"r","relevance":1}`), toolkeep.ResourceNotFound)
}

func TestAnalytics(t *testing.T) {
	const path = "/api/v1/tools/admin/analytics"
	s, f := withUsage()
	day := time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	f.report = func(tenant string, from, to time.Time, by string) learned.Report {
		if tenant != "t" || !from.Equal(day) || !to.Equal(day.AddDate(0, 0, 2).Add(3*time.Hour)) || by != "tool" {
			t.Errorf("%s %v %v %s", tenant, from, to, by)
		}
		return learned.Report{From: from, To: to, Since: day, Learning: learned.LearnObserve, Total: learned.Row{Calls: 9},
			Rows:     []learned.Row{{Group: "hidden.tool", Calls: 5}, {Group: "demo.hash", Retrievals: 4, Chosen: 1, SelectionRate: 0.25, MeanPosition: 2, Calls: 3, SuccessRate: 1, MeanMS: 1.5, P95MS: 2}},
			Training: &learned.Training{At: day, Lessons: 300, Held: 60, Better: true, Verdict: "better", After: learned.Fit{Weights: discover.Weights{Keyword: 0.5}}, Weights: &discover.Weights{Keyword: 0.5}}}
	}
	w := s.do(t, "GET", path+"?startDate=2026-11-03&endDate=2026-11-05T04:00:00%2B01:00", "")
	wantStatus(t, w, 200)
	d := decode(t, w)["data"].(map[string]any)
	groups := d["groups"].([]any)
	if d["startDate"] != "2026-11-03" || d["endDate"] != "2026-11-05" || len(groups) != 1 || d["more"] != number("0") {
		t.Fatalf("a hidden tool is shown: %v", d)
	}
	if g := groups[0].(map[string]any); g["key"] != "demo.hash" || g["selectionRate"] != number("0.25") || g["p95ExecutionTimeMs"] != number("2") {
		t.Errorf("%v", g)
	}
	r := d["ranking"].(map[string]any)
	if r["mode"] != "observe" || r["weights"].(map[string]any)["keyword_match"] != number("0.5") || r["before"] == nil {
		t.Errorf("%v", r)
	}
	// By user, and without dates: the last 30 days.
	f.report = func(_ string, from, to time.Time, by string) learned.Report {
		if by != "user" || to.Sub(from) != 29*24*time.Hour || time.Since(to) > time.Minute {
			t.Errorf("%v %v %s", from, to, by)
		}
		return learned.Report{From: from, To: to, Rows: []learned.Row{{Group: "ann"}, {Group: "ben"}}, Learning: learned.LearnOff}
	}
	w = s.do(t, "GET", path+"?groupBy=user&limit=1", "")
	d = decode(t, w)["data"].(map[string]any)
	if len(d["groups"].([]any)) != 1 || d["more"] != number("1") || d["since"] != nil || d["ranking"].(map[string]any)["at"] != nil {
		t.Errorf("%v", d)
	}
	for q, code := range map[string]toolkeep.Code{"startDate=2026-11-05&endDate=2026-11-03": toolkeep.MalformedRequest, "startDate=2020-01-01": toolkeep.MalformedRequest,
		"startDate=yesterday": toolkeep.MalformedRequest, "groupBy=day": toolkeep.InvalidParameters, "limit=0": toolkeep.InvalidParameters} {
		problem(t, s.do(t, "GET", path+"?"+q, ""), code)
	}
	for _, r := range [][2]string{{"GET", path}, {"DELETE", path + "/users/ann"}, {"POST", "/api/v1/tools/admin/weights"}, {"DELETE", "/api/v1/tools/admin/weights"}} {
		problem(t, s.do(t, r[0], r[1], "", "Authorization: Bearer agent"), toolkeep.PermissionDenied)
	}
}

func TestLearningIsSteered(t *testing.T) {
	s, f := withUsage()
	mode := learned.LearnOn
	f.report = func(string, time.Time, time.Time, string) learned.Report { return learned.Report{Learning: mode} }
	f.train = func(tenant string) (learned.Training, error) {
		return learned.Training{Lessons: 12, Verdict: "12 are too few"}, nil
	}
	w := s.do(t, "POST", "/api/v1/tools/admin/weights", "")
	wantStatus(t, w, 200)
	if d := decode(t, w)["data"].(map[string]any); d["verdict"] != "12 are too few" || d["better"] != false || d["before"] != nil {
		t.Errorf("%v", d)
	}
	mode = learned.LearnOff
	problem(t, s.do(t, "POST", "/api/v1/tools/admin/weights", ""), toolkeep.MalformedRequest)
	asked := ""
	f.reset = func(p *toolkeep.Principal) error { asked += "reset by " + p.Subject; return nil }
	f.forget = func(p *toolkeep.Principal, user string) error {
		asked += ", forget " + user + " of " + p.Tenant
		return nil
	}
	wantStatus(t, s.do(t, "DELETE", "/api/v1/tools/admin/weights", ""), 204)
	f.known = learned.Known{Conversations: 1, Searches: 2, Questions: 3}
	w = s.do(t, "DELETE", "/api/v1/tools/admin/analytics/users/ann%40example.com", "")
	wantStatus(t, w, 200)
	if d := decode(t, w)["data"].(map[string]any); d["known"] != true || d["conversations"] != number("1") || d["searches"] != number("2") || d["questions"] != number("3") {
		t.Errorf("%v", d)
	}
	if asked != "reset by admin, forget ann@example.com of t" {
		t.Errorf("%q", asked)
	}
	f.reset = func(*toolkeep.Principal) error { return errors.New("away") }
	problem(t, s.do(t, "DELETE", "/api/v1/tools/admin/weights", ""), toolkeep.InternalError)
}
