package search

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// fakeIndex has tools of two tenants and of all, and notes what it is to index.
type fakeIndex struct{ did chan string }

func (fakeIndex) Tools(visible func(*toolkeep.Tool) bool) (list []*toolkeep.Tool) {
	for _, t := range []*toolkeep.Tool{{ID: "a.own", Tenant: "acme"}, {ID: "b.other", Tenant: "rival"}, {ID: "c.all"}, {ID: "c.all"}} {
		if visible(t) {
			list = append(list, t)
		}
	}
	return list
}

func (f fakeIndex) Reindex(ids []string, embeddings bool) int {
	f.did <- fmt.Sprint(ids, embeddings)
	return len(ids)
}

// fakeCache notes what it is told.
type fakeCache struct{ told []string }

func (f *fakeCache) Flush(_ context.Context, tenant, by string, scope cache.Scope, id string) error {
	f.told = append(f.told, fmt.Sprint("flush ", tenant, " ", by, " ", scope, " ", id))
	return nil
}
func (f *fakeCache) Load(d []toolkeep.Document) { f.told = append(f.told, fmt.Sprint("load ", len(d))) }
func (f *fakeCache) Follow(c toolkeep.Committed) {
	f.told = append(f.told, fmt.Sprintf("%T", c.Change))
}

func newSearch(t *testing.T) (*Search, *sqlite.Store, *fakeCache, chan string) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db"), Enqueue: func(context.Context, *sql.Tx, toolkeep.Enqueue) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	kept, did := &fakeCache{}, make(chan string, 10)
	s := New(Config{Index: fakeIndex{did}, Cache: kept, Store: store, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	t.Cleanup(s.Stop)
	return s, store, kept, did
}

var ann = &toolkeep.Principal{Tenant: "acme", Subject: "ann"}

// TestReindex: an order reaches every node by the feed, and only tools that its tenant
// sees.
func TestReindex(t *testing.T) {
	s, store, kept, did := newSearch(t)
	after, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	order := func(ids []string, embeddings bool) int {
		t.Helper()
		queued, err := s.Reindex(t.Context(), ann, ids, embeddings)
		if err != nil {
			t.Fatal(err)
		}
		for c, err := range store.Watch(t.Context(), after) {
			if err != nil {
				t.Fatal(err)
			}
			after = c.Seq
			s.Follow(c)
			break
		}
		return queued
	}
	for _, c := range []struct {
		ids        []string
		embeddings bool
		queued     int
		did        string
	}{
		{nil, false, 2, "[a.own c.all] false"},
		{nil, true, 2, "[a.own c.all] true"},
		{[]string{"a.own", "b.other", "no.such"}, false, 1, "[a.own] false"},
	} {
		if n := order(c.ids, c.embeddings); n != c.queued {
			t.Errorf("%v: %d queued, want %d", c.ids, n, c.queued)
		}
		if got := <-did; got != c.did {
			t.Errorf("%v: did %q, want %q", c.ids, got, c.did)
		}
	}
	if n := order([]string{"b.other"}, false); n != 0 {
		t.Errorf("%d queued of another tenant's", n)
	}
	s.Stop()
	s.Stop()
	select {
	case got := <-did:
		t.Errorf("did %q", got)
	default:
	}
	if len(kept.told) != 5 || kept.told[0] != "load 0" {
		t.Errorf("the cache was told %q", kept.told)
	}
}

func TestReindexWithoutStore(t *testing.T) {
	s, store, _, _ := newSearch(t)
	_ = store.Close()
	if _, err := s.Reindex(t.Context(), ann, nil, false); err == nil || !toolkeep.IsCode(err, toolkeep.RecordUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestFlush(t *testing.T) {
	s, _, kept, _ := newSearch(t)
	if err := s.Flush(t.Context(), ann, "tool", "a.own"); err != nil || !slices.Equal(kept.told, []string{"flush acme ann tool a.own"}) {
		t.Errorf("%v, told %q", err, kept.told)
	}
	boss := &toolkeep.Principal{Tenant: access.HomeTenant, Subject: "boss", Permissions: []string{toolkeep.PermOperate}}
	if err := s.Flush(t.Context(), boss, AllTenants, ""); err != nil || !slices.Equal(kept.told[1:], []string{"flush  boss all "}) {
		t.Errorf("%v, told %q", err, kept.told)
	}
	for _, p := range []*toolkeep.Principal{{Tenant: access.HomeTenant}, {Tenant: "acme", Permissions: boss.Permissions}, {Tenant: "acme", Permissions: []string{"*"}}} {
		if err := s.Flush(t.Context(), p, AllTenants, ""); !toolkeep.IsCode(err, toolkeep.PermissionDenied) || len(kept.told) != 2 {
			t.Errorf("%+v: %v, told %q", p, err, kept.told)
		}
	}
	off := New(Config{Index: fakeIndex{}})
	if err := off.Flush(t.Context(), ann, "all", ""); err != nil {
		t.Error("without a cache: ", err)
	}
}
