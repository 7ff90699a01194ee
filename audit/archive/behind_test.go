package archive_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// keysAway is a store in which entries cannot be read now, and as in PostgreSQL nothing else tells the time of a call.
type keysAway struct{ *sqlite.Store }

func (s keysAway) Entry(toolkeep.Link) (*toolkeep.Entry, error) { return nil, toolkeep.ErrKeyAway }

func (s keysAway) Links(ctx context.Context, q toolkeep.LinkQuery) ([]toolkeep.Link, int64, error) {
	list, read, err := s.Store.Links(ctx, q)
	for i := range list {
		list[i].At = 0
	}
	return list, read, err
}

// TestDueWithoutTime: an entry is archived of which the time cannot be read, or lies ahead.
func TestDueWithoutTime(t *testing.T) {
	p := newPlace(t)
	a, err := archive.New(archive.Config{Dir: p.dir, Store: keysAway{p.store}, Sealer: p.sealer, Clock: p.clock})
	if err != nil {
		t.Fatal(err)
	}
	p.call("t", "c1")
	if err := a.Archive(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	p.has("t", "c1")
	p.event("t", "e1")
	p.write(false)
	p.has("t", "c1") // its time is known
	p.pass(time.Hour)
	p.write(false)
	p.has("t", "c1", "e1")
	p.pass(1000 * time.Hour)
	p.event("t", "e2")
	p.pass(-1000 * time.Hour)
	p.write(false)
	p.has("t", "c1", "e1", "e2")
}

// forget removes entries from the store by their numbers.
func (p *place) forget(path, numbers string) {
	p.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		p.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(p.Context(), `DELETE FROM journal WHERE seq IN (`+numbers+`)`); err != nil {
		p.Fatal(err)
	}
}

// TestMissed: what retention removed is counted once, wherever it is missing, when the archive has gone past it.
func TestMissed(t *testing.T) {
	p := newPlace(t)
	path := filepath.Join(t.TempDir(), "db2")
	open := func() {
		t.Helper()
		err := p.store.Close()
		if err != nil {
			t.Fatal(err)
		}
		if p.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: path, Clock: p.clock}); err != nil {
			t.Fatal(err)
		}
		p.begin(p.sealer)
	}
	missed := func(what string, want int64) {
		t.Helper()
		if st := p.archive.State(); st.Missed != want {
			t.Errorf("%s: %d are missed, want %d", what, st.Missed, want)
		}
	}
	open()
	for _, id := range []string{"e1", "e2", "e3"} {
		p.event("t", id)
	}
	p.forget(path, "1, 3") // before there was an archive
	p.write(true)
	missed("before the archive", 0)
	for _, id := range []string{"e4", "e5", "e6", "e7"} {
		p.event("t", id)
	}
	p.pass(50 * 24 * time.Hour)
	p.event("t", "e8")
	p.forget(path, "4, 6")
	blocked := filepath.Join(p.dir, "t", p.began.Format(time.DateOnly))
	if err := os.Rename(blocked, blocked+"-x"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := p.archive.Archive(t.Context(), true); err == nil {
			t.Fatal("the blocked folder was written")
		}
	}
	missed("while it fails", 0)
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	p.write(true)
	p.write(true)
	missed("at the beginning and in the middle", 2)
	if err := p.archive.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "up to 2 entries") {
		t.Errorf("health is %v", err)
	}

	// Another run, of which nothing is archived.
	open()
	p.event("t", "e9")
	p.event("t", "e10")
	p.pass(50 * 24 * time.Hour)
	p.forget(path, "9")
	p.write(true)
	missed("the first of a run", 1)
	p.event("t", "e11")
	p.pass(50 * 24 * time.Hour)
	p.forget(path, "11")
	p.write(true)
	missed("all that is left of a run", 2)
}

// TestStopsLeading: a node that leads does not tell of what waits.
func TestStopsLeading(t *testing.T) {
	p := newPlace(t)
	p.event("t", "e1")
	p.write(false)
	if st := p.archive.State(); st.Oldest.IsZero() {
		t.Fatalf("nothing waits: %+v", st)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.archive.Run(ctx)
	p.pass(50 * 24 * time.Hour)
	if err := p.archive.Health(t.Context()); err != nil || !p.archive.State().Oldest.IsZero() {
		t.Errorf("health is %v, the state %+v", err, p.archive.State())
	}
}

// TestCheckpointAfterItsEntries: a checkpoint that is made while the archive writes waits until what it signs is archived.
func TestCheckpointAfterItsEntries(t *testing.T) {
	p := newPlace(t)
	late := false
	a, err := archive.New(archive.Config{Dir: p.dir, Store: p.store, Sealer: p.sealer, Clock: p.clock, Hook: func(step string) {
		if step == "moved" && !late {
			late = true
			p.event("t", "e2")
			p.sign()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.event("t", "e1")
	for _, want := range []int64{0, 1} {
		if err := a.Archive(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if n, err := a.Archived(t.Context(), "t"); n.Newest != want || err != nil {
			t.Errorf("checkpoint %d is archived, want %d: %v", n.Newest, want, err)
		}
	}
}

// TestRestored: a database that was put back uses the numbers of its entries again, and what the archive has of them stays.
func TestRestored(t *testing.T) {
	p := newPlace(t)
	p.event("t", "old")
	p.sign()
	p.write(true)
	was := p.files()
	content := map[string]string{}
	for _, f := range was {
		raw, err := os.ReadFile(filepath.Join(p.dir, f))
		if err != nil {
			t.Fatal(err)
		}
		content[f] = string(raw)
	}
	keys, _, err := p.store.Documents(t.Context(), archive.KeyKind)
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys: %v", len(keys), err)
	}
	if err := p.store.Close(); err != nil {
		t.Fatal(err)
	}
	if p.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "restored"), Clock: p.clock}); err != nil {
		t.Fatal(err)
	}
	if err := p.store.Apply(t.Context(), toolkeep.PutDocument{Document: keys[0], Expect: toolkeep.NoRevision}); err != nil {
		t.Fatal(err)
	}
	p.begin(p.sealer)
	p.event("t", "new")
	p.sign()
	p.write(true)
	p.write(true)
	for f, want := range content {
		if raw, err := os.ReadFile(filepath.Join(p.dir, f)); err != nil || string(raw) != want {
			t.Errorf("the segment %s was replaced: %v", f, err)
		}
	}
	list, _, err := p.audit.Segments(t.Context(), "t", "", 10)
	if err != nil || len(list) != 4 || len(p.files()) != 4 {
		t.Errorf("listed are %+v: %v", list, err)
	}
	for _, s := range list {
		if !s.Whole {
			t.Errorf("%+v", s)
		}
	}
	found, _, err := p.audit.Find(t.Context(), audit.Filter{Tenant: "t", Limit: 10, Archive: true})
	if err != nil || len(found) != 2 {
		t.Errorf("found are %d entries: %v", len(found), err)
	}
}
