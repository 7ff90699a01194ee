package postgres

import (
	"testing"
	"time"

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
