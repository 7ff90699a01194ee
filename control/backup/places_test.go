package backup

import (
	"archive/tar"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// put writes a file below dir, of so many bytes.
func put(t *testing.T, dir, name string, size int64) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, nil, 0o600), os.Truncate(p, size)); err != nil {
		t.Fatal(err)
	}
}

// all are the files below dir, without the lock.
func all(t *testing.T, dir string) []string {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			name, _ := filepath.Rel(dir, p)
			found[filepath.ToSlash(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

// TestEveryPlace fills every place of a data directory, and folders also with files that a
// restore refuses. In the backup is what the rows say, and a restore takes it all.
func TestEveryPlace(t *testing.T) {
	data := t.TempDir()
	if _, _, err := sqlite.Migrate(t.Context(), filepath.Join(data, datadir.Database), -1); err != nil {
		t.Fatal(err)
	}
	kept := map[datadir.Kept][]string{}
	var unfit []string
	for _, p := range datadir.Places {
		name := strings.ReplaceAll(p.Name, "*", "x")
		if p.Folder {
			name += "/default/one.txt"
		}
		kept[p.Kept] = append(kept[p.Kept], name)
		if p.Name != datadir.Database {
			put(t, data, name, min(p.Max, 1<<20))
		}
		if p.Folder && p.Kept != datadir.Never {
			// Each of these is the name of a notebook, a secret or a tenant, except tmp- in blobs.
			for _, name := range []string{"default/tmp-plan.jsonl", "tmp-x", "tmp-acme/one.txt", "default/.new-x"} {
				name = path.Join(p.Name, name)
				put(t, data, name, 1)
				if p.Name != datadir.Blobs || !strings.HasPrefix(path.Base(name), datadir.UnfinishedBlob) {
					kept[p.Kept] = append(kept[p.Kept], name)
				}
			}
			unfit = append(unfit, path.Join(p.Name, "back\\slash"), path.Join(p.Name, strings.Repeat("deep/", maxNameDepth)+"x"))
			if p.Max <= 1<<20 {
				unfit = append(unfit, path.Join(p.Name, "large"))
				put(t, data, path.Join(p.Name, "large"), p.Max+1)
			}
		}
	}
	for _, name := range unfit {
		if path.Base(name) != "large" {
			put(t, data, name, 1)
		}
	}
	put(t, data, "mine/file", 1)
	put(t, data, "mine.txt", 1)
	for _, secrets := range []bool{false, true} {
		told := ""
		c := &Config{Data: data, Database: files{}, Version: "dev", Warn: func(text string) { told += text + "\n" }}
		file := filepath.Join(t.TempDir(), "archive")
		made, err := c.Make(t.Context(), file, secrets)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(kept[datadir.Always])
		if secrets {
			want = append(want, kept[datadir.WithSecrets]...)
		}
		slices.Sort(want)
		leftOut := 0
		for _, name := range unfit {
			p, _ := datadir.PlaceOf(name[:strings.Index(name, "/")])
			if said := strings.Contains(told, name+" is not in the backup: "); said != (p.Kept == datadir.Always || secrets) {
				t.Errorf("secrets %v: a restore would refuse %s; told\n%s", secrets, name, told)
			} else if said {
				leftOut++
			}
		}
		if made.LeftOut != leftOut {
			t.Errorf("secrets %v: LeftOut is %d, want %d", secrets, made.LeftOut, leftOut)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		to := filepath.Join(t.TempDir(), "data")
		done, err := (&Config{Data: to, Database: files{}, Warn: func(string) {}}).Restore(t.Context(), f, false)
		if err != nil {
			t.Fatalf("the backup is not restored: %v", err)
		}
		if got := all(t, to); !slices.Equal(got, want) || done.Files != len(want) {
			t.Errorf("secrets %v: restored are %d files\n%q, want\n%q", secrets, done.Files, got, want)
		}
	}
}

// TestLinkedFolders: a folder that is a link to another is copied as the server uses it, and
// links below a folder are named.
func TestLinkedFolders(t *testing.T) {
	data, other := t.TempDir(), t.TempDir()
	if _, _, err := sqlite.Migrate(t.Context(), filepath.Join(data, datadir.Database), -1); err != nil {
		t.Fatal(err)
	}
	link := func(to, name string) {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	put(t, data, datadir.SealKey, 1)
	put(t, other, "notes/default/plan.jsonl", 1)
	put(t, other, "blobs/ab/cd", 1)
	link(filepath.Join(other, "notes"), filepath.Join(data, datadir.Notes))
	link(filepath.Join(other, "blobs"), filepath.Join(other, "to-blobs"))
	link(filepath.Join(other, "blobs"), filepath.Join(other, "notes", "below"))
	link(filepath.Join(other, "blobs", "ab", "cd"), filepath.Join(other, "blobs", "ab", "ef"))
	link(filepath.Join(other, "nowhere"), filepath.Join(data, datadir.Secrets))
	told := ""
	c := &Config{Data: data, Blobs: filepath.Join(other, "to-blobs"), Database: files{}, Warn: func(text string) { told += text + "\n" }}
	file, to := filepath.Join(t.TempDir(), "archive"), filepath.Join(t.TempDir(), "data")
	if made, err := c.Make(t.Context(), file, true); err != nil || made.LeftOut != 3 {
		t.Fatal(made, err)
	}
	for _, want := range []string{"notes/below is not a regular file", "blobs/ab/ef is not a regular file", "secrets is a link that leads nowhere"} {
		if !strings.Contains(told, want) {
			t.Errorf("told %s, without %q", told, want)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := (&Config{Data: to, Database: files{}, Warn: func(string) {}}).Restore(t.Context(), f, false); err != nil {
		t.Fatal(err)
	}
	if got, want := all(t, to), []string{"blobs/ab/cd", "notes/default/plan.jsonl", datadir.SealKey, datadir.Database}; !slices.Equal(got, want) {
		t.Errorf("restored are %q, want %q", got, want)
	}
}

// TestAdmit: a restore takes what the rows keep, up to their sizes, and nothing else.
func TestAdmit(t *testing.T) {
	admitted := func(name string, size int64) bool {
		r := newRestorer(t, t.TempDir())
		r.has, r.files = map[string]bool{}, 1 // the note was there
		return r.admit(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}) == nil
	}
	for _, p := range datadir.Places {
		name, kept := strings.ReplaceAll(p.Name, "*", "x"), p.Kept != datadir.Never
		for _, c := range []struct {
			name string
			size int64
			want bool
		}{
			{name, p.Max, kept && !p.Folder},
			{name + "/x", p.Max, kept && p.Folder},
			{name + "/default/x", p.Max, kept && p.Folder},
			{name + "/x", p.Max + 1, false},
			{name, p.Max + 1, p.Name == datadir.Database},
			{name, -1, false},
			{name + "x", 1, false},
			{"x" + name, 1, false},
			{strings.ToUpper(name), 1, false},
		} {
			if got := admitted(c.name, c.size); got != c.want {
				t.Errorf("%s with %d bytes: admitted %v", c.name, c.size, got)
			}
		}
	}
	for _, name := range []string{noteName, "mine", "mine/x", "", ".", "..", noteName + "/x"} {
		if admitted(name, 1) {
			t.Errorf("%q is admitted", name)
		}
	}
}
