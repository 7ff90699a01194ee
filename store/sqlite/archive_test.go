package sqlite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/record"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestArchiveKeep: see storetest.ArchiveKeep, with calls whose data moves out of the journal before and after their
// retention.
func TestArchiveKeep(t *testing.T) {
	for name, feed := range map[string]time.Duration{"short": 24 * time.Hour, "long": 8 * 24 * time.Hour, "longer": 12 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			began, passed := time.Now(), atomic.Int64{}
			clock := func() time.Time { return began.Add(time.Duration(passed.Load())) }
			s := mustOpen(t, Config{Path: path(t), Clock: clock, feedKeepRows: 1, FeedKeep: feed, EventKeep: storetest.ArchiveKeepFor,
				InvocationKeep: storetest.ArchiveKeepFor, ArchiveWait: storetest.ArchiveWait})
			storetest.ArchiveKeep(t, s, clock, func(d time.Duration) { passed.Add(int64(d)) }, func() {
				if err := s.catchUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := s.tend(t.Context()); err != nil {
					t.Fatal(err)
				}
			}, max(feed-storetest.ArchiveKeepFor, 0))
		})
	}
}

// TestHoldKeep: see storetest.HoldKeep.
func TestHoldKeep(t *testing.T) {
	began, passed := time.Now(), atomic.Int64{}
	clock := func() time.Time { return began.Add(time.Duration(passed.Load())) }
	s := mustOpen(t, Config{Path: path(t), Clock: clock, feedKeepRows: 1, FeedKeep: 24 * time.Hour, EventKeep: storetest.ArchiveKeepFor, InvocationKeep: storetest.ArchiveKeepFor})
	storetest.HoldKeep(t, s, clock, func(d time.Duration) { passed.Add(int64(d)) }, func() {
		if err := s.catchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}, 0)
}

// TestArchiveHasWhatRetentionRemoved: whatever the order of calls, events, archiving and retention, each entry is archived
// once and whole.
func TestArchiveHasWhatRetentionRemoved(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		began, passed := time.Now(), atomic.Int64{}
		clock := func() time.Time { return began.Add(time.Duration(passed.Load())) }
		s := mustOpen(t, Config{Path: path(t), Clock: clock, feedKeepRows: 1, FeedKeep: 2 * 24 * time.Hour, EventKeep: storetest.ArchiveKeepFor,
			InvocationKeep: 4 * 24 * time.Hour, ArchiveWait: storetest.ArchiveWait})
		sealer, err := secret.NewSealer()
		if err != nil {
			t.Fatal(err)
		}
		a, err := archive.New(archive.Config{Dir: t.TempDir(), Store: s, Sealer: sealer, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		write := func() {
			t.Helper()
			if err := a.Archive(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}
		var want []string
		waited := time.Duration(0)
		for i := range 120 {
			id := fmt.Sprint(i)
			switch r.IntN(5) {
			case 0, 1:
				v := call(id, toolkeep.CallSucceeded)
				v.Tenant, v.CreatedAt, v.EndedAt = "t", clock().Add(-time.Duration(r.Int64N(int64(48*time.Hour)))), clock()
				mustApply(t, s, toolkeep.RecordCall{Invocation: v})
				want = append(want, id)
			case 2:
				mustApply(t, s, toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Tenant: "t", Type: "x", Time: clock(), Data: []byte(`{}`)}})
				want = append(want, id)
			case 3:
				d := time.Duration(r.Int64N(int64(36 * time.Hour)))
				if waited += d; waited > storetest.ArchiveWait { // a call is removed by when it was created
					write()
					waited = d
				}
				passed.Add(int64(d))
			case 4:
				if err := s.catchUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := s.tend(t.Context()); err != nil {
					t.Fatal(err)
				}
				if r.IntN(3) == 0 {
					write()
					waited = 0
				}
			}
		}
		write()
		reader, err := a.Reader("t", time.Time{}, func(n archive.Name, err error) { t.Error(n, err) })
		if err != nil {
			t.Fatal(err)
		}
		links, _, err := reader.Links(t.Context(), toolkeep.LinkQuery{Writer: 1, UpTo: 1 << 40, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range links {
			if got = append(got, l.Ref); l.Gone || len(l.Data) == 0 {
				t.Errorf("seed %d: the entry %s has no content", seed, l.Ref)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: archived are %q, want %q", seed, got, want)
		}
	}
}

// TestHoldDuringRetention: a hold that is made while retention is at it is observed at once.
func TestHoldDuringRetention(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t), feedKeepRows: 1})
	began := time.Now().Add(-200 * 24 * time.Hour)
	v := call("c", toolkeep.CallSucceeded)
	v.Tenant, v.CreatedAt, v.EndedAt = "t", began, began
	mustApply(t, s, toolkeep.RecordCall{Invocation: v}, toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t", Type: "x", Time: began, Data: []byte(`{}`)}},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "newest", Tenant: "t", Type: "x", Time: began, Data: []byte(`{}`)}})
	if err := s.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, now, before := t.Context(), time.Now(), held{}
	pass := func() {
		t.Helper()
		if err := s.trimJournal(ctx, math.MaxInt64, "events", now, &before, remove("journal", record.KindEvent, record.KindEvent)); err != nil {
			t.Fatal(err)
		}
		if err := s.dropInvocations(ctx, now, before); err != nil {
			t.Fatal(err)
		}
	}
	left := func(what string, want int) {
		t.Helper()
		var n int
		if err := s.read.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM invocations) + (SELECT count(*) FROM journal WHERE ref = 'e')`).Scan(&n); err != nil || n != want {
			t.Errorf("%s %d are there, want %d: %v", what, n, want, err)
		}
	}
	mustApply(t, s, toolkeep.PutDocument{Expect: toolkeep.NoRevision, Document: toolkeep.Document{Kind: toolkeep.LegalHoldKind, Tenant: "t", ID: "h",
		Body: []byte(`{"from":"2000-01-01T00:00:00Z","reason":"a case"}`), UpdatedBy: "x"}})
	pass()
	left("with the hold", 2)
	mustApply(t, s, toolkeep.DeleteDocument{Kind: toolkeep.LegalHoldKind, Tenant: "t", ID: "h", Expect: toolkeep.AnyRevision, By: "x"})
	pass()
	left("without it", 0)
}
