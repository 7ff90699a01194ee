package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestBackupWhileWriting copies an open store under steady writes: the copy has
// everything committed before, and opens as a store.
func TestBackupWhileWriting(t *testing.T) {
	p := path(t)
	s := mustOpen(t, Config{Path: p})
	mustApply(t, s, recorded("before"), putDocument("i", "1", 0))
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := s.Apply(t.Context(), recorded(fmt.Sprintf("w%d-%d", w, i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	to := filepath.Join(t.TempDir(), "a copy?.db")
	err := Backup(t.Context(), p, to)
	stop()
	writers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(to); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", fi.Mode(), err)
	}
	if err := Backup(t.Context(), p, to); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("a second backup into the file: %v", err)
	}
	info, err := Inspect(t.Context(), to)
	if err != nil || len(info.Faults) > 0 || info.Schema != info.Newest || info.Head < 1 || time.Since(info.LastAt) > time.Hour {
		t.Fatalf("%+v, %v", info, err)
	}
	again := mustOpen(t, Config{Path: to})
	if _, err := again.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: "before"}); err != nil {
		t.Fatal(err)
	}
	head, err := again.Head(t.Context())
	if err != nil || head != info.Head {
		t.Fatalf("head %d, %v; want %d", head, err, info.Head)
	}
}

func TestInspect(t *testing.T) {
	t.Run("a store that is open, then closed", func(t *testing.T) {
		p := path(t)
		s := mustOpen(t, Config{Path: p})
		mustApply(t, s, recorded("a"), putDocument("i", "1", 0))
		for _, step := range []string{"open", "closed"} {
			info, err := Inspect(t.Context(), p)
			if err != nil || info.Schema != info.Newest || info.Newest == 0 || info.Head != 1 || info.Bytes == 0 {
				t.Fatalf("%s: %+v, %v", step, info, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		mustOpen(t, Config{Path: p}) // the files left by Inspect do no harm
	})
	t.Run("no file", func(t *testing.T) {
		if _, err := Inspect(t.Context(), path(t)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := Backup(t.Context(), path(t), path(t)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	})
	t.Run("no database", func(t *testing.T) {
		p, to := path(t), path(t)
		if err := os.WriteFile(p, []byte("this is text and no database, whatever its name says"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Inspect(t.Context(), p); err == nil {
			t.Fatal("taken for a database")
		}
		if err := Backup(t.Context(), p, to); err == nil {
			t.Fatal("copied")
		}
		if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("a failed copy remains: %v", err)
		}
	})
	t.Run("empty file", func(t *testing.T) {
		p := path(t)
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := Inspect(t.Context(), p); err != nil || info.Schema != 0 {
			t.Fatalf("%+v, %v", info, err)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		p := path(t)
		s := mustOpen(t, Config{Path: p})
		for i := range 200 {
			mustApply(t, s, recorded(fmt.Sprint(i)))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := 8192; i < len(raw); i += 7 {
			raw[i] ^= 0x5a
		}
		if err := os.WriteFile(p, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := Inspect(t.Context(), p); err == nil && len(info.Faults) == 0 {
			t.Fatal("the damage was not found")
		}
	})
}
