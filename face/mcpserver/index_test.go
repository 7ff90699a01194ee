package mcpserver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

func shownNames(ix *index) (out []string) {
	for e := range ix.tools() {
		s := e.id + " as " + e.name
		for _, t := range e.active {
			s += " " + t.tool.Version
		}
		out = append(out, s+" newest "+e.any.tool.Version)
	}
	return out
}

// TestIndexFollows publishes and retires versions of several tenants, queries now and then, and
// compares the index with one built from scratch.
func TestIndexFollows(t *testing.T) {
	s := newSystem(t).start()
	r := rand.New(rand.NewPCG(5, 6))
	tenants := []string{"", "acme", "other"}
	// Names that collide: those of long ids with their hash.
	var ids []string
	for i := range 4 {
		long := "demo." + strings.Repeat("long_name_", 6) + fmt.Sprint(i)
		ids = append(ids, long, strings.Replace(mcp.NameWithHash(long), "__", ".", 1))
	}
	for i := range 12 {
		ids = append(ids, fmt.Sprintf("demo.tool_%d", i))
	}
	for step := range 200 {
		i := r.IntN(len(ids))
		s.publishFor(tenants[i%3], strings.Replace(manifest(ids[i]), "1.0.0", fmt.Sprintf("1.0.%d", step), 1))
		if step%7 != 0 {
			continue
		}
		fresh := &indexes{collide: func(string, string, string) {}, all: true}
		want := fresh.parts(s.catalog)
		for _, tenant := range tenants {
			got := s.server.index(tenant)
			if a, b := shownNames(got), shownNames(newIndex(want, tenant, fresh.collide)); !slices.Equal(a, b) {
				t.Fatalf("step %d, tenant %q:\n%s\nwant\n%s", step, tenant, strings.Join(a, "\n"), strings.Join(b, "\n"))
			}
			for e := range got.tools() {
				// Two ids can be chosen to have one name; calls by that name reach the first.
				if other := got.name(e.name); got.id(e.id) != e || other == nil || other.name != e.name {
					t.Fatalf("step %d, tenant %q: %s is not found by its id or its name %s", step, tenant, e.id, e.name)
				}
			}
		}
	}
}

// TestIndexKeepsWhatStays: a version's definition is rendered once, whatever else changes.
func TestIndexKeepsWhatStays(t *testing.T) {
	s := newSystem(t).start()
	s.publish(manifest("demo.stays"))
	before := s.server.index("").id("demo.stays").active[0]
	s.publish(manifest("demo.comes"))
	s.publish(strings.Replace(manifest("demo.stays"), "1.0.0", "9.9.9", 1))
	after := s.server.index("").id("demo.stays")
	if len(after.active) != 2 || after.active[1] != before {
		t.Errorf("%+v", after.active)
	}
}

var sinkEntry *entry

func BenchmarkIndexAfterChange(b *testing.B) {
	tool := func(i, n int) toolkeep.Version {
		id := fmt.Sprintf("ns%d.tool_%d", i%50, i)
		return toolkeep.Version{Tool: &toolkeep.Tool{ID: id, Version: fmt.Sprintf("1.0.%d", n), Manifest: &toolkeep.Manifest{ToolID: id}}, Life: toolkeep.Lifecycle{State: toolkeep.Active}}
	}
	list := make([]*entry, 10_000)
	for i := range list {
		list[i] = newEntry([]toolkeep.Version{tool(i, 0)}, nil)
	}
	collide := func(string, string, string) { b.Error("two tools have one name") }
	p := newPart(list, nil, collide)
	b.Run("one of 10000", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			v := tool(i%10_000, i)
			p = p.with([]*entry{newEntry([]toolkeep.Version{v}, p.id(v.Tool.ID))}, collide)
		}
		sinkEntry = p.tools[0]
	})
	b.Run("all 10000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sinkEntry = newPart(slices.Clone(p.tools), nil, collide).tools[0]
		}
	})
}

// TestSignature: parameters are shown with their types, including those that use $ref or may be
// null.
func TestSignature(t *testing.T) {
	got := signature([]byte(`{"properties":{"body":{"$ref":"#/$defs/a~1b"},"n":{"type":["integer","null"]},"s":{"type":["string","number"]},` +
		`"e":{"$ref":"#/$defs/side"},"gone":{"$ref":"#/$defs/none"},"all":{}},"required":["body"],"$defs":{"a/b":{"type":"object"},"side":{"enum":["l","r"]}}}`))
	for _, want := range []string{"body: object", "n?: integer", "s?: string or number", `e?: one of ["l","r"]`, "gone?: any", "all?: any"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s has no %s", got, want)
		}
	}
}
