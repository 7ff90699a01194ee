package archive_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
)

// verify goes through all parts of the archive.
func (p *place) verify(since time.Time) (all audit.Report) {
	p.Helper()
	all.Intact = true
	for q := (audit.Query{Tenant: "t", Since: since, Archive: true}); ; {
		r, err := p.audit.Verify(p.Context(), q)
		if err != nil {
			p.Fatal(err)
		}
		all.Add(r)
		if q.Cursor = r.Next; q.Cursor == "" {
			return all
		}
	}
}

func (p *place) sign() {
	p.Helper()
	if err := p.audit.Checkpoint(p.Context()); err != nil {
		p.Fatal(err)
	}
}

// fill records, signs and archives two hours of three days, and an entry more that is not signed.
func (p *place) fill() {
	p.Helper()
	for part := range 6 {
		for i := range 3 {
			p.event("t", fmt.Sprint("e", part*3+i))
			p.event("u", fmt.Sprint("u", part*3+i))
		}
		p.call("t", fmt.Sprint("c", part))
		p.sign()
		p.pass(time.Minute)
		p.write(true)
		p.pass([]time.Duration{time.Hour, 23 * time.Hour}[part%2])
	}
	p.event("t", "open")
	p.write(true)
}

// TestVerifyArchive: the chain is proven over the archive, whatever the store still has.
func TestVerifyArchive(t *testing.T) {
	p := newPlace(t)
	p.fill()
	intact := func(what string, since time.Time, checkpoints, entries, open int) {
		t.Helper()
		r := p.verify(since)
		if !r.Intact || r.Checkpoints != checkpoints || r.Entries != entries || r.Open != open || r.Newest == nil || r.Newest.Number != 6 {
			t.Errorf("%s: %+v", what, r)
		}
	}
	intact("at first", time.Time{}, 6, 25, 1)
	intact("since a time", p.clock().Add(-30*time.Hour), 2, 9, 1)
	// The store forgets all but its newest checkpoint.
	p.pass(200 * 24 * time.Hour)
	p.event("t", "late")
	p.sign()
	p.write(true)
	r := p.verify(time.Time{})
	if !r.Intact || r.Checkpoints != 7 || r.Entries != 26 || r.Open != 0 {
		t.Errorf("after 200 days: %+v", r)
	}
	if _, err := p.store.Document(t.Context(), audit.CheckpointKind, "t", "1"); err == nil {
		t.Error("the first checkpoint is in the store")
	}
	// Past its time the oldest day goes, and is no fault.
	p.pass((2557 - 200) * 24 * time.Hour)
	p.begin(p.sealer)
	p.write(true)
	if r := p.verify(time.Time{}); !r.Intact || r.Checkpoints >= 7 || r.Checkpoints == 0 {
		t.Errorf("after 7 years: %+v", r)
	}
	if r, err := p.audit.Verify(t.Context(), audit.Query{Tenant: "none", Archive: true}); err != nil || !r.Intact || r.Entries != 0 {
		t.Errorf("of a tenant without entries: %+v, %v", r, err)
	}
	without := audit.New(audit.Config{Store: p.store, Sealer: p.sealer})
	if _, err := without.Verify(t.Context(), audit.Query{Tenant: "t", Archive: true}); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
		t.Errorf("without an archive: %v", err)
	}
}

// TestVerifyFinds: whatever is done to the files is found and named.
func TestVerifyFinds(t *testing.T) {
	p := newPlace(t)
	p.fill()
	var journal, signed []string // paths of t
	other := ""                  // one of u
	for _, f := range p.files() {
		switch {
		case strings.HasPrefix(f, "u/") && strings.Contains(f, "/j-"):
			other = f
		case strings.HasPrefix(f, "t/") && strings.Contains(f, "/j-"):
			journal = append(journal, f)
		case strings.HasPrefix(f, "t/"):
			signed = append(signed, f)
		}
	}
	at := func(f string) string { return filepath.Join(p.dir, f) }
	read := func(f string) []byte {
		raw, err := os.ReadFile(at(f))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	write := func(f string, raw []byte) {
		if err := os.WriteFile(at(f), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(files ...string) {
		for _, f := range files {
			if err := os.Remove(at(f)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(journal) != 7 || len(signed) != 6 {
		t.Fatal(journal, signed)
	}
	for _, c := range []struct {
		name, kind, segment, text string
		do                        func()
	}{
		{"changed", audit.FaultChanged, journal[1], "not as it was written", func() {
			raw := read(journal[1])
			raw[len(raw)/2+100] ^= 1
			write(journal[1], raw)
		}},
		{"cut", audit.FaultChanged, journal[2], "cut", func() { write(journal[2], read(journal[2])[:600]) }},
		{"exchanged", audit.FaultReordered, journal[1], "belongs elsewhere", func() {
			a, b := read(journal[1]), read(journal[2])
			write(journal[1], b)
			write(journal[2], a)
		}},
		{"one of another tenant", audit.FaultReordered, journal[0], "belongs elsewhere", func() {
			write(journal[0], read(other))
		}},
		{"removed", audit.FaultMissing, "", "entries are missing, up to this one", func() { remove(journal[2]) }},
		{"a changed checkpoint", audit.FaultChanged, signed[1], "not as it was written", func() { write(signed[1], append(read(signed[1]), 0)) }},
		{"a removed checkpoint", audit.FaultMissing, "", "the checkpoint is missing", func() { remove(signed[1]) }},
		{"the first checkpoint removed", audit.FaultMissing, "", "the checkpoint is missing", func() { remove(signed[0]) }},
		{"the newest removed", audit.FaultMissing, "", "the checkpoint is missing", func() { remove(signed[5], journal[5], journal[6]) }},
		{"the open entry changed", audit.FaultChanged, journal[6], "not as it was written", func() { write(journal[6], append(read(journal[6]), 0)) }},
		{"all removed", audit.FaultMissing, "", "the checkpoint is missing", func() { remove(slices.Concat(journal, signed)...) }},
	} {
		was := map[string][]byte{}
		for _, f := range slices.Concat(journal, signed) {
			was[f] = read(f)
		}
		c.do()
		r := p.verify(time.Time{})
		if r.Intact || !slices.ContainsFunc(r.Faults, func(f audit.Fault) bool {
			return f.Kind == c.kind && f.Segment == c.segment && strings.Contains(f.Text, c.text)
		}) {
			t.Errorf("%s: want %s of %q, got %+v", c.name, c.kind, c.segment, r)
		}
		if r, err := p.audit.Verify(t.Context(), audit.Query{Tenant: "u", Archive: true}); err != nil || !r.Intact {
			t.Errorf("%s: of another tenant: %+v, %v", c.name, r, err)
		}
		for f, raw := range was {
			write(f, raw)
		}
	}
	if r := p.verify(time.Time{}); !r.Intact {
		t.Errorf("all is back: %+v", r)
	}
}

// TestFindArchive: the archive is searched as the store is, each entry once.
func TestFindArchive(t *testing.T) {
	p := newPlace(t)
	p.fill()
	find := func(f audit.Filter) (ids []string) {
		t.Helper()
		f.Tenant, f.Limit, f.Archive = "t", 4, true
		for {
			list, next, err := p.audit.Find(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				ids = append(ids, e.ID)
			}
			if f.Before = next; next == "" {
				return ids
			}
		}
	}
	if ids := find(audit.Filter{}); len(ids) != 25 || ids[0] != "open" || ids[1] != "c5" || ids[24] != "e0" {
		t.Errorf("all are %q", ids)
	}
	for want, f := range map[int]audit.Filter{
		6: {Tool: "ns.tool"}, 1: {ID: "e7"}, 18 + 1: {Type: "auth.failed"}, 9: {Since: p.clock().Add(-30 * time.Hour)},
		8: {Until: p.began.Add(2 * time.Hour)}, 0: {Agent: "stranger"}, 24: {Until: p.clock()},
	} {
		if ids := find(f); len(ids) != want {
			t.Errorf("with %+v there are %q, want %d", f, ids, want)
		}
	}
	for _, bad := range []string{"x", "2026-01-01/x/1", "2026-01-01/j-1-1-1.seg/0", "../j-1-1-1.seg/1"} {
		if _, _, err := p.audit.Find(t.Context(), audit.Filter{Tenant: "t", Limit: 1, Archive: true, Before: bad}); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
			t.Errorf("the cursor %q: %v", bad, err)
		}
	}
}

// TestSegments lists the segments, page by page, and says which are not whole.
func TestSegments(t *testing.T) {
	p := newPlace(t)
	p.fill()
	damaged := p.files()[0]
	if err := os.Truncate(filepath.Join(p.dir, damaged), 100); err != nil {
		t.Fatal(err)
	}
	var all []audit.Segment
	for cursor := ""; ; {
		list, next, err := p.audit.Segments(t.Context(), "t", cursor, 2)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list...)
		if cursor = next; next == "" {
			break
		}
	}
	var paths []string
	entries := 0
	for _, s := range all {
		paths = append(paths, s.Path)
		if s.Whole == (s.Path == damaged) || s.Whole != (s.Fault == "") || s.Bytes == 0 {
			t.Errorf("%+v", s)
		}
		if s.Kind == "journal" {
			entries += s.Count
		}
	}
	want := slices.DeleteFunc(p.files(), func(f string) bool { return !strings.HasPrefix(f, "t/") })
	slices.Sort(paths)
	slices.Sort(want)
	if !slices.Equal(paths, want) || entries != 25 {
		t.Errorf("%d entries in %q, want %q", entries, paths, want)
	}
	for _, bad := range []string{"x", "../../x", "2026-01-01/x"} {
		if _, _, err := p.audit.Segments(t.Context(), "t", bad, 2); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
			t.Errorf("the cursor %q: %v", bad, err)
		}
	}
}

// TestVerifyAfterHold: days that a hold kept between removed ones do not make those missing.
func TestVerifyAfterHold(t *testing.T) {
	p := newPlace(t)
	for i := range 10 {
		p.event("t", fmt.Sprint("e", i))
		p.sign()
		p.write(true)
		p.pass(24 * time.Hour)
	}
	body := fmt.Sprintf(`{"from":%q,"until":%q,"reason":"a case"}`, p.began.Add(24*time.Hour).Format(time.RFC3339), p.began.Add(25*time.Hour).Format(time.RFC3339))
	err := p.store.Apply(t.Context(), toolkeep.PutDocument{Expect: toolkeep.NoRevision,
		Document: toolkeep.Document{Kind: toolkeep.LegalHoldKind, Tenant: "t", ID: "h", Body: []byte(body), UpdatedBy: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	p.pass((2557 - 3) * 24 * time.Hour)
	p.begin(p.sealer)
	p.write(true)
	if r, err := p.archive.Reader("t", time.Time{}, func(archive.Name, error) {}); err != nil {
		t.Error(err)
	} else if d, err := r.Checkpoint(t.Context(), "t", 2); err != nil || d.Body == nil {
		t.Errorf("the held checkpoint: %v", err)
	} else if _, err := r.Checkpoint(t.Context(), "t", 5); err == nil {
		t.Error("one that is past its time is there")
	}
	if r := p.verify(time.Time{}); !r.Intact || r.Checkpoints < 2 {
		t.Errorf("%+v", r)
	}
}
