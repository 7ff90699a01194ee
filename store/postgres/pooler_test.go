package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestConformanceThroughPooler: a store behind a PgBouncer in transaction mode passes the
// suite too.
func TestConformanceThroughPooler(t *testing.T) {
	server := pgtest.Start(t)
	dsn, empty := server.Pooler(t, "transaction"), migrated(t, server)
	storetest.Run(t, func(t *testing.T, setup storetest.Setup) (storetest.Store, func() storetest.Store) {
		database := server.NewCopy(t, empty)
		conf := Config{DSN: dsn(database), Clock: setup.Clock, Log: quiet(),
			Enqueue: func(ctx context.Context, _ pgx.Tx, e toolkeep.Enqueue) error { return setup.Enqueue(ctx, e) }}
		s := mustOpen(t, conf)
		if !s.Pooled() || !s.polled() {
			t.Fatalf("the pooler was not noticed: %t, %t", s.Pooled(), s.polled())
		}
		return aging{s, server.DSN(database)}, func() storetest.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			return aging{mustOpen(t, conf), server.DSN(database)}
		}
	})
}

// TestPoolers: two nodes behind each kind of PgBouncer see each other's changes: in session
// mode, and where it drops the parameters of a session instead of refusing them.
func TestPoolers(t *testing.T) {
	server := pgtest.Start(t)
	for mode, settings := range map[string][]string{
		"session":     nil,
		"transaction": {"ignore_startup_parameters = " + idle + ",tcp_user_timeout,tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count,statement_timeout", "default_pool_size = 4"},
	} {
		database, dsn := server.NewName(t), server.Pooler(t, mode, settings...)
		a, b := mustOpen(t, Config{DSN: dsn(database), Node: "a"}), mustOpen(t, Config{DSN: dsn(database), Node: "b"})
		if !a.Pooled() || !a.polled() || a.Details() == nil {
			t.Fatalf("%s: the pooler was not noticed: %t, %t", mode, a.Pooled(), a.polled())
		}
		head, err := a.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const calls = 50
		parallel(calls, func(i int) { mustApply(t, []*Store{a, b}[i%2], key(fmt.Sprint(i))) })
		for _, s := range []*Store{a, b} {
			if list, err := until(testContext(t), s, head, head+calls); err != nil || len(list) != calls {
				t.Fatalf("%s: %d changes, %v", mode, len(list), err)
			}
		}
	}
}

// TestPastThePooler: with a direct connection a node gets notifications although it works
// through a pooler, and without a pooler it needs none.
func TestPastThePooler(t *testing.T) {
	server := pgtest.Start(t)
	database, dsn := server.NewName(t), server.Pooler(t, "transaction")
	pooled := mustOpen(t, Config{DSN: dsn(database), DirectDSN: server.DSN(database), Node: "pooled", pollInterval: limit})
	plain := mustOpen(t, Config{DSN: server.DSN(database), Node: "plain"})
	if plain.Pooled() || plain.polled() || plain.Details() != nil || pooled.polled() || !pooled.Pooled() || pooled.Details() == nil {
		t.Fatalf("pooled: %t, %t; plain: %t, %t", pooled.Pooled(), pooled.polled(), plain.Pooled(), plain.polled())
	}
	head, err := plain.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, plain, key("k1"))
	list, err := until(testContext(t), pooled, head, head+1)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	info, err := Inspect(t.Context(), dsn(database))
	if err != nil || !info.Pooled || info.Schema != info.Newest {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err = Inspect(t.Context(), server.DSN(database)); err != nil || info.Pooled {
		t.Errorf("%+v, %v", info, err)
	}
}
