package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
)

// leaveFree is how many bytes of the disk an archive, which may come from anywhere, must
// leave free.
const leaveFree = 100 << 20

// Restored is what a restore did.
type Restored struct {
	Data    string    `json:"data"`
	Made    time.Time `json:"made"`    // the archive
	Version string    `json:"version"` // of the program that made it
	Schema  int64     `json:"schema"`
	Files   int       `json:"files"`       // unpacked
	Aside   string    `json:"moved_aside"` // where what was there is now; "" where nothing was
}

// Restore makes the data directory from an archive of Make. Everything is unpacked and
// checked beside its place first, so that a damaged archive, or one of a newer version,
// changes nothing. force moves what is in the directory aside.
//
// Errors: ErrLocked, ErrFilled; after any error the directory is as it was.
func (c *Config) Restore(ctx context.Context, archive io.Reader, force bool) (*Restored, error) {
	dir, err := filepath.Abs(c.Data)
	if err != nil {
		return nil, usage("the data directory %q has no place: %v", c.Data, err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // the directory is moved, not the link to it
	}
	r := &restorer{ctx: ctx, dir: dir, c: c}
	aside, err := r.run(archive, force)
	switch {
	case errors.Is(err, ErrLocked), errors.Is(err, ErrFilled):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s was not changed: %w", dir, err)
	}
	if c.Blobs != "" && r.has[datadir.Blobs] {
		c.warn("store.blobs is %s: move what is in %s there", c.Blobs, filepath.Join(dir, datadir.Blobs))
	}
	if c.SealKey != "" && r.has[datadir.SealKey] {
		c.warn("secrets.seal_key is %s: move %s there", c.SealKey, filepath.Join(dir, datadir.SealKey))
	}
	for _, p := range datadir.Places {
		switch {
		case p.Kept != datadir.WithSecrets || r.has[p.Name]:
		case p.Folder:
			c.warn("the archive has no files of the folder %s (backup takes them with --secrets); %s", p.Name, p.Missing)
		default:
			c.warn("the archive has no %s: %s", p.Name, p.Missing)
		}
	}
	// noteName is not unpacked.
	return &Restored{Data: dir, Made: r.note.Made, Version: r.note.Version, Schema: r.schema, Files: r.files - 1, Aside: aside}, nil
}

// restorer unpacks one archive into a folder inside of the data directory, which
// takes its place once everything is right.
type restorer struct {
	ctx   context.Context
	dir   string
	room  uint64 // bytes that may still be written
	files int
	has   map[string]bool // first parts of the names that came
	note  note

	schema int64
	c      *Config
}

func (r *restorer) run(archive io.Reader, force bool) (aside string, err error) {
	made, full, err := r.claim(force)
	if err != nil {
		return "", err
	}
	// The lock moves with its directory; the new one gets its own.
	release, err := datadir.Lock(r.dir)
	if err != nil {
		return "", fault{ErrLocked, err}
	}
	defer release()
	staging, err := os.MkdirTemp(r.dir, ".restore-*") // mode 0700
	if err != nil {
		return "", err
	}
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, os.RemoveAll(staging))
		if made {
			datadir.Remove(r.dir)
		}
	}()
	if err := r.unpack(archive, staging); err != nil {
		return "", err
	}
	if err := r.check(staging); err != nil {
		return "", err
	}
	if full {
		return r.swap(staging)
	}
	return "", r.moveIn(staging)
}

// claim makes the directory, and tells whether it did and whether it holds
// something. A lock alone is nothing.
func (r *restorer) claim(force bool) (made, full bool, err error) {
	empty, err := datadir.Empty(r.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, false, os.MkdirAll(r.dir, 0o700)
	case err != nil:
		return false, false, err
	case !empty && !force:
		return false, true, fault{ErrFilled, fmt.Errorf("%s is not empty, and nothing was changed; name another directory with --data, or move this one aside with --force", r.dir)}
	}
	return false, !empty, nil
}

// swap moves the directory aside and the unpacked one, which lies in it, into its
// place.
func (r *restorer) swap(staging string) (aside string, err error) {
	release, err := datadir.Lock(staging)
	if err != nil {
		return "", err
	}
	defer release()
	aside = r.dir + ".before-restore-" + time.Now().UTC().Format("20060102T150405Z")
	if _, err := os.Lstat(aside); err == nil {
		return "", fmt.Errorf("%s is there already", aside)
	}
	if err := os.Rename(r.dir, aside); err != nil {
		return "", fmt.Errorf("what is there cannot be moved aside (a mounted folder cannot: empty it yourself): %w", err)
	}
	if err := os.Rename(filepath.Join(aside, filepath.Base(staging)), r.dir); err != nil {
		return "", errors.Join(err, os.Rename(aside, r.dir))
	}
	_ = syncDir(filepath.Dir(r.dir)) // both were moved, whatever this says
	return aside, nil
}

// moveIn moves what was unpacked into the empty directory, the database last, and
// back if that fails.
func (r *restorer) moveIn(staging string) (err error) {
	if err := os.Chmod(r.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(staging)
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int {
		return strings.Compare(last(a.Name()), last(b.Name()))
	})
	for i, e := range entries {
		if err := os.Rename(filepath.Join(staging, e.Name()), filepath.Join(r.dir, e.Name())); err != nil {
			for _, done := range entries[:i] {
				err = errors.Join(err, os.Rename(filepath.Join(r.dir, done.Name()), filepath.Join(staging, done.Name())))
			}
			return err
		}
	}
	_ = os.Remove(staging) // empty now; all was moved, whatever these say
	_ = syncDir(r.dir)
	return nil
}

// last sorts the database behind everything.
func last(name string) string {
	if name == datadir.Database {
		return "~"
	}
	return name
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// unpack writes the archive's files below to, refusing every name that backup
// does not write.
func (r *restorer) unpack(archive io.Reader, to string) (err error) {
	free, err := datadir.Free(to)
	if err != nil {
		return err
	}
	r.room = free - min(free, leaveFree)
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	zip, err := gzip.NewReader(reading{r.ctx, archive})
	if err != nil {
		return fmt.Errorf("the archive is not a tar.gz or is damaged: %w", err)
	}
	r.has = map[string]bool{}
	in := tar.NewReader(zip)
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("the archive is damaged: %w", err)
		}
		if err := r.entry(root, h, in); err != nil {
			return err
		}
	}
	// What follows the end of the tar is read for the checksum behind it.
	if n, err := io.Copy(io.Discard, io.LimitReader(zip, 1<<20)); err != nil || n == 1<<20 {
		return errors.Join(errors.New("the archive is damaged: there is data after its end"), err)
	}
	if !r.has[noteName] || !r.has[datadir.Database] {
		return fmt.Errorf("the archive has no %s or no %s: it is not a whole backup", noteName, datadir.Database)
	}
	return nil
}

func (r *restorer) entry(root *os.Root, h *tar.Header, in io.Reader) error {
	if err := r.admit(h); err != nil {
		return err
	}
	if uint64(h.Size) > r.room {
		return fmt.Errorf("%q of the archive has %d bytes, more than the disk has room for", h.Name, h.Size)
	}
	r.room -= uint64(h.Size)
	if h.Name == noteName {
		return r.readNote(in)
	}
	if err := root.MkdirAll(path.Dir(h.Name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("a file of the archive cannot be written: %w", err)
	}
	n, err := io.Copy(f, in)
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	if !strings.Contains(h.Name, "/") && err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%q of the archive cannot be unpacked: %w", h.Name, err)
	}
	// The age of a blob says when it is removed.
	if !h.ModTime.IsZero() {
		return root.Chtimes(h.Name, h.ModTime, h.ModTime)
	}
	return nil
}

// admit refuses what may not be in an archive.
func (r *restorer) admit(h *tar.Header) error {
	if r.files++; r.files > maxEntries {
		return fmt.Errorf("the archive has more than %d files", maxEntries)
	}
	if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("%q of the archive is not a regular file; a backup has no links, folders or devices", h.Name)
	}
	if err := admit(h.Name, h.Size); err != nil {
		return err
	}
	if r.files == 1 != (h.Name == noteName) {
		return fmt.Errorf("the archive begins with no %s, or has two: toolkeep backup did not make it", noteName)
	}
	first, _, _ := strings.Cut(h.Name, "/")
	r.has[first] = true
	return nil
}

func (r *restorer) readNote(in io.Reader) error {
	raw, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("the archive is damaged: %w", err)
	}
	if err := json.Unmarshal(raw, &r.note); err != nil {
		return fmt.Errorf("%s of the archive cannot be read: %w", noteName, err)
	}
	if r.note.Format != format {
		return fmt.Errorf("the archive has format %d, this program supports %d: use toolkeep %s", r.note.Format, format, toolkeep.Clip(r.note.Version, 40))
	}
	return nil
}

// check looks that a server could start on what was unpacked.
func (r *restorer) check(staging string) error {
	info, err := r.c.Database.Inspect(r.ctx, filepath.Join(staging, datadir.Database))
	switch {
	case err != nil:
		return err
	case len(info.Faults) > 0:
		return fmt.Errorf("the database of the archive is damaged: %s", info.Faults[0])
	case info.Schema == 0:
		return errors.New("the database of the archive is not Toolkeep's: it has no schema version")
	case info.Schema > info.Newest:
		return fmt.Errorf("the database of the archive has schema version %d, this program supports %d at most: use toolkeep %s or newer", info.Schema, info.Newest, toolkeep.Clip(r.note.Version, 40))
	}
	r.schema = info.Schema
	return nil
}
