package backup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// TestMake makes archives of a data directory and restores them.
func TestMake(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	if _, _, err := sqlite.Migrate(t.Context(), filepath.Join(data, datadir.Database), -1); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{datadir.SealKey: "k", datadir.AdminKey: "a", "blobs/ab/cd": "blob", "blobs/ab/tmp-1": "half", "secrets/_shared/x.key": "s", datadir.Spool: "record"} {
		p := filepath.Join(data, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	c := func(dir string) *Config {
		return &Config{Data: dir, Database: files{}, Version: "dev", Warn: func(text string) { told = append(told, text) }}
	}
	for _, secrets := range []bool{false, true} {
		told = nil
		file := filepath.Join(out, map[bool]string{false: "plain", true: "all"}[secrets])
		made, err := c(data).Make(t.Context(), file, secrets)
		if fi, sErr := os.Stat(file); err != nil || sErr != nil || made != (Made{Bytes: fi.Size()}) || fi.Mode().Perm() != 0o600 {
			t.Fatal(made, err, sErr)
		}
		if len(told) != 1 || !strings.Contains(told[0], "6 bytes of records wait in spool.jsonl") {
			t.Errorf("told %q", told)
		}
		if _, err := c(data).Make(t.Context(), file, secrets); !errors.Is(err, ErrUsage) {
			t.Error("an archive was replaced: ", err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "data")
		done, err := c(to).Restore(t.Context(), f, false)
		f.Close()
		if err != nil || done.Version != "dev" || done.Schema == 0 || done.Aside != "" {
			t.Fatalf("%+v, %v", done, err)
		}
		for name, there := range map[string]bool{datadir.Database: true, datadir.SealKey: true, "blobs/ab/cd": true, "blobs/ab/tmp-1": false,
			datadir.AdminKey: secrets, "secrets/_shared/x.key": secrets, datadir.Spool: false} {
			if _, err := os.Stat(filepath.Join(to, name)); (err == nil) != there {
				t.Errorf("secrets %v: %s: %v", secrets, name, err)
			}
		}
		if _, err := c(to).Restore(t.Context(), strings.NewReader(""), false); !errors.Is(err, ErrFilled) {
			t.Error("into a directory that is not empty: ", err)
		}
	}
	if left, err := os.ReadDir(out); err != nil || len(left) != 2 {
		t.Errorf("beside the archives are %v, %v", left, err)
	}
	elsewhere := c(data)
	elsewhere.SecretsElsewhere = true
	for _, bad := range []struct {
		c    *Config
		file string
	}{{elsewhere, filepath.Join(out, "new")}, {c(t.TempDir()), filepath.Join(out, "new")}, {c(data), filepath.Join(out, "none", "new")}} {
		if _, err := bad.c.Make(t.Context(), bad.file, true); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v", bad.file, err)
		}
	}
}

func TestRestoreBesideAServer(t *testing.T) {
	dir := t.TempDir()
	release, err := datadir.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	c := &Config{Data: dir, Database: files{}}
	if _, err := c.Restore(t.Context(), strings.NewReader(""), true); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "in use by process") {
		t.Error(err)
	}
}
