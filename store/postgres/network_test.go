package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestCut cuts one of two nodes off the network for a while: it reports this, its
// watchers wait, and everything resumes where it was.
func TestCut(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	name := server.NewName(t)
	p := newProxy(t, server.Addr())
	a := mustOpen(t, Config{DSN: server.DSN(name), Node: "a"})
	b := mustOpen(t, Config{DSN: server.TCP(p.addr(), name), Node: "b", timeout: 2 * time.Second, pollInterval: 50 * time.Millisecond})
	mustApply(t, b, recorded("before"), key("before"))

	type result struct {
		list []toolkeep.Committed
		err  error
	}
	watched := make(chan result, 1)
	const total = 1 + 20 + 1
	go func() {
		list, err := until(ctx, b, 0, total)
		watched <- result{list, err}
	}()
	p.refuse.Store(true)
	p.cut()
	for i := range 20 {
		mustApply(t, a, recorded(fmt.Sprint("while-", i)), key(fmt.Sprint("while-", i)))
	}
	if err := b.Apply(ctx, recorded("lost")); err == nil {
		t.Error("a node without network committed")
	}
	if err := b.Health(ctx); err == nil {
		t.Error("a node without network is healthy")
	}
	if _, err := b.Invocations().Get(ctx, toolkeep.CallRef{Tenant: "t", ID: "before"}); err == nil {
		t.Error("a node without network reads")
	}
	p.refuse.Store(false)
	for b.Health(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("the node did not recover")
		}
	}
	mustApply(t, b, recorded("after"), key("after"))
	r := <-watched
	if r.err != nil || len(r.list) != total {
		t.Fatalf("the watcher got %d changes, %v", len(r.list), r.err)
	}
	for i, c := range r.list {
		if c.Seq != int64(i)+1 {
			t.Fatalf("got %d where %d was due", c.Seq, i+1)
		}
	}
	own := 0
	for e, err := range b.WatchJournal(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if own++; e.Call.ID == "after" {
			break
		}
	}
	if all := storetest.Entries(ctx, t, b); own != 2 || len(all) != total {
		t.Errorf("the node's own journal has %d entries, that of all %d", own, len(all))
	}
	if n := number(t, server.DSN(name), `SELECT count(*) FROM invocations WHERE id = 'lost'`); n != 0 {
		t.Error("what was refused was committed")
	}
}

// TestShortCut: connections break repeatedly for moments, without visible effect.
func TestShortCut(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	name := server.NewName(t)
	p := newProxy(t, server.Addr())
	s := mustOpen(t, Config{DSN: server.TCP(p.addr(), name), timeout: 30 * time.Second})
	testOnce(t, ctx, s, server.DSN(name), func() { p.cut() })
}

// TestLostAnswers: the server commits and its response is lost. Each change is still
// made exactly once, and every caller gets the right outcome.
func TestLostAnswers(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	name := server.NewName(t)
	p := newProxy(t, server.Addr())
	s := mustOpen(t, Config{DSN: server.TCP(p.addr(), name), timeout: 30 * time.Second})
	testOnce(t, ctx, s, server.DSN(name), func() {
		p.deaf.Store(true)
		// The next responses are lost; a group is always in progress.
		before := s.Stats().Retries
		for s.Stats().Retries == before && ctx.Err() == nil {
			_ = s.Health(ctx)
		}
		p.deaf.Store(false)
	})
}

// TestInDoubt: who may have committed, and cannot find out in time, is told so; who certainly did
// not, is not.
func TestInDoubt(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	name := server.NewName(t)
	p := newProxy(t, server.Addr())
	s := mustOpen(t, Config{DSN: server.TCP(p.addr(), name), timeout: time.Second})
	mustApply(t, s, recorded("before"))
	p.refuse.Store(true)
	p.deaf.Store(true)
	if err := s.Apply(ctx, recorded("doubted")); !errors.Is(err, toolkeep.ErrInDoubt) {
		t.Errorf("a commit whose response was lost: %v", err)
	}
	if err := s.Apply(ctx, recorded("refused")); err == nil || errors.Is(err, toolkeep.ErrInDoubt) {
		t.Errorf("a change that was never sent: %v", err)
	}
	p.deaf.Store(false)
	p.refuse.Store(false)
	for s.Health(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("the node did not recover")
		}
	}
	if n := number(t, server.DSN(name), `SELECT count(*) FROM invocations WHERE id = 'refused'`); n != 0 {
		t.Error("what was refused was committed")
	}
}

// TestFreeze: the network drops everything silently. The frozen node's open transaction
// does not delay the other node, and an unacknowledged change is stored once or not at
// all.
func TestFreeze(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	name := server.NewName(t)
	p := newProxy(t, server.Addr())
	a := mustOpen(t, Config{DSN: server.DSN(name), Node: "a"})
	b := mustOpen(t, Config{DSN: server.TCP(p.addr(), name), Node: "b", timeout: 3 * time.Second, pollInterval: 50 * time.Millisecond})
	event := func(id string) toolkeep.Change {
		return toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Tenant: "t"}}
	}
	for round := range 3 {
		var acknowledged atomic.Int64
		failed := make(chan struct{})
		var once sync.Once
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ { // until the network is gone
					select {
					case <-failed:
						return
					default:
					}
					id := fmt.Sprintf("%d-%d-%d", round, w, i)
					if err := b.Apply(ctx, event(id), key(id), toolkeep.ClaimCall{Invocation: call(id, toolkeep.CallRunning)}); err != nil {
						once.Do(func() { close(failed) })
						return
					}
					acknowledged.Add(1)
				}
			})
		}
		for acknowledged.Load() < 20 && ctx.Err() == nil {
			_ = a.Health(ctx)
		}
		p.frozen.Lock()
		for i := range 20 {
			mustApply(t, a, event(fmt.Sprintf("a-%d-%d", round, i)), key(fmt.Sprintf("a-%d-%d", round, i)))
		}
		select {
		case <-failed:
		case <-ctx.Done():
			t.Error("a node without network waits for ever")
		}
		p.frozen.Unlock()
		wg.Wait()
		for err := b.Health(ctx); err != nil; err = b.Health(ctx) {
			if ctx.Err() != nil {
				t.Fatalf("the node did not recover: %v", err)
			}
		}
		mine := fmt.Sprintf("%d-%%", round)
		n := number(t, server.DSN(name), `SELECT count(*) FROM events WHERE id LIKE $1`, mine)
		distinct := number(t, server.DSN(name), `SELECT count(DISTINCT id) FROM events WHERE id LIKE $1`, mine)
		if n != distinct || n < int(acknowledged.Load()) || n > int(acknowledged.Load())+4 {
			t.Errorf("%d changes were acknowledged, the journal has %d, %d of them different", acknowledged.Load(), n, distinct)
		}
	}
	head, err := b.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list, err := until(ctx, b, 0, head)
	if err != nil || int64(len(list)) != head {
		t.Errorf("a watcher got %d of %d, %v", len(list), head, err)
	}
}

// testOnce applies changes from several goroutines while disturb runs, and checks that
// each is stored once.
func testOnce(t *testing.T, ctx context.Context, s *Store, dsn string, disturb func()) {
	t.Helper()
	const writers, rounds = 8, 12
	var next, claims, keys atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint(next.Add(1))
				changes := []toolkeep.Change{toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Tenant: "t"}}}
				if rand.N(2) == 0 { // of the others, whole groups are only entries of the journal
					keys.Add(1)
					changes = append(changes, key(id))
				}
				if rand.N(3) == 0 {
					claims.Add(1)
					changes = append(changes, toolkeep.ClaimCall{Invocation: call(id, toolkeep.CallRunning)})
				}
				if err := s.Apply(ctx, changes...); err != nil {
					t.Errorf("Apply %s: %v", id, err)
					return
				}
			}
		})
	}
	for range rounds {
		groups := s.Stats().Groups
		for s.Stats().Groups < groups+20 && ctx.Err() == nil {
			_ = s.Health(ctx)
		}
		disturb()
	}
	close(stop)
	wg.Wait()
	if n := number(t, dsn, `SELECT count(*) FROM events`); n != int(next.Load()) {
		t.Errorf("%d events were applied, there are %d", next.Load(), n)
	}
	if n := number(t, dsn, `SELECT count(*) FROM invocations`); n != int(claims.Load()) {
		t.Errorf("%d calls were claimed, there are %d", claims.Load(), n)
	}
	head, err := s.Head(ctx)
	if err != nil || head != keys.Load() {
		t.Errorf("the feed ends at %d, %v, want %d", head, err, keys.Load())
	}
	list, err := until(ctx, s, 0, head)
	if err != nil || int64(len(list)) != head {
		t.Errorf("a watcher got %d of %d, %v", len(list), head, err)
	}
	own := int64(0)
	for e, err := range s.WatchJournal(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if own++; e.Event == nil || own == next.Load() {
			break
		}
	}
	if all := storetest.Entries(ctx, t, s); own != next.Load() || int64(len(all)) != own {
		t.Errorf("this node's watchers got %d of %d entries, the journal has %d", own, next.Load(), len(all))
	}
	t.Logf("%d changes, %d retries", head, s.Stats().Retries)
}

// TestServerRestart: the server stops and restarts.
func TestServerRestart(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	s := mustOpen(t, Config{DSN: server.NewDatabase(t), timeout: 2 * time.Second, pollInterval: 50 * time.Millisecond})
	mustApply(t, s, recorded("a"), key("a"))
	if err := server.Down(); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(ctx, recorded("b")); err == nil {
		t.Error("committed without a server")
	}
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	for s.Health(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("the store did not recover")
		}
	}
	mustApply(t, s, recorded("c"), key("c"))
	list, err := until(ctx, s, 0, 2)
	if all := storetest.Entries(ctx, t, s); err != nil || len(list) != 2 || len(all) != 2 {
		t.Errorf("the feed has %v, %v, the journal %v", list, err, all)
	}
}

// TestAway: once the database is known to be unreachable, calls fail without waiting,
// and no refused change is made later.
func TestAway(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	name := server.NewName(t)
	p := newProxy(t, server.Addr())
	s := mustOpen(t, Config{DSN: server.TCP(p.addr(), name), timeout: 2 * time.Second, pollInterval: 50 * time.Millisecond})
	mustApply(t, s, recorded("before"))
	p.refuse.Store(true)
	p.cut()
	for i := range 100 { // with a wait each they would outlast ctx
		if err := s.Apply(ctx, recorded(fmt.Sprint("refused-", i))); err == nil {
			t.Fatal("committed without a database")
		}
	}
	if ctx.Err() != nil {
		t.Fatal("a store that is away lets everybody wait")
	}
	p.refuse.Store(false)
	for s.Health(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("the store did not recover")
		}
	}
	mustApply(t, s, recorded("after"))
	if n := number(t, server.DSN(name), `SELECT count(*) FROM invocations`); n != 2 {
		t.Errorf("there are %d calls, want those of before and after", n)
	}
}

// TestNothingToCommit: an empty group costs the next one neither its connection nor a
// retry.
func TestNothingToCommit(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	s := mustOpen(t, Config{DSN: server.NewDatabase(t)})
	claim := toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)}
	mustApply(t, s, claim)
	for range 3 {
		if err := s.Apply(ctx, claim); !errors.Is(err, toolkeep.ErrIDTaken) {
			t.Fatal(err)
		}
		mustApply(t, s, toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}})
	}
	if n := s.Stats().Retries; n != 0 {
		t.Errorf("%d transactions were done again", n)
	}
}

// TestUnreachable: which errors waiting may fix, and which not.
func TestUnreachable(t *testing.T) {
	ctx, server := testContext(t), pgtest.Start(t)
	name := server.NewName(t)
	p := newProxy(t, server.Addr())
	p.refuse.Store(true)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, dsn string
		want      bool
	}{
		{"nobody listens", server.TCP(closed.Addr().String(), name), true},
		{"the connection ends", server.TCP(p.addr(), name), true},
		{"there is no socket", "host=/nowhere user=postgres", true},
		{"there is no such database", server.DSN("nowhere"), false},
		{"there is no such user", strings.Replace(server.DSN(name), "user=postgres", "user=nobody", 1), false},
		{"TLS is refused", strings.Replace(server.TCP(server.Addr(), name), "sslmode=disable", "sslmode=require", 1), false},
		{"no DSN", "this is none", false},
	} {
		s, err := Open(ctx, Config{DSN: c.dsn})
		if err == nil {
			s.Close()
			t.Fatalf("%s, and the store opens", c.what)
		}
		if got := Unreachable(err); got != c.want {
			t.Errorf("%s: unreachable is %t (%v)", c.what, got, err)
		}
	}
	for how, err := range map[string]error{"starting": &pgconn.PgError{Code: "57P03"}, "full": &pgconn.PgError{Code: "53300"}} {
		if !Unreachable(fmt.Errorf("connect: %w", err)) {
			t.Errorf("a server that is %s will not be waited for", how)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Open(ended, Config{DSN: server.DSN(name)}); err == nil || Unreachable(err) {
		t.Errorf("an opening that was given up: %v", err)
	}
}
