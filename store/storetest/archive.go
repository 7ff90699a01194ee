package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// ArchiveKeepFor and ArchiveWait are how long a store of ArchiveKeep keeps calls and events, and how much longer what is not archived.
const (
	ArchiveKeepFor = 10 * 24 * time.Hour
	ArchiveWait    = 5 * 24 * time.Hour
)

// ArchiveKeep checks that retention removes nothing that the archive has not had, until ArchiveWait is over. pass lets time
// pass, tend makes one retention pass, and period is the most that rows stay longer.
func ArchiveKeep(t *testing.T, s Store, clock func() time.Time, pass func(time.Duration), tend func(), period time.Duration) {
	ctx := t.Context()
	after := func(d time.Duration) {
		t.Helper()
		pass(d)
		mustApply(t, s, toolkeep.AppendEvent{Event: toolkeep.Event{ID: fmt.Sprint(filler, clock().Unix()), Tenant: "f", Type: "x", Time: clock(), Data: []byte(`{}`)}})
		tend()
	}
	record := func(id string) {
		t.Helper()
		at := clock()
		v := FullCall(idAt(at, id), toolkeep.CallSucceeded, 1)
		v.CreatedAt, v.EndedAt, v.Key = at, at, ""
		mustApply(t, s, toolkeep.RecordCall{Invocation: v},
			toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e" + id, Tenant: v.Tenant, Type: "x", Time: at, Data: []byte(`{}`)}})
	}
	whole := func(what string, want int) {
		t.Helper()
		if n := wholeEntries(t, ctx, s); n != want {
			t.Errorf("%s there are %d whole entries, want %d", what, n, want)
		}
	}
	record("1")
	record("2")
	whole("at first", 4)
	after(ArchiveKeepFor + period + time.Hour)
	whole("past their time, not archived,", 4)
	archive(t, ctx, s, 2)
	after(time.Hour)
	if n := wholeEntries(t, ctx, s); n < 2 {
		t.Errorf("half of them archived, %d are left", n)
	}
	archive(t, ctx, s, 0)
	after(time.Hour)
	whole("archived,", 0)
	record("3")
	after(ArchiveKeepFor + period + time.Hour)
	whole("the next ones, not archived,", 2)
	after(ArchiveWait + period)
	whole("after the wait", 0)
}

// filler begins the ids of entries that do not count: a store may keep its newest ones.
const filler = "filler-"

// wholeEntries counts the entries of which the content is there.
func wholeEntries(t *testing.T, ctx context.Context, s Store) (n int) {
	t.Helper()
	writers, err := s.ChainWriters(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range writers {
		links, _, err := s.Links(ctx, toolkeep.LinkQuery{Writer: w.ID, UpTo: w.Newest, All: true, Content: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if !l.Gone && !strings.HasPrefix(l.Ref, filler) {
				n++
			}
		}
	}
	return n
}

// archive moves the archive's cursors, past limit entries; 0 is all.
func archive(t *testing.T, ctx context.Context, s Store, limit int) {
	t.Helper()
	writers, err := s.ChainWriters(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	cursors, err := s.Cursors(ctx, toolkeep.ArchiveReader)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range writers {
		c := toolkeep.Cursor{Writer: w.ID, Seq: w.Newest, At: time.Now()}
		if limit > 0 {
			links, _, err := s.Links(ctx, toolkeep.LinkQuery{Writer: w.ID, UpTo: w.Newest, All: true, Limit: limit})
			if err != nil || len(links) < limit {
				t.Fatal(len(links), err)
			}
			c.Seq = links[limit-1].Seq
		}
		from := int64(0)
		for _, was := range cursors {
			if was.Writer == w.ID {
				from = was.Seq
			}
		}
		if from < c.Seq {
			mustApply(t, s, toolkeep.MoveCursor{Reader: toolkeep.ArchiveReader, From: from, To: c})
		}
	}
}

// idAt returns a UUID of version 7 of a time that ends with a text of hexadecimal digits.
func idAt(at time.Time, tail string) string {
	ms := at.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7000-8000-%012s", ms>>16, ms&0xffff, tail)
}

func mustApply(t *testing.T, s Store, changes ...toolkeep.Change) {
	t.Helper()
	if err := s.Apply(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
}
