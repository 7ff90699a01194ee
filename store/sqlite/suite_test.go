package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T, setup storetest.Setup) (storetest.Store, func() storetest.Store) {
		c := Config{
			Path:  filepath.Join(t.TempDir(), "with space?#%.db"),
			Clock: setup.Clock,
			Enqueue: func(ctx context.Context, _ *sql.Tx, e toolkeep.Enqueue) error {
				return setup.Enqueue(ctx, e)
			},
			Log: quiet(),
		}
		s := mustOpen(t, c)
		return s, func() storetest.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			return mustOpen(t, c)
		}
	})
}
