package invoke_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// hungStore answers nothing while it hangs: neither a change nor a question.
type hungStore struct {
	toolkeep.Invocations
	hangs   atomic.Bool
	asked   atomic.Int64 // questions and changes
	applied atomic.Int64
	mu      sync.Mutex
	back    chan struct{} // closed when it answers again
	records map[string]int
}

func (s *hungStore) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back = make(chan struct{})
	s.hangs.Store(true)
}

func (s *hungStore) answer() {
	s.hangs.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.back)
}

func (s *hungStore) wait(ctx context.Context) error {
	s.asked.Add(1)
	if !s.hangs.Load() {
		return nil
	}
	s.mu.Lock()
	back := s.back
	s.mu.Unlock()
	select {
	case <-back:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *hungStore) Apply(ctx context.Context, c ...toolkeep.Change) error {
	err := s.wait(ctx)
	if err != nil {
		return err
	}
	s.applied.Add(int64(len(c)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range c {
		if r, ok := c.(toolkeep.RecordCall); ok {
			if s.records == nil {
				s.records = map[string]int{}
			}
			s.records[r.Invocation.ID]++
		}
	}
	return nil
}

func (s *hungStore) recorded(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[id]
}

func (s *hungStore) doubled() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.records {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *hungStore) Marks(ctx context.Context, _ []toolkeep.CallRef) (map[toolkeep.CallRef]toolkeep.CallMark, error) {
	return nil, s.wait(ctx)
}

func (s *hungStore) CancelRequested(ctx context.Context, _ string) ([]toolkeep.CallRef, error) {
	return nil, s.wait(ctx)
}

func (s *hungStore) Get(ctx context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	if s.recorded(ref.ID) == 0 {
		return nil, toolkeep.ErrNotFound
	}
	return &toolkeep.Invocation{ID: ref.ID, Tenant: ref.Tenant}, nil
}

// awayStore is a store of a test and its own reader.
type awayStore interface {
	toolkeep.Applier
	toolkeep.Invocations
	toolkeep.CallMarks
}

// over starts a pipeline over another store, which a reading call waits for as long as by default.
func (h *harness) over(t *testing.T, store awayStore, spool string, away func()) *invoke.Pipeline {
	t.Helper()
	c := h.config
	c.Store, c.Invocations, c.Marks, c.SpoolPath, c.OnStoreAway, c.Alone, c.RecordWait = store, store, store, spool, away, false, 0
	p, err := invoke.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNoReadingCallWaitsForTheStore: while the store hangs, a reading call waits 50 ms for it
// at most, those after it not at all, and its record is in the spool; the store is found
// again within a second or two.
func TestNoReadingCallWaitsForTheStore(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	spool := filepath.Join(t.TempDir(), "spool.jsonl")
	synctest.Test(t, func(t *testing.T) {
		store := &hungStore{}
		var told atomic.Int64
		p := h.over(t, store, spool, func() { told.Add(1) })
		defer p.Stop()
		call := func(most time.Duration, c *toolkeep.Call) string {
			c.Tool = "std.read"
			began := time.Now()
			res, err := p.Invoke(context.Background(), alice, c)
			if err != nil {
				t.Error(err)
				return ""
			}
			if took := time.Since(began); took > most {
				t.Errorf("a reading call took %s, at most %s are allowed", took, most)
			}
			return res.InvocationID
		}
		spooled := func(want int64) {
			t.Helper()
			if n, lost := p.Spooled(); n != want || lost != 0 {
				t.Errorf("%d records are spooled and %d lost, want %d", n, lost, want)
			}
		}
		call(0, &toolkeep.Call{})
		spooled(0)

		for _, chosen := range []string{"", uuid.NewString()} { // with an id the store is asked first
			store.hang()
			var all sync.WaitGroup
			for range 20 { // in flight at once
				all.Go(func() { call(50*time.Millisecond, &toolkeep.Call{ID: chosen}) })
			}
			all.Wait()
			before, _ := p.Spooled()
			if before < 20 || p.StoreHealth() == nil {
				t.Errorf("%d records are spooled, health %v", before, p.StoreHealth())
			}
			id := call(0, &toolkeep.Call{ID: chosen})
			raw, err := os.ReadFile(spool)
			if err != nil || !strings.Contains(string(raw), id) {
				t.Errorf("the record of %s is not in the spool (%v)", id, err)
			}
			synctest.Wait()
			asked := store.asked.Load()
			if err := p.Sweep(t.Context()); err != nil || store.asked.Load() != asked {
				t.Errorf("a sweep asked a store that is away, or failed a second time for the outage: %v", err)
			}
			store.answer()
			time.Sleep(2 * time.Second)
			if err := p.StoreHealth(); err != nil {
				t.Errorf("after two seconds: %v", err)
			}
			if err := p.Drained(t.Context()); err != nil {
				t.Error(err)
			}
			if n := store.recorded(id); n != 1 {
				t.Errorf("the record of the call after is stored %d times", n)
			}
			if n := store.doubled(); len(n) > 0 {
				t.Errorf("records are stored twice, by the commit that ended after all and from the spool: %v", n)
			}
			n := store.applied.Load()
			call(0, &toolkeep.Call{})
			if store.applied.Load() != n+1 {
				t.Error("the record did not go to the store")
			}
		}
		if n := told.Load(); n != 2 {
			t.Errorf("it was told %d times that the store is away, want twice", n)
		}
	})
}

// TestSpoolTakesRecordsWhileItIsDrained: a drain into a slow store keeps no call waiting, and
// moves what came meanwhile the next time.
func TestSpoolTakesRecordsWhileItIsDrained(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	spool := filepath.Join(t.TempDir(), "spool.jsonl")
	synctest.Test(t, func(t *testing.T) {
		store := &hungStore{}
		p := h.over(t, store, spool, nil)
		defer p.Stop()
		read := func() {
			if _, err := p.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.read"}); err != nil {
				t.Error(err)
			}
		}
		store.hang()
		read()
		read()
		store.answer()
		time.Sleep(2 * time.Second)
		store.hang()
		drained := make(chan error, 1)
		go func() { drained <- p.Drained(t.Context()) }()
		synctest.Wait() // it waits for the store
		began := time.Now()
		read()
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("a call waited %s for the drain", took)
		}
		store.answer()
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		if n, _ := p.Spooled(); n != 1 {
			t.Errorf("%d records are left, want the one that came meanwhile", n)
		}
		if err := p.Drained(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(spool); !os.IsNotExist(err) {
			t.Errorf("the spool is still there: %v", err)
		}
	})
}
