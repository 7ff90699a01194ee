package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func mustOpen(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Log == nil {
		c.Log = quiet()
	}
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func path(t testing.TB) string { return filepath.Join(t.TempDir(), "t.db") }

// parallel runs f in n goroutines and waits.
func parallel(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

func recorded(id string) toolkeep.RecordCall {
	return toolkeep.RecordCall{Invocation: call(id, toolkeep.CallSucceeded)}
}

func call(id string, state toolkeep.CallState) *toolkeep.Invocation {
	return &toolkeep.Invocation{ID: id, Tenant: "t", Subject: "s", ToolID: "ns.a", State: state,
		CreatedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

func mustApply(t testing.TB, s *Store, changes ...toolkeep.Change) {
	t.Helper()
	if err := s.Apply(t.Context(), changes...); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

func count(t testing.TB, s *Store, query string, args ...any) (n int) {
	t.Helper()
	if err := s.read.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{}, {Path: ":memory:"}, {Path: "file:x"}, {Path: path(t), Synchronous: "OFF"}, {Path: path(t), FeedKeep: -1},
		{Path: filepath.Join(t.TempDir(), "no", "such", "directory.db")},
	} {
		if s, err := Open(t.Context(), c); err == nil {
			s.Close()
			t.Errorf("%+v was opened", c)
		}
	}
}

func TestSettings(t *testing.T) {
	p := path(t)
	s := mustOpen(t, Config{Path: p, Synchronous: "full"})
	mustApply(t, s, recorded("a"))
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "wal_autocheckpoint": "0", "busy_timeout": "5000",
	} {
		var got string
		if err := s.WriteDB().QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, %v, want %s", pragma, got, err, want)
		}
	}
	if n := s.WriteDB().Stats().MaxOpenConnections; n != 1 {
		t.Errorf("%d connections may write", n)
	}
	if _, err := s.read.ExecContext(t.Context(), "DELETE FROM feed"); err == nil {
		t.Error("a reader can write")
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(p + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", suffix, info.Mode().Perm())
		}
	}
}

// TestEnqueueTransaction: the queue writes in the store's transaction.
func TestEnqueueTransaction(t *testing.T) {
	fail := errors.New("no")
	mode := "ok"
	s := mustOpen(t, Config{Path: path(t), Enqueue: func(ctx context.Context, tx *sql.Tx, e toolkeep.Enqueue) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO jobs VALUES (?)", e.Call.ID); err != nil {
			return err
		}
		switch mode {
		case "fail":
			return fail
		case "panic":
			panic("boom")
		}
		return nil
	}})
	if _, err := s.WriteDB().ExecContext(t.Context(), "CREATE TABLE jobs (id TEXT)"); err != nil {
		t.Fatal(err)
	}
	enqueue := func(id string) toolkeep.Enqueue {
		return toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t", ID: id}}
	}
	mustApply(t, s, toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallQueued)}, enqueue("a"))
	mode = "fail"
	if err := s.Apply(t.Context(), enqueue("b")); !errors.Is(err, fail) {
		t.Errorf("got %v", err)
	}
	mode = "panic"
	if err := s.Apply(t.Context(), enqueue("c")); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("got %v", err)
	}
	mode = "ok"
	if err := s.Apply(t.Context(), enqueue("d"), toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallQueued)}); !errors.Is(err, toolkeep.ErrIDTaken) {
		t.Errorf("got %v", err)
	}
	if n := count(t, s, "SELECT count(*) FROM jobs"); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}

	none := mustOpen(t, Config{Path: path(t)})
	if err := none.Apply(t.Context(), enqueue("a")); err == nil {
		t.Error("a store without a queue took a job")
	}
}

// TestRecordTaken: the suite checks the outcome of a recorded call whose id is taken;
// this test checks that it is logged, because indexing finds it later.
func TestRecordTaken(t *testing.T) {
	var log bytes.Buffer
	s := mustOpen(t, Config{Path: path(t), Log: slog.New(slog.NewTextHandler(&log, nil))})
	mustApply(t, s, toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)}, recorded("a"))
	s.Close()
	if !strings.Contains(log.String(), "ids that are taken") {
		t.Errorf("nothing about it in the log: %s", &log)
	}
}

// TestGroups: concurrent Applies share transactions.
func TestGroups(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t), GroupDelay: 2 * time.Millisecond, groupMax: 16})
	const n = 64
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			for j := range 20 {
				if err := s.Apply(t.Context(), recorded(fmt.Sprint(i, "-", j))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	close(start)
	wg.Wait()
	st := s.Stats()
	if st.Rows != n*20 || st.Head != 0 {
		t.Errorf("%+v", st)
	}
	if st.Groups >= st.Rows/2 || st.Groups < st.Rows/16 {
		t.Errorf("%d rows took %d transactions", st.Rows, st.Groups)
	}
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("Health: %v", err)
	}
	s.Close()
	if err := s.Health(t.Context()); !errors.Is(err, toolkeep.ErrClosed) {
		t.Errorf("Health of a closed store: %v", err)
	}
}

// TestWatchDamage: an unreadable row ends the feed, or the journal, with the reason.
func TestWatchDamage(t *testing.T) {
	p := path(t)
	s := mustOpen(t, Config{Path: p})
	for _, id := range []string{"a", "b", "c"} {
		mustApply(t, s, recorded(id), toolkeep.PutDocument{Document: toolkeep.Document{Kind: "kind", ID: id}})
	}
	for _, table := range []string{"feed", "journal"} {
		if _, err := s.WriteDB().ExecContext(t.Context(), "UPDATE "+table+" SET data = x'01ff' WHERE seq = 2"); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = mustOpen(t, Config{Path: p})
	var got []error
	for _, err := range s.Watch(t.Context(), 0) {
		got = append(got, err)
	}
	for _, err := range s.WatchJournal(t.Context(), 0) {
		got = append(got, err)
	}
	_, _, err := s.ReadJournal(t.Context(), nil, 10)
	if got = append(got, err); len(got) != 3 {
		t.Errorf("got %v", got)
	}
	for _, err := range got {
		if !errors.Is(err, record.ErrDamaged) {
			t.Errorf("got %v", err)
		}
	}
}

// TestWALBound: under steady writes the log stays near its limit, and commits do not
// slow down.
func TestWALBound(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t), WALBytes: 256 << 10, GroupDelay: -1})
	payload := bytes.Repeat([]byte("x"), 8<<10)
	for i := range 200 {
		mustApply(t, s, toolkeep.AppendEvent{Event: toolkeep.Event{ID: fmt.Sprint(i), Tenant: "t", Data: payload}})
		if i%20 == 0 {
			if err := s.wal.tend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.wal.tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().WALBytes; n > 512<<10 {
		t.Errorf("the log has %d bytes", n)
	}

	// A long-running reader keeps the log from being truncated, and nothing else.
	tx, err := s.read.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newest(t.Context(), tx, "feed"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		mustApply(t, s, toolkeep.AppendEvent{Event: toolkeep.Event{ID: fmt.Sprint("r", i), Tenant: "t", Data: payload}})
	}
	if err := s.wal.tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !s.wal.blocked {
		t.Error("the reader did not block")
	}
	mustApply(t, s, recorded("still"))
	tx.Rollback()
	if err := s.wal.tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.wal.blocked || s.Stats().WALBytes > 256<<10 {
		t.Errorf("the log has %d bytes after the reader left", s.Stats().WALBytes)
	}
}

// TestKeep: rows past their retention are removed, others stay.
func TestKeep(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	pass := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	s := mustOpen(t, Config{Path: path(t), Clock: clock, feedKeepRows: 10})
	version := toolkeep.Version{Tool: &toolkeep.Tool{ID: "ns.a", Version: "1.0.0", Digest: "d", Raw: []byte(`{}`), Manifest: &toolkeep.Manifest{}}}
	for i := range 500 {
		mustApply(t, s, recorded(fmt.Sprint("old", i)))
	}
	mustApply(t, s, toolkeep.PublishVersion{Version: version},
		toolkeep.PutKey{Key: toolkeep.APIKey{Tenant: "t", ID: "k"}},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}},
		toolkeep.ClaimCall{Invocation: call("open", toolkeep.CallRunning)})
	tend := func() {
		t.Helper()
		if err := s.catchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tend()
	if n := count(t, s, "SELECT (SELECT count(*) FROM feed) + (SELECT count(*) FROM journal)"); n != 503 {
		t.Errorf("%d rows, nothing is old yet", n)
	}
	pass(8 * 24 * time.Hour)
	for i := range 5 {
		mustApply(t, s, recorded(fmt.Sprint("new", i)))
	}
	tend()
	// One of the newest 10 is no call, and 496 are examined.
	if n := count(t, s, "SELECT count(*) FROM journal WHERE kind < ?", record.KindShort); n != 9 {
		t.Errorf("%d whole rows of calls are left", n)
	}
	storetest.CheckChains(t, s) // of the others the hash is left, and their data in the table of calls
	if n := count(t, s, "SELECT count(*) FROM journal WHERE kind = ? AND data = x''", record.KindShort); n != 496 {
		t.Errorf("%d short rows of calls are left", n)
	}
	kinds := make(map[string]int)
	head, _ := s.Head(t.Context())
	for c, err := range s.Watch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[fmt.Sprintf("%T", c.Change)]++
		if c.Seq == head {
			break
		}
	}
	if kinds["toolkeep.PublishVersion"] != 1 || kinds["toolkeep.PutKey"] != 1 {
		t.Errorf("a watch from the start got %v", kinds)
	}
	if n := count(t, s, "SELECT count(*) FROM invocations"); n != 506 {
		t.Errorf("%d invocations", n)
	}

	pass(90 * 24 * time.Hour)
	fresh := make([]toolkeep.Change, 20)
	for i := range fresh {
		r := recorded(fmt.Sprint("fresh", i))
		r.Invocation.CreatedAt = clock()
		fresh[i] = r
	}
	mustApply(t, s, fresh...)
	tend()
	if n := count(t, s, "SELECT count(*) FROM invocations"); n != 21 {
		t.Errorf("%d invocations, want the fresh ones and the one that has not ended", n)
	}
	if n := count(t, s, "SELECT count(*) FROM journal WHERE kind = ?", record.KindEvent); n != 0 {
		t.Errorf("%d events are left", n)
	}
	if n := count(t, s, "SELECT count(*) FROM feed WHERE kind > ?", record.KindEvent); n != 2 {
		t.Errorf("%d changes of catalogue and keys are left", n)
	}
}

// TestIndexBound: the writer makes Apply wait rather than let the index fall behind
// without limit.
func TestIndexBound(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t)})
	for i := range 3 {
		changes := make([]toolkeep.Change, maxPending)
		for j := range changes {
			changes[j] = recorded(fmt.Sprint(i, "-", j))
		}
		mustApply(t, s, changes...)
		if lag := s.Stats().IndexLag; lag >= 2*maxPending { // the limit and one group
			t.Errorf("the index is %d behind", lag)
		}
	}
	if err := s.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, s, "SELECT count(*) FROM invocations"); n != 3*maxPending {
		t.Errorf("%d calls", n)
	}
}

// TestPlans: every query of calls uses an index.
func TestPlans(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t)})
	list := func(f toolkeep.InvocationFilter) string {
		f.Tenant = "t"
		where, _ := filter(f)
		return "INDEXED BY " + indexOf(f) + " WHERE " + where + " ORDER BY created DESC, rowid DESC LIMIT 10"
	}
	for _, c := range []struct{ where, index string }{
		{list(toolkeep.InvocationFilter{}), "invocations_created"},
		{list(toolkeep.InvocationFilter{Subject: "s"}), "invocations_subject"},
		{list(toolkeep.InvocationFilter{ToolID: "s"}), "invocations_tool"},
		{list(toolkeep.InvocationFilter{ToolID: "s", Since: time.Unix(1, 0), Until: time.Unix(2, 0)}), "invocations_tool (tenant=? AND tool=? AND created>? AND created<?)"},
		{list(toolkeep.InvocationFilter{ToolID: "s", Subject: "s"}), "invocations_tool"},
		{list(toolkeep.InvocationFilter{ToolID: "s", State: toolkeep.CallFailed}), "invocations_trouble"},
		{list(toolkeep.InvocationFilter{ToolID: "s", State: toolkeep.CallSucceeded}), "invocations_tool"},
		{list(toolkeep.InvocationFilter{State: toolkeep.CallRunning}), "invocations_created"},
		{list(toolkeep.InvocationFilter{State: toolkeep.CallFailed, Session: "s"}), "invocations_session"},
		{list(toolkeep.InvocationFilter{State: toolkeep.CallFailed}), "invocations_trouble"},
		{list(toolkeep.InvocationFilter{Session: "s"}), "invocations_session"},
		{list(toolkeep.InvocationFilter{Parent: "s"}), "invocations_parent"},
		{"WHERE " + lapsedWhere, "invocations_running"},
		{"WHERE " + overdueWhere, "invocations_waiting"},
		{"WHERE " + unfetchedWhere, "invocations_unfetched"},
		{"WHERE " + byKeyWhere, "invocations_key"},
		{"WHERE " + cancelWhere, "invocations_cancel"},
		{"WHERE (tenant, id) IN (VALUES (?, ?), (?, ?))", "sqlite_autoindex_invocations_1"},
		{"WHERE state = 'queued' GROUP BY priority", "invocations_queued"},
	} {
		rows, err := s.read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN SELECT tenant, id, data FROM invocations "+c.where,
			"t", "x", "x", "x")
		if err != nil {
			t.Fatalf("%s: %v", c.where, err)
		}
		var plan []string
		for rows.Next() {
			var a, b, z int
			var detail string
			if err := rows.Scan(&a, &b, &z, &detail); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, detail)
		}
		rows.Close()
		if text := strings.Join(plan, "; "); !strings.Contains(text, c.index) || strings.Contains(text, "TEMP B-TREE") {
			t.Errorf("%s: %s", c.where, text)
		}
	}
}

// TestQueueWait: the wait grows while the writer is busy, and is 0 afterwards.
func TestQueueWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, err := Open(ctx, Config{Path: path(t), Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		free, done := make(chan struct{}), make(chan error, 1)
		go s.do(ctx, func(context.Context, *writer) error { <-free; return nil })
		synctest.Wait()
		go func() { done <- s.Apply(ctx, toolkeep.RecordCall{Invocation: call("a", toolkeep.CallSucceeded)}) }()
		time.Sleep(time.Second)
		if wait, _ := s.QueueWait(); wait != time.Second {
			t.Errorf("the wait is %s", wait)
		}
		close(free)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if wait, _ := s.QueueWait(); wait != 0 {
			t.Errorf("the wait is %s", wait)
		}
	})
}

// TestListCountsToMaxTotal: a filter that more calls fit than MaxTotal counts that many, one that
// fewer fit counts all.
func TestListCountsToMaxTotal(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t)})
	if err := s.Apply(t.Context(), toolkeep.ClaimCall{Invocation: call("first", toolkeep.CallRunning)}); err != nil {
		t.Fatal(err)
	}
	table(t, s)
	if _, err := s.write.ExecContext(t.Context(), `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
		WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
		SELECT tenant, id || n, subject, CASE WHEN n <= 20 THEN 'few' ELSE tool END, session, parent, state, created + n, data
		FROM invocations, numbers`, toolkeep.MaxTotal+20); err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]int{"": toolkeep.MaxTotal, "few": 20} {
		list, total, err := s.Invocations().List(t.Context(), toolkeep.InvocationFilter{Tenant: "t", ToolID: tool, Limit: 3})
		if err != nil || len(list) != 3 || total != want {
			t.Errorf("%q: %d of %d, want %d: %v", tool, len(list), total, want, err)
		}
	}
}

// TestFindsWithoutLists: a call is found while lists have all their connections, and a caller that gives up does not wait for
// others who look for one.
func TestFindsWithoutLists(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t)})
	v := call("a", toolkeep.CallRunning)
	mustApply(t, s, toolkeep.ClaimCall{Invocation: v})
	table(t, s)
	for range max(4, runtime.GOMAXPROCS(0)) {
		conn, err := s.read.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.Invocations().Get(ctx, v.Ref()); err != nil {
		t.Fatal(err)
	}
	for range cap(s.finds) {
		s.finds <- struct{}{}
	}
	cancel()
	if _, err := s.Invocations().Get(ctx, v.Ref()); !errors.Is(err, context.Canceled) {
		t.Errorf("it got %v without a connection", err)
	}
}
