package job

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir) // never returns
	}
	if dsn := os.Getenv(childDSN); dsn != "" {
		postgresChild(dsn) // never returns
	}
	goleak.VerifyTestMain(pgtest.Main{M: m})
}

// limit ends a test that hangs; it measures nothing.
const limit = 5 * time.Minute

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// openDB opens the database as the store does: one connection, WAL.
func openDB(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_pragma=synchronous(NORMAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func newDB(t *testing.T) *sql.DB {
	t.Helper()
	db, err := openDB(filepath.Join(t.TempDir(), "job.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

type runFunc func(ctx context.Context, ref toolkeep.CallRef) error

func (f runFunc) Run(ctx context.Context, ref toolkeep.CallRef) error { return f(ctx, ref) }

// recorder is a Runner that records what ran.
type recorder struct {
	ran chan string
	err func(ctx context.Context, id string) error
}

func newRecorder() *recorder { return &recorder{ran: make(chan string, 1000)} }

func (r *recorder) Run(ctx context.Context, ref toolkeep.CallRef) error {
	r.ran <- ref.ID
	if r.err != nil {
		return r.err(ctx, ref.ID)
	}
	return nil
}

func (r *recorder) wait(t *testing.T, ctx context.Context) string {
	t.Helper()
	select {
	case id := <-r.ran:
		return id
	case <-ctx.Done():
		t.Fatal("no job was run in time")
		return ""
	}
}

func newSQLiteQueue(t *testing.T, c Config) *Queue[*sql.Tx] {
	t.Helper()
	if c.DB == nil {
		c.DB = newDB(t)
	}
	if c.PollInterval == 0 {
		c.PollInterval = 10 * time.Millisecond
	}
	q, err := NewSQLite(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	if err := q.Migrate(ctx); err != nil {
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

func start(t *testing.T, q *Queue[*sql.Tx]) {
	t.Helper()
	if err := q.Start(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func enqueue(ctx context.Context, q *Queue[*sql.Tx], id string, p toolkeep.Priority, at time.Time) error {
	tx, err := q.store.(*sqliteQueue).db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	e := toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t1", ID: id}, Priority: p, At: at}
	if err := q.Enqueue(ctx, tx, e); err != nil {
		return err
	}
	return tx.Commit()
}

func mustEnqueue(t *testing.T, q *Queue[*sql.Tx], id string, p toolkeep.Priority, at time.Time) {
	t.Helper()
	if err := enqueue(testContext(t), q, id, p, at); err != nil {
		t.Fatal(err)
	}
}

func depth(t *testing.T, q *Queue[*sql.Tx]) map[toolkeep.Priority]int {
	t.Helper()
	d, err := q.Depth(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func waiting(t *testing.T, q *Queue[*sql.Tx]) int {
	t.Helper()
	n := 0
	for _, k := range depth(t, q) {
		n += k
	}
	return n
}

func TestOrderByPriority(t *testing.T) {
	ctx := testContext(t)
	r := newRecorder()
	q := newSQLiteQueue(t, Config{Runner: r, Workers: 1})
	mustEnqueue(t, q, "low", toolkeep.Low, time.Time{})
	mustEnqueue(t, q, "normal", toolkeep.Normal, time.Time{})
	mustEnqueue(t, q, "unnamed", "", time.Time{})
	mustEnqueue(t, q, "high", toolkeep.High, time.Time{})
	want := map[toolkeep.Priority]int{toolkeep.High: 1, toolkeep.Normal: 2, toolkeep.Low: 1}
	if got := depth(t, q); !reflect.DeepEqual(got, want) {
		t.Fatalf("depth %v, want %v", got, want)
	}
	start(t, q)
	for _, want := range []string{"high", "normal", "unnamed", "low"} {
		if got := r.wait(t, ctx); got != want {
			t.Fatalf("ran %q, want %q", got, want)
		}
	}
	if err := enqueue(ctx, q, "x", "urgent", time.Time{}); err == nil {
		t.Fatal("an unknown priority was taken")
	}
	if err := enqueue(ctx, q, "", toolkeep.High, time.Time{}); err == nil {
		t.Fatal("a call without id was taken")
	}
}

func TestScheduledWaitsForItsTime(t *testing.T) {
	ctx := testContext(t)
	r := newRecorder()
	q := newSQLiteQueue(t, Config{Runner: r, Workers: 1})
	due := time.Now().Add(300 * time.Millisecond)
	mustEnqueue(t, q, "later", toolkeep.High, due)
	mustEnqueue(t, q, "far", toolkeep.High, time.Now().Add(time.Hour))
	mustEnqueue(t, q, "now", toolkeep.Low, time.Time{})
	start(t, q)
	ran := map[string]bool{}
	for len(ran) < 2 { // on a busy machine, later may be due first and is more urgent
		id := r.wait(t, ctx)
		if early := time.Until(due); id == "later" && early > 2*time.Millisecond {
			t.Fatalf("ran %s too early", early)
		}
		ran[id] = true
	}
	if !ran["now"] || !ran["later"] {
		t.Fatalf("ran %v", ran)
	}
	if n := waiting(t, q); n != 1 {
		t.Fatalf("%d wait, want the one far off", n)
	}
}

func TestWakesWithoutPolling(t *testing.T) {
	ctx := testContext(t)
	r := newRecorder()
	q := newSQLiteQueue(t, Config{Runner: r, PollInterval: time.Hour})
	start(t, q)
	for i := range 20 {
		id := fmt.Sprint(i)
		mustEnqueue(t, q, id, toolkeep.Normal, time.Time{})
		if got := r.wait(t, ctx); got != id {
			t.Fatalf("ran %q, want %q", got, id)
		}
	}
	var rows int
	if err := q.store.(*sqliteQueue).db.QueryRowContext(ctx, `SELECT count(*) FROM river_notification`).Scan(&rows); err != nil || rows != 0 {
		t.Fatalf("%d notification rows (%v), want none", rows, err)
	}
}

func TestRollbackTakesTheJobAway(t *testing.T) {
	ctx := testContext(t)
	r := newRecorder()
	q := newSQLiteQueue(t, Config{Runner: r})
	start(t, q)
	tx, err := q.store.(*sqliteQueue).db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Enqueue(ctx, tx, toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t1", ID: "gone"}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	mustEnqueue(t, q, "kept", toolkeep.Low, time.Time{})
	if got := r.wait(t, ctx); got != "kept" {
		t.Fatalf("ran %q, want kept", got)
	}
	if n := waiting(t, q); n != 0 {
		t.Fatalf("%d wait, want none", n)
	}
}

func TestSavepointRollbackTakesTheJobAway(t *testing.T) {
	ctx := testContext(t)
	r := newRecorder()
	q := newSQLiteQueue(t, Config{Runner: r})
	tx, err := q.store.(*sqliteQueue).db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	step := func(stmt, id string) {
		t.Helper()
		if stmt != "" {
			if _, err := tx.ExecContext(ctx, stmt); err != nil {
				t.Fatal(err)
			}
			return
		}
		if err := q.Enqueue(ctx, tx, toolkeep.Enqueue{Call: toolkeep.CallRef{ID: id}}); err != nil {
			t.Fatal(err)
		}
	}
	step("SAVEPOINT a", "")
	step("", "gone")
	step("ROLLBACK TO a", "")
	step("RELEASE a", "")
	step("", "kept")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	start(t, q)
	if got := r.wait(t, ctx); got != "kept" {
		t.Fatalf("ran %q, want kept", got)
	}
}

func TestDoubleEnqueue(t *testing.T) {
	t.Run("a waiting call is added once", func(t *testing.T) {
		ctx := testContext(t)
		r := newRecorder()
		q := newSQLiteQueue(t, Config{Runner: r, Workers: 1})
		mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
		mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
		mustEnqueue(t, q, "end", toolkeep.Low, time.Time{})
		if n := waiting(t, q); n != 2 {
			t.Fatalf("%d wait, want 2", n)
		}
		start(t, q)
		for _, want := range []string{"a", "end"} {
			if got := r.wait(t, ctx); got != want {
				t.Fatalf("ran %q, want %q", got, want)
			}
		}
	})
	t.Run("the more urgent wish wins", func(t *testing.T) {
		ctx := testContext(t)
		r := newRecorder()
		q := newSQLiteQueue(t, Config{Runner: r, Workers: 1})
		mustEnqueue(t, q, "a", toolkeep.Low, time.Now().Add(time.Hour))
		mustEnqueue(t, q, "b", toolkeep.Normal, time.Time{})
		mustEnqueue(t, q, "a", toolkeep.High, time.Time{})
		mustEnqueue(t, q, "b", toolkeep.Low, time.Now().Add(time.Hour))
		start(t, q)
		for _, want := range []string{"a", "b"} {
			if got := r.wait(t, ctx); got != want {
				t.Fatalf("ran %q, want %q", got, want)
			}
		}
	})
	t.Run("the same id of another tenant is another call", func(t *testing.T) {
		q := newSQLiteQueue(t, Config{Runner: newRecorder()})
		ctx := testContext(t)
		mustEnqueue(t, q, "a", toolkeep.Low, time.Time{})
		tx, err := q.store.(*sqliteQueue).db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Enqueue(ctx, tx, toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t2", ID: "a"}}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := waiting(t, q); n != 2 {
			t.Fatalf("%d wait, want 2", n)
		}
	})
	t.Run("a running or finished call can be enqueued again", func(t *testing.T) {
		ctx := testContext(t)
		r := newRecorder()
		goOn := make(chan struct{})
		var runs atomic.Int32
		r.err = func(ctx context.Context, id string) error {
			if runs.Add(1) == 1 {
				<-goOn
			}
			return nil
		}
		q := newSQLiteQueue(t, Config{Runner: r, Workers: 1})
		start(t, q)
		mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
		r.wait(t, ctx)
		mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{}) // while the first is running
		if n := waiting(t, q); n != 1 {
			t.Fatalf("%d wait, want 1", n)
		}
		close(goOn)
		r.wait(t, ctx)
		mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
		r.wait(t, ctx)
	})
}

func TestErrorComesBackLater(t *testing.T) {
	ctx := testContext(t)
	r := newRecorder()
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
	q := newSQLiteQueue(t, Config{Runner: r, Workers: 1})
	start(t, q)
	mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
	for range 3 {
		if got := r.wait(t, ctx); got != "a" {
			t.Fatalf("ran %q, want a", got)
		}
	}
}

// An Enqueue while the runner is failing must not collide with the job that replaces
// the failed one.
func TestErrorAndEnqueueAtOnce(t *testing.T) {
	ctx := testContext(t)
	r := newRecorder()
	fail, goOn := errors.New("not yet"), make(chan struct{})
	var runs atomic.Int32
	r.err = func(context.Context, string) error {
		if runs.Add(1) == 1 {
			<-goOn
			return fail
		}
		return nil
	}
	q := newSQLiteQueue(t, Config{Runner: r, Workers: 2})
	start(t, q)
	mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
	r.wait(t, ctx)
	mustEnqueue(t, q, "a", toolkeep.Normal, time.Now().Add(time.Hour))
	close(goOn)
	if got := r.wait(t, ctx); got != "a" { // the retry has the earlier time
		t.Fatalf("ran %q, want a", got)
	}
}

func TestBackoff(t *testing.T) {
	for failed, most := range map[int]time.Duration{
		0: 250 * time.Millisecond, 1: 500 * time.Millisecond, 6: 16 * time.Second,
		7: 30 * time.Second, 1000: 30 * time.Second,
	} {
		for range 100 {
			if d := backoff(failed); d < most/2 || d > most+1 {
				t.Fatalf("backoff(%d) = %s, want %s to %s", failed, d, most/2, most)
			}
		}
	}
}

func TestStop(t *testing.T) {
	t.Run("waits for what runs and leaves the rest", func(t *testing.T) {
		ctx := testContext(t)
		r := newRecorder()
		goOn := make(chan struct{})
		var ended atomic.Bool
		r.err = func(context.Context, string) error { <-goOn; ended.Store(true); return nil }
		db := newDB(t)
		q := newSQLiteQueue(t, Config{DB: db, Runner: r, Workers: 1})
		start(t, q)
		mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
		r.wait(t, ctx)
		mustEnqueue(t, q, "b", toolkeep.Normal, time.Time{})
		stopped := make(chan error, 2)
		for range 2 { // a second Stop waits as well
			go func() { stopped <- q.Stop(ctx) }()
		}
		close(goOn)
		for range 2 {
			if err := <-stopped; err != nil {
				t.Fatal(err)
			}
		}
		if !ended.Load() {
			t.Fatal("Stop returned before the job ended")
		}
		if err := q.Start(ctx); err == nil {
			t.Fatal("a stopped queue started again")
		}
		mustEnqueue(t, q, "c", toolkeep.Normal, time.Time{}) // still possible

		r2 := newRecorder()
		q2 := newSQLiteQueue(t, Config{DB: db, Runner: r2, Workers: 1})
		start(t, q2)
		rest := []string{"b", "c"}
		select {
		case <-r.ran: // b, fetched between the end of a and Stop
			rest = rest[1:]
		default:
		}
		for _, want := range rest {
			if got := r2.wait(t, ctx); got != want {
				t.Fatalf("ran %q after the restart, want %q", got, want)
			}
		}
	})
	t.Run("cancels when its context ends, and the job runs at the next start", func(t *testing.T) {
		ctx := testContext(t)
		r := newRecorder()
		r.err = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		db := newDB(t)
		q := newSQLiteQueue(t, Config{DB: db, Runner: r, Workers: 1})
		start(t, q)
		mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
		r.wait(t, ctx)
		short, cancel := context.WithCancel(ctx)
		cancel()
		if err := q.Stop(short); err != nil {
			t.Fatal(err)
		}
		r2 := newRecorder()
		q2 := newSQLiteQueue(t, Config{DB: db, Runner: r2, Workers: 1})
		start(t, q2)
		if got := r2.wait(t, ctx); got != "a" {
			t.Fatalf("ran %q, want a", got)
		}
	})
	t.Run("what comes while it is held waits for the next start, in its order", func(t *testing.T) {
		ctx := testContext(t)
		r := newRecorder()
		db := newDB(t)
		q := newSQLiteQueue(t, Config{DB: db, Runner: r, Workers: 1})
		start(t, q)
		q.Hold()
		mustEnqueue(t, q, "a", toolkeep.Normal, time.Now().Add(-2*time.Second))
		mustEnqueue(t, q, "b", toolkeep.Normal, time.Now().Add(-time.Second))
		for back := 0; back == 0; { // one of them was with a worker
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&back); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if n := waiting(t, q); n != 2 || len(r.ran) != 0 {
			t.Fatalf("%d wait and %d ran, want 2 and none", n, len(r.ran))
		}
		r2 := newRecorder()
		q2 := newSQLiteQueue(t, Config{DB: db, Runner: r2, Workers: 1})
		start(t, q2)
		for _, want := range []string{"a", "b"} {
			if got := r2.wait(t, ctx); got != want {
				t.Fatalf("ran %q, want %q", got, want)
			}
		}
	})
	t.Run("before Start", func(t *testing.T) {
		q := newSQLiteQueue(t, Config{Runner: newRecorder()})
		for range 2 {
			if err := q.Stop(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestPeriodic(t *testing.T) {
	ctx := testContext(t)
	ticks := make(chan string)
	var inside atomic.Int32
	task := func(name string, every time.Duration, end func() error) Periodic {
		return Periodic{Name: name, Every: every, Run: func(ctx context.Context) error {
			if inside.Add(1) != 1 {
				t.Error("two periodic functions at the same time")
			}
			defer inside.Add(-1)
			select {
			case ticks <- name:
			case <-ctx.Done():
				return ctx.Err()
			}
			return end()
		}}
	}
	q := newSQLiteQueue(t, Config{Runner: newRecorder(), Periodic: []Periodic{
		task("fine", time.Millisecond, func() error { return nil }),
		task("fails", time.Millisecond, func() error { return errors.New("no") }),
		task("panics", time.Millisecond, func() error { panic("no") }),
		task("once", time.Hour, func() error { return nil }),
	}})
	start(t, q)
	seen := map[string]int{}
	for len(seen) < 4 || seen["fine"] < 3 || seen["fails"] < 3 || seen["panics"] < 3 {
		select {
		case name := <-ticks:
			seen[name]++
		case <-ctx.Done():
			t.Fatalf("seen only %v", seen)
		}
	}
	if seen["once"] != 1 {
		t.Fatalf("hourly work ran %d times", seen["once"])
	}
	if err := q.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if inside.Load() != 0 {
		t.Fatal("Stop returned while periodic work was running")
	}
}

func TestCleanRemovesWhatIsOver(t *testing.T) {
	ctx := testContext(t)
	r := newRecorder()
	db := newDB(t)
	q := newSQLiteQueue(t, Config{DB: db, Runner: r})
	start(t, q)
	for i := range 5 {
		mustEnqueue(t, q, fmt.Sprint(i), toolkeep.Normal, time.Time{})
		r.wait(t, ctx)
	}
	mustEnqueue(t, q, "later", toolkeep.Normal, time.Now().Add(time.Hour))
	if err := q.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := q.store.(*sqliteQueue).clean(ctx); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM river_job`).Scan(&n); err != nil || n != 1 {
		t.Fatalf("%d rows left (%v), want 1", n, err)
	}
}

func TestMigrateDownAndUp(t *testing.T) {
	ctx := testContext(t)
	db := newDB(t)
	q := newSQLiteQueue(t, Config{DB: db, Runner: newRecorder()})
	mustEnqueue(t, q, "a", toolkeep.Normal, time.Time{})
	if err := q.MigrateDown(ctx); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE name LIKE 'river_%'`).Scan(&n); err != nil || n != 0 {
		t.Fatalf("%d tables and indexes left (%v)", n, err)
	}
	for range 2 {
		if err := q.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	mustEnqueue(t, q, "b", toolkeep.Normal, time.Time{})
}

func TestNewRefuses(t *testing.T) {
	db := newDB(t)
	for name, c := range map[string]Config{
		"no database":      {Runner: newRecorder()},
		"no runner":        {DB: db},
		"negative workers": {DB: db, Runner: newRecorder(), Workers: -1},
		"bad periodic":     {DB: db, Runner: newRecorder(), Periodic: []Periodic{{Name: "x"}}},
	} {
		if _, err := NewSQLite(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestHammer(t *testing.T) {
	ctx := testContext(t)
	const writers, each = 8, 25
	var mu sync.Mutex
	ran := map[string]int{}
	all := make(chan struct{})
	q := newSQLiteQueue(t, Config{Workers: 4, Runner: runFunc(func(_ context.Context, ref toolkeep.CallRef) error {
		mu.Lock()
		defer mu.Unlock()
		if ran[ref.ID]++; len(ran) == writers*each && ran[ref.ID] == 1 {
			close(all)
		}
		return nil
	})})
	start(t, q)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				for range 2 {
					if err := enqueue(ctx, q, fmt.Sprintf("%d-%d", w, i), toolkeep.Normal, time.Time{}); err != nil {
						t.Error(err)
						return
					}
				}
				if _, err := q.Depth(ctx); err != nil {
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
		t.Fatalf("only %d of %d calls were run", len(ran), writers*each)
	}
}
