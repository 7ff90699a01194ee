package filetool

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestCapabilityToken: a token narrows the folders further, and no link leads out of what is left.
func TestCapabilityToken(t *testing.T) {
	w := newWorld(t)
	w.put("in/a", "x")
	w.put("in2/a", "y")
	w.put("other", "z")
	check(t, os.Symlink("../other", filepath.Join(w.dir, "in", "link")))
	for _, c := range []struct {
		name  string
		grant *toolkeep.Grant
		read  map[string]bool
		write bool // in/new
	}{
		{"without files", &toolkeep.Grant{}, map[string]bool{"in/a": true, "other": true, "in/link": true}, true},
		{"a folder", &toolkeep.Grant{Files: &toolkeep.FileGrant{Paths: []string{filepath.Join(w.dir, "in")}, Mode: "rw"}},
			map[string]bool{"in/a": true, "in2/a": false, "other": false, "in/link": false}, true},
		{"to read", &toolkeep.Grant{Files: &toolkeep.FileGrant{Paths: []string{filepath.Join(w.dir, "in")}}}, map[string]bool{"in/a": true, "other": false}, false},
		{"more than the tool's", &toolkeep.Grant{Files: &toolkeep.FileGrant{Paths: []string{"/"}, Mode: "ro"}}, map[string]bool{"in/a": true, "other": true}, false},
		{"elsewhere", &toolkeep.Grant{Files: &toolkeep.FileGrant{Paths: []string{t.TempDir()}, Mode: "rw"}}, map[string]bool{"in/a": false}, false},
		{"nothing", &toolkeep.Grant{Files: &toolkeep.FileGrant{Paths: []string{}}}, map[string]bool{"in/a": false}, false},
	} {
		do := func(op, path string) *toolkeep.Error {
			x := execution(w.tool(op), map[string]any{"path": path, "content": "new"})
			x.Grant = c.grant
			_, err := w.e.Execute(t.Context(), x)
			return toolkeep.AsError(err)
		}
		for path, ok := range c.read {
			if err := do("read", path); ok != (err == nil) || err != nil && err.Code != toolkeep.FilesystemDenied {
				t.Errorf("%s: read %s: %v", c.name, path, err)
			}
		}
		if err := do("write", "in/new"); c.write != (err == nil) || err != nil && err.Code != toolkeep.FilesystemDenied {
			t.Errorf("%s: write: %v", c.name, err)
		}
		if err := os.RemoveAll(filepath.Join(w.dir, "in", "new")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTokenNamesFiles: a path of a token may be a file, there or not yet, of which nothing besides
// is opened, whichever folders the manifest and the operator open around it.
func TestTokenNamesFiles(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"in/a", "in/b", "in/ab", "top"} {
		w.put(name, "x")
	}
	check(t, os.Symlink("b", filepath.Join(w.dir, "in", "link")))
	at := func(name string) string { return filepath.Join(w.dir, name) }
	do := func(op, path, allowed, mode, more string) *toolkeep.Error {
		x := execution(w.tool(op, more), map[string]any{"path": path, "content": "new"})
		x.Grant = &toolkeep.Grant{Files: &toolkeep.FileGrant{Paths: []string{at(allowed)}, Mode: mode}}
		_, err := w.e.Execute(t.Context(), x)
		return toolkeep.AsError(err)
	}
	const dirs = `,"make_dirs":true`
	for _, c := range []struct {
		op, path, allowed, mode, more string
		code                          toolkeep.Code
		made                          string // a file that is there afterwards
	}{
		{"read", "in/a", "in/a", "ro", "", "", ""},
		{"read", "in/b", "in/a", "ro", "", toolkeep.FilesystemDenied, ""},
		{"read", "in/ab", "in/a", "rw", "", toolkeep.FilesystemDenied, ""},
		{"read", "in", "in/a", "rw", "", toolkeep.FilesystemDenied, ""},
		{"read", "in/a/x", "in/a", "rw", "", toolkeep.FilesystemDenied, ""},
		{"read", "in/none", "in/none", "ro", "", toolkeep.InputValidationFailed, ""},
		{"read", "in/link", "in/link", "rw", "", toolkeep.FilesystemDenied, ""},
		{"read", "top", "top", "ro", "", "", ""},
		{"stat", "in/a", "in/a", "ro", "", "", ""},
		{"stat", "in", "in", "ro", "", "", ""},
		{"list", "in", "in", "ro", "", "", ""},
		{"list", "in/a", "in/a", "ro", "", toolkeep.InputValidationFailed, ""},
		{"write", "in/a", "in/a", "ro", "", toolkeep.FilesystemDenied, ""},
		{"write", "in/a", "in/a", "rw", "", "", "in/a"},
		{"write", "in/new", "in/new", "rw", "", "", "in/new"},
		{"write", "in/new2", "in/new2", "rw", dirs, "", "in/new2"},
		{"write", "deep/er/new", "deep/er/new", "rw", dirs, "", "deep/er/new"},
		{"write", "folder/new", "folder", "rw", dirs, "", "folder/new"},
		{"write", "in", "in", "rw", dirs, toolkeep.InputValidationFailed, ""},
		{"write", "in/link", "in/link", "rw", "", toolkeep.FilesystemDenied, ""},
		{"delete", "in/b", "in/a", "rw", "", toolkeep.FilesystemDenied, ""},
		{"delete", "in/new", "in/new", "rw", "", "", ""},
	} {
		if err := do(c.op, c.path, c.allowed, c.mode, c.more); c.code == "" && err != nil || c.code != "" && (err == nil || err.Code != c.code) {
			t.Errorf("%s %s by a token for %s (%s): %v, want %q", c.op, c.path, c.allowed, c.mode, err, c.code)
		}
		if c.made != "" {
			if got, err := os.ReadFile(at(c.made)); err != nil || string(got) != "new" {
				t.Errorf("%s: %q, %v", c.made, got, err)
			}
		}
	}
	if _, err := os.Stat(at("in/new")); !os.IsNotExist(err) {
		t.Errorf("the deleted file: %v", err)
	}
	if got, err := os.ReadFile(at("in/b")); err != nil || string(got) != "x" {
		t.Errorf("the file that the token does not name has %q, %v", got, err)
	}
}
