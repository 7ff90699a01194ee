package archive_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// place is a store with an archive.
type place struct {
	*testing.T
	dir     string
	store   *sqlite.Store
	sealer  *secret.Sealer
	archive *archive.Archive
	audit   *audit.Audit
	passed  atomic.Int64
	began   time.Time
}

func (p *place) clock() time.Time { return p.began.Add(time.Duration(p.passed.Load())) }

func (p *place) pass(d time.Duration) { p.passed.Add(int64(d)) }

// newPlace begins at noon, so that no test meets a midnight.
func newPlace(t *testing.T) *place {
	p := &place{T: t, dir: t.TempDir(), began: time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)}
	var err error
	if p.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db"), Clock: p.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.store.Close() })
	if p.sealer, err = secret.NewSealer(); err != nil {
		t.Fatal(err)
	}
	p.begin(p.sealer)
	return p
}

func (p *place) begin(s *secret.Sealer) {
	p.Helper()
	var err error
	if p.archive, err = archive.New(archive.Config{Dir: p.dir, Store: p.store, Sealer: s, Clock: p.clock}); err != nil {
		p.Fatal(err)
	}
	p.audit = audit.New(audit.Config{Store: p.store, Sealer: s, Clock: p.clock, Archive: p.archive, ArchiveWait: 7 * 24 * time.Hour})
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

func (p *place) write(all bool) {
	p.Helper()
	if err := p.archive.Archive(p.Context(), all); err != nil {
		p.Fatal(err)
	}
}

// ids are those of a tenant's archived entries, by writer and number, and damaged the segments that cannot be read.
func (p *place) ids(tenant string) (ids []string, damaged map[string]string) {
	p.Helper()
	damaged = map[string]string{}
	r, err := p.archive.Reader(tenant, time.Time{}, func(n archive.Name, err error) { damaged[n.String()] = err.Error() })
	if err != nil {
		p.Fatal(err)
	}
	writers, err := r.ChainWriters(p.Context(), nil)
	if err != nil {
		p.Fatal(err)
	}
	for _, w := range writers {
		for at := int64(0); at < w.Newest; {
			links, read, err := r.Links(p.Context(), toolkeep.LinkQuery{Writer: w.ID, After: at, UpTo: w.Newest, Limit: 7})
			if err != nil {
				p.Fatal(err)
			}
			for _, l := range links {
				e, err := p.store.Entry(l)
				if err != nil || e == nil || l.Tenant != tenant || len(l.Hash) == 0 || l.Seq <= at {
					p.Errorf("the entry %+v: %v", l, err)
				}
				ids, at = append(ids, l.Ref), l.Seq
			}
			at = read
		}
	}
	return ids, damaged
}

// files are the paths of segments below the folder.
func (p *place) files() (list []string) {
	p.Helper()
	err := filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(path, p.dir+"/"))
		}
		return err
	})
	if err != nil {
		p.Fatal(err)
	}
	return list
}

func (p *place) has(tenant string, want ...string) {
	p.Helper()
	ids, damaged := p.ids(tenant)
	if !slices.Equal(ids, want) || len(damaged) > 0 {
		p.Errorf("of %s there are %q, want %q; damaged: %v", tenant, ids, want, damaged)
	}
}

func TestArchive(t *testing.T) {
	p := newPlace(t)
	p.event("t", "e1")
	p.call("t", "c1")
	p.event("Ünit", "u1")
	p.write(false)
	if f := p.files(); len(f) != 0 {
		t.Errorf("before an hour there are %q", f)
	}
	if st := p.archive.State(); !st.Oldest.Equal(p.began) {
		t.Errorf("the oldest is of %s", st.Oldest)
	}
	p.pass(time.Hour)
	p.event("t", "e2")
	p.write(false)
	p.has("t", "e1", "c1", "e2") // what is there goes along
	p.has("Ünit", "u1")
	p.has("other")
	day := p.began.Format(time.DateOnly)
	if f := p.files(); len(f) != 2 || f[1] != "t/"+day+"/j-1-1-4.seg" || !strings.HasPrefix(f[0], "+") {
		t.Errorf("there are %q", f)
	}
	raw, err := os.ReadFile(filepath.Join(p.dir, p.files()[1]))
	if err != nil || !strings.HasPrefix(string(raw), "TKARCH1\n") || strings.Contains(string(raw), "agent_did") {
		t.Errorf("the file is %q, %v", raw, err)
	}
	if st := p.archive.State(); st.Segments != 2 || st.Entries != 4 || !st.Oldest.IsZero() {
		t.Errorf("the state is %+v", st)
	}
	// Another day has other segments, and nothing is written twice.
	p.event("t", "e3")
	p.pass(24 * time.Hour)
	p.event("t", "e4")
	p.write(true)
	p.write(true)
	p.has("t", "e1", "c1", "e2", "e3", "e4")
	if f := p.files(); len(f) != 4 {
		t.Errorf("there are %q", f)
	}
	if err := p.archive.Health(t.Context()); err != nil {
		t.Error(err)
	}
	// Another start goes on.
	p.begin(p.sealer)
	p.event("t", "e5")
	p.write(true)
	p.has("t", "e1", "c1", "e2", "e3", "e4", "e5")
	// What is too old goes, a day at a time.
	p.pass((2557 + 1) * 24 * time.Hour)
	p.begin(p.sealer)
	p.write(true)
	p.has("t", "e4", "e5")
	p.has("Ünit")
}

// TestMany: a round takes as much as it may hold, and the next goes on there.
func TestMany(t *testing.T) {
	p := newPlace(t)
	var changes []toolkeep.Change
	const n = 45_000
	for i := range n {
		changes = append(changes, toolkeep.AppendEvent{Event: toolkeep.Event{ID: fmt.Sprint(i), Tenant: "t", Type: "x", Time: p.clock()}})
		if len(changes) == 1000 {
			if err := p.store.Apply(t.Context(), changes...); err != nil {
				t.Fatal(err)
			}
			changes = changes[:0]
		}
	}
	p.write(false)
	ids, damaged := p.ids("t")
	if len(ids) != 40_000 || len(damaged) > 0 || len(p.files()) != 2 { // the rest is little and young
		t.Errorf("%d entries, %q, %v", len(ids), p.files(), damaged)
	}
	p.write(true)
	if ids, _ := p.ids("t"); len(ids) != n || ids[0] != "0" || ids[n-1] != fmt.Sprint(n-1) {
		t.Errorf("%d entries", len(ids))
	}
}

// TestSealing: a rotation of the sealing key changes nothing, another key opens nothing.
func TestSealing(t *testing.T) {
	p := newPlace(t)
	keys := filepath.Join(t.TempDir(), "seal.key")
	var err error
	if p.sealer, err = secret.OpenSealer(keys); err != nil {
		t.Fatal(err)
	}
	p.begin(p.sealer)
	p.event("t", "e1")
	p.write(true)
	if _, err := p.sealer.AddKey(); err != nil {
		t.Fatal(err)
	}
	docs, _, err := p.store.Documents(t.Context(), archive.KeyKind)
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d keys: %v", len(docs), err)
	}
	d := docs[0]
	body, done, err := audit.Reseal(p.sealer, p.sealer.Stale, d)
	if err != nil || !done {
		t.Fatalf("%t, %v", done, err)
	}
	d.Body = body
	if err := p.store.Apply(t.Context(), toolkeep.PutDocument{Document: d, Expect: d.Revision}); err != nil {
		t.Fatal(err)
	}
	if _, done, err := audit.Reseal(p.sealer, p.sealer.Stale, d); done || err != nil {
		t.Errorf("sealed again: %t, %v", done, err)
	}
	raw, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	newest, _, _ := strings.Cut(string(raw), "\n")
	alone, err := secret.ParseSealer(newest)
	if err != nil {
		t.Fatal(err)
	}
	p.begin(alone)
	p.event("t", "e2")
	p.write(true)
	p.has("t", "e1", "e2")

	stranger, err := secret.NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	// A sealing key that does not open the archive's stops the archive; nothing is called damaged, and no other key is made.
	p.event("t", "e3")
	p.begin(stranger)
	if err := p.archive.Archive(t.Context(), true); err == nil || !strings.Contains(err.Error(), "secrets.seal_key") {
		t.Errorf("with another sealing key: %v", err)
	}
	if files := p.files(); len(files) != 2 {
		t.Errorf("with another sealing key there are %q", files)
	}
	r, err := p.archive.Reader("t", time.Time{}, func(n archive.Name, err error) { t.Errorf("%s is called damaged: %v", n, err) })
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.ChainWriters(t.Context(), nil)
	if err != nil || len(w) != 1 {
		t.Fatalf("%v %v", w, err)
	}
	_, _, err = r.Links(t.Context(), toolkeep.LinkQuery{Writer: w[0].ID, UpTo: w[0].Newest, Limit: 7})
	if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.RecordUnavailable || e.Cause == nil || !strings.Contains(e.Cause.Error(), "secrets.seal_key") {
		t.Errorf("with another sealing key it reads: %v", err)
	}
	p.begin(alone)
	p.write(true)
	p.has("t", "e1", "e2", "e3")

	// One that is given up is lost: its segments are named, and another key is made.
	if d, err = p.store.Document(t.Context(), archive.KeyKind, "", d.ID); err != nil {
		t.Fatal(err)
	}
	if _, done, err := archive.GiveUp(alone, &d); done || err != nil {
		t.Errorf("a key that opens was given up: %v", err)
	}
	if d.Body, done, err = archive.GiveUp(stranger, &d); !done || err != nil {
		t.Fatal(err)
	}
	if err := p.store.Apply(t.Context(), toolkeep.PutDocument{Document: d, Expect: d.Revision}); err != nil {
		t.Fatal(err)
	}
	if _, done, err := archive.GiveUp(stranger, &d); done || err != nil {
		t.Errorf("it was given up twice: %v", err)
	}
	if _, done, err := audit.Reseal(stranger, stranger.Stale, d); done || err != nil {
		t.Errorf("it was sealed again: %v", err)
	}
	p.begin(stranger)
	p.event("t", "e4")
	p.write(true)
	ids, damaged := p.ids("t")
	if !slices.Equal(ids, []string{"e4"}) || len(damaged) != 3 || !strings.Contains(damaged[p.files()[0]], "the key that sealed it is not there") {
		t.Errorf("with another key there are %q, %v", ids, damaged)
	}
}

// TestGivenUpWhileOpen: a node that has a key open goes on reading with it once it is given up, and seals with another.
func TestGivenUpWhileOpen(t *testing.T) {
	p := newPlace(t)
	p.event("t", "e1")
	p.write(true)
	stranger, err := secret.NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	docs, _, err := p.store.Documents(t.Context(), archive.KeyKind)
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d keys: %v", len(docs), err)
	}
	d, done := docs[0], false
	if d.Body, done, err = archive.GiveUp(stranger, &d); !done || err != nil {
		t.Fatal(err)
	}
	if err := p.store.Apply(t.Context(), toolkeep.PutDocument{Document: d, Expect: d.Revision}); err != nil {
		t.Fatal(err)
	}
	p.event("t", "e2")
	p.write(true)
	p.has("t", "e1", "e2")
	p.begin(p.sealer) // as after a restart
	if ids, damaged := p.ids("t"); !slices.Equal(ids, []string{"e2"}) || len(damaged) != 1 {
		t.Errorf("after a restart there are %q, %v", ids, damaged)
	}
}

// TestDamage: a segment that was changed, cut or exchanged is named, and the others are read.
func TestDamage(t *testing.T) {
	p := newPlace(t)
	for i := range 3 {
		p.event("t", fmt.Sprint("e", i))
		p.event("u", fmt.Sprint("u", i))
		p.write(true)
	}
	files := p.files() // t's, then u's
	path := func(i int) string { return filepath.Join(p.dir, files[i]) }
	read := func(i int) []byte {
		raw, err := os.ReadFile(path(i))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	first, second, other := read(0), read(1), read(4)
	header := slices.Clone(first)
	copy(header[strings.Index(string(first), `"count":1`):], `"count":2`)
	body := slices.Clone(first)
	body[len(body)-1] ^= 1
	for name, c := range map[string]struct {
		at   int
		file []byte
		want string
	}{
		"a byte of the entries": {0, body, "not as it was written"},
		"a byte of the header":  {0, header, "not as it was written"},
		"cut":                   {0, first[:len(first)-5], "cut"},
		"cut in the header":     {0, first[:50], "cut"},
		"empty":                 {0, nil, "cut"},
		"another file":          {0, []byte("something else, which is long enough"), "not as it was written"},
		"another segment":       {0, second, "belongs elsewhere"},
		"of another tenant":     {1, other, "belongs elsewhere"},
	} {
		was := read(c.at)
		if err := os.WriteFile(path(c.at), c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		ids, damaged := p.ids("t")
		if len(ids) != 2 || len(damaged) != 1 || !strings.Contains(damaged[files[c.at]], c.want) {
			t.Errorf("%s: %q, %q", name, ids, damaged)
		}
		if err := os.WriteFile(path(c.at), was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.has("t", "e0", "e1", "e2")
}

// TestFolderFails: while the folder cannot be written nothing is lost, health says why, and then all is archived.
func TestFolderFails(t *testing.T) {
	synctest.Test(t, folderFails)
}

func folderFails(t *testing.T) {
	p := newPlace(t)
	blocked := filepath.Join(p.dir, "t")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.event("t", "e1")
	p.event("u", "u1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	p.pass(2 * time.Hour)
	go func() { p.archive.Run(ctx); close(done) }()
	synctest.Wait()
	p.pass(2 * time.Minute)
	if err := p.archive.Health(ctx); err == nil || !strings.Contains(err.Error(), "cannot be written since") || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("health is %v", err)
	}
	p.pass(40 * 24 * time.Hour) // past store.keep_calls
	if err := p.archive.Health(ctx); err == nil || !strings.Contains(err.Error(), "retention waits for the audit's archive") {
		t.Errorf("health is %v", err)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute) // on the bubble's clock
	synctest.Wait()
	cancel()
	<-done
	if err := p.archive.Health(t.Context()); err != nil {
		t.Error(err)
	}
	p.has("t", "e1")
	p.has("u", "u1")
}

// TestTwoLeaders: a moment in which two nodes lead repeats entries and loses none.
func TestTwoLeaders(t *testing.T) {
	p := newPlace(t)
	p.event("t", "e1")
	late, err := archive.New(archive.Config{Dir: p.dir, Store: p.store, Sealer: p.sealer, Clock: p.clock, Hook: func(step string) {
		if step == "renamed" { // another node is faster, and has one more
			p.event("t", "e2")
			p.write(true)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Archive(t.Context(), true); !errors.Is(err, toolkeep.ErrStale) {
		t.Errorf("the late one: %v", err)
	}
	p.event("t", "e3")
	p.write(true)
	p.has("t", "e1", "e2", "e3")
	if f := p.files(); len(f) != 3 {
		t.Errorf("there are %q", f)
	}
	list, next, err := p.audit.Find(t.Context(), audit.Filter{Tenant: "t", Limit: 10, Archive: true})
	if err != nil || next != "" || len(list) != 3 || list[0].ID != "e3" || list[2].ID != "e1" {
		t.Errorf("found are %+v, %q, %v", list, next, err)
	}
}

// TestCheckpointsAreArchived: a checkpoint is archived after its entries, and stays in the store until then.
func TestCheckpointsAreArchived(t *testing.T) {
	p := newPlace(t)
	sign := func() {
		t.Helper()
		if err := p.audit.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	archived := func(want int64) {
		t.Helper()
		if n, err := p.archive.Archived(t.Context(), "t"); n.Newest != want || err != nil {
			t.Errorf("%+v: checkpoints are archived, want %d: %v", n, want, err)
		}
	}
	p.event("t", "e1")
	sign()
	archived(0)
	p.write(true)
	archived(1)
	p.event("t", "e2")
	sign()
	p.pass(31 * 24 * time.Hour) // past store.keep_calls
	p.event("t", "e3")
	sign()
	if _, err := p.store.Document(t.Context(), audit.CheckpointKind, "t", "1"); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("an archived checkpoint: %v", err)
	}
	if _, err := p.store.Document(t.Context(), audit.CheckpointKind, "t", "2"); err != nil {
		t.Errorf("one that is not archived: %v", err)
	}
	p.write(true)
	archived(3)
	p.event("t", "e4")
	sign()
	if _, err := p.store.Document(t.Context(), audit.CheckpointKind, "t", "2"); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("it is archived now: %v", err)
	}
	r, err := p.archive.Reader("t", time.Time{}, func(n archive.Name, err error) { t.Error(n, err) })
	if err != nil {
		t.Fatal(err)
	}
	if first, newest := r.Checkpoints(time.Time{}); first != 1 || newest != 3 {
		t.Errorf("the archive has %d to %d", first, newest)
	}
	for n := int64(1); n <= 3; n++ {
		if d, err := r.Checkpoint(t.Context(), "t", n); err != nil || len(audit.CheckpointEnds(d)) != 1 {
			t.Errorf("checkpoint %d: %+v, %v", n, d, err)
		}
	}
	// Past the longer time it goes, archived or not.
	p.event("t", "e5")
	sign()
	p.pass(38 * 24 * time.Hour)
	p.event("t", "e6")
	sign()
	if _, err := p.store.Document(t.Context(), audit.CheckpointKind, "t", "4"); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("after the wait it is there: %v", err)
	}
}

// TestHeld: segments and checkpoints that a legal hold covers stay, those of other tenants and days go.
func TestHeld(t *testing.T) {
	p := newPlace(t)
	began := p.clock()
	p.event("t", "e1")
	p.event("u", "u1")
	if err := p.audit.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write(true)
	p.pass(10 * 24 * time.Hour)
	p.event("t", "e2")
	p.write(true)
	body := fmt.Sprintf(`{"from":%q,"until":%q,"reason":"a case"}`, began.Add(-time.Hour).Format(time.RFC3339), began.Add(time.Hour).Format(time.RFC3339))
	err := p.store.Apply(t.Context(), toolkeep.PutDocument{Expect: toolkeep.NoRevision,
		Document: toolkeep.Document{Kind: toolkeep.LegalHoldKind, Tenant: "t", ID: "h", Body: []byte(body), UpdatedBy: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	p.pass(2600 * 24 * time.Hour)
	for i := range 2 { // the newest one and that before it stay by themselves
		p.event("t", fmt.Sprint("late", i))
		if err := p.audit.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.begin(p.sealer)
	p.write(true)
	p.has("t", "e1", "late0", "late1")
	p.has("u")
	if _, err := p.store.Document(t.Context(), audit.CheckpointKind, "t", "1"); err != nil {
		t.Errorf("the checkpoint of what is held: %v", err)
	}
	if err := p.store.Apply(t.Context(), toolkeep.DeleteDocument{Kind: toolkeep.LegalHoldKind, Tenant: "t", ID: "h", Expect: toolkeep.AnyRevision, By: "x"}); err != nil {
		t.Fatal(err)
	}
	p.pass(time.Hour)
	p.event("t", "late2")
	if err := p.audit.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write(true)
	p.has("t", "late0", "late1", "late2")
	if _, err := p.store.Document(t.Context(), audit.CheckpointKind, "t", "1"); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("the checkpoint after the hold: %v", err)
	}
}
