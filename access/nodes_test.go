package access_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// store is the store that the nodes of a test share.
type store interface {
	access.Store
	Keys(ctx context.Context) ([]toolkeep.APIKey, int64, error)
	Close() error
}

// TestBootstrapAtOnce starts many nodes on one empty store: exactly one creates a key,
// and all accept it.
func TestBootstrapAtOnce(t *testing.T) {
	const nodes = 8
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "t.db")})
		if err != nil {
			t.Fatal(err)
		}
		closing(t, s)
		all := make([]store, nodes)
		for i := range all {
			all[i] = s
		}
		bootstrapAtOnce(t, all)
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := pgtest.Start(t).NewDatabase(t)
		all := make([]store, nodes)
		for i := range all {
			s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, MaxConns: 4})
			if err != nil {
				t.Fatal(err)
			}
			closing(t, s)
			all[i] = s
		}
		bootstrapAtOnce(t, all)
	})
}

func closing(t *testing.T, s store) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func bootstrapAtOnce(t *testing.T, stores []store) {
	// No node creates a key before all have seen the empty store.
	all := make([]*access.Access, len(stores))
	for i, s := range stores {
		a, err := access.New(access.Config{Load: s.Keys, Store: s})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Stop)
		all[i] = a
	}
	texts, kept := make([]string, len(all)), make([]string, len(all))
	var wg sync.WaitGroup
	for i, a := range all {
		wg.Go(func() {
			text, err := a.Bootstrap(t.Context(), func(text string) error { kept[i] = text; return nil })
			if err != nil {
				t.Error(err)
			}
			texts[i] = text
		})
	}
	wg.Wait()
	made := ""
	for i, text := range texts {
		if text != kept[i] {
			t.Errorf("%d gives a text and keeps another", i)
		}
		if text != "" && made != "" {
			t.Error("two keys were made")
		}
		made += text
	}
	for i, a := range all {
		if _, err := a.Authenticate(t.Context(), made, "127.0.0.1"); err != nil {
			t.Errorf("%d does not know the key: %v", i, err)
		}
	}
	keys, _, err := stores[0].Keys(t.Context())
	if err != nil || len(keys) != 1 {
		t.Errorf("the store has %d keys, %v", len(keys), err)
	}
}
