package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// TestQueueWait: the wait grows while the database does not answer, and is 0 afterwards.
func TestQueueWait(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn})
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "LOCK TABLE api_keys"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Apply(ctx, key("a")) }()
	until := func(is func(wait time.Duration) bool) {
		for wait, _ := s.QueueWait(); !is(wait); wait, _ = s.QueueWait() {
			if ctx.Err() != nil {
				t.Fatalf("the wait is %s: %v", wait, ctx.Err())
			}
			time.Sleep(time.Millisecond)
		}
	}
	until(func(wait time.Duration) bool { return wait > 20*time.Millisecond })
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	until(func(wait time.Duration) bool { return wait == 0 })
}
