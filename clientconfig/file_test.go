package clientconfig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "deeper", "mcp.json")
	backup, err := Write(path, nil, []byte("one"))
	want(t, path, "one", 0o600)
	if err != nil || backup != "" {
		t.Errorf("a new file: %q %v", backup, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v %v", info, err)
	}

	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.json")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	backup, err = Write(link, []byte("one"), []byte("two"))
	if err != nil || backup != path+BackupSuffix {
		t.Errorf("through a link: %q %v", backup, err)
	}
	want(t, path, "two", 0o640)
	want(t, backup, "one", 0o600)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is one no more: %v %v", info, err)
	}
	if _, err = Write(link, []byte("two"), []byte("three")); err != nil {
		t.Error(err)
	}
	want(t, backup, "two", 0o600) // of what stood there last

	for _, old := range [][]byte{[]byte("other"), nil, {}} {
		if _, err := Write(path, old, []byte("four")); !errors.Is(err, ErrChanged) {
			t.Errorf("over another content than %q: %v", old, err)
		}
	}
	if _, err := Write(filepath.Join(dir, "gone"), []byte("x"), []byte("y")); !errors.Is(err, ErrChanged) {
		t.Errorf("of a file that went: %v", err)
	}
	want(t, path, "three", 0o640)
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func want(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	raw, err := os.ReadFile(path)
	info, _ := os.Stat(path)
	if err != nil || string(raw) != text || info.Mode().Perm() != mode {
		t.Errorf("%s: %q %v %v, want %q %v", path, raw, info, err, text, mode)
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, dangling := filepath.Join(dir, "pipe"), filepath.Join(dir, "dangling")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(filepath.Join(dir, "nowhere"), dangling)); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{pipe: "not a regular file", dir: "not a regular file", dangling: "symbolic link", filepath.Join(dir, "pipe", "x"): "not a directory"} {
		_, readErr := Read(path)
		_, err := Write(path, nil, []byte("x"))
		if readErr == nil || err == nil || !strings.Contains(readErr.Error(), words) {
			t.Errorf("%s: %v, %v", path, readErr, err)
		}
	}
	if file, err := Read(filepath.Join(dir, "none")); file != nil || err != nil {
		t.Errorf("of no file: %q %v", file, err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if file, err := Read(empty); file == nil || err != nil {
		t.Errorf("of an empty file: %v", err)
	}
	if _, err := Write(empty, []byte{}, []byte("x")); err != nil {
		t.Error(err)
	}
}
