package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/control/backup"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

func (a *app) backupCmd() *cobra.Command {
	var f serveFlags
	var secrets bool
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy all stored data into one archive, while the server runs or not",
		Long: `Copy what is kept of a data directory into one archive. The server may run and goes on working; the copy
is of one moment, and is checked before the archive is finished. FILE is a tar.gz that its owner alone may
read; a FILE that is there already is not replaced. Beside FILE there must be room for a copy of the database.

In the archive:
` + placeList(datadir.Always) + `
With --secrets also:
` + placeList(datadir.WithSecrets) + `
Not in it:
` + placeList(datadir.Never) + `
The archive holds secrets, also without --secrets: those of "toolkeep secrets set", agents' contexts,
arguments of waiting calls, values of MCP servers' environment and headers and logins at them lie sealed in
the database, and the key that opens them is beside it. Keep it as you keep secrets. A sealing key in
TOOLKEEP_SEAL_KEY is not in it: nothing that is sealed can be read without that key. API keys are in the
database as hashes, so that the same keys work after a restore.

In a folder that is copied, links and files that a restore would refuse are left out. Each is named with the
reason, --json has their number as left_out, and the command exits with 1; the archive is there.

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
	c.Flags().BoolVar(&secrets, "secrets", false, "also "+strings.Join(placeNames(datadir.WithSecrets), " and "))
	return a.withJSON(c)
}

// placeNames are the names of the places in the data directory that are kept so.
func placeNames(kept datadir.Kept) (names []string) {
	for _, p := range datadir.Places {
		switch {
		case p.Kept != kept:
		case p.Folder:
			names = append(names, p.Name+"/")
		default:
			names = append(names, p.Name)
		}
	}
	return names
}

// placeList is a line for each of them.
func placeList(kept datadir.Kept) string {
	var b strings.Builder
	names := placeNames(kept)
	for _, p := range datadir.Places {
		if p.Kept != kept {
			continue
		}
		line := fmt.Sprintf("  %-13s %s", names[0], p.What)
		if names = names[1:]; p.Why != "" {
			line += ": " + p.Why
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// archives returns the backup settings.
func (a *app) archives(c *config.Config) *backup.Config {
	return &backup.Config{Data: c.Data, Blobs: c.Store.Blobs, SealKey: c.Secrets.SealKey, KeysElsewhere: c.Secrets.SealKeys != "",
		SecretsElsewhere: len(c.Secrets.Dirs) > 0, Database: database{}, Version: version,
		Warn: func(text string) { fmt.Fprintln(a.stderr, "toolkeep:", text) }}
}

// database implements the database files of backup with store/sqlite.
type database struct{}

func (database) Copy(ctx context.Context, from, to string) error { return sqlite.Backup(ctx, from, to) }

func (database) Inspect(ctx context.Context, path string) (backup.Inspected, error) {
	info, err := sqlite.Inspect(ctx, path)
	return backup.Inspected{Schema: info.Schema, Newest: info.Newest, Faults: info.Faults}, err
}

// archiveFailure adds the exit code to an error of backup.
func archiveFailure(err error, other int) error {
	switch {
	case errors.Is(err, backup.ErrUsage):
		other = exitUsage
	case errors.Is(err, backup.ErrLocked):
		other = exitUnavailable
	case errors.Is(err, backup.ErrFilled):
		other = exitRefused
	}
	return &failure{code: other, err: err}
}

func (a *app) backup(ctx context.Context, c *config.Config, file string, secrets bool) error {
	made, err := a.archives(c).Make(ctx, file, secrets)
	if err != nil {
		return archiveFailure(err, exitUnavailable)
	}
	raw, err := json.Marshal(map[string]any{"file": file, "bytes": made.Bytes, "left_out": made.LeftOut})
	if err != nil {
		return err
	}
	err = a.show(raw, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s holds the backup: %s, checked.\n", file, datadir.SizeText(uint64(made.Bytes)))
		return err
	})
	if err != nil || made.LeftOut == 0 {
		return err
	}
	// The JSON has said it.
	return &failure{code: exitToolFailed, err: fmt.Errorf("the backup is not complete: %d left out, named above with the reason", made.LeftOut), quiet: a.json}
}

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

Secrets of "toolkeep secrets set" and all API keys work again. Only an archive that was made with --secrets has:
` + placeList(datadir.WithSecrets) + `Without them put the files back yourself, and use a key that you have, in TOOLKEEP_KEY, or make an admin key
with "toolkeep keys recover".

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
	done, err := a.archives(c).Restore(ctx, f, force)
	switch {
	case errors.Is(err, backup.ErrUsage), errors.Is(err, backup.ErrLocked), errors.Is(err, backup.ErrFilled):
		return archiveFailure(err, exitRefused)
	case err != nil:
		return &failure{code: exitRefused, err: fmt.Errorf("%s was not restored, and %w", file, err)}
	}
	raw, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return a.show(raw, func(w io.Writer) error {
		if done.Aside != "" {
			fmt.Fprintf(w, "What was there is in %s.\n", done.Aside)
		}
		_, err := fmt.Fprintf(w, "%s is restored as it was on %s: %d files, checked.\n", done.Data, done.Made.Local().Format(time.DateTime), done.Files)
		return err
	})
}
