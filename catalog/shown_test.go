package catalog

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// fewTools is a Describer with two tools, one of them hidden, and a blocked one.
type fewTools struct{}

func (fewTools) Find(_ *toolkeep.Principal, id, _ string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	switch t := (&toolkeep.Tool{ID: id}); {
	case id == "a.blocked":
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolBlocked, "blocked")
	case (id == "a.open" || id == "a.hidden") && visible(t):
		return toolkeep.Version{Tool: t}, nil, nil
	}
	return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "there is no tool %s", id)
}

func TestShown(t *testing.T) {
	const head, tail = `{"schema_version":1,"tool_id":"a.one","version":"1.0.0","description":"One.","parameters_schema":{"type":"object"},"execution":{"kind":"builtin","binding":{"name":"x"}}`, `}`
	agent, admin := &toolkeep.Principal{}, &toolkeep.Principal{Permissions: []string{toolkeep.PermLifecycle}}
	visible := func(t *toolkeep.Tool) bool { return t.ID != "a.hidden" }
	for _, c := range []struct{ more, agent, admin string }{ // "" is the published manifest
		{more: ``},
		{more: `,"fallback":"capability:hash"`},
		{more: `,"fallback":"a.open@^1","relationships":{"dependencies":["a.open"],"pairings":[{"tool_id":"a.blocked","sequence":"after"}]}`},
		{`,"fallback":"a.hidden@^1"`, `"version":"1.0.0"}`, `"version":"1.0.0"}`},
		{`,"fallback":"a.none"`, `"version":"1.0.0"}`, ``},
		{`,"relationships":{"alternatives":["a.hidden@^1"],"dependencies":["a.none","a.open"],"pairings":[{"tool_id":"a.hidden","sequence":"after"},{"sequence":"before","tool_id":"a.open"}]}`,
			`"relationships":{"dependencies":["a.open"],"pairings":[{"sequence":"before","tool_id":"a.open"}]}`,
			`"relationships":{"dependencies":["a.none","a.open"],"pairings":[{"sequence":"before","tool_id":"a.open"}]}`},
	} {
		tool, err := ParseManifest([]byte(head + c.more + tail))
		if err != nil {
			t.Fatal(c.more, err)
		}
		before := string(tool.Raw)
		for p, want := range map[*toolkeep.Principal]string{agent: c.agent, admin: c.admin} {
			got := string(Shown(fewTools{}, p, tool, visible))
			if want == "" && got != before || want != "" && (!strings.Contains(got, want) || strings.Contains(got, "a.hidden")) {
				t.Errorf("%s, admin %v: %s", c.more, p == admin, got)
			}
			if _, err := ParseManifest([]byte(got)); err != nil {
				t.Errorf("what is shown is not a manifest: %v", err)
			}
		}
		if string(tool.Raw) != before {
			t.Error("the stored manifest was changed")
		}
	}
}
