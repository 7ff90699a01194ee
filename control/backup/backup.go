package backup

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep/datadir"
)

// noteName is the first file of an archive. Beside it there are only files and folders
// of a data directory.
const noteName = "backup.json"

// format of archives.
const format = 1

// note is what stands in the first file.
type note struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program
	Schema  int64     `json:"schema"`
	Made    time.Time `json:"made"`
}

// Database copies and reads the database files of a store; store/sqlite does.
type Database interface {
	// Copy makes a copy of one moment, also while a server has the file open.
	Copy(ctx context.Context, from, to string) error
	Inspect(ctx context.Context, path string) (Inspected, error)
}

// Inspected is what a database file says of itself.
type Inspected struct {
	Schema int64    // version, 0 without any
	Newest int64    // version that this program supports
	Faults []string // what is damaged
}

// Config says where a server keeps what is copied.
type Config struct {
	Data    string // the data directory
	Blobs   string // default blobs in Data
	SealKey string // default seal.key in Data
	// KeysElsewhere says that the sealing keys come from TOOLKEEP_SEAL_KEY, and
	// SecretsElsewhere that secrets lie in folders outside of Data.
	KeysElsewhere, SecretsElsewhere bool

	Database Database
	Version  string // of the program
	// Warn is told what is not in the archive, or is to be done after a restore.
	Warn func(text string)
}

// at is where a place is: in Data, or where a setting puts it.
func (c *Config) at(p datadir.Place) string {
	set := map[string]string{datadir.Blobs: c.Blobs, datadir.SealKey: c.SealKey}
	return cmp.Or(set[p.Name], filepath.Join(c.Data, p.Name))
}

func (c *Config) warn(format string, args ...any) { c.Warn(fmt.Sprintf(format, args...)) }

// Errors of this package are one of these kinds, or others that leave all as it was.
var (
	ErrUsage  = errors.New("usage")  // what was asked for cannot be done
	ErrLocked = errors.New("locked") // a process holds the data directory
	ErrFilled = errors.New("filled") // the data directory is not empty
)

// fault is an error of a kind; its text is its own.
type fault struct{ kind, err error }

func (f fault) Error() string   { return f.err.Error() }
func (f fault) Unwrap() []error { return []error{f.kind, f.err} }

func usage(format string, args ...any) error { return fault{ErrUsage, fmt.Errorf(format, args...)} }

// Made is a finished archive.
type Made struct {
	Bytes   int64
	LeftOut int // files and links in kept folders that are not in it; Warn was told of each
}

// Make copies the places that are kept into a new file. secrets takes
// those along that are kept WithSecrets; what lies sealed in the database is
// in every archive, with the key that opens it. The server may run.
//
// Errors: ErrUsage; any other means that nothing was written.
func (c *Config) Make(ctx context.Context, file string, secrets bool) (made Made, err error) {
	if _, err := os.Lstat(file); err == nil {
		return made, usage("%s is there already and is not replaced; name another file", file)
	}
	if secrets && c.SecretsElsewhere {
		return made, usage("secrets.dirs names folders outside of the data directory, which a restore cannot put back: copy them yourself, and leave --secrets out")
	}
	if _, err := os.Stat(filepath.Join(c.Data, datadir.Database)); err != nil {
		return made, usage("there is nothing to copy: %v; name the server's data directory with --data", err)
	}
	if fi, err := os.Stat(filepath.Dir(file)); errors.Is(err, fs.ErrNotExist) || err == nil && !fi.IsDir() {
		return made, usage("%s is not a folder, so the archive cannot be put at %s; make it (mkdir -p), or name another place", filepath.Dir(file), file)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".toolkeep-backup-*") // mode 0700
	if err != nil {
		return made, fmt.Errorf("the archive cannot be written: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	leftOut, err := c.archive(ctx, dir, secrets)
	if err != nil {
		return made, fmt.Errorf("the backup failed, and nothing was written: %w", err)
	}
	// A link, unlike a rename, never replaces what came there meanwhile.
	if err := os.Link(filepath.Join(dir, "archive"), file); err != nil {
		return made, fmt.Errorf("the archive cannot be put at %s: %w", file, err)
	}
	fi, err := os.Stat(file)
	if err != nil {
		return made, err
	}
	if spool, err := os.Stat(filepath.Join(c.Data, datadir.Spool)); err == nil && spool.Size() > 0 {
		c.warn("%d bytes of records wait in spool.jsonl for the store and are not in the backup; make another once `toolkeep doctor` says that the spool is empty", spool.Size())
	}
	return Made{Bytes: fi.Size(), LeftOut: leftOut}, nil
}

// archive copies the database, then the rest, which is older or newer only by
// what no record of the copy needs: a blob is there before the record that names
// it.
func (c *Config) archive(ctx context.Context, dir string, secrets bool) (leftOut int, err error) {
	db := filepath.Join(dir, datadir.Database)
	if err := c.Database.Copy(ctx, filepath.Join(c.Data, datadir.Database), db); err != nil {
		return 0, err
	}
	info, err := c.Database.Inspect(ctx, db)
	if err != nil {
		return 0, err
	}
	raw, err := json.Marshal(note{Format: format, Version: c.Version, Schema: info.Schema, Made: time.Now().UTC()})
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "archive"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip := gzip.NewWriter(f)
	w := &archiver{ctx: ctx, tar: tar.NewWriter(zip), warn: c.warn}
	w.bytes(noteName, raw)
	w.file(datadir.Database, db)
	for _, p := range datadir.Places {
		switch {
		case p.Kept == datadir.Never, p.Kept == datadir.WithSecrets && !secrets, p.Name == datadir.Database:
		case p.Name == datadir.SealKey && c.KeysElsewhere:
			c.warn("the sealing keys come from secrets.seal_keys (TOOLKEEP_SEAL_KEY) and are not in the backup; keep them, it cannot be read without")
		case p.Folder:
			w.folder(p.Name, c.at(p))
		default:
			w.optional(p, c.at(p))
		}
	}
	if w.err != nil {
		return 0, w.err
	}
	return w.leftOut, errors.Join(w.tar.Close(), zip.Close(), f.Sync())
}

// archiver writes files into an archive until the first error.
type archiver struct {
	ctx     context.Context
	tar     *tar.Writer
	warn    func(format string, args ...any)
	files   int
	leftOut int // see Made
	err     error
}

// leaveOut counts a file that is not copied, and says why.
func (w *archiver) leaveOut(format string, args ...any) {
	w.leftOut++
	w.warn(format, args...)
}

func (w *archiver) header(name string, size int64, at time.Time) {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.files++; w.err == nil && w.files > maxEntries {
		w.err = fmt.Errorf("there are more than %d files", maxEntries)
	}
	if w.err == nil {
		w.err = admit(name, size)
	}
	if w.err == nil {
		w.err = w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, ModTime: at})
	}
}

func (w *archiver) bytes(name string, raw []byte) {
	w.header(name, int64(len(raw)), time.Now())
	if w.err == nil {
		_, w.err = w.tar.Write(raw)
	}
}

// file copies a file as long as it is now; notes grow meanwhile.
func (w *archiver) file(name, from string) {
	if w.err != nil {
		return
	}
	f, err := os.Open(from)
	if err != nil {
		w.err = err
		return
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		w.err = err
		return
	}
	w.header(name, fi.Size(), fi.ModTime())
	if w.err == nil {
		_, w.err = io.CopyN(w.tar, reading{w.ctx, f}, fi.Size())
	}
}

// optional is for a file that may be missing, which is said if something is to be done.
func (w *archiver) optional(p datadir.Place, from string) {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		if p.Missing != "" {
			w.warn("%s is missing and not in the backup; %s", from, p.Missing)
		}
		return
	}
	w.file(p.Name, from)
}

// folder copies the regular files below a folder, which may be a link to one, or absent. It
// warns of other files, such as links, and of those that a restore would refuse. It says
// nothing of unfinished blobs, and of a file that went meanwhile, such as a blob whose time
// is over.
func (w *archiver) folder(name, from string) {
	if w.err != nil {
		return
	}
	root, err := filepath.EvalSymlinks(from) // WalkDir follows no link, also not its root
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(from); err == nil {
			w.leaveOut("%s is a link that leads nowhere, and nothing of it is in the backup", from)
		}
		return
	case err != nil:
		w.err = err
		return
	}
	w.err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir(), name == datadir.Blobs && strings.HasPrefix(d.Name(), datadir.UnfinishedBlob):
			return nil
		case !d.Type().IsRegular():
			w.leaveOut("%s is not a regular file and not in the backup", p)
			return nil
		}
		below, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		w.file(path.Join(name, filepath.ToSlash(below)), p)
		var unfit unfitError
		switch {
		case errors.Is(w.err, fs.ErrNotExist):
			w.err = nil
		case errors.As(w.err, &unfit):
			w.leaveOut("%s is not in the backup: %v", p, unfit)
			w.err = nil
			w.files--
		}
		return w.err
	})
}

// reading is a reader that ends with its context.
type reading struct {
	ctx context.Context
	r   io.Reader
}

func (r reading) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
