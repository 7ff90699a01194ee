package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// packed makes an archive of the headers; the content of a regular file is its
// Linkname, which such a file has none of.
func packed(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		h.Mode, h.ModTime = 0o777, time.Now()
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func regular(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: content}
}

// database is the content of an empty store's file, after what is done to it.
func database(t *testing.T, change ...string) string {
	t.Helper()
	p, to := filepath.Join(t.TempDir(), datadir.Database), filepath.Join(t.TempDir(), "copy")
	if _, _, err := sqlite.Migrate(t.Context(), p, -1); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", p)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, c := range change {
		if _, err := db.Exec(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := sqlite.Backup(t.Context(), p, to); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// damaged has every page but the first one overwritten.
func damaged(db string) string {
	const page = 4096
	return db[:page] + strings.Repeat("\x5a", len(db)-page)
}

// files is the port over store/sqlite.
type files struct{}

func (files) Copy(ctx context.Context, from, to string) error { return sqlite.Backup(ctx, from, to) }
func (files) Inspect(ctx context.Context, path string) (Inspected, error) {
	info, err := sqlite.Inspect(ctx, path)
	return Inspected{Schema: info.Schema, Newest: info.Newest, Faults: info.Faults}, err
}

func newRestorer(t *testing.T, dir string) *restorer {
	return &restorer{ctx: t.Context(), dir: dir, c: &Config{Data: dir, Database: files{}}}
}

// TestRestoreRefuses unpacks archives that backup did not make: each is refused
// with its reason, and nothing is left, neither in the directory nor beside it.
func TestRestoreRefuses(t *testing.T) {
	note, db := regular(noteName, `{"format":1,"version":"dev"}`), regular(datadir.Database, database(t))
	good := packed(t, note, db)
	many := strings.Repeat("x/", maxNameDepth)
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"parent":          {packed(t, note, db, regular("../evil", "x")), "not a name of a file"},
		"parent below":    {packed(t, note, db, regular("blobs/../../evil", "x")), "not a name of a file"},
		"absolute":        {packed(t, note, db, regular("/evil", "x")), "not a name of a file"},
		"backslash":       {packed(t, note, db, regular(`blobs\..\evil`, "x")), "not a name of a file"},
		"dot":             {packed(t, note, db, regular("blobs/./evil", "x")), "not a name of a file"},
		"deep":            {packed(t, note, db, regular("blobs/"+many+"evil", "x")), "not a name of a file"},
		"long":            {packed(t, note, db, regular("blobs/"+strings.Repeat("e", maxName), "x")), "not a name of a file"},
		"symlink":         {packed(t, note, db, tar.Header{Typeflag: tar.TypeSymlink, Name: "blobs", Linkname: ".."}), "not a regular file"},
		"hard link":       {packed(t, note, db, tar.Header{Typeflag: tar.TypeLink, Name: "blobs/a", Linkname: datadir.Database}), "not a regular file"},
		"device":          {packed(t, note, db, tar.Header{Typeflag: tar.TypeChar, Name: "notes/a"}), "not a regular file"},
		"folder":          {packed(t, note, db, tar.Header{Typeflag: tar.TypeDir, Name: "notes/"}), "not a regular file"},
		"foreign":         {packed(t, note, db, regular("lock", "x")), "does not belong"},
		"write-ahead log": {packed(t, note, db, regular(datadir.Database+"-wal", "x")), "does not belong"},
		"file as folder":  {packed(t, note, db, regular(datadir.Database+"/x", "x")), "does not belong"},
		"twice":           {packed(t, note, db, regular(datadir.SealKey, "x"), regular(datadir.SealKey, "y")), "cannot be written"},
		"two notes":       {packed(t, note, db, note), "or has two"},
		"no note":         {packed(t, db), "begins with no"},
		"no database":     {packed(t, note, regular(datadir.SealKey, "x")), "not a whole backup"},
		"large key":       {packed(t, note, db, regular(datadir.SealKey, strings.Repeat("x", maxNote+1))), "more than it may have"},
		"other format":    {packed(t, regular(noteName, `{"format":2}`), db), "has format 2"},
		"no JSON":         {packed(t, regular(noteName, `{`), db), "cannot be read"},
		"no SQLite":       {packed(t, note, regular(datadir.Database, strings.Repeat("text ", 500))), "check the file"},
		"empty database":  {packed(t, note, regular(datadir.Database, "")), "not Toolkeep's"},
		"newer":           {packed(t, note, regular(datadir.Database, database(t, "INSERT INTO toolkeep_schema (version_id, is_applied) VALUES (999, 1)"))), "schema version 999"},
		"damaged":         {packed(t, note, regular(datadir.Database, damaged(db.Linkname))), "damaged"},
		"cut":             {good[:len(good)*2/3], "unexpected EOF"},
		"checksum":        {append(bytes.Clone(good[:len(good)-8]), make([]byte, 8)...), "checksum"},
		"nothing":         {nil, "not a tar.gz or is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			r := newRestorer(t, filepath.Join(parent, "data"))
			_, err := r.run(bytes.NewReader(c.archive), false)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
			if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}

func TestRestore(t *testing.T) {
	note, db := regular(noteName, `{"format":1,"version":"dev"}`), regular(datadir.Database, database(t))
	archive := packed(t, note, db, regular(datadir.SealKey, "k"), regular("blobs/ab/cd", "blob"), regular("secrets/_shared/a.key", "s"))
	t.Run("modes", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "data")
		r := newRestorer(t, dir)
		if _, err := r.run(bytes.NewReader(archive), false); err != nil {
			t.Fatal(err)
		}
		err := filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
			if err != nil || fi.Mode().Perm()&0o077 != 0 {
				return fmt.Errorf("%s has mode %v, %w", p, fi.Mode(), err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(filepath.Join(dir, "blobs", "ab", "cd")); err != nil || string(raw) != "blob" {
			t.Fatalf("%q, %v", raw, err)
		}
	})
	t.Run("force that fails keeps what is there", func(t *testing.T) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "data")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "mine"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRestorer(t, dir)
		if _, err := r.run(bytes.NewReader(archive[:len(archive)-9]), true); err == nil {
			t.Fatal("a cut archive was restored")
		}
		if _, err := os.Stat(filepath.Join(dir, "mine")); err != nil {
			t.Fatal(err)
		}
		r = newRestorer(t, dir)
		aside, err := r.run(bytes.NewReader(archive), true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(aside, "mine")); err != nil {
			t.Fatal(err)
		}
		if all, err := os.ReadDir(parent); err != nil || len(all) != 2 {
			t.Fatalf("%v, %v", all, err)
		}
	})
}
