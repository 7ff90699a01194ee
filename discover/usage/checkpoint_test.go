package usage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// onEveryStore runs a test on each kind of store with two nodes. The clock is the life's.
func onEveryStore(t *testing.T, run func(t *testing.T, l *life, one, two Store)) {
	lived := func(t *testing.T) *life {
		return &life{t: t, r: rand.New(rand.NewPCG(13, 14)), now: begin}
	}
	t.Run("memory", func(t *testing.T) {
		l := lived(t)
		m := newMemory(l.clock)
		run(t, l, m, m)
	})
	t.Run("sqlite", func(t *testing.T) {
		l := lived(t)
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db"), Clock: l.clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		run(t, l, s, s)
	})
	t.Run("postgres", func(t *testing.T) {
		dsn, l := pgtest.NewDatabase(t), lived(t)
		open := func(node string) Store {
			s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Node: node, Clock: l.clock})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		run(t, l, open("one"), open("two"))
	})
}

// mortal is a store whose process dies after a number of changes.
type mortal struct {
	Store
	left atomic.Int64
}

var errKilled = errors.New("killed")

func (m *mortal) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	if m.left.Add(-1) < 0 {
		return errKilled
	}
	return m.Store.Apply(ctx, changes...)
}

// parts counts the documents of checkpoints, without the head.
func parts(t *testing.T, s Store) int {
	t.Helper()
	list, _, err := s.Documents(t.Context(), KindState)
	if err != nil {
		t.Fatal(err)
	}
	return len(list) - 1
}

// TestCheckpointCutShort: a checkpoint is one Apply. A node killed before it leaves the previous
// checkpoint, which the next start reads.
func TestCheckpointCutShort(t *testing.T) {
	onEveryStore(t, func(t *testing.T, l *life, one, two Store) {
		steady := start(t, one, "steady", l.clock)
		live := func(n int) {
			for i := range n {
				apply(t, []Store{one, two}[i%2], l.next())
			}
		}
		live(200)
		settle(t, one, steady)
		for range 2 {
			if err := steady.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			live(20)
			settle(t, one, steady)
		}
		killed := 0
		for at := 0; ; at++ {
			dying := &mortal{Store: two}
			dying.left.Store(1 << 40)
			u := start(t, dying, fmt.Sprint("n", at), l.clock)
			settle(t, two, u)
			dying.left.Store(int64(at))
			err := u.Checkpoint(t.Context())
			if err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			u.Stop()
			live(10)
			next := start(t, one, fmt.Sprint("after", at), l.clock)
			settle(t, one, steady, next)
			if a, b := steady.known(t), next.known(t); a != b {
				t.Fatalf("killed after %d changes: %s", at, firstDiff(a, b))
			}
			if next.head.Revision < 2 {
				t.Fatalf("killed after %d changes: the checkpoint is gone", at)
			}
			next.Stop()
			if err == nil {
				break
			}
			killed++
		}
		if killed != 1 {
			t.Errorf("a checkpoint took %d Applies", killed)
		}
		if n := parts(t, two); n != 1 {
			t.Errorf("%d parts are left", n)
		}
	})
}

// TestCheckpointsLeave: older checkpoints are removed from the documents and the feed.
func TestCheckpointsLeave(t *testing.T) {
	onEveryStore(t, func(t *testing.T, l *life, one, two Store) {
		a, b := start(t, one, "a", l.clock), start(t, two, "b", l.clock)
		size, puts := 0, 0
		for i := range 6 {
			for range 60 {
				apply(t, one, l.next())
			}
			settle(t, two, a, b)
			if err := []*Usage{a, b}[i%2].Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			settle(t, two, a, b)
		}
		items, head, err := two.Documents(t.Context(), KindState)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range items {
			size += len(it.Body)
		}
		if len(items) != 2 || size < 2500 {
			t.Errorf("%d bytes in %d items", size, len(items))
		}
		for c, err := range two.Watch(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if p, ok := c.Change.(toolkeep.PutDocument); ok && p.Document.Kind == KindState {
				puts++
				if len(p.Document.Body) != 0 {
					t.Errorf("the feed has a checkpoint at %d", c.Seq)
				}
			}
			if c.Seq >= head {
				break
			}
		}
		if puts != 6*2 {
			t.Errorf("the feed tells of %d items of checkpoints", puts)
		}
	})
}

// TestCheckpointOfOldFormat: it is not read, and the next checkpoint replaces it completely.
func TestCheckpointOfOldFormat(t *testing.T) {
	onEveryStore(t, func(t *testing.T, l *life, one, two Store) {
		for _, it := range []toolkeep.Document{
			{Kind: KindState, ID: headID, Body: []byte(`{"format":1,"seq":3,"generation":"r1-3-a","tenants":[{"tenant":"t0","chunks":1}]}`)},
			{Kind: KindState, Tenant: "t0", ID: "r1-3-a/0", Body: []byte("x")},
		} {
			apply(t, one, toolkeep.PutDocument{Document: it, Expect: toolkeep.AnyRevision, OmitBody: true})
		}
		a := start(t, one, "a", l.clock)
		for range 50 {
			apply(t, one, l.next())
		}
		settle(t, one, a)
		if err := a.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := parts(t, two); n != 1 {
			t.Errorf("%d parts are left", n)
		}
		b := start(t, two, "b", l.clock)
		settle(t, two, a, b)
		if x, y := a.known(t), b.known(t); x != y || len(x) < 2000 {
			t.Errorf("they know different things:\n%s", firstDiff(x, y))
		}
	})
}

// TestCheckpointsRace: concurrent checkpoints, with users being forgotten, leave one complete
// checkpoint.
func TestCheckpointsRace(t *testing.T) {
	onEveryStore(t, func(t *testing.T, l *life, one, two Store) {
		var nodes []*Usage
		for i := range 4 {
			nodes = append(nodes, start(t, []Store{one, two}[i%2], fmt.Sprint("n", i), l.clock))
		}
		for range 100 {
			apply(t, one, l.next())
		}
		var wg sync.WaitGroup
		for i, u := range nodes {
			wg.Go(func() {
				for range 5 {
					if err := u.Checkpoint(t.Context()); err != nil && !lostRace(err) {
						t.Error(err)
					}
				}
			})
			if i%2 == 0 {
				wg.Go(func() {
					p := &toolkeep.Principal{Subject: "root", Tenant: "t0"}
					if err := u.Forget(t.Context(), p, fmt.Sprint("user", i)); err != nil && !lostRace(err) {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		settle(t, two, nodes...)
		fresh := New(Config{Store: two, Node: "fresh", Clock: l.clock})
		if err := fresh.take(t.Context()); err != nil || len(fresh.state.position) == 0 {
			t.Errorf("read up to %v, %v", fresh.state.position, err)
		}
		last := start(t, one, "last", l.clock)
		settle(t, one, last)
		for _, u := range []*Usage{nodes[0], last} { // a tenant fades when it is next counted for, or at a checkpoint
			u.mu.Lock()
			for x := range u.state.tenants.all() {
				x.roll(dayOf(l.clock()), u.state.keep)
			}
			u.mu.Unlock()
		}
		if x, y := nodes[0].known(t), last.known(t); x != y {
			t.Errorf("they know different things:\n%s", firstDiff(x, y))
		}
		if err := last.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := parts(t, one); n != 1 {
			t.Errorf("%d parts are left", n)
		}
	})
}
