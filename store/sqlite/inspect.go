package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// Info is the result of Inspect.
type Info struct {
	Schema   int64     // schema version, 0 without a schema
	Newest   int64     // newest schema version known to this program
	Bytes    int64     // size of the file
	WALBytes int64     // size of the write-ahead log
	Head     int64     // newest position of the feed
	LastAt   time.Time // time of the newest row of feed and journal, zero without any
	Faults   []string  // faults found by quick_check, at most 10
}

// Inspect reads the file at path without changing its contents; a store may have it
// open. quick_check reads the whole file; ending ctx stops it. A file that is missing,
// unreadable or not a database is an error; a damaged one either is an error or has
// Faults.
func Inspect(ctx context.Context, path string) (info Info, err error) {
	file, err := os.Stat(path)
	if err != nil {
		return info, fmt.Errorf("sqlite: %w", err)
	}
	info.Bytes = file.Size()
	if wal, err := os.Stat(path + "-wal"); err == nil {
		info.WALBytes = wal.Size()
	}
	if info.Newest, err = newestSchema(); err != nil {
		return info, err
	}
	db, err := openToRead(path)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if info.Faults, err = quickCheck(ctx, db); err != nil || len(info.Faults) > 0 {
		return info, err
	}
	if there, err := hasTable(ctx, db, versionTable); err != nil || !there {
		return info, err
	}
	if err := db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable).Scan(&info.Schema); err != nil {
		return info, fmt.Errorf("sqlite: read the schema version: %w", err)
	}
	var last int64
	for _, table := range []string{"feed", "journal"} {
		if there, err := hasTable(ctx, db, table); err != nil {
			return info, err
		} else if !there {
			continue
		}
		var seq, at int64
		err = db.QueryRowContext(ctx, "SELECT seq, at FROM "+table+" ORDER BY seq DESC LIMIT 1").Scan(&seq, &at)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return info, fmt.Errorf("sqlite: read the %s: %w", table, err)
		}
		if table == "feed" {
			info.Head = seq
		}
		last = max(last, at)
	}
	if last != 0 {
		info.LastAt = time.UnixMicro(last)
	}
	return info, nil
}

// ReadDocument reads the body of a document of no tenant without opening the store, which
// a server may have open.
func ReadDocument(ctx context.Context, path, kind, id string) (body []byte, err error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	db, err := openToRead(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.QueryRowContext(ctx, "SELECT body FROM items WHERE kind = ? AND tenant = '' AND id = ? AND dropped = 0", kind, id).Scan(&body)
	return body, err
}

// Backup writes a consistent copy of the database at path to the new file to, readable
// only by its owner, and checks it. A store may have the database open and keep
// writing; its write-ahead log is not truncated meanwhile. If to already exists, the
// error is fs.ErrExist and the file is unchanged; a failed copy is removed.
func Backup(ctx context.Context, path, to string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	// VACUUM INTO accepts an empty file as new; creating it here sets the mode.
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeDB(to))
		}
	}()
	if err := f.Close(); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	if err := vacuumInto(ctx, path, to); err != nil {
		return err
	}
	info, err := Inspect(ctx, to)
	if err == nil && len(info.Faults) > 0 {
		err = fmt.Errorf("sqlite: the copy is damaged, and so may be the original: %s", info.Faults[0])
	}
	return err
}

func vacuumInto(ctx context.Context, path, to string) error {
	db, err := openToRead(path)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", to)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("sqlite: copy %s: %w", filepath.Base(path), err)
	}
	return nil
}

func removeDB(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openToRead opens the file on one connection that cannot change it.
func openToRead(path string) (*sql.DB, error) {
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)"}}
	return openDB("file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode(), 1)
}

func quickCheck(ctx context.Context, db *sql.DB) (faults []string, err error) {
	rows, err := db.QueryContext(ctx, "PRAGMA quick_check(10)")
	if err != nil {
		return nil, unreadable(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, unreadable(err)
		}
		if line != "ok" {
			faults = append(faults, line)
		}
	}
	if err := rows.Err(); err != nil {
		return faults, unreadable(err)
	}
	return faults, nil
}

func hasTable(ctx context.Context, db *sql.DB, name string) (there bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = ?", name).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("sqlite: read the schema: %w", err)
	}
	return there, nil
}

// newestSchema returns the version of the last migration.
func newestSchema() (newest int64, err error) {
	newest = packVersion
	files, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		v, err := goose.NumericComponent(f.Name())
		if err != nil {
			return 0, err
		}
		newest = max(newest, v)
	}
	return newest, nil
}

// unreadable returns why a file could not be checked. A file that SQLite cannot
// interpret is damaged.
func unreadable(err error) error {
	var e *driver.Error
	if errors.As(err, &e) && e.Code()&0xff == codes.SQLITE_CORRUPT {
		return fmt.Errorf("sqlite: check the file: it is damaged: %w", err)
	}
	return fmt.Errorf("sqlite: check the file: %w", err)
}
