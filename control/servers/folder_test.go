package servers

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream"
)

// TestCompare: a definition is told to be new, changed or the same as the stored one, whose values are sealed, without
// connecting or changing anything.
func TestCompare(t *testing.T) {
	h := newFixture(t, nil)
	const stored = `{"transport":"http","url":"https://mcp.example/","folder":"shop","headers":{"X-Word":"ordinary","Api-Key":"Bearer env://KEY","X-Text":"text:env://x"},"oauth":{"client_id":"me","client_secret":"s3cret"}}`
	compare := func(spec string) Definition {
		t.Helper()
		reads, feed := len(h.pool.told), len(h.store.feed)
		p, err := h.Import(t.Context(), admin("acme"), "pages", []byte(spec), ImportOptions{Compare: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(h.pool.told) != reads || len(h.store.feed) != feed {
			t.Errorf("the comparison did something: %v", h.pool.told[reads:])
		}
		return p.Definition
	}
	if got := compare(stored); got != DefinitionNew {
		t.Errorf("of no server: %s", got)
	}
	h.imports(stored, tool("read", "Reads."))
	doc, _ := h.get(serverID{"acme", "pages"})
	if strings.Contains(string(doc.Body), "s3cret") {
		t.Fatalf("stored in the clear: %s", doc.Body)
	}
	for _, x := range []struct {
		name, old, new string
		want           Definition
	}{
		{"as it was", "", "", DefinitionSame},
		{"of another folder", `"shop"`, `"other"`, DefinitionSame},
		{"with a default written out", `"folder"`, `"call_timeout_s":30,"folder"`, DefinitionSame},
		{"a literal with its mark", `"ordinary"`, `"text:ordinary"`, DefinitionSame},
		{"values that are not shown", `"ordinary"`, `"(hidden)"`, DefinitionSame},
		{"a hidden login", `"s3cret"`, `"(hidden)"`, DefinitionSame},
		{"another value", `"ordinary"`, `"other"`, DefinitionChanged},
		{"a reference that a literal was", `"text:env://x"`, `"env://x"`, DefinitionChanged},
		{"another reference", `env://KEY`, `env://KEY2`, DefinitionChanged},
		{"a value less", `"X-Word":"ordinary",`, ``, DefinitionChanged},
		{"a value more, which is empty", `"X-Word"`, `"X-New":"","X-Word"`, DefinitionChanged},
		{"another login", `s3cret`, `other`, DefinitionChanged},
		{"without its login", `,"oauth":{"client_id":"me","client_secret":"s3cret"}`, ``, DefinitionChanged},
		{"another address", `mcp.example`, `mcp2.example`, DefinitionChanged},
	} {
		if got := compare(strings.Replace(stored, x.old, x.new, 1)); got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
	_, err := h.Import(t.Context(), admin("acme"), "pages", []byte(`{"transport":"http","url":"https://mcp.example/","folder":"No Name"}`), ImportOptions{Compare: true})
	wantCode(t, err, toolkeep.InvalidManifest)
}

// TestRemoveWithFolder: what was applied from one folder is not removed with another, or after it was imported by hand.
func TestRemoveWithFolder(t *testing.T) {
	h := newFixture(t, nil)
	const spec = `{"transport":"http","url":"https://mcp.example/","folder":"shop"}`
	h.imports(spec, tool("read", "Reads."))
	wantCode(t, h.Remove(t.Context(), admin("acme"), "pages", "other"), toolkeep.StateConflict)
	h.imports(httpSpec, tool("read", "Reads."))
	wantCode(t, h.Remove(t.Context(), admin("acme"), "pages", "shop"), toolkeep.StateConflict)
	h.imports(spec, tool("read", "Reads.")) // which changes what stands there by hand now
	wantCode(t, h.Remove(t.Context(), admin("acme"), "pages", "shop"), toolkeep.StateConflict)
	h.want("read@1.0.0 active")
	if err := h.Remove(t.Context(), admin("acme"), "pages", ""); err != nil {
		t.Fatal(err)
	}
	h.imports(spec, tool("read", "Reads."))
	h.imports(strings.Replace(spec, "shop", "other", 1), tool("read", "Reads."))
	if err := h.Remove(t.Context(), admin("acme"), "pages", "shop"); err != nil {
		t.Fatal(err)
	}
	if _, there := h.get(serverID{"acme", "pages"}); there {
		t.Error("it is still there")
	}
	if s, err := upstream.ParseSpec("pages", "acme", []byte(spec)); err != nil || s.Folder != "shop" || !strings.Contains(string(s.Body()), `"folder":"shop"`) {
		t.Errorf("%+v %v", s, err)
	}
}
