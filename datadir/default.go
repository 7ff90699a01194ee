package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Default returns the data directory where none is named: ./data if a server has its files there, else toolkeep below
// $XDG_DATA_HOME, which is ~/.local/share if it is unset or relative. Without a home directory it is ./data.
func Default(getenv func(string) string) string {
	const here = "data"
	home := getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(home) {
		if home = getenv("HOME"); filepath.IsAbs(home) {
			home = filepath.Join(home, ".local", "share")
		}
	}
	if !filepath.IsAbs(home) || Is(here) {
		return here
	}
	return filepath.Join(home, "toolkeep")
}

// Is reports whether a server has its files in dir. A lock alone is not such a file: other programs name theirs so. Where dir
// cannot be looked into, it is taken for a server's.
func Is(dir string) bool {
	for _, p := range Places {
		if !p.AtStart || p.Folder || p.Name == lock || strings.Contains(p.Name, "*") {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, p.Name))
		if err == nil && info.Mode().IsRegular() || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return true
		}
	}
	return false
}

// Make makes dir and what it lies in, with the mode. undo removes what Make made, as far as nothing is in it.
func Make(dir string, mode fs.FileMode) (undo func(), err error) {
	var made []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		made = append(made, at)
	}
	undo = func() {
		for _, at := range made {
			_ = os.Remove(at) // refused where something is in it
		}
	}
	if err = os.MkdirAll(dir, mode); err != nil {
		undo()
	}
	return undo, err
}
