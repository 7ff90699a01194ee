package policy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	opa "github.com/open-policy-agent/opa/v1/bundle"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Limits of a policy.
const (
	maxFiles      = 1000
	maxFileBytes  = 4 << 20
	maxTotalBytes = 16 << 20
	maxFolders    = 16     // depth
	maxEntries    = 10_000 // of folders and archives, those that are not read included
)

// Files are the files of a policy by their path with slashes: Rego (*.rego) and data
// (data.json).
type Files map[string][]byte

// Read reads the policy at a path: a directory, or a file that is a gzipped tar archive. Other
// files than *.rego and data.json are passed over, as are names that begin with a dot. With a file
// of keys (see Config.KeyFile) it must be signed, else it must not be.
func Read(name, keyFile string) (Files, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	r, err := newReader(keyFile)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		err = r.dir(name, "", 0)
	} else {
		err = r.archiveAt(name)
	}
	return r.done(err)
}

// Unpack reads a policy that is a gzipped tar archive. The file of keys is that of Read.
func Unpack(archive []byte, keyFile string) (Files, error) {
	r, err := newReader(keyFile)
	if err != nil {
		return nil, err
	}
	return r.done(r.archive(bytes.NewReader(archive)))
}

func newReader(keyFile string) (*reader, error) {
	r := &reader{files: Files{}, others: Files{}}
	if keyFile == "" {
		return r, nil
	}
	var err error
	if r.keys, err = readKeys(keyFile); err != nil {
		return nil, fmt.Errorf("the keys of policy.bundle_key_file cannot be read from %s: %w", keyFile, err)
	}
	return r, nil
}

func (r *reader) done(err error) (Files, error) {
	if err == nil {
		err = r.verify()
	}
	if err != nil {
		return nil, err
	}
	if len(r.files) == 0 {
		return nil, errors.New("it has no file named *.rego")
	}
	return r.files, nil
}

// Collect returns the files of a policy that were sent by name, within the limits of Read.
func Collect(texts map[string]string) (Files, error) {
	r := reader{files: Files{}}
	for name, text := range texts {
		want, err := wanted(name)
		switch {
		case err != nil:
			return nil, err
		case !want || hidden(name) || path.Clean("/"+name) != "/"+name || strings.Count(name, "/") > maxFolders:
			return nil, fmt.Errorf("%q is no file of a policy: name files *.rego or data.json, by their path below the policy's folder", toolkeep.ClipBytes(name, 200))
		}
		if err := r.add(r.files, name, strings.NewReader(text)); err != nil {
			return nil, err
		}
	}
	if len(r.files) == 0 {
		return nil, errors.New("it has no file")
	}
	return r.files, nil
}

// Digest returns "sha256:" and the hexadecimal digest of all names and contents.
func (f Files) Digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(h, "%d %d %s\n", len(name), len(f[name]), name)
		h.Write(f[name])
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

type reader struct {
	files   Files
	bytes   int
	entries int

	keys   []*opa.KeyConfig // nil: no signature is demanded
	others Files            // the signature, and, where one is demanded, what is signed and no part of the policy
}

// into returns where a file is read to, nil where it is passed over.
func (r *reader) into(name string) (Files, error) {
	switch {
	case name == signatureFile, r.keys != nil && name == manifestFile:
		return r.others, nil
	case path.Base(name) == signatureFile:
		return nil, fmt.Errorf("%s: a signature lies at the top of a policy", name)
	case hidden(name):
		return nil, nil
	}
	switch want, err := wanted(name); {
	case err != nil:
		return nil, err
	case want:
		return r.files, nil
	case r.keys != nil:
		return r.others, nil
	}
	return nil, nil
}

// wanted reports whether a file is part of a policy. It refuses what would change the meaning
// of a policy that is read without it.
func wanted(name string) (bool, error) {
	switch base := path.Base(name); {
	case strings.HasSuffix(base, ".rego"), base == "data.json":
		return true, nil
	case base == "data.yaml", base == "data.yml":
		return false, fmt.Errorf("%s: data is read from data.json alone; convert it", name)
	case strings.HasSuffix(base, ".wasm"):
		return false, fmt.Errorf("%s: compiled policies are not in this build; leave the Rego files in the bundle", name)
	}
	return false, nil
}

// add reads one file.
func (r *reader) add(into Files, name string, from io.Reader) error {
	if len(into) == maxFiles {
		return fmt.Errorf("it has more than %d files", maxFiles)
	}
	raw, err := io.ReadAll(io.LimitReader(from, maxFileBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case len(raw) > maxFileBytes:
		return fmt.Errorf("%s has more than %d MiB", name, maxFileBytes>>20)
	}
	if r.bytes += len(raw); r.bytes > maxTotalBytes {
		return fmt.Errorf("its files have more than %d MiB", maxTotalBytes>>20)
	}
	if _, twice := into[name]; twice {
		return fmt.Errorf("%s is there twice", name)
	}
	into[name] = raw
	return nil
}

func (r *reader) entry() error {
	if r.entries++; r.entries > maxEntries {
		return fmt.Errorf("it has more than %d files and folders", maxEntries)
	}
	return nil
}

// dir reads a directory. Links to files are followed, as in mounted ConfigMaps; links to
// directories are not.
func (r *reader) dir(root, below string, depth int) error {
	if depth > maxFolders {
		return fmt.Errorf("%s: folders are nested more than %d deep", below, maxFolders)
	}
	list, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(below)))
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := r.entry(); err != nil {
			return err
		}
		name := path.Join(below, e.Name())
		if e.IsDir() {
			if hidden(name) {
				continue
			}
			if err := r.dir(root, name, depth+1); err != nil {
				return err
			}
			continue
		}
		into, err := r.into(name)
		if err != nil {
			return err
		}
		if into == nil {
			continue
		}
		if err := r.file(into, filepath.Join(root, filepath.FromSlash(name)), name); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) file(into Files, at, name string) error {
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // a pipe would block
		return fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.add(into, name, f)
}

func (r *reader) archiveAt(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is neither a directory nor a regular file")
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.archive(f)
}

// archive reads a bundle as `opa build` makes it.
func (r *reader) archive(from io.Reader) error {
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("it is not a gzipped tar archive: %w", err)
	}
	defer unzipped.Close()
	// What is passed over is unpacked too.
	bounded := &io.LimitedReader{R: unzipped, N: 2*maxTotalBytes + 1}
	t := tar.NewReader(bounded)
	for {
		h, err := t.Next()
		switch {
		case bounded.N <= 0:
			return fmt.Errorf("it has more than %d MiB", 2*maxTotalBytes>>20)
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("it is not a gzipped tar archive: %w", err)
		}
		if err := r.entry(); err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if h.Typeflag == tar.TypeDir {
			continue
		}
		into, err := r.into(name)
		switch {
		case err != nil:
			return err
		case into == nil:
			continue
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%s is not a regular file", name)
		case strings.Count(name, "/") > maxFolders:
			return fmt.Errorf("%s: folders are nested more than %d deep", name, maxFolders)
		}
		if err := r.add(into, name, t); err != nil {
			return err
		}
	}
}

func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

// data merges the data files: a/b/data.json is data.a.b.
func (f Files) data() (map[string]any, error) {
	all := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if path.Base(name) != "data.json" {
			continue
		}
		tree, err := canon.ParseObject(bytes.TrimSpace(f[name]), canon.Limits{Bytes: maxFileBytes, Depth: 100, Properties: 1 << 20, Elements: 1 << 20})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var folders []string
		if dir := path.Dir(name); dir != "." {
			folders = strings.Split(dir, "/")
		}
		at := all
		for _, folder := range folders {
			next, ok := at[folder].(map[string]any)
			if !ok {
				if _, taken := at[folder]; taken {
					return nil, fmt.Errorf("%s: data.%s is set in another file too", name, strings.Join(folders, "."))
				}
				next = map[string]any{}
				at[folder] = next
			}
			at = next
		}
		for k, v := range tree {
			if _, taken := at[k]; taken {
				return nil, fmt.Errorf("%s: %q is set in another file too", name, k)
			}
			at[k] = v
		}
	}
	if _, taken := all[packageName]; taken {
		return nil, fmt.Errorf("data.%s is the package of the rules; name the data otherwise", packageName)
	}
	return all, nil
}
