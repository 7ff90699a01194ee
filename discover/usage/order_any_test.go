//go:build !race

package usage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestAnyOrder: the order in which the entries of several writers are read does not matter to what is
// counted. What may differ: the rank of a search's first choice, which error a success helped, how
// much a pair or a favourite of around midnight has faded, which of two ratings of the same tool
// counts if they came from two nodes, and what is dropped above a limit.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 21))
		entries := busy(t, r, 1500)
		fold := func(list []*toolkeep.Entry) *Usage {
			u := New(Config{Store: newMemory(time.Now), Clock: func() time.Time { return begin }})
			for _, e := range list {
				u.fold(*e)
			}
			return u
		}
		want := fold(entries)
		for range 3 {
			got := fold(read(r, entries))
			if a, b := want.choices(t, "t"), got.choices(t, "t"); a != b || len(a) < 5000 {
				t.Fatalf("seed %d:\n%s\n%s", seed, firstDiff(a, b), firstDiff(b, a))
			}
		}
		// However late entries come, what is counted of themselves is the same.
		for range 3 {
			var late []*toolkeep.Entry
			for _, writer := range r.Perm(3) {
				for _, e := range entries {
					if e.Writer == int64(writer) {
						late = append(late, e)
					}
				}
			}
			if a, b := want.counts(t), fold(late).counts(t); a != b {
				t.Fatalf("seed %d, writer by writer:\n%s\n%s", seed, firstDiff(a, b), firstDiff(b, a))
			}
		}
	}
}

// TestLeadMovesInMemory is TestLeadMoves with more events, on a store that takes no time.
func TestLeadMovesInMemory(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("memory, seed ", seed), func(t *testing.T) {
			life := &life{t: t, r: rand.New(rand.NewPCG(seed, 31)), now: begin}
			m, runs := newMemory(life.clock), int64(0)
			leadMoves(t, life, 1200, func() Store {
				runs++
				return &member{m, runs}
			})
		})
	}
}
