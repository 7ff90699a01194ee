package discover

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestFollow changes tools, some with vectors, and compares each step with a full lookup.
func TestFollow(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	e := &topics{}
	x := started(t, Config{Embedder: e}, threeTools)
	embedded(t, x, 3)
	// Tools without vectors stay so: nothing is embedded from now on.
	e.set(nil, make(chan struct{}))
	v := x.meaning.now.v
	vector := make([]float32, e.Dimensions())
	vector[0] = 1
	same := 0
	for step := range 600 {
		var changed []toolkeep.Version
		for range 1 + r.IntN(2) {
			n := r.IntN(80)
			c := tool(fmt.Sprint("t.tool", n), "1.0.0", fmt.Sprint("Of letters ", r.IntN(40)))
			c.Tool.Digest = fmt.Sprint("sha256:", r.Uint64())
			if r.IntN(4) == 0 {
				c.Life.State = toolkeep.Deprecated
			}
			if r.IntN(3) == 0 {
				of := x.takeApart(c.Tool).means
				if err := v.Put(t.Context(), []Digest{of}, [][]float32{vector}); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.ContainsFunc(changed, func(o toolkeep.Version) bool { return o.Tool.ID == c.Tool.ID }) {
				changed = append(changed, c)
			}
		}
		before := x.current.Load()
		x.Change(slices.Values(changed))
		x.mu.Lock()
		p := *x.current.Load()
		x.mu.Unlock()
		if len(p.docs) >= len(before.docs) {
			same++
		}
		got, all := p.alike, 0
		for i, d := range p.docs {
			// A vector put for another tool counts from the next publication.
			if d == nil && got.now.Has(i) {
				t.Fatalf("step %d: the empty place %d has a vector", step, i)
			}
			if d == nil {
				continue
			}
			if got.now.Has(i) {
				all++
			}
			if got.now.Has(i) == slices.Contains(got.missing, uint32(i)) {
				t.Fatalf("step %d: %d has a vector, and lacks one", step, i)
			}
			if slices.ContainsFunc(changed, func(c toolkeep.Version) bool { return c.Tool == d.tool }) {
				if have, err := v.Have(t.Context(), []Digest{d.means}); err != nil || have[0] != got.now.Has(i) {
					t.Fatalf("step %d: the changed %s has a vector: %v %v", step, d.tool.ID, have, err)
				}
			}
		}
		if got.have != all || len(got.missing) != len(p.sorted)-all {
			t.Fatalf("step %d: %d have vectors and %d lack them, want %d of %d", step, got.have, len(got.missing), all, len(p.sorted))
		}
		if step%50 == 0 { // vectors put meanwhile
			x.publishVectors()
			p := x.current.Load()
			for i, d := range p.docs {
				if d == nil {
					continue
				}
				if have, err := v.Have(t.Context(), []Digest{d.means}); err != nil || have[0] != p.alike.now.Has(i) {
					t.Fatalf("step %d: %s has a vector: %v %v", step, d.tool.ID, have, err)
				}
			}
		}
	}
	if same < 300 {
		t.Errorf("%d changes only were followed", same)
	}
}
