package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	goleak.VerifyTestMain(pgtest.Main{M: m})
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func mustOpen(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Log == nil {
		c.Log = quiet()
	}
	s, err := Open(context.Background(), c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func recorded(id string) toolkeep.RecordCall {
	return toolkeep.RecordCall{Invocation: call(id, toolkeep.CallSucceeded)}
}

func key(id string) toolkeep.PutKey {
	return toolkeep.PutKey{Key: toolkeep.APIKey{Tenant: "t", ID: id}}
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

// parallel runs f in n goroutines and waits.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// migrated creates a database of the newest schema, for copies of it: the suite needs some sixty.
func migrated(t *testing.T, server *pgtest.Server) string {
	t.Helper()
	name := server.NewName(t)
	mustMigrate(t, server.DSN(name), -1)
	return name
}

func TestConformance(t *testing.T) {
	server := pgtest.Start(t)
	empty := migrated(t, server)
	storetest.Run(t, func(t *testing.T, setup storetest.Setup) (storetest.Store, func() storetest.Store) {
		c := Config{
			DSN:   server.DSN(server.NewCopy(t, empty)),
			Clock: setup.Clock,
			Enqueue: func(ctx context.Context, _ pgx.Tx, e toolkeep.Enqueue) error {
				return setup.Enqueue(ctx, e)
			},
			Log: quiet(),
		}
		s := mustOpen(t, c)
		return aging{s, c.DSN}, func() storetest.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			return aging{mustOpen(t, c), c.DSN}
		}
	})
}

// aging is a Store whose nodes the suite can make older: the database's clock counts.
type aging struct {
	*Store
	dsn string
}

func (a aging) Age(t *testing.T, d time.Duration) {
	t.Helper()
	by := fmt.Sprintf("interval '%d milliseconds'", d.Milliseconds())
	execute(t, a.dsn, `UPDATE nodes SET seen = seen - `+by, `UPDATE leads SET until = until - `+by)
}
