//go:build !race

package discover

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestChange adds, removes and changes tools, one or some at a time, and compares the index with
// one built at once from the same tools: same tools, order and scores.
func TestChange(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	text := func() string {
		var b strings.Builder
		for range 3 + r.IntN(30) {
			fmt.Fprintf(&b, "w%d ", int(300*r.Float64()*r.Float64()))
		}
		return b.String()
	}
	have := map[docKey]toolkeep.Version{}
	x := New(Config{})
	next := func() toolkeep.Version {
		v := tool(fmt.Sprintf("ns%d.tool_%d", r.IntN(4), r.IntN(150)), fmt.Sprintf("1.0.%d", r.IntN(3)), text(), func(m *toolkeep.Manifest) {
			if r.IntN(20) == 0 {
				m.UseCases = []string{text()}
			}
		})
		v.Tool.Digest = fmt.Sprint("sha256:", r.Uint64())
		v.Tool.Tenant = []string{"", "", "acme"}[r.IntN(3)]
		if r.IntN(5) == 0 {
			v.Life.State = toolkeep.Deprecated
		}
		return v
	}
	built, before := 0, x.current.Load()
	for step := range 1500 {
		some := map[docKey]toolkeep.Version{}
		for range 1 + r.IntN(3)*r.IntN(2) {
			v := next()
			some[docKey{v.Tool.ID, v.Tool.Tenant}] = v
		}
		var changed []toolkeep.Version
		for _, k := range slices.SortedFunc(maps.Keys(some), docKey.compare) { // so that r gives the same sequence each time
			v := some[k]
			if old, ok := have[k]; ok && r.IntN(4) == 0 {
				// The same version, as another value.
				same := *old.Tool
				v = toolkeep.Version{Tool: &same, Life: old.Life}
			}
			have[k] = v
			changed = append(changed, v)
		}
		x.Change(slices.Values(changed))
		p := x.current.Load()
		if len(before.docs) > 0 && len(p.docs) > 0 && before.docs[0] != nil && len(p.docs) < len(before.docs) {
			built++
		}
		before = p
		if step%20 != 0 {
			continue
		}
		var all []toolkeep.Version
		for _, v := range have {
			all = append(all, v)
		}
		fresh := index(all...)
		if got, want := x.Tools(nil), fresh.Tools(nil); !reflect.DeepEqual(got, want) || x.Len() != len(want) {
			t.Fatalf("step %d: %d tools, want %d, or others than these", step, x.Len(), len(want))
		}
		if x.Snapshot("acme").Sum() != fresh.Snapshot("acme").Sum() {
			t.Fatalf("step %d: the views differ", step)
		}
		for _, q := range []string{"w0 w1 w2", "w40, then w3 w7 w1; w9 w200 w2 tool", "ns1 tool 17", "tool_17", "w250", "w1"} {
			for _, visible := range []func(*toolkeep.Tool) bool{nil, func(t *toolkeep.Tool) bool { return t.Tenant == "" }} {
				got, want := x.Search(q, 30, visible), fresh.Search(q, 30, visible)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("step %d, %q:\n%v\nwant\n%v", step, q, got, want)
				}
			}
		}
	}
	if empty := len(before.docs) - len(before.sorted); built == 0 || empty == 0 || empty > len(before.sorted)/manyEmpty+fewTools {
		t.Errorf("%d tools, %d empty places, made anew %d times: the test does not see what it is for", len(before.sorted), empty, built)
	}
}

// TestAveragesStay adds and removes a tool whose long text moves the average from one step to the
// next, and expects a rebuild only after a whole step.
func TestAveragesStay(t *testing.T) {
	all := many(longToBuild)
	long := func(words int) toolkeep.Version {
		return tool("long.text", "1.0.0", strings.Repeat("zebra ", words))
	}
	x := index(all...)
	next := func(words int) lengths {
		sum := x.long
		sum.add(x.takeApart(long(words).Tool), 1)
		return sum.average(lengths{}, 0)
	}
	before, edge := x.current.Load().average, 1
	for next(edge) == before {
		edge += 10
	}
	added, removed := long(edge), long(edge)
	removed.Life.State = toolkeep.Deprecated
	for round := range 5 {
		for _, v := range []toolkeep.Version{added, removed} {
			x.Change(slices.Values([]toolkeep.Version{v}))
			if p := x.current.Load(); p.average != before || len(p.docs) != len(all)+round+1 {
				t.Fatalf("all was made anew: %d places, %v, before %v", len(p.docs), p.average, before)
			}
		}
	}
	// What goes further counts.
	x.Change(slices.Values([]toolkeep.Version{long(4 * edge), tool("long.other", "1.0.0", strings.Repeat("zebra ", 500))}))
	if p := x.current.Load(); p.average == before || len(p.docs) != len(all)+2 {
		t.Errorf("%d places, %v as before", len(p.docs), p.average)
	}
	// And no average is off by more than a step.
	x = index(all...)
	var some []toolkeep.Version
	for i := range 100 {
		some = append(some, tool(fmt.Sprint("more.tool", i), "1.0.0", strings.Repeat("zebra ", i)))
		x.Change(slices.Values(some[i:]))
		p := x.current.Load()
		for f, n := range x.long.tools {
			if n > 0 && math.Abs(math.Log(x.long.words[f]/n/p.average[f])) > 0.02 {
				t.Fatalf("the average of field %d is %f of %f tools, and %f counts", f, x.long.words[f]/n, n, p.average[f])
			}
		}
	}
}

// TestForget shows an index more words than it keeps.
func TestForget(t *testing.T) {
	x := index(tool("a.stays", "1.0.0", "words that stay"), tool("a.other", "1.0.0", "gone soon"))
	for i := range 500_001 {
		x.stems[fmt.Sprint("x", i)] = 0
	}
	x.Change(slices.Values([]toolkeep.Version{tool("a.other", "1.0.1", "new words")}))
	if len(x.stems) > 100 {
		t.Errorf("%d words are kept", len(x.stems))
	}
	if got := found(x.Search("stay", 9, nil)); !slices.Equal(got, []string{"a.stays@1.0.0"}) {
		t.Errorf("found %v", got)
	}
	if got := found(x.Search("new", 9, nil)); !slices.Equal(got, []string{"a.other@1.0.1"}) {
		t.Errorf("found %v", got)
	}
}

func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			all := many(n)
			x := index(all...)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				v := tool(all[i%n].Tool.ID, "1.0.0", fmt.Sprint("changed ", i, " w1 w2 w3 w40 w50 w60 w300 w400 w2000 w3000"))
				x.Change(slices.Values([]toolkeep.Version{v}))
			}
		})
	}
}
