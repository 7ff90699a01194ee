package invoke_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// stuckStore is a hungStore whose writer alone hangs: it answers questions, and a commit
// that hangs ends after its caller left, with fails if that is set.
type stuckStore struct {
	hungStore
	fails error
	ends  chan struct{}         // closed when the commits that hung end
	once  atomic.Pointer[error] // fails one Apply of records
}

func (s *stuckStore) Apply(ctx context.Context, c ...toolkeep.Change) error {
	if _, records := c[0].(toolkeep.RecordCall); records {
		if err := s.once.Swap(nil); err != nil {
			return *err
		}
	}
	return s.hungStore.Apply(ctx, c...)
}

var _ toolkeep.BoundedApplier = (*stuckStore)(nil)

func (s *stuckStore) ApplyWithin(ctx context.Context, c ...toolkeep.Change) error {
	if !s.hangs.Load() {
		return s.Apply(ctx, c...)
	}
	end := make(chan error, 1)
	go func() {
		<-s.ends
		err := s.fails
		if err == nil {
			err = s.hungStore.Apply(context.Background(), c...)
		}
		end <- err
	}()
	select {
	case err := <-end:
		return err
	case <-ctx.Done():
		return &toolkeep.PendingError{End: end}
	}
}

func (s *stuckStore) Get(_ context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	if s.recorded(ref.ID) == 0 {
		return nil, toolkeep.ErrNotFound
	}
	return &toolkeep.Invocation{ID: ref.ID, Tenant: ref.Tenant}, nil
}

// TestRecordsOfStuckCommits: records whose commit was under way when their calls left are
// in the store once, however the commit and the drains meanwhile end.
func TestRecordsOfStuckCommits(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		fails error
		drain bool // while the commit is under way
		once  bool // the first drain after it fails
		room  bool // there is a spool
	}{
		{name: "it succeeds", room: true},
		{name: "it fails", fails: broken, room: true},
		{name: "a drain meanwhile", drain: true, room: true},
		{name: "a drain meanwhile, and it fails", drain: true, fails: broken, room: true},
		{name: "the drain fails", once: true, room: true},
		{name: "both fail", once: true, fails: broken, room: true},
		{name: "no spool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spool := ""
			if c.room {
				spool = filepath.Join(t.TempDir(), "spool.jsonl")
			}
			synctest.Test(t, func(t *testing.T) {
				store := &stuckStore{fails: c.fails, ends: make(chan struct{})}
				p := h.over(t, store, spool, nil)
				defer p.Stop()
				var ids []string
				read := func() {
					res, err := p.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.read"})
					if err != nil {
						t.Fatal(err)
					}
					ids = append(ids, res.InvocationID)
				}
				store.hang()
				read() // left with its commit under way
				read() // did not ask
				if n := p.PendingRecords(); c.room != (n == 1) {
					t.Errorf("%d commits are under way", n)
				}
				store.answer()
				if c.drain {
					if err := p.Drained(t.Context()); err != nil {
						t.Error(err)
					}
					if n, _ := p.Spooled(); n != 1 || store.recorded(ids[0]) != 0 || store.recorded(ids[1]) != 1 {
						t.Errorf("the drain left %d records, and stored the one whose commit is under way %d times, the other %d times",
							n, store.recorded(ids[0]), store.recorded(ids[1]))
					}
				}
				close(store.ends)
				time.Sleep(2 * time.Second)
				if c.once {
					store.once.Store(&broken)
					if err := p.Drained(t.Context()); !errors.Is(err, broken) {
						t.Errorf("the drain gave %v", err)
					}
				}
				if err := p.Drained(t.Context()); err != nil {
					t.Error(err)
				}
				if n := p.PendingRecords(); n != 0 {
					t.Errorf("%d commits are remembered", n)
				}
				for i, id := range ids {
					if n := store.recorded(id); c.room && n != 1 {
						t.Errorf("record %d is stored %d times", i, n)
					}
				}
			})
		})
	}
}

// TestStoreThatReadsButDoesNotCommit: a store whose writer alone hangs is away until it
// commits again. It is logged once, and each record is in the feed once.
func TestStoreThatReadsButDoesNotCommit(t *testing.T) {
	var log servertest.Log
	h := newHarness(t, func(c *invoke.Config) { c.Log, c.RecordWait = slog.New(slog.NewTextHandler(&log, nil)), 0 })
	h.tool("read")
	conn, err := h.store.WriteDB().Conn(t.Context()) // the writer waits for it
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for range 20 {
		res, e := h.call(&toolkeep.Call{Tool: "std.read"})
		if e != nil {
			t.Fatal(e)
		}
		ids[res.InvocationID] = 0
		if h.pipeline.StoreHealth() == nil {
			t.Error("the store counts as found while it commits nothing")
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for h.pipeline.StoreHealth() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	if n := strings.Count(log.String(), "the store does not answer"); n != 1 {
		t.Errorf("it was logged %d times:\n%s", n, log.String())
	}
	if err := h.pipeline.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range storetest.Entries(t.Context(), t, h.store) {
		if e.Call != nil {
			ids[e.Call.ID]++
		}
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("the journal has the record of %s %d times", id, n)
		}
	}
	if _, err := os.Stat(h.config.SpoolPath); !os.IsNotExist(err) {
		t.Errorf("the spool is still there: %v", err)
	}
}
