package main

import (
	"archive/tar"
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
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/store/blob"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// Bounds of an archive, which may come from anywhere. All of it together must
// leave diskFail bytes of the disk free.
const (
	maxEntries   = 2_000_000
	maxName      = 512
	maxNameDepth = 8
	maxKeyFile   = 64 << 10
	maxNotes     = 4 << 30 // bytes of one file of notes
)

func (a *app) restoreCmd() *cobra.Command {
	var f serveFlags
	var force bool
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a data directory from an archive of backup",
		Long: `Make a data directory from an archive of backup. The directory (--data) must be empty or absent, and
no server may run on it. Everything is unpacked and checked beside its place first: a damaged archive,
or one of a newer version, changes nothing.

--force moves what is in the directory aside, to DIR.before-restore-TIME; nothing is deleted.

Calls that waited when the backup was made are carried out by the server that starts on the directory,
also those that were carried out since; those that ran are treated as after a crash.`,
		Example: "  toolkeep restore toolkeep-2026-03-01.tar.gz\n  toolkeep restore --data /var/lib/toolkeep --force /mnt/backup/all.tar.gz",
		Args:    arguments(1, 1, "the archive that backup made"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.load(cmd, &f)
			if err != nil {
				return err
			}
			if c.Store.DSN != "" {
				return usagef("store.dsn names a PostgreSQL database, which its own tools restore: use pg_restore or psql")
			}
			return a.restore(cmd.Context(), c, args[0], force)
		},
	}
	f.addSettings(c)
	c.Flags().BoolVar(&force, "force", false, "move the directory that is there aside")
	return a.withJSON(c)
}

func (a *app) restore(ctx context.Context, c *config.Config, file string, force bool) error {
	f, err := os.Open(file)
	if err != nil {
		return usagef("the archive cannot be read: %v", err)
	}
	defer f.Close()
	dir, err := filepath.Abs(c.Data)
	if err != nil {
		return usagef("the data directory %q has no place: %v", c.Data, err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // the directory is moved, not the link to it
	}
	r := &restorer{ctx: ctx, dir: dir}
	aside, err := r.run(f, force)
	if err != nil {
		var known *failure
		if errors.As(err, &known) {
			return err
		}
		return &failure{code: exitRefused, err: fmt.Errorf("%s was not restored, and %s is as it was: %w", file, dir, err)}
	}
	if c.Store.Blobs != "" && r.has[blobsName] {
		fmt.Fprintf(a.stderr, "toolkeep: store.blobs is %s: move what is in %s there\n", c.Store.Blobs, filepath.Join(dir, blobsName))
	}
	if c.Secrets.SealKey != "" && r.has[sealName] {
		fmt.Fprintf(a.stderr, "toolkeep: secrets.seal_key is %s: move %s there\n", c.Secrets.SealKey, filepath.Join(dir, sealName))
	}
	if !r.has[adminName] {
		fmt.Fprintln(a.stderr, "toolkeep: the archive holds no admin.key and no secrets (backup without --secrets): put the secrets back yourself, and set TOOLKEEP_KEY to a key that you have")
	}
	raw, err := json.Marshal(map[string]any{"data": dir, "made": r.note.Made, "version": r.note.Version, "schema": r.schema, "files": r.files, "moved_aside": aside})
	if err != nil {
		return err
	}
	return a.show(raw, func(w io.Writer) error {
		if aside != "" {
			fmt.Fprintf(w, "What was there is in %s.\n", aside)
		}
		_, err := fmt.Fprintf(w, "%s is restored as it was on %s: %d files, checked.\n", dir, r.note.Made.Local().Format(time.DateTime), r.files)
		return err
	})
}

// restorer unpacks one archive into a folder inside of the data directory, which
// takes its place once everything is right.
type restorer struct {
	ctx   context.Context
	dir   string
	room  uint64 // bytes that may still be written
	files int
	has   map[string]bool // first parts of the names that came
	note  backupNote

	schema int64
}

func (r *restorer) run(archive io.Reader, force bool) (aside string, err error) {
	made, full, err := r.claim(force)
	if err != nil {
		return "", err
	}
	// The lock moves with its directory; the new one gets its own.
	release, err := node.Lock(r.dir)
	if err != nil {
		return "", &failure{code: exitUnavailable, err: err}
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
			_ = os.Remove(filepath.Join(r.dir, "lock"))
			_ = os.Remove(r.dir) // unless something came meanwhile
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
	entries, err := os.ReadDir(r.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, false, os.MkdirAll(r.dir, 0o700)
	case err != nil:
		return false, false, err
	}
	full = slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lock" })
	if full && !force {
		return false, true, &failure{code: exitRefused, err: fmt.Errorf("%s is not empty, and nothing was changed; name another directory with --data, or move this one aside with --force", r.dir)}
	}
	return false, full, nil
}

// swap moves the directory aside and the unpacked one, which lies in it, into its
// place.
func (r *restorer) swap(staging string) (aside string, err error) {
	release, err := node.Lock(staging)
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
	if name == dbName {
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
	free, err := freeBytes(to)
	if err != nil {
		return err
	}
	r.room = free - min(free, diskFail)
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	zip, err := gzip.NewReader(reading{r.ctx, archive})
	if err != nil {
		return fmt.Errorf("the archive is no tar.gz or is damaged: %w", err)
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
		return errors.Join(errors.New("the archive is damaged: something is behind its end"), err)
	}
	if !r.has[noteName] || !r.has[dbName] {
		return fmt.Errorf("the archive has no %s or no %s: it is no whole backup", noteName, dbName)
	}
	return nil
}

func (r *restorer) entry(root *os.Root, h *tar.Header, in io.Reader) error {
	most, err := r.admit(h)
	if err != nil {
		return err
	}
	if h.Size > most || uint64(h.Size) > r.room {
		return fmt.Errorf("%q of the archive has %d bytes, more than it may have or than the disk has room for", h.Name, h.Size)
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

// admit tells how large a file of the archive may be, or why it may not be.
func (r *restorer) admit(h *tar.Header) (most int64, err error) {
	if r.files++; r.files > maxEntries {
		return 0, fmt.Errorf("the archive has more than %d files", maxEntries)
	}
	if h.Typeflag != tar.TypeReg {
		return 0, fmt.Errorf("%q of the archive is no regular file; a backup has no links, folders or devices", h.Name)
	}
	parts := strings.Split(h.Name, "/")
	if len(h.Name) > maxName || len(parts) > maxNameDepth || !fs.ValidPath(h.Name) || strings.ContainsAny(h.Name, "\\\x00") {
		return 0, fmt.Errorf("%q is no name of a file in a backup", cut(h.Name, 100))
	}
	single, below := len(parts) == 1, len(parts) > 1
	switch {
	case r.files == 1 != (h.Name == noteName):
		return 0, fmt.Errorf("the archive begins with no %s, or has two: toolkeep backup did not make it", noteName)
	case single && slices.Contains([]string{noteName, sealName, adminName}, h.Name):
		most = maxKeyFile
	case single && h.Name == dbName:
		most = h.Size // the room on the disk bounds it
	case below && parts[0] == blobsName:
		most = blob.MaxBytes
	case below && parts[0] == notesName:
		most = maxNotes
	case below && parts[0] == secretsName:
		most = maxKeyFile
	default:
		return 0, fmt.Errorf("%q does not belong into a backup", h.Name)
	}
	r.has[parts[0]] = true
	return most, nil
}

func (r *restorer) readNote(in io.Reader) error {
	raw, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("the archive is damaged: %w", err)
	}
	if err := jsonv2.Unmarshal(raw, &r.note); err != nil {
		return fmt.Errorf("%s of the archive cannot be read: %w", noteName, err)
	}
	if r.note.Format != archiveFormat {
		return fmt.Errorf("the archive has format %d, this program knows %d: use toolkeep %s", r.note.Format, archiveFormat, cut(r.note.Version, 40))
	}
	return nil
}

// check looks that a server could start on what was unpacked.
func (r *restorer) check(staging string) error {
	info, err := sqlite.Inspect(r.ctx, filepath.Join(staging, dbName))
	switch {
	case err != nil:
		return err
	case len(info.Faults) > 0:
		return fmt.Errorf("the database of the archive is damaged: %s", info.Faults[0])
	case info.Schema == 0:
		return errors.New("the database of the archive is none of toolkeep's: it has no schema version")
	case info.Schema > info.Newest:
		return fmt.Errorf("the database of the archive has schema version %d, this program knows %d at most: use toolkeep %s or newer", info.Schema, info.Newest, cut(r.note.Version, 40))
	}
	r.schema = info.Schema
	return nil
}
