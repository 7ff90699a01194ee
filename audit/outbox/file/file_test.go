package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// TestFullDisk: what a write that failed has left goes, also on the first line of a new file, and the sink goes on.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	small := was
	small.Cur = 5
	s := file.New(path)
	for _, there := range []string{"", "[1]\n"} {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
			t.Fatal(err)
		}
		n, err := s.Deliver(t.Context(), events("[1]"+there, "[2]"))
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
		if err == nil || n != 0 {
			t.Fatalf("a write past the limit delivered %d", n)
		}
		want(t, path, there)
		if there == "" {
			deliver(t, s, "[1]")
		}
	}
	deliver(t, s, "[2]")
	want(t, path, "[1]\n[2]\n")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestCutFirstLine: a first line that a crash has cut off goes if it is the begin of an event.
func TestCutFirstLine(t *testing.T) {
	for _, cut := range []string{"{", `{"`, `{"specversion":"1`, `{"` + strings.Repeat("x", 4094), `{"` + strings.Repeat("x", 4095), `{"` + strings.Repeat("x", 9000)} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		if err := os.WriteFile(path, []byte(cut), 0o600); err != nil {
			t.Fatal(err)
		}
		s := file.New(path)
		deliver(t, s, "[1]")
		want(t, path, "[1]\n")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
