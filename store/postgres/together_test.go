package postgres

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestTogether: claims and moves sent to the server in one message have the same
// outcomes as one after the other, and the feed has their order.
func TestTogether(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn, timeout: 30 * time.Second})
	now := time.Now()
	keyed := func(id, key string, at time.Time) *toolkeep.Invocation {
		v := call(id, toolkeep.CallRunning)
		v.Key, v.CreatedAt = key, at
		return v
	}
	claim := func(id, key string) toolkeep.Change { return toolkeep.ClaimCall{Invocation: keyed(id, key, now)} }
	move := func(id, session string, from, to toolkeep.CallState) toolkeep.Change {
		v := keyed(id, "", now)
		v.State, v.Session = to, session
		return toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{from}}
	}
	for _, v := range []*toolkeep.Invocation{
		keyed("holder", "held", now), keyed("old", "lapsed", now.Add(-25*time.Hour)), keyed("running", "", now), keyed("renamed", "", now),
	} {
		mustApply(t, s, toolkeep.ClaimCall{Invocation: v})
	}
	groups := s.Stats().Groups

	// Another transaction holds the writer's row, so that the first Apply waits and the
	// others queue behind it.
	other, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	tx, err := other.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "SELECT number FROM writers FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	apply := func(c toolkeep.Change) <-chan error {
		done := make(chan error, 1)
		go func() { done <- s.Apply(ctx, c) }()
		return done
	}
	first := apply(claim("first", ""))
	eventually(t, func() bool {
		return number(t, dsn, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	})

	cases := []struct {
		what   string
		change toolkeep.Change
		want   error
	}{
		{"a", claim("a", "ka"), nil},
		{"a key that is held", claim("b", "held"), toolkeep.ErrKeyTaken},
		{"an id that is taken", claim("holder", ""), toolkeep.ErrIDTaken},
		{"c", claim("c", "lapsed"), nil},
		{"a key that the one before took from its holder", claim("d", "lapsed"), toolkeep.ErrKeyTaken},
		{"r", recorded("r"), nil},
		{"running", move("running", "", toolkeep.CallRunning, toolkeep.CallSucceeded), nil},
		{"an unknown call", move("nobody", "", toolkeep.CallRunning, toolkeep.CallFailed), toolkeep.ErrStale},
		{"the id of a call recorded in the same group", claim("r", ""), toolkeep.ErrIDTaken},
		{"renamed", move("renamed", "other", toolkeep.CallRunning, toolkeep.CallSucceeded), nil},
		{"e", claim("e", "ke"), nil},
		{"the key of the one before", claim("f", "ke"), toolkeep.ErrKeyTaken},
		{"a call moved before in the same group", move("running", "", toolkeep.CallRunning, toolkeep.CallFailed), toolkeep.ErrStale},
		{"a", move("a", "", toolkeep.CallRunning, toolkeep.CallFailed), nil},
	}
	var outcomes []<-chan error
	for i, c := range cases {
		outcomes = append(outcomes, apply(c.change))
		eventually(t, func() bool { return s.queue.Len() == i+1 })
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	for i, c := range cases {
		if err := <-outcomes[i]; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	if n := s.Stats().Groups - groups; n != 2 {
		t.Errorf("%d groups, want that of the first and one for all others", n)
	}
	var got []string
	for _, e := range storetest.Entries(ctx, t, s) {
		got = append(got, e.Call.ID)
	}
	if want := []string{"r", "running", "renamed", "a"}; !slices.Equal(got, want) {
		t.Errorf("the journal has %q, want %q", got, want)
	}
	for id, want := range map[string]toolkeep.CallState{"running": toolkeep.CallSucceeded, "renamed": toolkeep.CallSucceeded, "a": toolkeep.CallFailed,
		"c": toolkeep.CallRunning, "r": toolkeep.CallSucceeded} {
		if v, err := s.Invocations().Get(ctx, toolkeep.CallRef{Tenant: "t", ID: id}); err != nil || v.State != want {
			t.Errorf("%s is %+v, %v", id, v, err)
		}
	}
}

// eventually polls until f holds.
func eventually(t *testing.T, f func() bool) {
	t.Helper()
	ctx := testContext(t)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			t.Fatal("it did not come to that in time")
		case <-tick.C:
		}
	}
}
