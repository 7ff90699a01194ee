package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestDefault: ./data counts where a server's files are in it, and not where a folder only has that name.
func TestDefault(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct {
		name string
		file string // in ./data; "" without ./data
		env  map[string]string
		want string
	}{
		{"a home", "", map[string]string{"HOME": home}, filepath.Join(home, ".local/share/toolkeep")},
		{"a data home", "", map[string]string{"HOME": home, "XDG_DATA_HOME": "/srv/x"}, "/srv/x/toolkeep"},
		{"a relative data home", "", map[string]string{"HOME": home, "XDG_DATA_HOME": "x"}, filepath.Join(home, ".local/share/toolkeep")},
		{"no home", "", nil, "data"},
		{"a relative home", "", map[string]string{"HOME": "x"}, "data"},
		{"another folder named data", "train.csv", map[string]string{"HOME": home}, filepath.Join(home, ".local/share/toolkeep")},
		{"a model alone", "models/m", map[string]string{"HOME": home}, filepath.Join(home, ".local/share/toolkeep")},
		{"a database", Database, map[string]string{"HOME": home, "XDG_DATA_HOME": "/srv/x"}, "data"},
		{"a node on PostgreSQL", NodeFile, map[string]string{"HOME": home}, "data"},
		{"a restored key", AdminKey, map[string]string{"HOME": home}, "data"},
		{"another program's lock", lock, map[string]string{"HOME": home}, filepath.Join(home, ".local/share/toolkeep")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if c.file != "" {
				if err := os.MkdirAll(filepath.Dir(filepath.Join("data", c.file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join("data", c.file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := Default(func(name string) string { return c.env[name] }); got != c.want {
				t.Errorf("the data directory is %s, want %s", got, c.want)
			}
		})
	}
}

// TestDefaultUnreadable: a ./data that cannot be looked into may be a server's; a file of that name is not.
func TestDefaultUnreadable(t *testing.T) {
	home := t.TempDir()
	env := func(name string) string { return map[string]string{"HOME": home}[name] }
	t.Chdir(t.TempDir())
	if err := os.Symlink("data", "data"); err != nil { // a loop, which also root cannot follow
		t.Fatal(err)
	}
	if got := Default(env); got != "data" {
		t.Errorf("with a ./data that cannot be read: %s", got)
	}
	if err := errors.Join(os.Remove("data"), os.WriteFile("data", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := Default(env); got == "data" {
		t.Error("a file is taken for a data directory")
	}
}

// TestMake: undo removes what was made, and nothing that was there or is used.
func TestMake(t *testing.T) {
	t.Chdir(t.TempDir())
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	undo, err := Make("a/b/c", 0o700)
	if err != nil || !there("a/b/c") {
		t.Fatal(err)
	}
	if err := os.WriteFile("a/used", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	undo()
	if there("a/b") || !there("a/used") {
		t.Error("undo left a/b, or removed a/used")
	}
	if undo, err = Make("a", 0o700); err != nil {
		t.Fatal(err)
	}
	if undo(); !there("a/used") {
		t.Error("undo removed what was there")
	}
	if undo, err = Make("a/used/x", 0o700); err == nil {
		t.Error("a folder was made in a file")
	}
	undo()
}
