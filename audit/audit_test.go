package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

type testStore interface {
	audit.Store
	Close() error
}

// place is a database with a store on it, which SQL reaches too.
type place struct {
	*testing.T
	postgres bool
	open     func() testStore
	store    testStore
	db       *sql.DB
	audit    *audit.Audit
	sealer   *secret.Sealer

	mu  sync.Mutex
	now time.Time
}

func (p *place) clock() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *place) pass(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

func (p *place) begin() {
	p.store = p.open()
	p.Cleanup(func() { p.store.Close() })
	p.audit = audit.New(audit.Config{Store: p.store, Sealer: p.sealer, Clock: p.clock, Log: slog.New(slog.DiscardHandler)})
}

// again is another run of the process.
func (p *place) again() {
	if err := p.store.Close(); err != nil {
		p.Fatal(err)
	}
	p.begin()
}

func (p *place) exec(query string, args ...any) {
	p.Helper()
	if _, err := p.db.Exec(query, args...); err != nil {
		p.Fatalf("%s: %v", query, err)
	}
}

func (p *place) event(tenant, id string) {
	p.Helper()
	err := p.store.Apply(p.Context(), toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Tenant: tenant, Type: "ai.agent.auth.failed", Time: p.clock(),
		Data: []byte(`{"agent_did":"a","id":"` + id + `"}`)}})
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) call(tenant, id string) {
	p.Helper()
	err := p.store.Apply(p.Context(), toolkeep.RecordCall{Invocation: &toolkeep.Invocation{ID: id, Tenant: tenant, Subject: "alice", ToolID: "ns.tool",
		State: toolkeep.CallSucceeded, CreatedAt: p.clock(), EndedAt: p.clock()}})
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) checkpoint() {
	p.Helper()
	if err := p.audit.Checkpoint(p.Context()); err != nil {
		p.Fatalf("Checkpoint: %v", err)
	}
}

// verify goes through all parts.
func (p *place) verify(tenant string, since time.Time) (all audit.Report) {
	p.Helper()
	all.Intact = true
	for q := (audit.Query{Tenant: tenant, Since: since}); ; {
		r, err := p.audit.Verify(p.Context(), q)
		if err != nil {
			p.Fatalf("Verify: %v", err)
		}
		all.Intact = all.Intact && r.Intact
		all.Checkpoints, all.Entries, all.Open = all.Checkpoints+r.Checkpoints, all.Entries+r.Entries, all.Open+r.Open
		all.Faults = append(all.Faults, r.Faults...)
		if r.From != nil && all.From == nil {
			all.From = r.From
		}
		all.Newest = r.Newest
		if q.Cursor = r.Next; q.Cursor == "" {
			return all
		}
	}
}

// intact fails unless nothing is wrong.
func (p *place) intact(tenant string, checkpoints, entries, open int) {
	p.Helper()
	if r := p.verify(tenant, time.Time{}); !r.Intact || r.Checkpoints != checkpoints || r.Entries != entries || r.Open != open {
		p.Fatalf("tenant %q: want %d checkpoints, %d entries, %d open; got %+v", tenant, checkpoints, entries, open, r)
	}
}

// each runs a test on both stores, with 10 events and a call of each of two tenants in two checkpoints, and one
// event more that none covers.
func each(t *testing.T, f func(p *place)) {
	setup := func(p *place) {
		var err error
		if p.sealer, err = secret.NewSealer(); err != nil {
			p.Fatal(err)
		}
		p.now = time.Now().UTC().Truncate(time.Microsecond)
		p.begin()
		for part := range 2 {
			for i := range 5 {
				p.event("t", fmt.Sprint("e", part*5+i))
				p.event("u", fmt.Sprint("u", part*5+i))
			}
			p.call("t", fmt.Sprint("c", part))
			p.checkpoint()
			p.pass(time.Minute)
		}
		p.event("t", "newest")
		p.intact("t", 2, 13, 1)
		p.intact("u", 2, 10, 0)
		f(p)
		if !p.Failed() && p.verify("u", time.Time{}).Faults != nil {
			p.Error("the chain of another tenant has faults")
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "t.db")
		p := &place{T: t}
		p.open = func() testStore {
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Clock: p.clock, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		var err error
		if p.db, err = sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)"); err != nil {
			t.Fatal(err)
		}
		defer p.db.Close()
		setup(p)
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := pgtest.Start(t).NewDatabase(t)
		p := &place{T: t, postgres: true}
		p.open = func() testStore {
			s, err := postgres.Open(context.Background(), postgres.Config{DSN: dsn, Clock: p.clock, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		var err error
		if p.db, err = sql.Open("pgx", dsn); err != nil {
			t.Fatal(err)
		}
		defer p.db.Close()
		setup(p)
	})
}

// TestTampering changes what is stored, by SQL, in every way that the audit must find.
func TestTampering(t *testing.T) {
	each(t, func(p *place) {
		// The statements put everything back, so that one database serves all.
		events, id, number := "journal", "ref", "seq"
		if p.postgres {
			events, id, number = "events", "id", "entry"
		}
		in := strings.NewReplacer("EVENTS", events, "ID", id, "NUMBER", number).Replace
		for _, c := range []struct {
			name, kind, entry string
			do                func()
		}{
			{"a byte changed", audit.FaultChanged, "e3", func() {
				p.exec(in(`UPDATE EVENTS SET data = (SELECT data FROM EVENTS WHERE ID = 'e4') WHERE ID = 'e3'`))
			}},
			{"a time changed", audit.FaultChanged, "e3", func() { p.exec(in(`UPDATE EVENTS SET at = at + 1 WHERE ID = 'e3'`)) }},
			{"an id changed", audit.FaultChanged, "x", func() { p.exec(in(`UPDATE EVENTS SET ID = 'x' WHERE ID = 'e3'`)) }},
			{"a hash changed", audit.FaultChanged, "e3", func() {
				p.exec(in(`UPDATE EVENTS SET hash = (SELECT hash FROM EVENTS WHERE ID = 'e5') WHERE ID = 'e3'`))
			}},
			{"one removed", audit.FaultMissing, "e4", func() { p.exec(in(`DELETE FROM EVENTS WHERE ID = 'e3'`)) }},
			{"the first removed", audit.FaultMissing, "e1", func() { p.exec(in(`DELETE FROM EVENTS WHERE ID = 'e0'`)) }},
			{"the newest of a checkpoint removed", audit.FaultMissing, "", func() {
				if p.postgres {
					p.exec(`DELETE FROM invocations WHERE id = 'c1'`)
				} else {
					p.exec(`DELETE FROM journal WHERE ref = 'c1'`)
				}
			}},
			{"one added without a hash", audit.FaultAdded, "forged", func() { p.forge(in, `NULL`) }},
			{"one added with a hash", audit.FaultChanged, "forged", func() { p.forge(in, `(SELECT hash FROM EVENTS WHERE ID = 'e1')`) }},
			{"a checkpoint removed", audit.FaultMissing, "", func() { p.exec(`DELETE FROM items WHERE kind = 'audit_checkpoint' AND tenant = 't' AND id = '1'`) }},
			{"a checkpoint replaced by another", audit.FaultReordered, "", func() {
				p.exec(`UPDATE items SET body = (SELECT body FROM items WHERE kind = 'audit_checkpoint' AND tenant = 't' AND id = '2') WHERE kind = 'audit_checkpoint' AND tenant = 't' AND id = '1'`)
			}},
			{"a checkpoint of another tenant", audit.FaultUnsigned, "", func() {
				p.exec(`UPDATE items SET body = (SELECT body FROM items WHERE kind = 'audit_checkpoint' AND tenant = 'u' AND id = '1') WHERE kind = 'audit_checkpoint' AND tenant = 't' AND id = '1'`)
			}},
			{"the list of checkpoints changed", audit.FaultChanged, "", func() {
				p.exec(`UPDATE items SET body = (SELECT body FROM items WHERE kind = 'audit_head' AND tenant = 'u') WHERE kind = 'audit_head' AND tenant = 't'`)
			}},
		} {
			restore := p.backup()
			c.do()
			r := p.verify("t", time.Time{})
			restore()
			found := false
			for _, f := range r.Faults {
				if f.Kind == c.kind && (c.entry == "" || f.ID == c.entry) && f.Text != "" {
					found = true
				}
			}
			if r.Intact || !found {
				p.Errorf("%s: want %s at %q, got %+v", c.name, c.kind, c.entry, r)
			}
		}
		p.intact("t", 2, 13, 1) // all is back

		// Two entries that changed places, as whole rows and only in what they say.
		for _, columns := range []string{"ID, data, hash", "ID, data"} {
			restore := p.backup()
			p.swap(in, columns)
			r := p.verify("t", time.Time{})
			restore()
			if len(r.Faults) != 2 || r.Faults[0].Kind != audit.FaultReordered || r.Faults[1].Kind != audit.FaultReordered {
				p.Errorf("with %s of two changed: %+v", columns, r)
			}
		}

		// Removed with all that signs it, while newer entries stay: they are unsigned.
		restore := p.backup()
		p.exec(`DELETE FROM items WHERE tenant = 't'`)
		p.pass(10 * time.Minute)
		if r := p.verify("t", time.Time{}); len(r.Faults) != 1 || r.Faults[0].Kind != audit.FaultUnsigned || r.Open != 13 {
			p.Errorf("without checkpoints: %+v", r)
		}
		restore()
		if r := p.verify("t", time.Time{}); len(r.Faults) != 1 || r.Faults[0].Kind != audit.FaultUnsigned || r.Faults[0].ID != "newest" {
			p.Errorf("with a late checkpoint: %+v", r)
		}
		p.checkpoint()
		p.intact("t", 3, 13, 0)

		// Who has the database but not the sealing key cannot sign.
		stranger, err := secret.NewSealer()
		if err != nil {
			p.Fatal(err)
		}
		r, err := audit.New(audit.Config{Store: p.store, Sealer: stranger, Clock: p.clock}).Verify(p.Context(), audit.Query{Tenant: "t"})
		if err != nil || r.Intact {
			p.Errorf("under another sealing key: %+v, %v", r, err)
		}
	})
}

// tables are those that backup keeps.
func (p *place) tables() []string {
	if p.postgres {
		return []string{"events", "invocations", "items"}
	}
	return []string{"journal", "items"}
}

// backup copies what the test changes and returns what puts it back.
func (p *place) backup() (restore func()) {
	for _, t := range p.tables() {
		p.exec(`DROP TABLE IF EXISTS kept_` + t)
		p.exec(`CREATE TABLE kept_` + t + ` AS SELECT * FROM ` + t)
	}
	return func() {
		for _, t := range p.tables() {
			p.exec(`DELETE FROM ` + t)
			p.exec(`INSERT INTO ` + t + ` SELECT * FROM kept_` + t)
		}
	}
}

// forge adds an entry of the running process after its newest, which the store then knows of.
func (p *place) forge(in func(string) string, hash string) {
	if p.postgres {
		p.exec(in(`INSERT INTO events (writer, entry, at, tenant, id, data, hash) SELECT writer, entry, at + 1, 't', 'forged', data, ` + hash + ` FROM events WHERE id = 'newest'`))
		return
	}
	p.exec(in(`UPDATE journal SET hash = ` + hash + `, ref = 'forged' WHERE ref = 'newest'`))
}

// swap exchanges columns of the events e2 and e3.
func (p *place) swap(in func(string) string, columns string) {
	p.exec(in(`CREATE TABLE two AS SELECT NUMBER AS n, ID, data, hash FROM EVENTS WHERE ID IN ('e2', 'e3')`))
	defer p.exec(`DROP TABLE two`)
	set := in(columns)
	p.exec(fmt.Sprintf(in(`UPDATE EVENTS SET (%s) = (SELECT %[1]s FROM two WHERE n <> EVENTS.NUMBER) WHERE NUMBER IN (SELECT n FROM two) AND tenant = 't'`), set))
}

// TestRuns: each run has a chain of its own, and one verification covers all.
func TestRuns(t *testing.T) {
	each(t, func(p *place) {
		p.again()
		p.call("t", "of the second run")
		p.again()
		p.event("t", "of the third run")
		p.intact("t", 2, 15, 3)
		p.checkpoint()
		p.intact("t", 3, 15, 0)
		p.audit.Stop() // nothing is new
		p.intact("t", 3, 15, 0)
		p.event("t", "late")
		p.audit.Stop()
		p.intact("t", 4, 16, 0)
		// Since a time, and from a cursor.
		if r := p.verify("t", p.clock().Add(-90*time.Second)); !r.Intact || r.Checkpoints != 3 || r.From.Number != 2 {
			p.Errorf("since 90 s ago: %+v", r)
		}
		if r, err := p.audit.Verify(p.Context(), audit.Query{Tenant: "t", Cursor: "4"}); err != nil || !r.Intact || r.Checkpoints != 1 || r.Entries != 1 {
			p.Errorf("from checkpoint 4 on: %+v, %v", r, err)
		}
		if _, err := p.audit.Verify(p.Context(), audit.Query{Tenant: "t", Cursor: "x"}); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
			p.Errorf("a cursor that is none: %v", err)
		}
		// Two nodes that make checkpoints at once: one of them gives up.
		p.event("t", "raced")
		other := audit.New(audit.Config{Store: p.store, Sealer: p.sealer, Clock: p.clock})
		var all sync.WaitGroup
		for _, a := range []*audit.Audit{p.audit, other} {
			all.Go(func() {
				if err := a.Checkpoint(context.Background()); err != nil && !errors.Is(err, toolkeep.ErrStale) {
					p.Error(err)
				}
			})
		}
		all.Wait()
		p.intact("t", 5, 17, 0)
	})
}

// TestRetention: what retention removed is no fault, and old checkpoints go with it.
func TestRetention(t *testing.T) {
	each(t, func(p *place) {
		p.pass(40 * 24 * time.Hour) // calls stay for 30 days, events for 90
		if p.postgres {
			p.exec(`DELETE FROM invocations WHERE id IN ('c0', 'c1')`)
		} else {
			p.exec(`DELETE FROM journal WHERE ref IN ('c0', 'c1')`)
		}
		p.event("t", "after a long time")
		p.checkpoint()
		r := p.verify("t", time.Time{})
		if !r.Intact || r.Checkpoints != 1 || r.Entries != 2 || r.From.Number != 3 {
			p.Errorf("after 40 days: %+v", r)
		}
		if _, err := p.store.Document(p.Context(), audit.CheckpointKind, "t", "1"); !errors.Is(err, toolkeep.ErrNotFound) {
			p.Errorf("the checkpoints of before are there: %v", err)
		}
	})
}

// TestFind finds entries by what they are about, page by page.
func TestFind(t *testing.T) {
	each(t, func(p *place) {
		find := func(f audit.Filter) (ids []string) {
			p.Helper()
			f.Tenant, f.Limit = "t", 4
			for {
				list, next, err := p.audit.Find(p.Context(), f)
				if err != nil {
					p.Fatal(err)
				}
				for _, e := range list {
					ids = append(ids, e.ID)
					if e.Tenant != "t" || e.Hash == "" || e.Number == 0 || e.Writer == 0 {
						p.Errorf("the entry %+v", e)
					}
				}
				if next == "" {
					return ids
				}
				f.Before = next
			}
		}
		if ids := find(audit.Filter{}); len(ids) != 13 || ids[0] != "newest" {
			p.Errorf("all are %v", ids)
		}
		for _, c := range []struct {
			f    audit.Filter
			want int
		}{
			{audit.Filter{Agent: "alice"}, 2},
			{audit.Filter{Tool: "ns.tool", Decision: audit.Allowed}, 2},
			{audit.Filter{Decision: audit.Refused}, 11},
			{audit.Filter{Type: "auth.failed"}, 11},
			{audit.Filter{Type: "ai.agent.tool.succeeded"}, 2},
			{audit.Filter{ID: "c1"}, 1},
			{audit.Filter{Since: p.clock()}, 1},
			{audit.Filter{Until: p.clock().Add(-time.Minute)}, 6},
		} {
			if ids := find(c.f); len(ids) != c.want {
				p.Errorf("%+v finds %v, want %d", c.f, ids, c.want)
			}
		}
		if _, _, err := p.audit.Find(p.Context(), audit.Filter{Tenant: "t", Before: "x", Limit: 1}); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
			p.Errorf("a cursor that is none: %v", err)
		}
	})
}
