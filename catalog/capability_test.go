package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestResolveCapability: one visible tool with the capability is taken, and none or several are an error. Hidden tools
// do not count.
func TestResolveCapability(t *testing.T) {
	c, _, _ := open(t)
	var all [][]byte
	for i := range 30 {
		all = append(all, manifest(fmt.Sprintf("many.tool%02d", i), "1.0.0", `{"capabilities":["many"]}`))
	}
	all = append(all, manifest("a.one", "1.0.0", `{"capabilities":["weather","tides"]}`), manifest("a.one", "2.0.0", `{"capabilities":["weather"]}`),
		manifest("a.two", "1.0.0", `{"capabilities":["both","tides"]}`), manifest("a.three", "1.0.0", `{"capabilities":["both"]}`),
		manifest("a.old", "1.0.0", `{"capabilities":["gone"]}`))
	if _, err := c.Publish(t.Context(), admin("acme"), all, PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	setState(t, c, "a.old", "1.0.0", StateChange{State: toolkeep.Blocked})
	sees := func(hidden ...string) func(*toolkeep.Tool) bool {
		return func(t *toolkeep.Tool) bool { return !slices.Contains(hidden, t.ID) }
	}
	for _, r := range []struct {
		name, rng string
		hidden    []string
		want      string // a reference, or a code
	}{
		{"weather", "", nil, "a.one@2.0.0"}, {"weather", "^1", nil, "a.one@1.0.0"}, {"weather", "9.9.9", nil, "E3004"},
		{"tides", "", nil, "a.two@1.0.0"}, // the newest version of a.one has it no more
		{"both", "", nil, "E3103"}, {"both", "", []string{"a.two"}, "a.three@1.0.0"}, {"both", "", []string{"a.two", "a.three"}, "E3002"},
		{"none", "", nil, "E3002"}, {"gone", "", nil, "E3002"}, {"", "", nil, "E3103"}, {"many", "", nil, "E3103"}, {"Weather", "", nil, "E3002"},
	} {
		v, _, err := c.Resolve(t.Context(), admin("acme"), CapabilityPrefix+r.name, r.rng, sees(r.hidden...))
		got := string(codeOf(err))
		if err == nil {
			got = v.Tool.Ref()
		}
		if got != r.want {
			t.Errorf("capability %q in %q without %v gives %s, want %s", r.name, r.rng, r.hidden, got, r.want)
		}
	}
	if _, _, err := c.Resolve(t.Context(), admin("other"), CapabilityPrefix+"weather", "", nil); codeOf(err) != toolkeep.CapabilityNotFound {
		t.Errorf("another tenant: %v", err)
	}
	_, _, err := c.Resolve(t.Context(), admin("acme"), CapabilityPrefix+"many", "", nil)
	e := wantCode(t, err, toolkeep.CapabilityAmbiguous)
	if list := e.Details["tools"].([]string); len(list) != maxOffering || list[0] != "many.tool00" || e.Details["total"] != 30 || !strings.Contains(e.Message, "many.tool04 and more") {
		t.Errorf("%s %v", e.Message, e.Details)
	}
}

// TestMigrationGuide: E3006 and E3009 carry the guide of the version to move to, if the caller may see it, else the
// version's own, cut to their size.
func TestMigrationGuide(t *testing.T) {
	guide := func(text string) string { return fmt.Sprintf(`{"migration_guide":%q}`, text) }
	all := [][]byte{manifest("a.b", "1.0.0", guide("own words")), manifest("a.b", "2.0.0", guide("rename x")), manifest("a.bare", "1.0.0"), manifest("a.bare", "2.0.0"),
		manifest("a.c", "1.0.0"), manifest("c.d", "1.0.0", guide("go to c")), manifest("a.long", "1.0.0"), manifest("a.long", "1.1.0", guide(strings.Repeat("é", 5000)))}
	only := func(refs ...string) func(*toolkeep.Tool) bool {
		return func(t *toolkeep.Tool) bool { return slices.Contains(refs, t.Ref()) }
	}
	for _, r := range []struct {
		id, to, want string
		visible      func(*toolkeep.Tool) bool
	}{
		{"a.b", "", "rename x", nil}, {"a.b", "2.0.0", "rename x", nil}, {"a.b", "", "own words", only("a.b@1.0.0")},
		{"a.bare", "", "", nil}, {"a.c", "c.d@^1", "go to c", nil}, {"a.c", "c.d", "go to c", nil}, {"a.c", "c.d", "", only("a.c@1.0.0")},
		{"a.long", "", strings.Repeat("é", maxGuide/2-5), nil},
	} {
		c, _, _ := open(t)
		if _, err := c.Publish(t.Context(), admin("acme"), all, PublishOptions{}); err != nil {
			t.Fatal(err)
		}
		check := func(message string, details map[string]any) {
			t.Helper()
			got, _ := details["migration_guide"].(string)
			if len(got) > maxGuide+len("…") || !strings.HasPrefix(got, r.want) || (r.want == "") != (got == "") || len(message) > 1000 ||
				(r.want != "") != strings.Contains(message, "migration guide: ") {
				t.Errorf("%s to %q: %.80q in %.80q, want %.80q", r.id, r.to, got, message, r.want)
			}
		}
		setState(t, c, r.id, "1.0.0", StateChange{State: toolkeep.Deprecated, Successor: r.to})
		_, w, err := c.Resolve(t.Context(), admin("acme"), r.id, "1.0.0", r.visible)
		if err != nil {
			t.Fatal(err)
		}
		check(w[0].Message, w[0].Details)
		setState(t, c, r.id, "1.0.0", StateChange{State: toolkeep.Removed, Successor: r.to, Now: true})
		_, _, err = c.Resolve(t.Context(), admin("acme"), r.id, "1.0.0", r.visible)
		e := wantCode(t, err, toolkeep.ToolRemoved)
		check(e.Message, e.Details)
	}
}
