package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// limit ends a test that hangs; it measures nothing.
const limit = 2 * time.Minute

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// execute runs statements directly, bypassing the stores.
func execute(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func number(t testing.TB, dsn, query string, args ...any) (n int) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// until collects the feed after a number up to another.
func until(ctx context.Context, s *Store, after, last int64) (list []toolkeep.Committed, err error) {
	for c, err := range s.Watch(ctx, after) {
		if err != nil {
			return list, err
		}
		list = append(list, c)
		if c.Seq >= last {
			return list, nil
		}
	}
	return list, context.Cause(ctx)
}

// TestOrderAcrossNodes: 50 writers on two nodes, whose commits are delayed randomly
// after their numbers were assigned. No watcher of any node sees a number out of order,
// and each sees all.
func TestOrderAcrossNodes(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	nodes := []*Store{mustOpen(t, Config{DSN: dsn, Node: "a", groupMax: 5}), mustOpen(t, Config{DSN: dsn, Node: "b", groupMax: 5})}
	// Runs as part of COMMIT, when the rows are written but not yet visible.
	execute(t, dsn, `CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN IF random() < 0.05 THEN PERFORM pg_sleep(random() * 0.05); END IF; RETURN NULL; END $$`,
		`CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON feed DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION dawdle()`)
	const writers, each = 50, 30
	const total = writers * each * 2
	ctx := testContext(t)
	type result struct {
		list []toolkeep.Committed
		err  error
	}
	results := make(chan result, 6)
	for _, s := range nodes {
		for _, after := range []int64{0, total / 2} {
			go func() {
				list, err := until(ctx, s, after, total)
				results <- result{list, err}
			}()
		}
	}
	parallel(writers, func(w int) {
		s := nodes[w%len(nodes)]
		for i := range each {
			id := fmt.Sprintf("w%d-%d", w, i)
			changes := []toolkeep.Change{key(id), key(id), recorded(id)}
			if i%3 == 0 {
				changes[2] = toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Tenant: "t"}}
			}
			if err := s.Apply(ctx, changes...); err != nil {
				t.Errorf("Apply: %v", err)
				return
			}
		}
	})
	for _, s := range nodes { // late watchers, which read the past from the database
		go func() {
			list, err := until(ctx, s, 0, total)
			results <- result{list, err}
		}()
	}
	for range 6 {
		r := <-results
		if r.err != nil {
			t.Fatalf("Watch: %v after %d changes", r.err, len(r.list))
		}
		checkOrder(t, r.list, total)
	}
	if a, b := nodes[0].Stats(), nodes[1].Stats(); a.Rows+b.Rows != total*3/2 || a.Rows == 0 || b.Rows == 0 {
		t.Errorf("%+v and %+v", a, b)
	}
}

// checkOrder finds gaps, repetitions, and changes of one writer out of order.
func checkOrder(t *testing.T, list []toolkeep.Committed, total int64) {
	t.Helper()
	next := total - int64(len(list)) + 1
	done := map[int]int{}
	for _, c := range list {
		if c.Seq != next {
			t.Fatalf("got %d where %d was due", c.Seq, next)
		}
		next++
		var w, i int
		if _, err := fmt.Sscanf(c.Change.(toolkeep.PutKey).Key.ID, "w%d-%d", &w, &i); err != nil {
			t.Fatal(err)
		}
		if last, ok := done[w]; ok && i != last && i != last+1 {
			t.Fatalf("change %d of writer %d came after %d", i, w, last)
		}
		done[w] = i
	}
}

// TestNodesHear: notifications alone are enough, and so is polling alone.
func TestNodesHear(t *testing.T) {
	server := pgtest.Start(t)
	for name, poll := range map[string]time.Duration{"by notification": time.Hour, "by polling": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			ctx, dsn := testContext(t), server.NewDatabase(t)
			a, b := mustOpen(t, Config{DSN: dsn}), mustOpen(t, Config{DSN: dsn, pollInterval: poll})
			if poll < time.Hour {
				// This pg_notify shadows PostgreSQL's own: no notifications are sent.
				execute(t, dsn, `CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT'`,
					fmt.Sprintf(`ALTER DATABASE %s SET search_path = public, pg_catalog`, a.conf.Database))
				a.Close()
				a = mustOpen(t, Config{DSN: dsn})
			}
			type heard struct {
				c   toolkeep.Committed
				err error
			}
			arrived := make(chan heard)
			go func() {
				defer close(arrived)
				for c, err := range b.Watch(ctx, 0) {
					arrived <- heard{c, err}
				}
			}()
			var slowest time.Duration
			for i := range 10 {
				start := time.Now()
				mustApply(t, a, recorded(fmt.Sprint(i)), key(fmt.Sprint(i)))
				h, ok := <-arrived
				if !ok || h.err != nil || h.c.Seq != int64(i)+1 {
					t.Fatalf("heard %+v", h)
				}
				slowest = max(slowest, time.Since(start))
				if _, err := b.Invocations().Get(ctx, toolkeep.CallRef{Tenant: "t", ID: fmt.Sprint(i)}); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("the slowest of 10 took %s", slowest)
			b.Close()
			for range arrived { // the last reports that the store closed
			}
		})
	}
}

// TestOpposite: two nodes change the same calls in opposite order, which deadlocks now
// and then; every Apply still succeeds.
func TestOpposite(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	nodes := []*Store{mustOpen(t, Config{DSN: dsn, timeout: 30 * time.Second}), mustOpen(t, Config{DSN: dsn, timeout: 30 * time.Second})}
	mustApply(t, nodes[0], toolkeep.ClaimCall{Invocation: call("x", toolkeep.CallRunning)}, toolkeep.ClaimCall{Invocation: call("y", toolkeep.CallRunning)})
	const rounds = 40
	parallel(2, func(n int) {
		ids := []string{"x", "y"}
		if n == 1 {
			ids = []string{"y", "x"}
		}
		for i := range rounds {
			var changes []toolkeep.Change
			for _, id := range ids {
				changes = append(changes, toolkeep.ReportProgress{Call: toolkeep.CallRef{Tenant: "t", ID: id}, Progress: toolkeep.Progress{Percent: i}})
			}
			if err := nodes[n].Apply(t.Context(), changes...); err != nil {
				t.Errorf("node %d: %v", n, err)
			}
		}
	})
	for _, id := range []string{"x", "y"} {
		if v, err := nodes[0].Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: id}); err != nil || v.Progress.Percent != rounds-1 {
			t.Errorf("call %s has %+v, %v", id, v, err)
		}
	}
	t.Logf("%d and %d retries", nodes[0].Stats().Retries, nodes[1].Stats().Retries)
}

// TestClaimAcrossNodes: one key, two nodes, one winner.
func TestClaimAcrossNodes(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	nodes := []*Store{mustOpen(t, Config{DSN: dsn}), mustOpen(t, Config{DSN: dsn})}
	for round := range 20 {
		won := make(chan string, 10)
		parallel(10, func(i int) {
			v := call(fmt.Sprintf("%d-%d", round, i), toolkeep.CallRunning)
			v.Key = fmt.Sprint(round)
			v.CreatedAt = time.Now()
			switch err := nodes[i%2].Apply(t.Context(), toolkeep.ClaimCall{Invocation: v}); {
			case err == nil:
				won <- v.ID
			case !errors.Is(err, toolkeep.ErrKeyTaken):
				t.Error(err)
			}
		})
		if len(won) != 1 {
			t.Fatalf("%d won", len(won))
		}
		id := <-won
		for _, s := range nodes {
			if v, err := s.Invocations().ByKey(t.Context(), "t", "s", fmt.Sprint(round)); err != nil || v.ID != id {
				t.Errorf("the key is held by %v, %v", v, err)
			}
		}
	}
}
