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
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// audited is the store that a measurement appends to.
type audited interface {
	archive.Store
	Close() error
}

// sealEvery is the pause between two passes of signing checkpoints and archiving; a server makes a checkpoint a minute.
const sealEvery = time.Second

// audits measures how many entries of the audit a store takes for a while: ends of calls that did not write, and
// events, each in the hash chain of its tenant. Meanwhile all of them are covered by signed checkpoints and archived in
// sealed files; the time until the last one is counts.
func audits(b *bench) (part, error) {
	db, err := startDatabase()
	if err != nil {
		return part{}, err
	}
	defer db.stop()
	p := part{set: fmt.Sprintf("Set: the store alone in this process, %d callers in a closed loop, each waits for the commit of its entry; 10 tenants; "+
		"entries of about 600 bytes; checkpoints of all tenants and sealed archive files on this disk every %s, until all entries are in both; SQLite on this disk, %s, over TCP.", clients, sealEvery, db.set)}
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
			row, err := appending(s, kind, b.d, filepath.Join(b.dir, kind+store.name), store.cpu)
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

// seal returns what signs and archives all that the store has.
func seal(s audited, dir string) (func() error, error) {
	sealer, err := secret.NewSealer()
	if err != nil {
		return nil, err
	}
	files, err := archive.New(archive.Config{Dir: dir, Store: s, Sealer: sealer})
	if err != nil {
		return nil, err
	}
	checkpoints := audit.New(audit.Config{Store: s, Sealer: sealer, Archive: files})
	return func() error {
		if err := checkpoints.Checkpoint(context.Background()); err != nil {
			return err
		}
		return files.Archive(context.Background(), true)
	}, nil
}

// appending appends entries for d, and seals them in dir.
func appending(s audited, kind string, d time.Duration, dir string, store func() time.Duration) ([]string, error) {
	var (
		all    sync.WaitGroup
		n      atomic.Int64
		failed atomic.Pointer[error]
		beside time.Duration
	)
	seal, err := seal(s, dir)
	if err != nil {
		return nil, err
	}
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
	ended, sealing := make(chan struct{}), sync.WaitGroup{}
	sealing.Go(func() {
		for more := true; more && failed.Load() == nil; {
			select {
			case <-ended:
				more = false // the last pass has all
			case <-time.After(sealEvery):
			}
			if err := seal(); err != nil {
				failed.Store(&err)
			}
		}
	})
	all.Wait()
	appended := time.Since(began)
	close(ended)
	sealing.Wait()
	took, count := time.Since(began), float64(n.Load())
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	row := []string{fmt.Sprintf("%.0f", count/took.Seconds()), us(float64((ownCPU() - used).Microseconds()) / count), "-", (took - appended).Round(10 * time.Millisecond).String()}
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
