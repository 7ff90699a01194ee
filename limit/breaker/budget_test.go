package breaker

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func budgetTool(id string) *toolkeep.Tool {
	return &toolkeep.Tool{ID: id, Manifest: &toolkeep.Manifest{}}
}

// TestRetriesAreAShare: the retries of a tool are a share of its calls of the last ten seconds, or the floor.
func TestRetriesAreAShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Retries: &Retries{Share: 20, Floor: 3}})
		g, other := s.Of(budgetTool("a.b"), ""), s.Of(budgetTool("a.c"), "")
		granted := func() (n int) {
			for g.Retry() {
				n++
			}
			return n
		}
		if n := granted(); n != 3 {
			t.Errorf("%d retries without calls", n)
		}
		if !other.Retry() {
			t.Error("a tool used up the retries of another one")
		}
		for range 100 {
			g.Began()
			time.Sleep(50 * time.Millisecond)
		}
		if n := granted(); n != 20-3 {
			t.Errorf("%d more retries beside 100 calls", n)
		}
		time.Sleep(5 * time.Second) // the first calls are older than ten seconds, the retries are not
		if granted() != 0 {
			t.Error("retries are forgotten after 5 s")
		}
		time.Sleep(10 * time.Second)
		if n := granted(); n != 3 {
			t.Errorf("%d retries after all is forgotten", n)
		}
	})
	none := New(Config{Retries: &Retries{}})
	if none.Of(budgetTool("a.b"), "").Retry() {
		t.Error("a retry of none")
	}
	if full := (Guard{s: none}); full.Retry() {
		t.Error("a tool without a breaker has a retry")
	}
	if !(Guard{}).Retry() {
		t.Error("no retry without breakers")
	}
}

// TestRetriesAtOnce: goroutines that retry at the same moment get no more together.
func TestRetriesAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := New(Config{Clock: func() time.Time { return now }})
	tool := budgetTool("a.b")
	var granted atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				g := s.Of(tool, "")
				g.Began()
				if g.Retry() {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := granted.Load(); n > 800 || n < 10 {
		t.Errorf("%d retries of 4000 calls", n)
	}
}

// TestBudgetAllocates: counting a call and a retry allocates nothing.
func TestBudgetAllocates(t *testing.T) {
	s := New(Config{})
	g := s.Of(budgetTool("a.b"), "")
	if n := testing.AllocsPerRun(100, func() { g.Began(); g.Retry() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBegan(b *testing.B) {
	g := New(Config{}).Of(budgetTool("a.b"), "")
	b.ReportAllocs()
	for b.Loop() {
		g.Began()
	}
}
