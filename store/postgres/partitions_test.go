package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/record"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// idAt returns a UUID of version 7 of a time.
func idAt(at time.Time, n int) string {
	return idBound(at) + fmt.Sprintf("%03x-8000-%012x", n&0xfff, n)
}

// callAt returns a call that was created with its id.
func callAt(at time.Time, n int, state toolkeep.CallState) *toolkeep.Invocation {
	v := call(idAt(at, n), state)
	v.CreatedAt = at
	return v
}

// where returns the partition of a call, "" for none.
func where(t *testing.T, dsn, id string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var name string
	if err := conn.QueryRow(t.Context(), `SELECT tableoid::regclass::text FROM invocations WHERE id = $1`, id).Scan(&name); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return name
}

// noon is that of the day on which the tests started, so that no test meets a midnight.
var noon = time.Now().UTC().Truncate(day).Add(12 * time.Hour)

// later is a clock that stands at noon, or later.
type later struct{ by atomic.Int64 }

func (l *later) now() time.Time       { return noon.Add(time.Duration(l.by.Load())) }
func (l *later) pass(d time.Duration) { l.by.Add(int64(d)) }

func named(table string, at time.Time) string { return table + at.UTC().Format("_20060102") }

// periods returns the names of the partitions of periods.
func periods(t *testing.T, s *Store, p *parted) (names []string) {
	t.Helper()
	list, _, err := p.list(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range list {
		names = append(names, part.name)
	}
	return names
}

func tend(t *testing.T, s *Store) {
	t.Helper()
	if err := s.tend(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestIDBound(t *testing.T) {
	for range 100 {
		id, err := uuid.NewV7()
		if err != nil {
			t.Fatal(err)
		}
		sec, ns := id.Time().UnixTime()
		ms := time.Unix(sec, ns).Truncate(time.Millisecond)
		if low, high := idBound(ms), idBound(ms.Add(time.Millisecond)); id.String() < low || id.String() >= high {
			t.Fatalf("%s is not from %s to %s", id, low, high)
		}
		if back, err := idTime(idBound(ms)); err != nil || !back.Equal(ms) {
			t.Fatalf("%s came back as %s, %v", ms, back, err)
		}
	}
	for _, bad := range []string{"", "02", "019e-7", "019e0000-0000-4", "019e0000-00zz-7"} {
		if at, err := idTime(bad); err == nil {
			t.Errorf("%q is %s", bad, at)
		}
	}
	if high := idBound(partedCalls.last); high != "02000000-0000-7" {
		t.Errorf("the last time of ids is %s", high)
	}
}

// TestMissing: which partitions are made, whatever was there.
func TestMissing(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse("2006-01-02 15", s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		what, now, first string
		keep             time.Duration
		made             string // more partitions, FROM-TO
		want             string
	}{
		{"days", "2026-11-29 10", "2026-11-30 00", 10 * day, "", "20261130-20261201 20261201-20261202"},
		{"nothing to do", "2026-11-29 10", "2026-12-02 00", 10 * day, "", ""},
		{"weeks after days", "2026-11-29 10", "2026-12-01 00", 30 * day, "", "20261201-20261207 20261207-20261214"},
		{"none was made for long", "2026-11-29 10", "2026-10-01 00", 30 * day, "", "20261123-20261130 20261130-20261207 20261207-20261214"},
		{"long", "2026-11-29 10", "2026-11-30 00", 365 * day, "", "20261130-20261207 20261207-20270104 20270104-20270201"},
		{"ids end", "2039-09-06 10", "2039-09-07 00", 10 * day, "", ""},
		{"one was made far ahead", "2026-11-29 10", "2026-11-30 00", 10 * day, "20270130-20270131", "20261130-20261201 20261201-20261202"},
		{"the current one is missing", "2026-12-05 10", "2026-11-30 00", 10 * day, "20261206-20261207 20261207-20261208", "20261205-20261206"},
		{"one between two", "2026-12-05 10", "2026-11-30 00", 10 * day, "20261205-20261206 20261207-20261208", "20261206-20261207"},
		{"days within a week", "2026-12-10 10", "2026-11-30 00", 30 * day, "20261208-20261209 20261210-20261211 20261214-20261221",
			"20261207-20261208 20261209-20261210 20261211-20261214 20261221-20261228"},
		{"nothing to do in the middle of a week", "2026-12-10 10", "2026-11-30 00", 10 * day, "20261207-20261214", ""},
	} {
		made := []partition{{end: at(c.first)}}
		for _, m := range strings.Fields(c.made) {
			from, to, _ := strings.Cut(m, "-")
			start, err := time.Parse("20060102", from)
			end, err1 := time.Parse("20060102", to)
			if err != nil || err1 != nil {
				t.Fatal(err, err1)
			}
			made = append(made, partition{start: start, end: end})
		}
		var got []string
		for _, m := range partedCalls.missing(at(c.now), made, period(c.keep)) {
			got = append(got, m.start.Format("20060102-")+m.end.Format("20060102"))
			if m.name != "invocations_"+m.start.Format("20060102") || m.low != idBound(m.start) || m.high != idBound(m.end) {
				t.Errorf("%s: %+v", c.what, m)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", c.what, s, c.want)
		}
	}
}

// TestPeriod: however long rows stay, the partitions stay few, and a period is a day or whole weeks.
func TestPeriod(t *testing.T) {
	for keep := day; keep < 100*365*day; keep += day {
		p := period(keep)
		if n := (keep + p - 1) / p; n > 30 || p != day && p%(7*day) != 0 {
			t.Fatalf("to keep rows for %d days takes %d partitions of %s", keep/day, n, p)
		}
	}
}

// TestWrongClock: partitions are made for PostgreSQL's time, and a gap that an earlier version left is filled.
func TestWrongClock(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	wrong := func() time.Time { return time.Now().Add(100 * day) }
	s := mustOpen(t, Config{DSN: dsn, Clock: wrong, machine: wrong, InvocationKeep: 10 * day, EventKeep: 10 * day})
	for _, p := range []*parted{&partedCalls, &partedEvents} {
		if got := periods(t, s, p); len(got) == 0 || got[len(got)-1] > named(p.table, time.Now().Add(50*day)) {
			t.Errorf("there are %s", got)
		}
	}
	s = mustOpen(t, Config{DSN: dsn, Clock: wrong, InvocationKeep: 10 * day})
	var clock later
	clock.pass(50 * day)
	mustOpen(t, Config{DSN: dsn, Clock: clock.now, InvocationKeep: 10 * day})
	got := strings.Join(periods(t, s, &partedCalls), " ")
	for _, d := range []time.Duration{50, 51, 52, 100} {
		if name := named("invocations", noon.Add(d*day)); !strings.Contains(got, name) {
			t.Errorf("%s is not in %s", name, got)
		}
	}
}

// aged makes partitions and moves the clock until they are old. It returns those of calls.
func aged(t *testing.T, dsn string, clock *later) (old []string) {
	t.Helper()
	s := mustOpen(t, Config{DSN: dsn, Clock: clock.now, InvocationKeep: 10 * day, EventKeep: 10 * day, tendEvery: time.Hour})
	clock.pass(3 * day)
	tend(t, s)
	old = periods(t, s, &partedCalls)
	clock.pass(20 * day)
	return old
}

// TestPartitionsFail: a partition that cannot be made or dropped stops neither a start nor the others.
func TestPartitionsFail(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	var clock later
	old := aged(t, dsn, &clock)
	part := named("invocations", clock.now())
	execute(t, dsn, `CREATE TABLE `+part+` ()`, `CREATE VIEW one AS SELECT * FROM `+old[0])
	var log strings.Builder
	s := mustOpen(t, Config{DSN: dsn, Clock: clock.now, InvocationKeep: 10 * day, EventKeep: 10 * day, tendEvery: time.Hour,
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	tend(t, s)
	got := periods(t, s, &partedCalls)
	if want := []string{old[0], named("invocations", clock.now().Add(day)), named("invocations", clock.now().Add(2*day))}; !slices.Equal(got, want) {
		t.Errorf("there are %s, want %s", got, want)
	}
	for _, want := range []string{part, old[0]} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %s: %s", want, &log)
		}
	}
}

// TestFullOther: what is in the default partition stops neither a start nor retention, if it is too much to
// make a partition; the log says so once.
func TestFullOther(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	var clock later
	old := aged(t, dsn, &clock)
	var log strings.Builder
	c := Config{DSN: dsn, Clock: clock.now, InvocationKeep: 10 * day, EventKeep: 10 * day, tendEvery: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))}
	fill := `INSERT INTO invocations_other (tenant, id, subject, tool, session, parent, state, created, data)
		SELECT 't', '` + idBound(clock.now()) + `' || lpad(n::text, 3, '0') || '-' || n, 's', 'ns.a', '', '', 'succeeded', ` +
		fmt.Sprint(record.Nanos(clock.now())) + `, '' FROM generate_series(1, %d) AS n`
	today, next := named("invocations", clock.now()), named("invocations", clock.now().Add(day))
	said := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if n := strings.Count(log.String(), "partition="+name); n != 1 {
				t.Errorf("of %s the log says %d times: %s", name, n, &log)
			}
		}
		if !strings.Contains(log.String(), "table=invocations_other") || strings.Contains(log.String(), "ERROR") {
			t.Error("the log says", &log)
		}
		log.Reset()
	}

	execute(t, dsn, fmt.Sprintf(fill, 1000))
	c.otherBytes = 8192
	s := mustOpen(t, c)
	tend(t, s)
	if got := periods(t, s, &partedCalls); len(got) != 0 {
		t.Errorf("there are %s, before there were %s", got, old)
	}
	said(today, next)
	v := callAt(clock.now(), 4000, toolkeep.CallSucceeded)
	mustApply(t, s, toolkeep.RecordCall{Invocation: v})
	if got := where(t, dsn, v.ID); got != "invocations_other" {
		t.Errorf("a call is in %q", got)
	}
	if got := periods(t, s, &partedEvents); len(got) != 1+ahead {
		t.Errorf("of the events there are %s", got)
	}

	// Large enough is the bound, but of one partition there are too many rows.
	c.otherBytes = 0
	execute(t, dsn, `DELETE FROM invocations_other`, fmt.Sprintf(fill, otherRows+1))
	s = mustOpen(t, c)
	tend(t, s)
	if got := periods(t, s, &partedCalls); len(got) != ahead || got[0] != next {
		t.Errorf("there are %s", got)
	}
	said(today)
	execute(t, dsn, `DELETE FROM invocations_other WHERE ctid = (SELECT min(ctid) FROM invocations_other)`)
	tend(t, s)
	if n := number(t, dsn, `SELECT count(*) FROM `+today); n != otherRows {
		t.Errorf("%d rows moved", n)
	}
}

// TestSlowOther: a partition that cannot be made in time stops neither a start nor retention.
func TestSlowOther(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	var clock later
	old := aged(t, dsn, &clock)
	s := mustOpen(t, Config{DSN: dsn, InvocationKeep: 10 * day, EventKeep: 10 * day, tendEvery: time.Hour})
	mustApply(t, s, toolkeep.ClaimCall{Invocation: callAt(clock.now(), 1, toolkeep.CallRunning)})
	execute(t, dsn, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN OLD; END'`,
		`CREATE TRIGGER slow BEFORE DELETE ON invocations_other FOR EACH ROW EXECUTE FUNCTION slow()`)
	var log strings.Builder
	s = mustOpen(t, Config{DSN: dsn, Clock: clock.now, InvocationKeep: 10 * day, EventKeep: 10 * day, tendEvery: time.Hour, timeout: 2 * time.Second,
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	eventually(t, func() bool { // PostgreSQL may hold the locks a little longer
		tend(t, s)
		return !strings.Contains(strings.Join(periods(t, s, &partedCalls), " "), old[0])
	})
	if part := named("invocations", clock.now()); !strings.Contains(log.String(), part) {
		t.Errorf("the log does not say %s: %s", part, &log)
	}
	if got := periods(t, s, &partedEvents); got[len(got)-1] != named("events", clock.now().Add(ahead*day)) {
		t.Errorf("of the events there are %s", got)
	}
}

// TestPartitions: rows are in the partition of their time, those of no time in the others, and a row
// that came before its partition moves there while calls are written.
func TestPartitions(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	var clock later
	s := mustOpen(t, Config{DSN: dsn, Clock: clock.now, InvocationKeep: 10 * day, EventKeep: 10 * day, tendEvery: time.Hour})
	base := noon.Truncate(day)
	future := base.Add(6*day + time.Hour)
	soon := base.Add(2*day + time.Hour)
	rows := map[string]string{
		idAt(soon, 1):                          named("invocations", soon),
		idAt(future, 1):                        "invocations_other",
		idAt(base.Add(-time.Hour), 1):          "invocations_first",
		"00000000-0000-0000-0000-000000000000": "invocations_first",
		"f47ac10b-58cc-4372-a567-0e02b2c3d479": "invocations_high",
		"a":                                    "invocations_high",
	}
	for id, part := range rows {
		v := call(id, toolkeep.CallRunning)
		v.CreatedAt = clock.now()
		mustApply(t, s, toolkeep.ClaimCall{Invocation: v})
		if got := where(t, dsn, id); got != part {
			t.Errorf("%s is in %s, want %s", id, got, part)
		}
	}
	stop, next := make(chan struct{}), atomic.Int64{}
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := int(next.Add(1))
				v := callAt(future, n+1000, toolkeep.CallRunning) // into the default partition, until theirs is made
				v.Key = v.ID
				ended := *v
				ended.State = toolkeep.CallSucceeded
				mustApply(t, s, toolkeep.ClaimCall{Invocation: v})
				mustApply(t, s, toolkeep.MoveCall{Invocation: &ended, From: []toolkeep.CallState{toolkeep.CallRunning}})
			}
		})
	}
	eventually(t, func() bool { return next.Load() > 20 })
	clock.pass(5 * day)
	part := named("invocations", future)
	for number(t, dsn, `SELECT count(*) FROM pg_class WHERE relname = $1`, part) == 0 { // a pass gives up if the locks are not free
		if err := s.makeAhead(ctx); err != nil {
			t.Fatal(err)
		}
	}
	made := next.Load()
	eventually(t, func() bool { return next.Load() > made+20 })
	close(stop)
	writers.Wait()
	if n := number(t, dsn, `SELECT count(*) FROM invocations_other`); n != 0 {
		t.Errorf("%d rows stayed in the default partition", n)
	}
	if n := number(t, dsn, `SELECT count(*) FROM `+part+` WHERE state = 'succeeded'`); n != int(next.Load()) {
		t.Errorf("the new partition has %d calls, %d were made", n, next.Load())
	}
	if got := where(t, dsn, idAt(future, 1)); got != part {
		t.Errorf("the call of the future is in %s", got)
	}
	if n := len(storetest.Entries(ctx, t, s)); n != int(next.Load()) {
		t.Errorf("the journal has %d entries", n)
	}
}

// TestDropPartitions: retention drops what is over and deletes rows only where a call is in the way.
func TestDropPartitions(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	var clock later
	var log strings.Builder
	s := mustOpen(t, Config{DSN: dsn, Clock: clock.now, InvocationKeep: 3 * day, EventKeep: 3 * day, tendEvery: time.Hour,
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	clock.pass(2 * day)
	tend(t, s)
	for i := range 2 {
		at := clock.now()
		mustApply(t, s, toolkeep.RecordCall{Invocation: callAt(at, 10+i, toolkeep.CallSucceeded)},
			toolkeep.ClaimCall{Invocation: callAt(at, 20+i, toolkeep.CallSucceeded)}, toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}})
		clock.pass(day)
		tend(t, s)
	}
	first, second := clock.now().Add(-2*day), clock.now().Add(-day)
	running := callAt(first, 30, toolkeep.CallRunning)
	mustApply(t, s, toolkeep.ClaimCall{Invocation: running})
	execute(t, dsn, `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
		SELECT 't', '`+idBound(first)+`999-' || n, 's', 'ns.a', '', '', 'succeeded', `+fmt.Sprint(record.Nanos(first))+`,
		repeat('x', 1000)::bytea FROM generate_series(1, 3000) AS n`) // several ranges of the BRIN index
	for _, at := range []time.Time{first, second} {
		if n := number(t, dsn, `SELECT count(*) FROM `+named("invocations", at)); n < 2 {
			t.Fatalf("%d calls of %s", n, at)
		}
	}
	clock.pass(3 * day)
	young := callAt(second, 31, toolkeep.CallSucceeded)
	young.CreatedAt = clock.now() // its id says otherwise
	mustApply(t, s, toolkeep.RecordCall{Invocation: young})
	tend(t, s)
	count := func(at time.Time) int { return number(t, dsn, `SELECT count(*) FROM `+named("invocations", at)) }
	if count(first) != 1 || count(second) != 1 {
		t.Errorf("beside the calls that stay there are %d and %d", count(first)-1, count(second)-1)
	}
	if list := periods(t, s, &partedEvents); list[0] <= named("events", second) {
		t.Errorf("of the events there are %s", list)
	}
	if n := number(t, dsn, `SELECT count(*) FROM events`); n != 0 {
		t.Errorf("%d events", n)
	}
	ended := *running
	ended.State = toolkeep.CallSucceeded
	mustApply(t, s, toolkeep.MoveCall{Invocation: &ended, From: []toolkeep.CallState{toolkeep.CallRunning}})

	// While it is read the pass gives up and says so, and calls go on.
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE ONLY `+named("invocations", first)+` IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	tend(t, s)
	if got := periods(t, s, &partedCalls); got[0] != named("invocations", first) && got[1] != named("invocations", first) {
		t.Errorf("it was dropped under the hands of a reader: %s", got)
	}
	if line := log.String(); strings.Count(line, named("invocations", first)) != 1 || !strings.Contains(line, "level=WARN") {
		t.Errorf("the log says %s", line)
	}
	if n := number(t, dsn, `SELECT brin_summarize_new_values(x.indexrelid) FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
		JOIN pg_am AS a ON a.oid = i.relam WHERE x.indrelid = $1::text::regclass AND a.amname = 'brin'`, named("invocations", first)); n != 0 {
		t.Errorf("under the lock of the drop, %d ranges of blocks would be scanned", n)
	}
	mustApply(t, s, toolkeep.RecordCall{Invocation: callAt(clock.now(), 40, toolkeep.CallSucceeded)})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.pass(time.Minute)
	tend(t, s)
	if n := number(t, dsn, `SELECT count(*) FROM pg_class WHERE relname = $1`, named("invocations", first)); n != 0 {
		t.Error("it was not dropped once it was read no longer")
	}
	if _, err := s.Invocations().Get(t.Context(), young.Ref()); err != nil {
		t.Errorf("the young call with an old id: %v", err)
	}
	// An id of a period that was dropped is as good as any other.
	late := callAt(first, 50, toolkeep.CallSucceeded)
	late.CreatedAt = clock.now()
	mustApply(t, s, toolkeep.RecordCall{Invocation: late})
	if got := where(t, dsn, late.ID); got != "invocations_other" {
		t.Errorf("it is in %q", got)
	}
}

// TestKeysAcrossPartitions: a key is held once, whatever partitions the ids are in, and a claim that
// fails leaves none behind.
func TestKeysAcrossPartitions(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	var clock later
	s := mustOpen(t, Config{DSN: dsn, Clock: clock.now, InvocationKeep: 10 * day, tendEvery: time.Hour})
	keyed := func(at time.Time, n int, key string) *toolkeep.Invocation {
		v := callAt(at, n, toolkeep.CallRunning)
		v.Key, v.CreatedAt = key, clock.now()
		return v
	}
	now := clock.now()
	tomorrow := now.Add(2 * day)
	keys := func(want int) {
		t.Helper()
		if n := number(t, dsn, `SELECT count(*) FROM call_keys`); n != want {
			t.Errorf("%d keys, want %d", n, want)
		}
	}
	refused := func(want error, changes ...toolkeep.Change) {
		t.Helper()
		if err := s.Apply(ctx, changes...); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	holder := keyed(tomorrow, 1, "k")
	mustApply(t, s, toolkeep.ClaimCall{Invocation: holder})
	refused(toolkeep.ErrKeyTaken, toolkeep.ClaimCall{Invocation: keyed(now, 2, "k")})
	if v, err := s.Invocations().ByKey(ctx, "t", "s", "k"); err != nil || v.ID != holder.ID {
		t.Errorf("ByKey: %+v, %v", v, err)
	}
	keys(1)
	// An id that is taken, also within one group and together with other changes.
	again := keyed(tomorrow, 1, "other")
	refused(toolkeep.ErrIDTaken, toolkeep.ClaimCall{Invocation: again})
	refused(toolkeep.ErrIDTaken, key("a"), toolkeep.ClaimCall{Invocation: again})
	refused(toolkeep.ErrNotFound, toolkeep.ClaimCall{Invocation: keyed(now, 3, "third")}, toolkeep.RequestCancel{Call: toolkeep.CallRef{Tenant: "t", ID: "none"}, By: "s"})
	keys(1)

	// Another transaction takes the id while the claim is under way.
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, changes := range [][]toolkeep.Change{
		{toolkeep.ClaimCall{Invocation: keyed(now, 100, "race")}},
		{key("b"), toolkeep.ClaimCall{Invocation: keyed(now, 101, "race")}},
	} {
		id := changes[len(changes)-1].(toolkeep.ClaimCall).Invocation.ID
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data)
			SELECT tenant, $1, subject, tool, session, parent, state, created, data FROM invocations WHERE id = $2`, id, holder.ID); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Apply(ctx, changes...) }()
		eventually(t, func() bool {
			return number(t, dsn, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
		})
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, toolkeep.ErrIDTaken) {
			t.Errorf("got %v", err)
		}
		keys(1)
	}

	// Who does not hold a key cannot free it.
	end := func(v *toolkeep.Invocation) toolkeep.Change {
		ended := *v
		ended.State = toolkeep.CallFailed
		return toolkeep.MoveCall{Invocation: &ended, From: []toolkeep.CallState{toolkeep.CallRunning}, FreeKey: true}
	}
	stranger := keyed(now, 4, "")
	mustApply(t, s, toolkeep.ClaimCall{Invocation: stranger})
	stranger.Key = "k"
	mustApply(t, s, end(stranger))
	keys(1)
	mustApply(t, s, end(holder))
	keys(0)
	mustApply(t, s, toolkeep.ClaimCall{Invocation: keyed(now, 5, "k")})

	// A renamed call takes its key along.
	renamed := keyed(now, 5, "k")
	renamed.Subject = "heir"
	mustApply(t, s, toolkeep.MoveCall{Invocation: renamed, From: []toolkeep.CallState{toolkeep.CallRunning}})
	if v, err := s.Invocations().ByKey(ctx, "t", "heir", "k"); err != nil || v.ID != renamed.ID {
		t.Errorf("ByKey of the new subject: %+v, %v", v, err)
	}
	keys(1)
	tend(t, s)
	keys(1)
	clock.pass(record.KeyHolds + time.Minute)
	tend(t, s)
	keys(0)
}

// TestMigratePartitions: the tables of the version before become partitions with all that is in them, and
// go back.
func TestMigratePartitions(t *testing.T) {
	const before = 10
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	mustMigrate(t, dsn, before)
	now := time.Now().UTC()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `INSERT INTO writers (name, number, committed) VALUES ('one', 3, 3), ('two', 9, 9), ('none', 0, 0)`); err != nil {
		t.Fatal(err)
	}
	type row struct {
		id, key, part string
		state         toolkeep.CallState
		at            time.Time
		entry         int64
	}
	rows := []row{
		{idAt(now.Add(-40*day), 1), "", "invocations_first", toolkeep.CallSucceeded, now.Add(-40 * day), 1},
		{idAt(now.Add(-40*day), 2), "", "invocations_first", toolkeep.CallRunning, now.Add(-40 * day), 0},
		{idAt(now, 3), "young", "invocations_first", toolkeep.CallSucceeded, now.Add(-time.Hour), 2},
		{idAt(now, 4), "old", "invocations_first", toolkeep.CallSucceeded, now.Add(-26 * time.Hour), 3},
		{"f47ac10b-58cc-4372-a567-0e02b2c3d479", "of four", "invocations_high", toolkeep.CallRunning, now, 0},
		{"00000000-0000-4372-a567-0e02b2c3d479", "", "invocations_first", toolkeep.CallSucceeded, now, 4},
		{idAt(now.Add(300*day), 5), "", "invocations_other", toolkeep.CallSucceeded, now, 7},
	}
	for _, r := range rows {
		v := call(r.id, r.state)
		v.CreatedAt, v.Key = r.at, r.key
		e, err := record.Encode(toolkeep.ClaimCall{Invocation: v}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		var writer, entry *int64
		if r.entry != 0 {
			one := int64(1)
			writer, entry = &one, &r.entry
		}
		if _, err := conn.Exec(ctx, `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, hold_key, data, writer, entry)
			VALUES ('t', $1, 's', 'ns.a', '', '', $2, $3, $4, $5, $6, $7)`, r.id, string(r.state), record.Nanos(r.at), r.key, e.CallData, writer, entry); err != nil {
			t.Fatal(err)
		}
	}
	for i, at := range []time.Time{now.Add(-time.Hour), now.Add(100 * day)} {
		e, err := record.Encode(toolkeep.AppendEvent{Event: toolkeep.Event{ID: fmt.Sprint("e", i), Tenant: "t"}}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, `INSERT INTO events (writer, entry, at, tenant, id, data) VALUES (2, $1, $2, 't', $3, $4)`,
			i+1, record.Micros(at), e.Ref, e.Data); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string) {
		t.Helper()
		s := mustOpen(t, Config{DSN: dsn})
		defer s.Close()
		for _, r := range rows {
			v, err := s.Invocations().Get(ctx, toolkeep.CallRef{Tenant: "t", ID: r.id})
			if err != nil || v.State != r.state || !v.CreatedAt.Equal(r.at) {
				t.Errorf("%s: %s came as %+v, %v", what, r.id, v, err)
			}
			if got := where(t, dsn, r.id); got != r.part {
				t.Errorf("%s: %s is in %s, want %s", what, r.id, got, r.part)
			}
			held := r.key != "" && r.key != "old"
			claim := callAt(now, 900, toolkeep.CallRunning)
			claim.Key = r.key
			if v, err := s.Invocations().ByKey(ctx, "t", "s", r.key); held && (err != nil || v.ID != r.id) || !held && !errors.Is(err, toolkeep.ErrNotFound) {
				t.Errorf("%s: key %q: %+v, %v", what, r.key, v, err)
			} else if err := s.Apply(ctx, toolkeep.ClaimCall{Invocation: claim}, toolkeep.RequestCancel{Call: toolkeep.CallRef{Tenant: "t", ID: "none"}, By: "s"}); errors.Is(err, toolkeep.ErrKeyTaken) != held {
				t.Errorf("%s: a claim of %q: %v", what, r.key, err)
			}
		}
		var got []string
		for _, e := range storetest.Entries(ctx, t, s) {
			got = append(got, fmt.Sprint(e.Writer, "/", e.Seq))
		}
		if want := "1/1 1/2 1/3 1/4 1/7 2/1 2/2"; strings.Join(got, " ") != want {
			t.Errorf("%s: the journal has %s, want %s", what, got, want)
		}
	}
	check("up")
	mustMigrate(t, dsn, before)
	if n := number(t, dsn, `SELECT count(*) FROM invocations`); n != len(rows) {
		t.Errorf("%d calls went back", n)
	}
	if n := number(t, dsn, `SELECT count(*) FROM invocations WHERE hold_key IN ('young', 'of four')`); n != 2 {
		t.Errorf("%d keys went back", n)
	}
	if n := number(t, dsn, `SELECT count(*) FROM events`); n != 2 {
		t.Errorf("%d events went back", n)
	}
	if n := number(t, dsn, `SELECT version FROM toolkeep_floor`); n != packVersion {
		t.Errorf("the floor is %d", n)
	}
	check("up again")
}

// TestIsBusy: a partition is busy while it has a call in any state that is no end, or a young one.
func TestIsBusy(t *testing.T) {
	s := mustOpen(t, Config{DSN: pgtest.NewDatabase(t), tendEvery: time.Hour})
	old := time.Now().Add(-day)
	busy := func(want bool, what string) {
		t.Helper()
		if got, err := s.isBusy(t.Context(), "invocations", old.Add(time.Hour)); err != nil || got != want {
			t.Errorf("with %s: %t, %v", what, got, err)
		}
	}
	mustApply(t, s, toolkeep.RecordCall{Invocation: callAt(old, 0, toolkeep.CallSucceeded)})
	for i, state := range []toolkeep.CallState{toolkeep.CallAccepted, toolkeep.CallPendingApproval, toolkeep.CallQueued, toolkeep.CallRunning, toolkeep.CallInputRequired} {
		v := callAt(old, 1+i, state)
		mustApply(t, s, toolkeep.ClaimCall{Invocation: v})
		busy(true, string(state))
		ended := *v
		ended.State = toolkeep.CallSucceeded
		mustApply(t, s, toolkeep.MoveCall{Invocation: &ended, From: []toolkeep.CallState{state}})
		busy(false, "none")
	}
	mustApply(t, s, toolkeep.RecordCall{Invocation: callAt(time.Now(), 9, toolkeep.CallSucceeded)})
	busy(true, "a young one")
}
