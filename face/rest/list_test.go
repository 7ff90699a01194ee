package rest

import (
	"fmt"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

// TestToolFilters: filters that repeat take any of their values, and facets count what passes all of them.
func TestToolFilters(t *testing.T) {
	s := newSystem()
	s.Config.Callable = func(_ *toolkeep.Principal, t *toolkeep.Tool) bool { return t.ID != "b.mail" }
	version := func(id, category, kind, risk, effects string, life toolkeep.Lifecycle) toolkeep.Version {
		m := &toolkeep.Manifest{ToolID: id, Category: category, Risk: risk, SideEffects: effects}
		m.Execution.Kind = kind
		return toolkeep.Version{Tool: &toolkeep.Tool{ID: id, Version: "1.0.0", Manifest: m}, Life: life}
	}
	active := toolkeep.Lifecycle{State: toolkeep.Active}
	all := []toolkeep.Version{
		version("a.read", "files", "file", "low", "reads", active),
		version("a.write", "files", "file", "high", "writes", toolkeep.Lifecycle{State: toolkeep.Active, Held: &toolkeep.Hold{Why: "changed"}}),
		version("b.mail", "mail", "mcp", "medium", "writes", active),
		version("b.old", "mail", "http", "low", "none", toolkeep.Lifecycle{State: toolkeep.Deprecated}),
	}
	s.catalog.resolve = func(_ *toolkeep.Principal, id, _ string) (toolkeep.Version, []toolkeep.Warning, error) {
		for _, v := range all {
			if v.Tool.ID == id {
				return v, nil, nil
			}
		}
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "no")
	}
	s.catalog.list = func(f catalog.Filter) (list []catalog.Summary, _ int) {
		for _, v := range all {
			if (v.Life.State == toolkeep.Active || f.IncludeDeprecated) && (f.Keep == nil || f.Keep(v)) {
				list = append(list, catalog.Summary{ToolID: v.Tool.ID, LatestVersion: "1.0.0", State: v.Life.State, Source: v.Tool.Manifest.Execution.Kind})
			}
		}
		return list, len(list)
	}
	for query, want := range map[string]string{
		"":                               "[a.read a.write b.mail]",
		"source=mcp&source=http":         "[b.mail]",
		"state=deprecated":               "[b.old]",
		"state=deprecated&state=active":  "[a.read a.write b.mail b.old]",
		"risk=high&risk=medium":          "[a.write b.mail]",
		"side_effects=writes&held=false": "[b.mail]",
		"held=true":                      "[a.write]",
		"callable=false":                 "[b.mail]",
		"callable=true&source=mcp":       "[]",
		"auth_state=none&risk=low":       "[a.read]",
		"auth_scope=user":                "[]",
	} {
		w := s.do(t, "GET", "/api/v1/tools?"+query, "")
		wantStatus(t, w, 200)
		got := []string{}
		m := decode(t, w)
		for _, one := range m["tools"].([]any) {
			got = append(got, one.(map[string]any)["tool_id"].(string))
		}
		if fmt.Sprint(got) != want || m["facets"] != nil {
			t.Errorf("%s: %v, want %s; facets %v", query, got, want, m["facets"])
		}
	}
	m := decode(t, s.do(t, "GET", "/api/v1/tools?facets=true&category=&state=active&state=deprecated&page_size=1", ""))
	for facet, want := range map[string]string{"category": "[files:2 mail:2]", "namespace": "[a:2 b:2]", "source": "[file:2 http:1 mcp:1]", "state": "[active:3 deprecated:1]",
		"risk": "[low:2 high:1 medium:1]", "side_effects": "[writes:2 none:1 reads:1]", "auth_state": "[none:4]"} {
		got := []string{}
		for _, one := range m["facets"].(map[string]any)[facet].([]any) {
			got = append(got, fmt.Sprint(one.(map[string]any)["value"], ":", one.(map[string]any)["count"]))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v", facet, got)
		}
	}
	problem(t, s.do(t, "GET", "/api/v1/invocations?tool_id=a&tool_id=b", ""), toolkeep.InvalidEncoding)
	for _, query := range []string{"state=blocked", "risk=huge", "held=yes", "sort=name", "auth_state=x"} {
		problem(t, s.do(t, "GET", "/api/v1/tools?"+query, ""), toolkeep.InvalidParameters)
	}
}
