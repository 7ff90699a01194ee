package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestSuccessorIsShownToWhomItExists: no request reveals a successor tool or version to a principal who may not see
// it.
func TestSuccessorIsShownToWhomItExists(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0", "1.1.0", "2.0.0", "3.0.0")
	publish(t, c, "a.secret", "1.0.0", "2.0.0")
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Successor: "a.secret@^1"})
	setState(t, c, "a.b", "1.1.0", StateChange{State: toolkeep.Deprecated, Successor: "3.0.0"})
	agent := &toolkeep.Principal{Tenant: "acme", Subject: "ann"}
	all := func(*toolkeep.Tool) bool { return true }
	hides := func(refs ...string) func(*toolkeep.Tool) bool {
		return func(t *toolkeep.Tool) bool {
			return !strings.Contains(strings.Join(refs, " "), t.Ref()) && !strings.Contains(strings.Join(refs, " "), t.ID+"@*")
		}
	}
	told := func(version string, visible func(*toolkeep.Tool) bool) []string {
		t.Helper()
		v, warnings, err := c.Describe(t.Context(), agent, "a.b", version, visible)
		if err != nil {
			e := wantCode(t, err, toolkeep.ToolRemoved)
			return []string{e.Error(), fmt.Sprint(e.Details)}
		}
		out := []string{v.Life.Successor, fmt.Sprint(warnings)}
		versions, err := c.Versions(agent, "a.b", visible)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range versions {
			if o.Tool.Version == version {
				out = append(out, o.Life.Successor)
			}
		}
		return out
	}
	check := func() {
		t.Helper()
		for _, tt := range []struct {
			version string
			visible func(*toolkeep.Tool) bool
			names   string // the shown successor
			never   string
		}{
			{"1.0.0", nil, "a.secret@^1", ""},
			{"1.0.0", all, "a.secret@^1", ""},
			{"1.0.0", hides("a.secret@1.0.0"), "a.secret@^1", ""}, // another version of it is visible
			{"1.0.0", hides("a.secret@*"), "3.0.0", "a.secret"},
			{"1.0.0", hides("a.secret@*", "a.b@3.0.0"), "2.0.0", "a.secret"},
			{"1.1.0", all, "3.0.0", ""},
			{"1.1.0", hides("a.b@3.0.0"), "2.0.0", "3.0.0"},
			{"1.1.0", hides("a.b@3.0.0", "a.b@2.0.0"), "", "3.0.0"},
		} {
			got := strings.Join(told(tt.version, tt.visible), "\n")
			if !strings.Contains(got, tt.names) || tt.never != "" && strings.Contains(got, tt.never) {
				t.Errorf("of %s is told, want %q and not %q:\n%s", tt.version, tt.names, tt.never, got)
			}
			if tt.names == "" && strings.Contains(got, "move to") {
				t.Errorf("of %s is told:\n%s", tt.version, got)
			}
		}
	}
	check()
	if v, _, err := c.Describe(t.Context(), admin("acme"), "a.b", "1.0.0", hides("a.secret@*")); err != nil || v.Life.Successor != "" {
		t.Errorf("an administrator who may not see the tool is told of %q, %v", v.Life.Successor, err)
	}
	for _, version := range []string{"1.0.0", "1.1.0"} { // the same when they no longer run
		setState(t, c, "a.b", version, StateChange{State: toolkeep.Removed, Now: true})
	}
	check()
}
