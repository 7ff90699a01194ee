package postgres

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestArchiveKeep: see storetest.ArchiveKeep, where rows are deleted from the first partitions, and where whole partitions
// are dropped.
func TestArchiveKeep(t *testing.T) {
	server := pgtest.Start(t)
	for name, begin := range map[string]time.Duration{"rows": 0, "partitions": 3 * day} {
		t.Run(name, func(t *testing.T) {
			var clock later
			s := mustOpen(t, Config{DSN: server.NewDatabase(t), Clock: clock.now, feedKeepRows: 1, EventKeep: storetest.ArchiveKeepFor,
				InvocationKeep: storetest.ArchiveKeepFor, ArchiveWait: storetest.ArchiveWait, Tends: func() bool { return false }})
			clock.pass(begin)
			tend(t, s)
			storetest.ArchiveKeep(t, s, clock.now, clock.pass, func() { tend(t, s) }, 2*day)
		})
	}
}

// TestHoldKeep: see storetest.HoldKeep, as TestArchiveKeep.
func TestHoldKeep(t *testing.T) {
	server := pgtest.Start(t)
	for name, begin := range map[string]time.Duration{"rows": 0, "partitions": 3 * day} {
		t.Run(name, func(t *testing.T) {
			var clock later
			s := mustOpen(t, Config{DSN: server.NewDatabase(t), Clock: clock.now, feedKeepRows: 1, EventKeep: storetest.ArchiveKeepFor,
				InvocationKeep: storetest.ArchiveKeepFor, Tends: func() bool { return false }})
			clock.pass(begin)
			tend(t, s)
			storetest.HoldKeep(t, s, clock.now, clock.pass, func() { tend(t, s) }, 2*day)
		})
	}
}

func holdOf(t *testing.T, tenant string, from, until time.Time) toolkeep.Change {
	t.Helper()
	body, err := json.Marshal(toolkeep.LegalHold{From: from, Until: until, Reason: "a case"})
	if err != nil {
		t.Fatal(err)
	}
	return toolkeep.PutDocument{Expect: toolkeep.NoRevision,
		Document: toolkeep.Document{Kind: toolkeep.LegalHoldKind, Tenant: tenant, ID: "h", Body: body, UpdatedBy: "x"}}
}

// TestHeldByTime: a held call stays in whatever partition its id put it, and so does what a hold covers that was made while
// retention was at it.
func TestHeldByTime(t *testing.T) {
	server := pgtest.Start(t)
	var clock later
	dsn := server.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn, Clock: clock.now, feedKeepRows: 1, EventKeep: storetest.ArchiveKeepFor,
		InvocationKeep: storetest.ArchiveKeepFor, Tends: func() bool { return false }})
	clock.pass(3 * day)
	tend(t, s)
	began := clock.now()
	var ids []string
	for i, tenant := range []string{"held", "late"} {
		v := callAt(began.Add(time.Duration(i+1)*day), i, toolkeep.CallSucceeded) // of a later period
		v.Tenant, v.CreatedAt, v.EndedAt = tenant, began, began
		mustApply(t, s, toolkeep.RecordCall{Invocation: v})
		ids = append(ids, v.ID)
	}
	mustApply(t, s, holdOf(t, "held", began.Add(-time.Hour), began.Add(time.Hour)))
	clock.pass(storetest.ArchiveKeepFor + 5*day)
	holds, err := s.holds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, holdOf(t, "late", began.Add(-time.Hour), began.Add(time.Hour)))
	if _, err := s.dropCalls(t.Context(), clock.now().Add(-storetest.ArchiveKeepFor), holds, ""); err != nil {
		t.Fatal(err)
	}
	tend(t, s)
	for _, id := range ids {
		if where(t, dsn, id) == "" {
			t.Errorf("the held call %s is gone", id)
		}
	}
	for _, tenant := range []string{"held", "late"} {
		mustApply(t, s, toolkeep.DeleteDocument{Kind: toolkeep.LegalHoldKind, Tenant: tenant, ID: "h", Expect: toolkeep.AnyRevision, By: "x"})
	}
	tend(t, s)
	for _, id := range ids {
		if p := where(t, dsn, id); p != "" {
			t.Errorf("after the holds the call %s is in %s", id, p)
		}
	}
}

// TestWaitsSinceItEnded: a call that took long waits for the archive from when it ended, and not from when it was made.
func TestWaitsSinceItEnded(t *testing.T) {
	server := pgtest.Start(t)
	for name, begin := range map[string]time.Duration{"rows": 0, "partitions": 3 * day} {
		t.Run(name, func(t *testing.T) {
			var clock later
			dsn := server.NewDatabase(t)
			s := mustOpen(t, Config{DSN: dsn, Clock: clock.now, feedKeepRows: 1, EventKeep: storetest.ArchiveKeepFor,
				InvocationKeep: storetest.ArchiveKeepFor, ArchiveWait: storetest.ArchiveWait, Tends: func() bool { return false }})
			clock.pass(begin)
			tend(t, s)
			made := clock.now()
			soon := callAt(made, 0, toolkeep.CallSucceeded)
			soon.EndedAt = made
			mustApply(t, s, toolkeep.RecordCall{Invocation: soon})
			clock.pass(storetest.ArchiveKeepFor + storetest.ArchiveWait + 4*day)
			var ids []string
			for i := range 20 {
				v := callAt(made, i+1, toolkeep.CallSucceeded)
				v.EndedAt = clock.now()
				mustApply(t, s, toolkeep.RecordCall{Invocation: v})
				ids = append(ids, v.ID)
			}
			there := func() (n int) {
				t.Helper()
				for _, id := range ids {
					if where(t, dsn, id) != "" {
						n++
					}
				}
				return n
			}
			tend(t, s)
			if n := there(); n != len(ids) {
				t.Errorf("before they are archived %d of %d are there", n, len(ids))
			}
			if name == "rows" && where(t, dsn, soon.ID) != "" {
				t.Error("the one that ended long ago is there")
			}
			clock.pass(storetest.ArchiveKeepFor + storetest.ArchiveWait + 4*day)
			tend(t, s)
			if n := there(); n != 0 {
				t.Errorf("after the wait %d are there", n)
			}
		})
	}
}
