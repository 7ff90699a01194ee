package postgres

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestKeyKeep(t *testing.T) {
	storetest.KeyKeep(t, func(keep time.Duration, clock func() time.Time) storetest.Store {
		return mustOpen(t, Config{DSN: pgtest.NewDatabase(t), KeyKeep: keep, Clock: clock})
	})
}
