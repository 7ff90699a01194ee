package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/job"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

type runFunc func(ctx context.Context, ref toolkeep.CallRef) error

func (f runFunc) Run(ctx context.Context, ref toolkeep.CallRef) error { return f(ctx, ref) }

// TestQueueInside: the real queue inserts in the store's transactions, and two nodes
// run the calls that either has claimed, each once.
func TestQueueInside(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	const nodes, calls = 2, 60
	var mu sync.Mutex
	moved := map[string]int{}
	all := make(chan struct{})
	stores, queues := make([]*Store, nodes), make([]*job.Queue[pgx.Tx], nodes)
	for n := range nodes {
		name := fmt.Sprint("node-", n)
		stores[n] = mustOpen(t, Config{DSN: dsn, Node: name, Enqueue: func(ctx context.Context, tx pgx.Tx, e toolkeep.Enqueue) error {
			return queues[n].Enqueue(ctx, tx, e)
		}})
		run := func(ctx context.Context, ref toolkeep.CallRef) error {
			v := call(ref.ID, toolkeep.CallRunning)
			v.LeaseOwner, v.LeaseUntil = name, time.Now().Add(time.Minute)
			err := stores[n].Apply(ctx, toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallQueued}, Owner: name})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				moved[ref.ID]++
			}
			if len(moved) == calls && moved[ref.ID] == 1 {
				close(all)
			}
			return err
		}
		var err error
		queues[n], err = job.NewPostgres(job.Config{Pool: stores[n].Pool(), Runner: runFunc(run), NodeID: name, PollInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := queues[n].Migrate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range queues {
		if err := q.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	parallel(calls, func(i int) {
		id := fmt.Sprint(i)
		err := stores[i%nodes].Apply(ctx, toolkeep.ClaimCall{Invocation: call(id, toolkeep.CallQueued)},
			toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t", ID: id}, Priority: toolkeep.High})
		if err != nil {
			t.Error(err)
		}
	})
	select {
	case <-all:
	case <-ctx.Done():
		t.Errorf("only %d of %d calls were taken up", len(moved), calls)
	}
	for _, q := range queues {
		if err := q.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	for id, n := range moved {
		if n != 1 {
			t.Errorf("call %s was taken up %d times", id, n)
		}
	}
}

// TestApplyWithinQueue: a caller that waits only a while leaves a commit under way and gets its
// outcome later; what was still queued is never committed.
func TestApplyWithinQueue(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn, Node: "n"})
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "BEGIN; LOCK TABLE writers IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	within := func(id string) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // the writer has long taken what is first
		defer cancel()
		return s.ApplyWithin(ctx, toolkeep.RecordCall{Invocation: call(id, toolkeep.CallSucceeded)})
	}
	var pending *toolkeep.PendingError
	if err := within("taken"); !errors.As(err, &pending) {
		t.Fatalf("a commit under way gave %v", err)
	}
	if err := within("queued"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a change in the queue gave %v", err)
	}
	if _, err := conn.Exec(ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-pending.End; err != nil {
		t.Errorf("the commit ended with %v", err)
	}
	for id, want := range map[string]error{"taken": nil, "queued": toolkeep.ErrNotFound} {
		if _, err := s.Invocations().Get(ctx, toolkeep.CallRef{Tenant: "t", ID: id}); !errors.Is(err, want) {
			t.Errorf("the record %s gave %v, want %v", id, err, want)
		}
	}
}
