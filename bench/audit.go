package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// audited is the store that a measurement appends to.
type audited interface {
	toolkeep.Applier
	Close() error
}

// audits measures how many entries of the audit a store takes for a while: ends of calls that did not write, and
// events, each in the hash chain of its tenant.
func audits(b *bench) (part, error) {
	db, err := startDatabase()
	if err != nil {
		return part{}, err
	}
	defer db.stop()
	p := part{set: fmt.Sprintf("Set: the store alone in this process, %d callers in a closed loop, each waits for the commit of its entry; 10 tenants; "+
		"entries of about 600 bytes; SQLite on this disk, %s, over TCP.", clients, db.set)}
	for _, kind := range []string{"ends of calls", "events"} {
		dsn, err := db.create("audit" + kind[:4])
		if err != nil {
			return part{}, err
		}
		for _, store := range []struct {
			name string
			open func() (audited, error)
			cpu  func() time.Duration
		}{
			{"SQLite, NORMAL", func() (audited, error) {
				return sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(b.dir, kind+".db")})
			}, nil},
			{"SQLite, FULL", func() (audited, error) {
				return sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(b.dir, kind+"-full.db"), Synchronous: "FULL"})
			}, nil},
			{"PostgreSQL", func() (audited, error) { return postgres.Open(context.Background(), postgres.Config{DSN: dsn}) }, db.cpu},
		} {
			s, err := store.open()
			if err != nil {
				return part{}, fmt.Errorf("%s: %w", store.name, err)
			}
			row, err := appending(s, kind, b.d, store.cpu)
			if err != nil {
				return part{}, fmt.Errorf("%s: %w", store.name, err)
			}
			if err := s.Close(); err != nil {
				return part{}, err
			}
			p.rows = append(p.rows, append([]string{kind + ", " + store.name}, row...))
		}
	}
	return p, nil
}

// appending appends entries for d.
func appending(s audited, kind string, d time.Duration, store func() time.Duration) ([]string, error) {
	var (
		all    sync.WaitGroup
		n      atomic.Int64
		failed atomic.Pointer[error]
		beside time.Duration
	)
	if store != nil {
		beside = -store()
	}
	began, used := time.Now(), ownCPU()
	for range clients {
		all.Go(func() {
			for time.Since(began) < d && failed.Load() == nil {
				if err := s.Apply(context.Background(), entry(kind, n.Add(1))); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	all.Wait()
	took, count := time.Since(began), float64(n.Load())
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	row := []string{fmt.Sprintf("%.0f", count/took.Seconds()), us(float64((ownCPU() - used).Microseconds()) / count), "-"}
	if store != nil {
		row[2] = us(float64((beside + store()).Microseconds()) / count)
	}
	return row, nil
}

// entry is the nth entry of a kind.
func entry(kind string, n int64) toolkeep.Change {
	now, tenant, id := time.Now(), fmt.Sprintf("tenant-%d", n%10), uuid.Must(uuid.NewV7()).String()
	if kind == "events" {
		return toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Type: "ai.agent.secret.accessed", Tenant: tenant, Time: now,
			Data: canon.Append(nil, map[string]any{"agent_did": "agent-17", "tool_id": "billing.refund", "tool_version": "1.2.0", "names": []any{"secret://billing/token"},
				"session_id": id, "invocation_id": id, "key_id": "k_0123456789", "reason": "a call of the tool, which reads its credential from the store of secrets"})}}
	}
	return toolkeep.RecordCall{Invocation: &toolkeep.Invocation{ID: id, Tenant: tenant, Subject: "agent-17", Session: "s_01234567", OnBehalf: "user-4711", ToolID: "billing.refund",
		Version: "1.2.0", Digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", State: toolkeep.CallSucceeded, CallID: "c_0123456789abcdef",
		AskHash: [32]byte{1}, ArgsHash: [32]byte{2}, ArgsSize: 580, CreatedAt: now, StartedAt: now, EndedAt: now, Attempts: 1, ToolUS: 12, TotalUS: 78, OutputSize: 600}}
}
