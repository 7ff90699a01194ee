package access

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestKeyFile: the text is in the file before its key is stored, and a file that others may
// read, or that cannot be read, is told.
func TestKeyFile(t *testing.T) {
	store, log := newMemory(), &bytes.Buffer{}
	a := open(t, Config{Store: store, Load: store.keys, Log: slog.New(slog.NewTextHandler(log, nil))})
	f := KeyFile{Path: filepath.Join(t.TempDir(), "admin.key")}
	read := func() string {
		raw, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(raw), "\n")
	}
	written := ""
	f.Written = func() {
		written = read()
		if keys, _, _ := store.keys(t.Context()); len(keys) != 0 {
			t.Error("the key was stored before its text")
		}
	}
	text := must[string](t)(f.Bootstrap(t.Context(), a))
	if text == "" || text != written || text != read() || log.Len() > 0 {
		t.Errorf("%q is in the file, log %s", written, log)
	}
	if err := os.Chmod(f.Path, 0o640); err != nil {
		t.Fatal(err)
	}
	if again := must[string](t)(f.Bootstrap(t.Context(), a)); again != "" || !strings.Contains(log.String(), "chmod 600") || strings.Contains(log.String(), text) {
		t.Errorf("%t, log %s", again != "", log)
	}

	f.Written = nil
	is(t, second(f.Recover(t.Context(), a)), toolkeep.InvalidParameters) // the key in the file works
	if err := os.WriteFile(f.Path, []byte("lost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := must[string](t)(f.Recover(t.Context(), a))
	if p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), read(), "127.0.0.1")); p.KeyID != id {
		t.Errorf("the file has the key %s, want %s", p.KeyID, id)
	}
	empty := newMemory()
	nowhere := KeyFile{Path: filepath.Join(t.TempDir(), "absent", "admin.key"), Written: func() { t.Error("Written was called, and nothing was written") }}
	if _, err := nowhere.Bootstrap(t.Context(), open(t, Config{Store: empty, Load: empty.keys})); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if keys, _, _ := empty.keys(t.Context()); len(keys) != 0 {
		t.Error("a key was stored whose text is nowhere")
	}
	folder := KeyFile{Path: t.TempDir()}
	if _, err := folder.Recover(t.Context(), a); err == nil || errors.As(err, new(*toolkeep.Error)) || !strings.Contains(err.Error(), "move "+folder.Path+" away") {
		t.Error(err)
	}
}
