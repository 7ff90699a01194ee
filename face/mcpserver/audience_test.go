package mcpserver

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestAudienceOfViews: the search cache separates views that show different tools.
func TestAudienceOfViews(t *testing.T) {
	s := &Server{c: Config{Audience: func(p *toolkeep.Principal, more ...string) string { return p.Subject + "/" + strings.Join(more, "/") }}}
	at := func(v *view, category string) string {
		return (&exchange{s: s, p: &toolkeep.Principal{Subject: "ann"}, v: v}).audience(category)
	}
	all, search := builtinViews()["all"], builtinViews()["search"]
	one := &view{key: "sets/mail", kind: viewSet, set: &Set{Namespaces: []string{"mail"}}}
	same := &view{key: "sets/mail", kind: viewSet, set: &Set{Namespaces: []string{"mail"}}}
	moved := &view{key: "sets/mail", kind: viewSet, set: &Set{Namespaces: []string{"mail", "post"}}}
	split := &view{key: "sets/mail", kind: viewSet, set: &Set{Tags: []string{"mail"}}}
	if at(all, "") != "ann/" || at(search, "") != "ann/" || at(one, "") != at(same, "") {
		t.Errorf("views that show the same have other names: %q %q %q %q", at(all, ""), at(search, ""), at(one, ""), at(same, ""))
	}
	seen := map[string]bool{}
	for _, name := range []string{at(all, ""), at(all, "text"), at(all, "mail"), at(one, ""), at(one, "text"), at(moved, ""), at(split, "")} {
		if seen[name] {
			t.Errorf("%q names two views", name)
		}
		seen[name] = true
	}
	s.c.Audience = nil
	if at(one, "text") != "" || at(all, "") != "" {
		t.Error("without an audience answers are kept")
	}
}
