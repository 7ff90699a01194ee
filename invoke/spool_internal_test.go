package invoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// countingStore counts the records it takes; before is called ahead of each Apply.
type countingStore struct {
	toolkeep.Applier
	toolkeep.Invocations
	before func(n int) error
	calls  int
	got    map[string]int
}

func (s *countingStore) Apply(_ context.Context, changes ...toolkeep.Change) error {
	s.calls++
	if s.before != nil {
		if err := s.before(s.calls); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if r, ok := c.(toolkeep.RecordCall); ok {
			s.got[r.Invocation.ID]++
		}
	}
	return nil
}

func (s *countingStore) Get(_ context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	if s.got[ref.ID] == 0 {
		return nil, toolkeep.ErrNotFound
	}
	return &toolkeep.Invocation{}, nil
}

// TestSpoolMovesEachRecordOnce: a drain that records outrun, one that fails midway, and one of
// a file that an earlier process left half moved write no record twice, and cut what they moved.
func TestSpoolMovesEachRecordOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.jsonl")
	s := newSpool(path)
	added := 0
	add := func(n int) {
		for range n {
			added++
			if err := s.add(&toolkeep.Invocation{ID: fmt.Sprint(added), Tenant: "acme"}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	store := &countingStore{got: map[string]int{}}
	check := func(left int) {
		t.Helper()
		raw, err := os.ReadFile(path)
		if err != nil && (left > 0 || !os.IsNotExist(err)) {
			t.Error(err)
		}
		lines := 0
		for _, b := range raw {
			if b == '\n' {
				lines++
			}
		}
		if lines != left || s.lines.Load() != int64(left) || len(store.got) != added-left {
			t.Errorf("the spool has %d lines and counts %d, %d of %d records are in the store; want %d left", lines, s.lines.Load(), len(store.got), added, left)
		}
		for id, n := range store.got {
			if n != 1 {
				t.Errorf("record %s is stored %d times", id, n)
			}
		}
	}
	add(10)
	store.before = func(int) error { add(30); return nil } // more than it moves
	if err := s.drain(t.Context(), store, store); err != nil {
		t.Fatal(err)
	}
	check(30)
	store.before = nil
	if err := s.drain(t.Context(), store, store); err != nil {
		t.Fatal(err)
	}
	check(0)

	add(3 * spoolBatch)
	boom := errors.New("boom")
	store.calls, store.before = 0, func(n int) error {
		if n == 2 {
			return boom
		}
		return nil
	}
	if err := s.drain(t.Context(), store, store); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	check(2 * spoolBatch)
	store.before = nil

	// The process ended after it had moved a record and before the cut.
	store.got[fmt.Sprint(added)]++
	lines := s.lines.Load()
	s = newSpool(path)
	s.lines.Store(lines)
	if err := s.drain(t.Context(), store, store); err != nil {
		t.Fatal(err)
	}
	check(0)
}

// TestNothingStartsAfterStop: what a call that outlives Stop would start is not started, and
// is no race with the wait.
func TestNothingStartsAfterStop(t *testing.T) {
	store := &countingStore{got: map[string]int{}}
	p := &Pipeline{Config: Config{Store: store, Invocations: store, Node: "n", Clock: time.Now, Log: slog.New(slog.DiscardHandler)}, spool: newSpool(""), drain: make(chan struct{})}
	p.run, p.stop = context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			p.spawn(func() {})
			p.leave()
		})
	}
	p.Stop()
	calls.Wait()
	if p.spawn(func() { t.Error("it started") }) {
		t.Error("a goroutine was started after Stop")
	}
	p.Stop()
}

// TestRefusalsLeaveRoom: records of refused calls fill half of the spool, the rest is for calls
// that were executed; the warnings say which it was.
func TestRefusalsLeaveRoom(t *testing.T) {
	p := &Pipeline{Config: Config{Log: slog.New(slog.DiscardHandler)}, spool: newSpool(filepath.Join(t.TempDir(), "spool.jsonl"))}
	p.spool.limit = 64 << 10
	fill := func(state toolkeep.CallState) (size int64, said string) {
		for i := 0; ; i++ {
			a := &activeCall{}
			a.row = toolkeep.Invocation{ID: fmt.Sprint(state, i), State: state}
			if p.keepForLater(a, nil); len(a.row.Warnings) != 0 {
				size, err := p.spool.size()
				if err != nil {
					t.Fatal(err)
				}
				return size, a.row.Warnings[0].Message
			}
		}
	}
	for _, c := range []struct {
		state toolkeep.CallState
		most  int64
		says  string
	}{{toolkeep.CallRefused, 32 << 10, "the call was refused"}, {toolkeep.CallFailed, 64 << 10, "the call was executed"}} {
		size, said := fill(c.state)
		if size > c.most || size < c.most-4<<10 || !strings.HasPrefix(said, c.says) {
			t.Errorf("%s: %d bytes, and the warning %q", c.state, size, said)
		}
	}
}
