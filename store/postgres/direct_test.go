package postgres

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// TestOneCallIn: every statement is about the table asked for.
func TestOneCallIn(t *testing.T) {
	for i, v := 0, reflect.ValueOf(*oneCallIn("other")); i < v.NumField(); i++ {
		if query := v.Field(i).String(); strings.Contains(query, "invocations") || !strings.Contains(query, " other ") {
			t.Errorf("%s: %s", v.Type().Field(i).Name, query)
		}
	}
}

// TestDirect: calls of around now are changed in their partition, others through the table, also when
// another node has dropped the partition meanwhile.
func TestDirect(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	var clock later
	s := mustOpen(t, Config{DSN: dsn, Clock: clock.now, InvocationKeep: 10 * day, tendEvery: time.Hour})
	on := func(what, id, want string) {
		t.Helper()
		if c := s.callsIn(id); !strings.HasPrefix(c.move, "UPDATE "+want+" SET") || !strings.HasPrefix(c.renew, "UPDATE "+want+" SET") {
			t.Errorf("%s: %.40s", what, c.move)
		}
	}
	for range 4 {
		clock.pass(day)
		if err := s.makeAhead(ctx); err != nil {
			t.Fatal(err)
		}
	}
	now := clock.now()
	for range 2 { // also when nothing new is there
		if err := s.learnDirect(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for d := -1; d <= 1; d++ {
		at := now.Add(time.Duration(d) * day)
		on("a period around now", idAt(at, 1), named("invocations", at))
	}
	on("the second before", idAt(now.Add(-2*day), 1), "invocations")
	on("the second after", idAt(now.Add(2*day), 1), "invocations")
	on("no time", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "invocations_high")
	on("before the partitions", idAt(now.Add(-100*day), 1), "invocations_first")
	on("none", "", "invocations_first")

	v := callAt(now, 1, toolkeep.CallRunning)
	v.LeaseOwner, v.LeaseUntil = "n", now.Add(time.Minute)
	dropped, before := named("invocations", now), s.direct.Load()
	execute(t, dsn, `DROP TABLE `+dropped)
	on("a partition that was dropped", v.ID, dropped)
	if got, err := s.Invocations().Get(ctx, v.Ref()); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("it is %+v, %v", got, err)
	}
	mustApply(t, s, toolkeep.ClaimCall{Invocation: v})
	on("forgotten by a reader", v.ID, "invocations")
	for i, forget := range []func() error{
		func() error {
			marks, err := s.CallMarks().Marks(ctx, []toolkeep.CallRef{v.Ref(), {Tenant: "t", ID: "a"}})
			if len(marks) != 1 || marks[v.Ref()].State != toolkeep.CallRunning {
				t.Errorf("its marks are %v", marks)
			}
			return err
		},
		func() error {
			return s.Apply(ctx, toolkeep.ReportProgress{Call: v.Ref(), Progress: toolkeep.Progress{Percent: 1}})
		},
		func() error { return s.Apply(ctx, key("a"), toolkeep.RequestCancel{Call: v.Ref(), By: "s"}) },
	} {
		s.direct.Store(before)
		if err := forget(); err != nil {
			t.Error(err)
		}
		on(fmt.Sprint("forgotten by ", i), v.ID, "invocations")
	}
	s.direct.Store(before)
	ended := *v
	ended.State = toolkeep.CallSucceeded
	mustApply(t, s, toolkeep.RenewLeases{Owner: "n", Calls: []toolkeep.CallRef{v.Ref()}, Until: now.Add(time.Hour)})
	on("it is forgotten", v.ID, "invocations")
	if err := s.learnDirect(ctx); err != nil {
		t.Fatal(err)
	}
	on("learned again", v.ID, "invocations")
	mustApply(t, s, toolkeep.MoveCall{Invocation: &ended, From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: "n"})
	if got, err := s.Invocations().Get(ctx, v.Ref()); err != nil || got.State != toolkeep.CallSucceeded {
		t.Errorf("it is %+v, %v", got, err)
	}
}

// TestDirectWithoutPartition: an operator has dropped the partition of before all periods, or that of
// high ids. Their calls go to the default one.
func TestDirectWithoutPartition(t *testing.T) {
	for table, id := range map[string]string{"invocations_first": "0000", "invocations_high": "f47ac10b-58cc-4372-a567-0e02b2c3d479"} {
		dsn := pgtest.NewDatabase(t)
		mustMigrate(t, dsn, -1)
		execute(t, dsn, "DROP TABLE "+table)
		s := mustOpen(t, Config{DSN: dsn})
		for _, id := range []string{id, idAt(time.Now(), 1), idAt(time.Now().Add(2*day), 1), idAt(time.Now().Add(-400*day), 1)} {
			if err := s.Apply(t.Context(), toolkeep.ClaimCall{Invocation: call(id, toolkeep.CallRunning)}); err != nil {
				t.Errorf("without %s: claim %s: %v", table, id, err)
			}
		}
		if got := where(t, dsn, id); got != "invocations_other" {
			t.Errorf("without %s: %s is in %s", table, id, got)
		}
		if list := s.direct.Load(); list == nil || len(*list) == 0 {
			t.Errorf("without %s: no partition is reached directly", table)
		} else {
			for _, d := range *list {
				if d.name == table || d.name == "" {
					t.Errorf("without %s: %q is reached directly", table, d.name)
				}
			}
		}
		tend(t, s)
	}
}

// TestKeyOfNoCall: a key whose call's row is gone is free.
func TestKeyOfNoCall(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn})
	keyed := func(id string) *toolkeep.Invocation {
		v := call(id, toolkeep.CallRunning)
		v.Key, v.CreatedAt = "k", time.Now()
		return v
	}
	for i, others := range [][]toolkeep.Change{nil, {key("a")}} { // also inside a savepoint
		gone, next := keyed(fmt.Sprint("\x00gone", i)), keyed(fmt.Sprint("next", i))
		mustApply(t, s, toolkeep.ClaimCall{Invocation: gone})
		if err := s.Apply(ctx, toolkeep.ClaimCall{Invocation: next}); !errors.Is(err, toolkeep.ErrKeyTaken) {
			t.Errorf("while the call is there: %v", err)
		}
		execute(t, dsn, `DELETE FROM invocations`)
		if _, err := s.Invocations().ByKey(ctx, "t", "s", "k"); !errors.Is(err, toolkeep.ErrNotFound) {
			t.Errorf("ByKey: %v", err)
		}
		if err := s.Apply(ctx, append(others, toolkeep.ClaimCall{Invocation: next})...); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Invocations().ByKey(ctx, "t", "s", "k"); err != nil || v.ID != next.ID {
			t.Errorf("ByKey: %+v, %v", v, err)
		}
		execute(t, dsn, `DELETE FROM invocations`)
	}
}
