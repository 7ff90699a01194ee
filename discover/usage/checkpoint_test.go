package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// onEveryStore runs a test on each kind of store, two nodes over it. The clock is that
// of the life.
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
		dsn := pgtest.Start(t).NewDatabase(t)
		open := func(node string) Store {
			s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Node: node})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		run(t, lived(t), open("one"), open("two"))
	})
}

// mortal is a store whose process dies after some more changes.
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

// parts are the items of checkpoints by generation, without the head.
func parts(t *testing.T, s Store) map[string]int {
	t.Helper()
	items, _, err := s.Documents(t.Context(), KindState)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for i := range items {
		if !isHeadItem(&items[i]) {
			generation, _, _ := strings.Cut(items[i].ID, "/")
			out[generation]++
		}
	}
	return out
}

// TestCheckpointCutShort: a node that is killed between any two changes of a checkpoint
// leaves one that the next reads, and what it leaves behind goes with the next two.
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
			if a, b := steady.state(t), next.state(t); a != b {
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
		// Two tenants and the head to put, and two parts of before to drop.
		if killed < 5 {
			t.Errorf("only %d places to be killed at", killed)
		}
		for range 2 {
			live(10)
			settle(t, one, steady)
			if err := steady.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := parts(t, two); len(got) != 2 {
			t.Errorf("parts of checkpoints that are left: %v", got)
		}
	})
}

// TestCheckpointsLeave: older checkpoints are gone, from the items and from the feed.
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
		if got := parts(t, one); len(got) != 2 || len(items) != 5 || size < 5000 {
			t.Errorf("%d bytes in parts of %v", size, got)
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
		if puts != 6*3 {
			t.Errorf("the feed tells of %d items of checkpoints", puts)
		}
	})
}

// TestCheckpointOfBefore: where the newest cannot be read the one before is, and it
// stays until there is a newer one.
func TestCheckpointOfBefore(t *testing.T) {
	l := &life{t: t, r: rand.New(rand.NewPCG(15, 16)), now: begin}
	store := newMemory(l.clock)
	a := start(t, store, "a", l.clock)
	var places []int64
	for range 2 {
		for range 100 {
			apply(t, store, l.next())
		}
		settle(t, store, a)
		places = append(places, a.seq.Load())
		if err := a.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	store.mu.Lock()
	for key, it := range store.items {
		if strings.HasPrefix(key[2], "r2-") {
			it.Body = it.Body[:len(it.Body)/2]
			store.items[key] = it
		}
	}
	store.mu.Unlock()
	var log bytes.Buffer
	b := New(Config{Store: store, Node: "b", Clock: l.clock, Log: slog.New(slog.NewTextHandler(&log, nil))})
	seq, err := b.load(t.Context())
	if err != nil || seq != places[0] || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("read up to %d of %v, %v:\n%s", seq, places, err, log.String())
	}
	c := start(t, store, "c", l.clock)
	settle(t, store, a, c)
	if x, y := a.state(t), c.state(t); x != y {
		t.Errorf("they know different things:\n%s", firstDiff(x, y))
	}
	// A part that is missing is seen when the next one is written, and what is whole stays.
	store.mu.Lock()
	for key := range store.items {
		if strings.HasPrefix(key[2], "r2-") {
			delete(store.items, key)
		}
	}
	store.mu.Unlock()
	if err := c.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := parts(t, store)
	if len(got) != 2 || got[generationOf(1, places[0], "a")] != 2 {
		t.Errorf("the parts are of %v", got)
	}
}

// altered is a store that gives other bytes back than it got.
type altered struct{ *memory }

func (a altered) Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error) {
	items, seq, err := a.memory.Documents(ctx, kind)
	for i := range items {
		if !isHeadItem(&items[i]) {
			items[i].Body = append(bytes.Clone(items[i].Body), 0)
		}
	}
	return items, seq, err
}

// TestCheckpointReadBack: no older one goes for one that reads otherwise than it was
// written.
func TestCheckpointReadBack(t *testing.T) {
	store := newMemory(time.Now)
	u := New(Config{Store: store, Node: "a"})
	u.fold(toolkeep.Committed{Seq: 1, At: begin, Change: toolkeep.RecordCall{Invocation: callOf(begin, "t", "ann", "s", "a.one")}})
	if err := u.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	u.c.Store = altered{store}
	if err := u.Checkpoint(t.Context()); err == nil {
		t.Error("it was taken for whole")
	}
	if n := store.count(isHead); n != 1 || parts(t, store)[generationOf(1, 1, "a")] != 1 {
		t.Errorf("%d heads, parts of %v", n, parts(t, store))
	}
}

// TestCheckpointsRace: nodes that write at once, and users that are forgotten meanwhile,
// leave one checkpoint that is whole.
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
					if err := u.Checkpoint(t.Context()); ifThere(err) != nil {
						t.Error(err)
					}
				}
			})
			if i%2 == 0 {
				wg.Go(func() {
					p := &toolkeep.Principal{Subject: "root", Tenant: "t0"}
					if err := u.Forget(t.Context(), p, fmt.Sprint("user", i)); ifThere(err) != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		settle(t, two, nodes...)
		fresh := New(Config{Store: two, Node: "fresh", Clock: l.clock})
		if seq, err := fresh.load(t.Context()); err != nil || seq == 0 {
			t.Errorf("read up to %d, %v", seq, err)
		}
		last := start(t, one, "last", l.clock)
		settle(t, one, last)
		if x, y := nodes[0].state(t), last.state(t); x != y {
			t.Errorf("they know different things:\n%s", firstDiff(x, y))
		}
		for range 2 {
			if err := last.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := parts(t, one); len(got) != 2 {
			t.Errorf("parts of %v are left", got)
		}
	})
}
