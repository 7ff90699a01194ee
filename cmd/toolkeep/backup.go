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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// What an archive holds, and nothing else: the note of the backup, single files,
// and folders.
const (
	noteName    = "backup.json"
	dbName      = "toolkeep.db"
	sealName    = "seal.key"
	adminName   = "admin.key"
	blobsName   = "blobs"
	notesName   = "notes"
	secretsName = "secrets"

	archiveFormat = 1
)

// backupNote is the first file of an archive.
type backupNote struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program
	Schema  int64     `json:"schema"`
	Made    time.Time `json:"made"`
}

func (a *app) backupCmd() *cobra.Command {
	var f serveFlags
	var secrets bool
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy everything that is kept into one archive, while the server runs or not",
		Long: `Copy everything that is kept into one archive: the database, the key that seals what lies sealed in it,
blobs and the notes of the std.note tools. The server may run and goes on working; the copy is of one moment, and is
checked before the archive is finished. FILE is a tar.gz that its owner alone may read; a FILE that is
there already is not replaced. Beside FILE there must be room for a copy of the database.

API keys are in the database as hashes, so that the same keys work after a restore. The text of the
admin key and the secrets of tools are left out unless --secrets is given. Also without it the archive
holds what opens the arguments of waiting calls, the values of MCP servers' environment and headers and
the logins at them: keep it as you keep secrets.

With PostgreSQL (store.dsn) the database is not in the data directory: use pg_dump.`,
		Example: "  toolkeep backup toolkeep-2026-03-01.tar.gz\n  toolkeep backup --data /var/lib/toolkeep --secrets /mnt/backup/all.tar.gz",
		Args:    arguments(1, 1, "the file to write, such as toolkeep.tar.gz"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.load(cmd, &f)
			if err != nil {
				return err
			}
			if c.Store.DSN != "" {
				return usagef("store.dsn names a PostgreSQL database, which its own tools copy: use pg_dump, and copy the file of secrets.seal_key and the folder of blobs beside it")
			}
			return a.backup(cmd.Context(), c, args[0], secrets)
		},
	}
	f.addSettings(c)
	c.Flags().BoolVar(&secrets, "secrets", false, "also the secrets of tools and the text of the admin key")
	return a.withJSON(c)
}

// blobsOf and sealKeyOf are where a server with these settings keeps them.
func blobsOf(c *config.Config) string {
	if c.Store.Blobs != "" {
		return c.Store.Blobs
	}
	return filepath.Join(c.Data, blobsName)
}

func sealKeyOf(c *config.Config) string {
	if c.Secrets.SealKey != "" {
		return c.Secrets.SealKey
	}
	return filepath.Join(c.Data, sealName)
}

func (a *app) backup(ctx context.Context, c *config.Config, file string, secrets bool) (err error) {
	if _, err := os.Lstat(file); err == nil {
		return usagef("%s is there already and is not replaced; name another file", file)
	}
	if secrets && len(c.Secrets.Dirs) > 0 {
		return usagef("secrets.dirs names folders outside of the data directory, which a restore cannot put back: copy them yourself, and leave --secrets out")
	}
	if _, err := os.Stat(filepath.Join(c.Data, dbName)); err != nil {
		return usagef("there is nothing to copy: %v; name the server's data directory with --data", err)
	}
	if fi, err := os.Stat(filepath.Dir(file)); errors.Is(err, fs.ErrNotExist) || err == nil && !fi.IsDir() {
		return usagef("%s is no folder, so the archive cannot be put at %s; make it (mkdir -p), or name another place", filepath.Dir(file), file)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".toolkeep-backup-*") // mode 0700
	if err != nil {
		return &failure{code: exitUnavailable, err: fmt.Errorf("the archive cannot be written: %w", err)}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := a.makeArchive(ctx, c, dir, secrets); err != nil {
		return &failure{code: exitUnavailable, err: fmt.Errorf("the backup failed, and nothing was written: %w", err)}
	}
	// A link, unlike a rename, never replaces what came there meanwhile.
	made := filepath.Join(dir, "archive")
	if err := os.Link(made, file); err != nil {
		return &failure{code: exitUnavailable, err: fmt.Errorf("the archive cannot be put at %s: %w", file, err)}
	}
	return a.told(c, file)
}

// told says what was made and what is not in it.
func (a *app) told(c *config.Config, file string) error {
	fi, err := os.Stat(file)
	if err != nil {
		return &failure{code: exitUnavailable, err: err}
	}
	if spool, err := os.Stat(filepath.Join(c.Data, "spool.jsonl")); err == nil && spool.Size() > 0 {
		fmt.Fprintf(a.stderr, "toolkeep: %d bytes of records wait in spool.jsonl for the store and are not in the backup; make another once `toolkeep doctor` says that the spool is empty\n", spool.Size())
	}
	raw, err := json.Marshal(map[string]any{"file": file, "bytes": fi.Size()})
	if err != nil {
		return err
	}
	return a.show(raw, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s holds the backup: %s, checked.\n", file, sizeText(uint64(fi.Size())))
		return err
	})
}

// makeArchive copies the database, then the rest, which is older or newer only by
// what no record of the copy needs: a blob is there before the record that names
// it.
func (a *app) makeArchive(ctx context.Context, c *config.Config, dir string, secrets bool) (err error) {
	db := filepath.Join(dir, dbName)
	if err := sqlite.Backup(ctx, filepath.Join(c.Data, dbName), db); err != nil {
		return err
	}
	info, err := sqlite.Inspect(ctx, db)
	if err != nil {
		return err
	}
	note, err := json.Marshal(backupNote{Format: archiveFormat, Version: version, Schema: info.Schema, Made: time.Now().UTC()})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "archive"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip := gzip.NewWriter(f)
	w := &archiver{ctx: ctx, tar: tar.NewWriter(zip), warn: a.stderr}
	w.bytes(noteName, note)
	w.file(dbName, db)
	if c.Secrets.SealKeys == "" {
		w.optional(sealName, sealKeyOf(c), "what lies sealed in the backup cannot be read without it")
	} else {
		fmt.Fprintln(w.warn, "toolkeep: the sealing keys come from secrets.seal_keys (TOOLKEEP_SEAL_KEY) and are not in the backup; keep them, it cannot be read without")
	}
	w.folder(blobsName, blobsOf(c))
	w.folder(notesName, filepath.Join(c.Data, notesName))
	if secrets {
		w.optional(adminName, filepath.Join(c.Data, adminName), "use a key that you have")
		w.folder(secretsName, filepath.Join(c.Data, secretsName))
	}
	if w.err != nil {
		return w.err
	}
	return errors.Join(w.tar.Close(), zip.Close(), f.Sync())
}

// archiver writes files into an archive until the first error.
type archiver struct {
	ctx  context.Context
	tar  *tar.Writer
	warn io.Writer
	err  error
}

func (w *archiver) header(name string, size int64, at time.Time) {
	if w.err == nil {
		w.err = w.ctx.Err()
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

// optional is for a file that may be missing, which is said.
func (w *archiver) optional(name, from, without string) {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w.warn, "toolkeep: %s is missing and not in the backup; %s\n", from, without)
		return
	}
	w.file(name, from)
}

// folder copies what regular files a folder holds. A file that went meanwhile, such
// as a blob whose time is over, is left out; unfinished ones are, too.
func (w *archiver) folder(name, from string) {
	if w.err != nil {
		return
	}
	w.err = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir(), strings.HasPrefix(d.Name(), "tmp-"), strings.HasPrefix(d.Name(), ".new-"):
			return nil
		case !d.Type().IsRegular():
			fmt.Fprintf(w.warn, "toolkeep: %s is no regular file and not in the backup\n", p)
			return nil
		}
		below, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		w.file(path.Join(name, filepath.ToSlash(below)), p)
		if errors.Is(w.err, fs.ErrNotExist) {
			w.err = nil
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

// sizeText writes a number of bytes for people.
func sizeText(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	x, u := float64(n), 0
	for x >= 1024 && u < len(units)-1 {
		x, u = x/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", x, units[u])
}
