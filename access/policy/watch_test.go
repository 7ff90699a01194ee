package policy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// followed is an engine that follows its files; told has the state after each change and refusal.
func followed(t *testing.T, path string) (e *Engine, told chan State) {
	t.Helper()
	told = make(chan State, 100)
	e, err := New(t.Context(), Config{Path: path, Timeout: 20 * time.Second, Poll: time.Millisecond, OnChange: func(s State) { told <- s }})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e, told
}

func allows(t *testing.T, e *Engine) bool {
	t.Helper()
	v, err := e.Decide(t.Context(), ask())
	if err != nil {
		t.Fatal(err)
	}
	return v.Allow
}

// TestReload: changed files are taken while calls run, and no answer of the old policy is given
// after that; files that are broken or whose tests fail are not taken, and say why until they
// are mended.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	p, test := filepath.Join(dir, "p.rego"), filepath.Join(dir, "p_test.rego")
	put := func(at, text string) {
		t.Helper()
		if err := os.WriteFile(at+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	}
	const yes, no = "package toolkeep\nallow := true", "package toolkeep\nallow := false"
	put(p, yes)
	e, told := followed(t, dir)
	if !allows(t, e) || e.Health(context.Background()) != nil {
		t.Fatal(e.State())
	}
	put(p, no)
	if s := <-told; s.Refused != "" || allows(t, e) {
		t.Fatalf("%+v", s)
	}
	digest := e.State().Digest
	for _, c := range []struct{ at, text, says string }{
		{p, "package toolkeep\nallow if {", "p.rego:2"},
		{p, "package toolkeep\nallow if http.send({})", "http.send"},
		{p, "package other\nallow := true", "none of the rules"},
		{test, "package t\nimport data.toolkeep\ntest_open if toolkeep.allow", "none of the rules"},
	} {
		put(c.at, c.text)
		s := <-told
		if !strings.Contains(s.Refused, c.says) || s.Digest != digest || allows(t, e) || e.Health(context.Background()) == nil {
			t.Fatalf("%+v", s)
		}
	}
	put(p, no)
	if s := <-told; !strings.Contains(s.Refused, "p_test.rego:3: the test t.test_open failed") || allows(t, e) {
		t.Fatalf("%+v", s)
	}
	put(p, yes)
	if s := <-told; s.Refused != "" || s.Tests != 1 || !allows(t, e) || e.Health(context.Background()) != nil {
		t.Fatalf("%+v", s)
	}
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	if s := <-told; s.Refused == "" || !allows(t, e) {
		t.Fatalf("%+v", s)
	}
	if s := e.Stats(); s.Changes != 2 || s.Refusals < 6 {
		t.Errorf("%+v", s)
	}
}

// stopping is a context that has ended where no other is made of it, as reload looks at it.
type stopping struct{ context.Context }

func (stopping) Err() error { return context.Canceled }

// TestStopsWhileItLoads: an engine that stops between the load of a change and its use takes nothing of it.
func TestStopsWhileItLoads(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"p.rego": "package toolkeep\nallow := true"})
	e, err := New(t.Context(), Config{Path: dir, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	was := e.State()
	write(t, dir, map[string]string{"p.rego": "package toolkeep\nallow := false"})
	files, err := Read(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if s := e.reload(stopping{t.Context()}, files, nil); s.Digest != was.Digest || !allows(t, e) {
		t.Errorf("%+v, and the policy before it allows: %t", s, allows(t, e))
	}
}

// bundle writes a gzipped tar archive.
func bundle(t *testing.T, at string, files ...*tar.Header) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range files {
		content := h.PAXRecords["content"]
		h.PAXRecords = nil
		h.Mode, h.Size = 0o600, int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func packed(name, content string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"content": content}}
}

// TestArchive: a bundle is read as its files would be; hostile ones are refused.
func TestArchive(t *testing.T) {
	at := filepath.Join(t.TempDir(), "bundle.tar.gz")
	const p = "package toolkeep\nallow if data.on.off"
	bundle(t, at, packed("/data.json", `{"on":{"off":true}}`), packed("/p.rego", p), packed("/.manifest", `{"roots":["toolkeep","on"]}`), packed("README.md", "x"))
	e, err := New(t.Context(), Config{Path: at, Timeout: 20 * time.Second})
	if err != nil || !allows(t, e) {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"p.rego": p, "on/data.json": `{"off":true}`})
	if e, err = New(t.Context(), Config{Path: dir, Timeout: 20 * time.Second}); err != nil || !allows(t, e) {
		t.Fatal(err)
	}
	for says, files := range map[string][]*tar.Header{
		"it is signed":       {packed("p.rego", p), packed(".signatures.json", "{}")},
		"not a regular file": {{Typeflag: tar.TypeSymlink, Name: "p.rego", Linkname: "/etc/passwd"}},
		"is there twice":     {packed("p.rego", p), packed("a/../p.rego", p)},
		"has no file named":  {packed("../.p.rego", p)},
		"more than 32 MiB":   {packed("x.bin", strings.Repeat("\x00", 33<<20)), packed("p.rego", p)},
		"more than 4 MiB":    {packed("p.rego", strings.Repeat("#", maxFileBytes+1))},
		"nested more than":   {packed(strings.Repeat("a/", maxFolders+1)+"p.rego", p)},
		"compiled policies":  {packed("p.rego", p), packed("policy.wasm", "x")},
	} {
		bundle(t, at, files...)
		if _, err := Read(at, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if err := os.WriteFile(at, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(at, ""); err == nil || !strings.Contains(err.Error(), "not a gzipped tar archive") {
		t.Error(err)
	}
}

// TestMountedFiles: links to files are followed, as Kubernetes mounts them, hidden folders are not
// read, and what is no file is refused.
func TestMountedFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"..2026/p.rego": "package toolkeep\nallow := true"})
	if err := os.Symlink("..2026/p.rego", filepath.Join(dir, "p.rego")); err != nil {
		t.Fatal(err)
	}
	files, err := Read(dir, "")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dir, "q.rego")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, ""); err == nil || !strings.Contains(err.Error(), "q.rego is not a regular file") {
		t.Error(err)
	}
}
