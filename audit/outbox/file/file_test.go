package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/file"
)

func events(ids ...string) (list []outbox.Event) {
	for _, id := range ids {
		list = append(list, outbox.Event{ID: id, JSON: []byte(id)})
	}
	return list
}

func deliver(t *testing.T, s *file.Sink, ids ...string) {
	t.Helper()
	if n, err := s.Deliver(t.Context(), events(ids...)); err != nil || n != len(ids) {
		t.Fatalf("%d, %v", n, err)
	}
}

func want(t *testing.T, path, text string) {
	t.Helper()
	if raw, err := os.ReadFile(path); err != nil || string(raw) != text {
		t.Errorf("%s has %q, %v; want %q", path, raw, err, text)
	}
}

// TestFile: lines are appended, the file is made again when it was renamed or removed, and what a crash cut off goes.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := file.New(path)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	deliver(t, s, "a", "b")
	deliver(t, s, "c")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	want(t, path, "a\nb\nc\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	deliver(t, s, "d")
	want(t, path+".1", "a\nb\nc\n")
	want(t, path, "d\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	deliver(t, s, "e")
	want(t, path, "e\n")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("e\nf\ng cut o"), 0o600); err != nil {
		t.Fatal(err)
	}
	deliver(t, s, "g")
	want(t, path, "e\nf\ng\n")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoFile: what is none of its files stays as it is.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "letter.txt")
	if err := os.WriteFile(path, []byte("Dear reader"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, dir, filepath.Join(dir, "none", "out.jsonl")} {
		if n, err := file.New(p).Deliver(t.Context(), events("a")); err == nil || n != 0 {
			t.Errorf("%s took %d events", p, n)
		}
	}
	want(t, path, "Dear reader")
}
