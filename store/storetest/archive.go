package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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

// HoldKeep checks that retention removes nothing that a legal hold covers, and goes on once the hold is gone; pass, tend and
// period are as for ArchiveKeep, in a store that keeps for ArchiveKeepFor.
func HoldKeep(t *testing.T, s Store, clock func() time.Time, pass func(time.Duration), tend func(), period time.Duration) {
	ctx := t.Context()
	day := 24 * time.Hour
	record := func(tenant, id string) {
		t.Helper()
		at := clock()
		v := FullCall(idAt(at, id), toolkeep.CallSucceeded, 1)
		v.Tenant, v.CreatedAt, v.EndedAt, v.Key = tenant, at, at, ""
		mustApply(t, s, toolkeep.RecordCall{Invocation: v},
			toolkeep.AppendEvent{Event: toolkeep.Event{ID: tenant + id, Tenant: tenant, Type: "x", Time: at, Data: []byte(`{}`)}})
	}
	hold := func(id, tenant string, from, until time.Time) {
		t.Helper()
		body, err := json.Marshal(toolkeep.LegalHold{From: from, Until: until, Reason: "a case"})
		if err != nil {
			t.Fatal(err)
		}
		mustApply(t, s, toolkeep.PutDocument{Document: toolkeep.Document{Kind: toolkeep.LegalHoldKind, Tenant: tenant, ID: id, Body: body, UpdatedBy: "x"}, Expect: toolkeep.NoRevision})
	}
	fill := func() {
		t.Helper()
		mustApply(t, s, toolkeep.AppendEvent{Event: toolkeep.Event{ID: fmt.Sprint(filler, clock().UnixNano()), Tenant: "f", Type: "x", Time: clock(), Data: []byte(`{}`)}})
		tend()
	}
	left := func(what string, want map[string]int) {
		t.Helper()
		if got := wholeByTenant(t, ctx, s); !maps.Equal(got, want) {
			t.Errorf("%s there are %v whole entries, want %v", what, got, want)
		}
	}
	odd := `o'd \x00 "%s"`
	record("held", "1")
	record(odd, "2")
	record("ages", "5")
	began := clock()
	pass(60 * day)
	record("held", "3")
	record("free", "4")
	hold("h1", "held", began.Add(-time.Minute), began.Add(time.Minute))
	hold("h2", odd, began.Add(-time.Minute), time.Time{})
	hold("h3", "ages", time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)) // beyond what nanoseconds since 1970 write
	pass(ArchiveKeepFor + period + time.Hour)
	fill()
	left("held,", map[string]int{"held": 2, odd: 2, "ages": 2})
	pass(ArchiveKeepFor + period + time.Hour)
	fill()
	left("after another pass,", map[string]int{"held": 2, odd: 2, "ages": 2})
	mustApply(t, s, toolkeep.DeleteDocument{Kind: toolkeep.LegalHoldKind, Tenant: odd, ID: "h2", Expect: toolkeep.AnyRevision, By: "x"})
	pass(time.Hour)
	fill()
	if got := wholeByTenant(t, ctx, s); got["held"] != 2 {
		t.Errorf("after another's hold is gone there are %v", got)
	}
	mustApply(t, s, toolkeep.DeleteDocument{Kind: toolkeep.LegalHoldKind, Tenant: "held", ID: "h1", Expect: toolkeep.AnyRevision, By: "x"},
		toolkeep.DeleteDocument{Kind: toolkeep.LegalHoldKind, Tenant: "ages", ID: "h3", Expect: toolkeep.AnyRevision, By: "x"})
	pass(time.Hour)
	fill()
	left("after the holds", map[string]int{})
}

// filler begins the ids of entries that do not count: a store may keep its newest ones.
const filler = "filler-"

// wholeEntries counts the entries of which the content is there.
func wholeEntries(t *testing.T, ctx context.Context, s Store) (n int) {
	t.Helper()
	for _, of := range wholeByTenant(t, ctx, s) {
		n += of
	}
	return n
}

func wholeByTenant(t *testing.T, ctx context.Context, s Store) map[string]int {
	t.Helper()
	n := map[string]int{}
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
				n[l.Tenant]++
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
