package discover

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func viewTool(tenant, id, description string) toolkeep.Version {
	return toolkeep.Version{Tool: &toolkeep.Tool{ID: id, Version: "1.0.0", Tenant: tenant, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(id+description))),
		Manifest: &toolkeep.Manifest{ToolID: id, Description: description}}, Life: toolkeep.Lifecycle{State: toolkeep.Active}}
}

func TestView(t *testing.T) {
	tools := []toolkeep.Version{viewTool("", "a.one", "One"), viewTool("", "b.three", "Three"), viewTool("acme", "a.one", "Own one"),
		viewTool("rival", "c.rivals", "Of a rival")}
	a, b := New(Config{}), New(Config{})
	a.Update(slices.Values(tools))
	turned := slices.Clone(tools)
	slices.Reverse(turned)
	b.Update(slices.Values(turned))
	for _, tenant := range []string{"", "acme", "rival", "nobody"} {
		if a.Snapshot(tenant).Sum() != b.Snapshot(tenant).Sum() {
			t.Errorf("two nodes with the same tools have two sums for %q", tenant)
		}
		if first, reembed := a.Snapshot(tenant), a.Snapshot(tenant); first != reembed || !reembed.WordsAlone() {
			t.Errorf("the view of %q changes by itself", tenant)
		}
	}
	if a.Snapshot("acme").Sum() == a.Snapshot("rival").Sum() || a.Snapshot("acme").Sum() == a.Snapshot("nobody").Sum() {
		t.Error("tenants with tools of their own have one sum")
	}
	if a.Snapshot("nobody").Sum() != a.Snapshot("").Sum() {
		t.Error("tenants without tools have sums of their own")
	}
	v := a.Snapshot("acme")
	for _, w := range tools {
		if v.Tool(w.Tool.ID, w.Tool.Tenant) != w.Tool {
			t.Errorf("%s of %q is not found", w.Tool.ID, w.Tool.Tenant)
		}
	}
	if v.Tool("a.one", "rival") != nil || v.Tool("zzz", "") != nil || v.Tool("", "") != nil {
		t.Error("a tool that does not exist is found")
	}
	for name, c := range map[string]struct {
		to      []toolkeep.Version
		changed string // tenants whose sum is another
	}{
		"more of everyone's":  {append(slices.Clone(tools), viewTool("", "d.four", "Four")), " acme rival nobody"},
		"more of a tenant's":  {append(slices.Clone(tools), viewTool("acme", "d.four", "Four")), "acme"},
		"first of a tenant's": {append(slices.Clone(tools), viewTool("nobody", "d.four", "Four")), "nobody"},
		"less of a tenant's":  {tools[:3], "rival"},
		"another text":        {append(slices.Clone(tools[1:]), viewTool("", "a.one", "Another text")), " acme rival nobody"},
		"another owner":       {append(slices.Clone(tools[:3]), viewTool("acme", "c.rivals", "Of a rival")), "acme rival"},
	} {
		before := map[string]Snapshot{}
		for _, tenant := range []string{"", "acme", "rival", "nobody"} {
			before[tenant] = a.Snapshot(tenant)
		}
		a.Update(slices.Values(c.to))
		for tenant, old := range before {
			now := a.Snapshot(tenant)
			if want := slices.Contains(strings.Split(c.changed, " "), tenant); (now.Sum() != old.Sum()) != want {
				t.Errorf("%s: the sum of %q changed: %v", name, tenant, !want)
			}
			if now == old {
				t.Errorf("%s: the view of %q is the one of before", name, tenant)
			}
		}
		a.Update(slices.Values(tools))
		for tenant, old := range before {
			if a.Snapshot(tenant).Sum() != old.Sum() {
				t.Errorf("%s: back again, the sum of %q is another", name, tenant)
			}
			if a.Snapshot(tenant) == old {
				t.Errorf("%s: back again, the view of %q is the one of before, and what was searched in between is not noticed", name, tenant)
			}
		}
	}
}

// TestViewKnowsVectors: answers change when tools get their vectors.
func TestViewKnowsVectors(t *testing.T) {
	x := New(Config{Embedder: &topics{}})
	t.Cleanup(func() { _ = x.Close() })
	x.Update(slices.Values([]toolkeep.Version{viewTool("", "mail.send", "Send a letter"), viewTool("", "sky.look", "Look at the weather")}))
	before := x.Snapshot("acme")
	if before.WordsAlone() {
		t.Error("an index with an embedder has words alone")
	}
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	embedded(t, x, 2)
	after := x.Snapshot("acme")
	if after.Sum() == before.Sum() {
		t.Error("the sum is the same with vectors as without")
	}
	words := New(Config{})
	words.Update(slices.Values([]toolkeep.Version{viewTool("", "mail.send", "Send a letter"), viewTool("", "sky.look", "Look at the weather")}))
	if words.Snapshot("acme").Sum() == after.Sum() {
		t.Error("the sum is the same as without a model")
	}
}

// BenchmarkView is the first question of a tenant after a change, with ten thousand
// tools.
func BenchmarkView(b *testing.B) {
	x := New(Config{})
	all := make([]toolkeep.Version, 10_000)
	for i := range all {
		all[i] = viewTool("", fmt.Sprintf("demo.tool_%d", i), "Does something")
	}
	x.Update(slices.Values(all))
	b.ReportAllocs()
	for b.Loop() {
		x.sums.Store(nil)
		x.Snapshot("acme")
	}
}
