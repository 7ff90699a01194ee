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
