package postgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/record"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{}, {DSN: "postgres://u:secret@h:port/x"}, {DSN: "host=127.0.0.1 port=1 password=secret"}, {DSN: "host=/tmp", FeedKeep: -1},
	} {
		s, err := Open(t.Context(), c)
		if err == nil {
			s.Close()
			t.Errorf("%+v was opened", c)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "ü", "a\x00b", "\xff", "\x01", "\x0161", "\x01zz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		column := text(s)
		if strings.IndexByte(column, 0) >= 0 || strings.ToValidUTF8(column, "") != column {
			t.Errorf("%q cannot be stored", column)
		}
		if got := plainText(column); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
	})
}

// TestAnyText: arbitrary bytes in text are stored.
func TestAnyText(t *testing.T) {
	s := mustOpen(t, Config{DSN: pgtest.NewDatabase(t)})
	const odd = "a\x00b\xff\x01"
	v := call(odd, toolkeep.CallRunning)
	v.Tenant, v.Subject, v.Session, v.Key, v.LeaseOwner, v.CreatedAt = odd, odd, odd, odd, odd, time.Now()
	w := *v
	w.ID, w.State, w.Key = "w", toolkeep.CallSucceeded, ""
	mustApply(t, s, toolkeep.ClaimCall{Invocation: v}, toolkeep.RecordCall{Invocation: &w},
		toolkeep.RequestCancel{Call: v.Ref(), By: odd, Why: odd}, toolkeep.AppendEvent{Event: toolkeep.Event{ID: odd, Tenant: odd}})
	got, err := s.Invocations().ByKey(t.Context(), odd, odd, odd)
	if err != nil || got.ID != odd || got.Tenant != odd || got.LeaseOwner != odd || got.CancelWhy != odd {
		t.Errorf("got %+v, %v", got, err)
	}
	list, total, err := s.Invocations().List(t.Context(), toolkeep.InvocationFilter{Tenant: odd, Session: odd, Limit: 10})
	if err != nil || total != 2 || len(list) != 2 {
		t.Errorf("got %d, %v", total, err)
	}
	for _, e := range storetest.Entries(t.Context(), t, s) {
		if e.Call != nil && e.Call.Tenant != odd || e.Event != nil && (e.Event.Tenant != odd || e.Event.ID != odd) {
			t.Errorf("the journal has %+v", e)
		}
	}
}

// TestBadNeighbour: a change whose row PostgreSQL rejects fails alone, in any group.
func TestBadNeighbour(t *testing.T) {
	s := mustOpen(t, Config{DSN: pgtest.NewDatabase(t), GroupDelay: 5 * time.Millisecond})
	noise := make([]byte, 30_000) // too long for an index, even compressed
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	long := base64.StdEncoding.EncodeToString(noise)
	parallel(64, func(i int) {
		for n := range 5 {
			v := call(fmt.Sprintf("%d-%d", i, n), toolkeep.CallSucceeded)
			if i == 7 {
				v.Session = long
			}
			changes := []toolkeep.Change{toolkeep.RecordCall{Invocation: v}}
			switch i % 3 {
			case 1:
				changes = append(changes, toolkeep.AppendEvent{Event: toolkeep.Event{ID: v.ID, Tenant: "t"}})
			case 2:
				changes[0] = toolkeep.ClaimCall{Invocation: v}
			}
			err := s.Apply(t.Context(), changes...)
			if bad := i == 7; (err != nil) != bad {
				t.Errorf("caller %d: %v", i, err)
			}
		}
	})
	if err := s.Health(t.Context()); err != nil {
		t.Error(err)
	}
	// Of those that succeeded, 22 callers recorded 5 calls, and 20 an event beside each.
	if all := storetest.Entries(t.Context(), t, s); len(all) != 5*(22+2*20) {
		t.Errorf("the journal has %d entries", len(all))
	}
}

// TestWatchDamage: an unreadable row ends the feed, or the reading of the journal, with the reason.
func TestWatchDamage(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn})
	event := toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}}
	mustApply(t, s, key("a"), toolkeep.PutDocument{Document: toolkeep.Document{Kind: "kind", ID: "b"}}, key("c"), event, event)
	s.Close()
	execute(t, dsn, `UPDATE feed SET data = '\x01ff' WHERE seq = 2`, `UPDATE events SET data = '\x01ff' WHERE entry = 2`)
	s = mustOpen(t, Config{DSN: dsn})
	var got []error
	for _, err := range s.Watch(testContext(t), 0) {
		got = append(got, err)
	}
	if len(got) != 1 || !errors.Is(got[0], record.ErrDamaged) {
		t.Errorf("got %v", got)
	}
	if _, _, err := s.ReadJournal(testContext(t), nil, 10); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("the journal gives %v", err)
	}
}

// TestEnqueue: the queue works in the store's own transaction, and its panic is
// returned as an error.
func TestEnqueue(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	execute(t, dsn, `CREATE TABLE q (id TEXT PRIMARY KEY)`)
	s := mustOpen(t, Config{DSN: dsn, Enqueue: func(ctx context.Context, tx pgx.Tx, e toolkeep.Enqueue) error {
		if e.Call.ID == "panic" {
			panic("boom")
		}
		_, err := tx.Exec(ctx, `INSERT INTO q VALUES ($1)`, e.Call.ID)
		return err
	}})
	put := func(id string, more ...toolkeep.Change) error {
		return s.Apply(t.Context(), append([]toolkeep.Change{
			toolkeep.ClaimCall{Invocation: call(id, toolkeep.CallQueued)}, toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t", ID: id}}}, more...)...)
	}
	parallel(20, func(i int) {
		if err := put(fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	})
	if err := s.Apply(t.Context(), toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t", ID: "alone"}}); err != nil {
		t.Error(err)
	}
	if err := s.Apply(t.Context(), toolkeep.Enqueue{Call: toolkeep.CallRef{Tenant: "t", ID: "alone"}}); err == nil {
		t.Error("the queue's refusal was lost")
	}
	if err := put("panic"); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("a panic gave %v", err)
	}
	if err := put("undone", toolkeep.RequestCancel{Call: toolkeep.CallRef{Tenant: "t", ID: "nobody"}, By: "s"}); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if n := number(t, dsn, `SELECT count(*) FROM q`); n != 21 {
		t.Errorf("the queue has %d", n)
	}
	if n := number(t, dsn, `SELECT count(*) FROM invocations`); n != 20 {
		t.Errorf("there are %d calls", n)
	}
}

// TestTend removes what is past its retention and nothing else.
func TestTend(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	var mu sync.Mutex
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	pass := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	c := Config{DSN: dsn, Clock: clock, feedKeepRows: 3, tendEvery: time.Hour}
	s := mustOpen(t, c)
	old := func(id string, state toolkeep.CallState) *toolkeep.Invocation {
		v := call(id, state)
		v.CreatedAt = clock()
		return v
	}
	call1, err := record.Encode(recorded("of the version before"), clock)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, dsn, `UPDATE feed_head SET seq = 1`, fmt.Sprintf(`INSERT INTO feed (seq, at, kind, tenant, ref, data) VALUES (1, %d, 1, 't', 'old', '\x%x')`,
		record.Micros(now), call1.Data))
	mustApply(t, s, toolkeep.PutKey{Key: toolkeep.APIKey{Tenant: "t", ID: "k"}},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}},
		toolkeep.ClaimCall{Invocation: old("running", toolkeep.CallRunning)})
	for i := range 10 {
		mustApply(t, s, toolkeep.RecordCall{Invocation: old(fmt.Sprint(i), toolkeep.CallSucceeded)},
			toolkeep.PutDocument{Document: toolkeep.Document{Kind: "kind", ID: fmt.Sprint(i)}})
	}
	check := func(what string, keys, items, events, rows int) {
		t.Helper()
		for range 2 {
			if err := s.tend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		kinds := func(kind int) int { return number(t, dsn, `SELECT count(*) FROM feed WHERE kind = $1`, kind) }
		n, e := number(t, dsn, `SELECT count(*) FROM invocations`), number(t, dsn, `SELECT count(*) FROM events`)
		if kinds(record.KindKey) != keys || kinds(record.KindEvent) != items || e != events || n != rows {
			t.Errorf("%s: %d keys, %d items, %d events, %d rows", what, kinds(record.KindKey), kinds(record.KindEvent), e, n)
		}
		if old := kinds(record.KindRecord); (old == 1) != (what == "at once") {
			t.Errorf("%s: %d calls of the version before", what, old)
		}
	}
	check("at once", 1, 10, 1, 11)
	pass(8 * 24 * time.Hour)
	check("after 8 days", 1, 10, 1, 11)
	pass(23 * 24 * time.Hour)
	check("after 31 days", 1, 10, 1, 1) // running calls stay
	pass(60 * 24 * time.Hour)
	check("after 91 days", 1, 3, 0, 1) // the newest three rows stay
	// A new node and one that was away skip the gaps.
	list, err := until(testContext(t), mustOpen(t, c), 0, 12)
	if err != nil || len(list) != 4 || list[0].Seq != 2 || list[1].Seq != 10 {
		t.Errorf("got %v, %v", list, err)
	}
	away := &Store{cfg: s.cfg, pool: s.pool, life: s.life} // has seen nothing yet
	away.ring.Start(0, func(c *toolkeep.Committed) int64 { return c.Seq })
	if err := away.followOnce(); err != nil {
		t.Fatal(err)
	}
	if head, _ := away.ring.Head(); head != 12 {
		t.Errorf("the ring has %d", head)
	}
	execute(t, dsn, `UPDATE writers SET at = now() - interval '92 days'`)
	check("old writers", 1, 3, 0, 1)
	if n := number(t, dsn, `SELECT count(*) FROM writers`); n != 0 {
		t.Errorf("%d writers", n)
	}
	mustApply(t, s, recorded("again")) // inserts its row again
}

func TestStats(t *testing.T) {
	s := mustOpen(t, Config{DSN: pgtest.NewDatabase(t)})
	parallel(20, func(i int) {
		for j := range 20 {
			mustApply(t, s, recorded(fmt.Sprint(i, "-", j)))
		}
	})
	st := s.Stats()
	if st.Rows != 400 || st.Head != 0 || st.Groups >= 400 || st.Groups == 0 || st.MaxConns != 7 {
		t.Errorf("%+v", st)
	}
	s.Close()
	if err := s.Health(t.Context()); !errors.Is(err, toolkeep.ErrClosed) {
		t.Errorf("Health of a closed store: %v", err)
	}
}

// TestNotFoundKeepsConnections: to find nothing is no reason to try again on new connections.
func TestNotFoundKeepsConnections(t *testing.T) {
	s := mustOpen(t, Config{DSN: pgtest.NewDatabase(t), tendEvery: time.Hour, pollInterval: time.Hour})
	for name, get := range map[string]func() error{
		"Get": func() error {
			_, err := s.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: "a"})
			return err
		},
		"ByKey":    func() error { _, err := s.Invocations().ByKey(t.Context(), "t", "s", "k"); return err },
		"Document": func() error { _, err := s.Document(t.Context(), "kind", "t", "a"); return err },
	} {
		before := s.pool.Stat()
		for range 5 {
			if err := get(); !errors.Is(err, toolkeep.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := s.pool.Stat(); after.NewConnsCount()-before.NewConnsCount() >= 5 || after.AcquireCount()-before.AcquireCount() >= 10 {
			t.Errorf("5 of %s took %d connections, %d of them new", name, after.AcquireCount()-before.AcquireCount(), after.NewConnsCount()-before.NewConnsCount())
		}
	}
}
