package job

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func newPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func newPostgresQueue(t *testing.T, dsn string, c Config) *Queue[pgx.Tx] {
	t.Helper()
	c.Pool = newPool(t, dsn)
	q, err := NewPostgres(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Migrate(testContext(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := q.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return q
}

func put(ctx context.Context, q *Queue[pgx.Tx], id string, p toolkeep.Priority, at time.Time) error {
	return q.store.inTx(ctx, func(tx pgx.Tx) error {
		return q.Enqueue(ctx, tx, toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t1", ID: id}, Priority: p, At: at})
	})
}

func mustPut(t *testing.T, q *Queue[pgx.Tx], id string, p toolkeep.Priority, at time.Time) {
	t.Helper()
	if err := put(testContext(t), q, id, p, at); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, q *Queue[pgx.Tx]) {
	t.Helper()
	if err := q.Start(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, ctx context.Context, r *recorder, ids ...string) {
	t.Helper()
	for _, want := range ids {
		if got := r.wait(t, ctx); got != want {
			t.Fatalf("ran %q, want %q", got, want)
		}
	}
}

func TestPostgres(t *testing.T) {
	server := pgtest.Start(t)
	t.Run("order by priority and time", func(t *testing.T) {
		ctx, r := testContext(t), newRecorder()
		q := newPostgresQueue(t, server.NewDatabase(t), Config{Runner: r, Workers: 1})
		mustPut(t, q, "far", toolkeep.High, time.Now().Add(time.Hour))
		mustPut(t, q, "low", toolkeep.Low, time.Time{})
		mustPut(t, q, "unnamed", "", time.Time{})
		mustPut(t, q, "high", toolkeep.High, time.Time{})
		due := time.Now().Add(time.Second)
		mustPut(t, q, "soon", toolkeep.High, due)
		begin(t, q)
		var order []string
		for range 4 {
			id := r.wait(t, ctx)
			if id != "soon" { // which a busy machine may find due before the others have run
				order = append(order, id)
			} else if early := time.Until(due); early > 2*time.Millisecond {
				t.Errorf("ran %s too early", early)
			}
		}
		if want := []string{"high", "unnamed", "low"}; !slices.Equal(order, want) {
			t.Errorf("ran %v, want %v", order, want)
		}
		d, err := q.Depth(ctx)
		if err != nil || d[toolkeep.High] != 1 || d[toolkeep.Normal] != 0 || d[toolkeep.Low] != 0 {
			t.Errorf("depth %v, %v", d, err)
		}
	})
	t.Run("a waiting call is added once and the more urgent wish wins", func(t *testing.T) {
		ctx, r := testContext(t), newRecorder()
		q := newPostgresQueue(t, server.NewDatabase(t), Config{Runner: r, Workers: 1})
		mustPut(t, q, "a", toolkeep.Low, time.Now().Add(time.Hour))
		mustPut(t, q, "b", toolkeep.Normal, time.Time{})
		mustPut(t, q, "a", toolkeep.High, time.Time{})
		mustPut(t, q, "b", toolkeep.Low, time.Now().Add(time.Hour))
		mustPut(t, q, "end", toolkeep.Low, time.Time{})
		begin(t, q)
		wants(t, ctx, r, "a", "b", "end")
	})
	t.Run("a running call can be enqueued again", func(t *testing.T) {
		ctx, r, goOn := testContext(t), newRecorder(), make(chan struct{})
		var runs atomic.Int32
		r.err = func(context.Context, string) error {
			if runs.Add(1) == 1 {
				<-goOn
			}
			return nil
		}
		q := newPostgresQueue(t, server.NewDatabase(t), Config{Runner: r, Workers: 1})
		begin(t, q)
		mustPut(t, q, "a", toolkeep.Normal, time.Time{})
		wants(t, ctx, r, "a")
		mustPut(t, q, "a", toolkeep.Normal, time.Time{})
		close(goOn)
		wants(t, ctx, r, "a")
	})
	t.Run("an error comes back later", func(t *testing.T) {
		ctx, r := testContext(t), newRecorder()
		var runs atomic.Int32
		r.err = func(context.Context, string) error {
			switch runs.Add(1) {
			case 1:
				return errors.New("not yet")
			case 2:
				panic("worse")
			}
			return nil
		}
		q := newPostgresQueue(t, server.NewDatabase(t), Config{Runner: r})
		begin(t, q)
		mustPut(t, q, "a", toolkeep.Normal, time.Time{})
		wants(t, ctx, r, "a", "a", "a")
	})
	t.Run("notifications wake every node", func(t *testing.T) {
		ctx, r, dsn := testContext(t), newRecorder(), server.NewDatabase(t)
		front := newPostgresQueue(t, dsn, Config{Runner: newRecorder()}) // inserts, never started
		q := newPostgresQueue(t, dsn, Config{Runner: r, PollInterval: time.Hour})
		begin(t, q)
		for i := range 5 {
			mustPut(t, front, fmt.Sprint(i), toolkeep.Normal, time.Time{})
			wants(t, ctx, r, fmt.Sprint(i))
		}
	})
	t.Run("a rollback takes the job away", func(t *testing.T) {
		ctx, r := testContext(t), newRecorder()
		q := newPostgresQueue(t, server.NewDatabase(t), Config{Runner: r})
		begin(t, q)
		boom := errors.New("boom")
		err := q.store.inTx(ctx, func(tx pgx.Tx) error {
			return errors.Join(q.Enqueue(ctx, tx, toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t1", ID: "gone"}}), boom)
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		mustPut(t, q, "kept", toolkeep.Low, time.Time{})
		wants(t, ctx, r, "kept")
	})
	t.Run("stop cancels and the job runs elsewhere", func(t *testing.T) {
		ctx, r, dsn := testContext(t), newRecorder(), server.NewDatabase(t)
		r.err = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		q := newPostgresQueue(t, dsn, Config{Runner: r})
		begin(t, q)
		mustPut(t, q, "a", toolkeep.Normal, time.Time{})
		wants(t, ctx, r, "a")
		short, cancel := context.WithCancel(ctx)
		cancel()
		if err := q.Stop(short); err != nil {
			t.Fatal(err)
		}
		r2 := newRecorder()
		begin(t, newPostgresQueue(t, dsn, Config{Runner: r2}))
		wants(t, ctx, r2, "a")
	})
	t.Run("clean and migrate", func(t *testing.T) {
		ctx, r := testContext(t), newRecorder()
		q := newPostgresQueue(t, server.NewDatabase(t), Config{Runner: r})
		begin(t, q)
		mustPut(t, q, "a", toolkeep.Normal, time.Time{})
		wants(t, ctx, r, "a")
		if err := q.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		p := q.store.(*postgresQueue)
		if err := p.clean(ctx); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := p.pool.QueryRow(ctx, `SELECT count(*) FROM river_job`).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d rows left, %v", n, err)
		}
		if err := q.MigrateDown(ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.pool.QueryRow(ctx, `SELECT count(*) FROM pg_class WHERE relname LIKE 'river_%'`).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d tables and indexes left, %v", n, err)
		}
		for range 2 {
			if err := q.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestPostgresShared: several nodes share one queue and run each call once.
func TestPostgresShared(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	const nodes, calls = 3, 300
	var mu sync.Mutex
	ran, by := map[string]int{}, map[int]int{}
	all := make(chan struct{})
	var queues []*Queue[pgx.Tx]
	for i := range nodes {
		queues = append(queues, newPostgresQueue(t, dsn, Config{Workers: 4, Runner: runFunc(func(_ context.Context, ref toolkeep.CallRef) error {
			mu.Lock()
			defer mu.Unlock()
			ran[ref.ID]++
			by[i]++
			if len(ran) == calls && ran[ref.ID] == 1 {
				close(all)
			}
			return nil
		})}))
	}
	for _, q := range queues {
		begin(t, q)
	}
	var wg sync.WaitGroup
	for i, q := range queues {
		wg.Go(func() {
			for n := i; n < calls; n += nodes {
				if err := put(ctx, q, fmt.Sprint(n), toolkeep.Normal, time.Time{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	select {
	case <-all:
	case <-ctx.Done():
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("only %d of %d calls were run", len(ran), calls)
	}
	for _, q := range queues {
		if err := q.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	for id, n := range ran {
		if n != 1 {
			t.Errorf("call %s was run %d times", id, n)
		}
	}
	t.Logf("by node: %v", by)
}

// TestPostgresConfig: exactly one database.
func TestPostgresConfig(t *testing.T) {
	if _, err := NewPostgres(Config{Runner: newRecorder()}); err == nil {
		t.Error("no pool was needed")
	}
	if _, err := NewPostgres(Config{Runner: newRecorder(), DB: newDB(t)}); err == nil {
		t.Error("SQLite was taken")
	}
}

// childDSN makes the test binary a node that takes calls and never finishes them.
const childDSN = "JOB_TEST_CHILD_DSN"

func postgresChild(dsn string) {
	fail := func(err error) {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		fail(err)
	}
	q, err := NewPostgres(Config{Pool: pool, Runner: runFunc(func(_ context.Context, ref toolkeep.CallRef) error {
		fmt.Println("running", ref.ID)
		select {}
	})})
	if err != nil {
		fail(err)
	}
	if err := q.Start(ctx); err != nil {
		fail(err)
	}
	select {}
}

// TestPostgresKilledNode: a killed node's jobs do not block a new Enqueue, and are run
// again without one.
func TestPostgresKilledNode(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	r := newRecorder()
	q := newPostgresQueue(t, dsn, Config{Runner: r})
	mustPut(t, q, "nudged", toolkeep.Normal, time.Time{})
	mustPut(t, q, "forgotten", toolkeep.High, time.Time{})

	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDSN+"="+dsn)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(out)
	for range 2 {
		if !lines.Scan() {
			t.Fatal("the child ended")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // the error is the signal

	// The lapsed-lease reaper handles one of the two first.
	mustPut(t, q, "nudged", toolkeep.Normal, time.Time{})
	begin(t, q)
	got := map[string]int{}
	for range 3 { // the new job, and the dead ones of both; a second job for one is harmless
		got[r.wait(t, ctx)]++
	}
	if got["forgotten"] != 1 || got["nudged"] != 2 {
		t.Errorf("ran %v", got)
	}
}

// TestPostgresLostFetch: a job assigned to a node that never received the response is
// reclaimed, although that node is alive and runs others.
func TestPostgresLostFetch(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	r := newRecorder()
	busy := make(chan struct{})
	defer close(busy)
	var runs atomic.Int64
	q := newPostgresQueue(t, dsn, Config{NodeID: "node", Runner: runFunc(func(ctx context.Context, ref toolkeep.CallRef) error {
		if ref.ID == "long" {
			runs.Add(1)
			<-busy
			return nil
		}
		return r.Run(ctx, ref)
	})})
	mustPut(t, q, "lost", toolkeep.Normal, time.Time{})
	pool := newPool(t, dsn)
	if _, err := pool.Exec(ctx, `UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = ARRAY['node']`); err != nil {
		t.Fatal(err)
	}
	mustPut(t, q, "long", toolkeep.Normal, time.Time{})
	begin(t, q)
	wants(t, ctx, r, "lost")
	for runs.Load() == 0 && ctx.Err() == nil { // both may have been fetched together
		runtime.Gosched()
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("the job that is worked all the time was begun %d times", n)
	}
}

// TestPostgresEarlierRun: a node takes up at once the jobs of its own earlier run, whose last
// heartbeat may be new, and no other's.
func TestPostgresEarlierRun(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	r := newRecorder()
	q := newPostgresQueue(t, dsn, Config{NodeID: "a/2", Earlier: func() string { return "a/1" }, Runner: r})
	for id, by := range map[string]string{"own": "a/1", "other": "b/1"} {
		mustPut(t, q, id, toolkeep.Normal, time.Time{})
		if _, err := newPool(t, dsn).Exec(ctx, `UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now() + interval '1 hour', attempted_by = ARRAY['x', $1::text]
			WHERE state = 'available'`, by); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, q)
	wants(t, ctx, r, "own")
	mustPut(t, q, "next", toolkeep.Low, time.Time{})
	wants(t, ctx, r, "next") // the other's would have come before it
}

// TestPostgresMigrateTogether: nodes that start at once do not block each other.
func TestPostgresMigrateTogether(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	var wg sync.WaitGroup
	for range 6 {
		q, err := NewPostgres(Config{Pool: newPool(t, dsn), Runner: newRecorder()})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := q.Migrate(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
