// Package blob stores content that is too large for a result as files in a directory.
//
// A blob is two files in one of 256 subdirectories: the content and a JSON document of
// metadata. Both are written under a temporary name, synced and renamed, the document
// last, so a blob exists completely or not at all. Its id is unguessable, but knowing
// it grants no access: the caller compares tenant and subject.
package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
)

// MaxBytes is the largest size of one blob.
const MaxBytes = datadir.MaxBlob

// ErrTooLarge reports content of more than MaxBytes; nothing was stored.
var ErrTooLarge = errors.New("blob: the content has more than 100,000,000 bytes")

const (
	metaSuffix = ".json"
	tempPrefix = datadir.UnfinishedBlob
	idLength   = 32 + 32 // a UUIDv7 and 128 random bits, hexadecimal
	// tempAge is the age from which Sweep treats an unfinished file as abandoned.
	tempAge = time.Hour
)

// Dir is a directory of blobs. It is safe for concurrent use.
type Dir struct {
	root  string
	max   int64
	clock func() time.Time
	id    string
}

// meta is the metadata document of a blob.
type meta struct {
	Tenant      string    `json:"tenant"`
	Subject     string    `json:"subject"`
	ContentType string    `json:"content_type"`
	Bytes       int64     `json:"bytes"`
	CreatedAt   time.Time `json:"created_at"`
}

// Open creates the directory if needed, accessible to its owner only.
func Open(dir string) (*Dir, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	if err := os.Chmod(root, 0o700); err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	d := &Dir{root: root, max: MaxBytes, clock: time.Now}
	if d.id, err = d.identify(); err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	return d, nil
}

// identity is the file that tells one directory from another, for processes that share one.
const identity = "folder.id"

// ID names the directory, whatever path leads to it.
func (d *Dir) ID() string { return d.id }

// ReadID reads the ID of a directory without making one; "" where it has none.
func ReadID(dir string) string {
	raw, err := os.ReadFile(filepath.Join(dir, identity))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// identify reads the id, or makes it; of several processes the first one's counts. The id gets
// its name when it is written: a start that is interrupted leaves none.
func (d *Dir) identify() (string, error) {
	path := filepath.Join(d.root, identity)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := d.makeID(path); err != nil {
			return "", fmt.Errorf("the id of the folder cannot be written: %w", err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	id, err := uuid.Parse(strings.TrimSpace(string(raw)))
	if err != nil {
		return "", fmt.Errorf("%s holds no id; remove it, and the next start makes another", path)
	}
	return id.String(), nil
}

// makeID makes the file of the id, unless another process does first.
func (d *Dir) makeID(path string) error {
	f, err := os.CreateTemp(d.root, tempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(uuid.NewString())
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		// Unlike a rename, a link replaces nothing.
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// Put stores the content of r under a new id. Of b it takes Tenant (required), Subject
// and ContentType, and returns b with ID, Bytes and CreatedAt. More than MaxBytes is
// ErrTooLarge. Cancelling ctx stops it between reads of r. After an error nothing is
// left.
func (d *Dir) Put(ctx context.Context, b toolkeep.Blob, r io.Reader) (toolkeep.Blob, error) {
	if b.Tenant == "" {
		return toolkeep.Blob{}, errors.New("blob: the tenant is missing")
	}
	id, err := newID()
	if err != nil {
		return toolkeep.Blob{}, err
	}
	b.ID, b.CreatedAt = id, d.clock().UTC()
	shard := filepath.Dir(d.file(id))
	if err := d.makeShard(shard); err != nil {
		return toolkeep.Blob{}, err
	}
	sum := sha256.New()
	b.Bytes, err = d.write(d.file(id), func(w io.Writer) (int64, error) {
		return copyBounded(ctx, io.MultiWriter(w, sum), r, d.max)
	})
	if err != nil {
		return toolkeep.Blob{}, err
	}
	b.SHA256 = hex.EncodeToString(sum.Sum(nil))
	_, err = d.write(d.file(id)+metaSuffix, func(w io.Writer) (int64, error) {
		return 0, json.MarshalWrite(w, meta{b.Tenant, b.Subject, b.ContentType, b.Bytes, b.CreatedAt})
	})
	if err == nil {
		err = syncDir(shard)
	}
	if err != nil {
		return toolkeep.Blob{}, errors.Join(err, d.remove(id))
	}
	return b, nil
}

// makeShard creates the subdirectory and syncs it, so that it survives a power loss.
func (d *Dir) makeShard(shard string) error {
	err := os.Mkdir(shard, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	return syncDir(d.root)
}

// Open returns a blob and its content; the caller closes the reader. ErrNotFound if
// there is no such id, also for malformed ids. The caller must compare tenant and
// subject with the principal's.
func (d *Dir) Open(ctx context.Context, id string) (toolkeep.Blob, io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return toolkeep.Blob{}, nil, err
	}
	if !validID(id) {
		return toolkeep.Blob{}, nil, fmt.Errorf("blob: %w", toolkeep.ErrNotFound)
	}
	b, err := d.stat(id)
	if err != nil {
		return toolkeep.Blob{}, nil, err
	}
	f, err := os.Open(d.file(id))
	if err != nil {
		return toolkeep.Blob{}, nil, notFound(err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() != b.Bytes {
		err = fmt.Errorf("blob: %s has %d bytes, %d were written", id, info.Size(), b.Bytes)
	}
	if err != nil {
		return toolkeep.Blob{}, nil, errors.Join(err, f.Close())
	}
	return b, f, nil
}

func (d *Dir) stat(id string) (toolkeep.Blob, error) {
	data, err := os.ReadFile(d.file(id) + metaSuffix)
	if err != nil {
		return toolkeep.Blob{}, notFound(err)
	}
	var m meta
	if err := json.Unmarshal(data, &m); err != nil {
		return toolkeep.Blob{}, fmt.Errorf("blob: what is known of %s cannot be read: %w", id, err)
	}
	return toolkeep.Blob{
		ID: id, Tenant: m.Tenant, Subject: m.Subject, ContentType: m.ContentType, Bytes: m.Bytes, CreatedAt: m.CreatedAt,
	}, nil
}

// Sweep removes blobs created before olderThan and the remains of interrupted Puts, and
// returns the number of blobs removed. It continues after an error and returns all
// errors.
func (d *Dir) Sweep(ctx context.Context, olderThan time.Time) (int, error) {
	shards, err := os.ReadDir(d.root)
	if err != nil {
		return 0, fmt.Errorf("blob: %w", err)
	}
	removed := 0
	var errs []error
	for _, s := range shards {
		if !s.IsDir() || len(s.Name()) != 2 {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(d.root, s.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return removed, errors.Join(append(errs, err)...)
			}
			gone, err := d.sweepOne(filepath.Join(d.root, s.Name()), e.Name(), olderThan)
			if err != nil {
				errs = append(errs, err)
			}
			if gone {
				removed++
			}
		}
	}
	return removed, errors.Join(errs...)
}

// sweepOne checks one file; it returns true if a blob was removed.
func (d *Dir) sweepOne(shard, name string, olderThan time.Time) (bool, error) {
	if strings.HasPrefix(name, tempPrefix) {
		return false, d.removeStale(filepath.Join(shard, name))
	}
	id, isMeta := strings.CutSuffix(name, metaSuffix)
	if !validID(id) {
		return false, nil // not a blob
	}
	if !isMeta {
		_, err := os.Lstat(d.file(id) + metaSuffix)
		if errors.Is(err, fs.ErrNotExist) { // content without its document
			return false, d.removeStale(d.file(id))
		}
		return false, err
	}
	b, err := d.stat(id)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return false, nil // another sweep was faster
	}
	if err != nil { // damaged: use the file's modification time
		info, statErr := os.Lstat(d.file(id) + metaSuffix)
		if statErr != nil {
			return false, ignoreMissing(statErr)
		}
		b.CreatedAt = info.ModTime()
	}
	if !b.CreatedAt.Before(olderThan) {
		return false, err
	}
	return true, d.remove(id)
}

// removeStale removes a file that has not been modified for a while.
func (d *Dir) removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if d.clock().Sub(info.ModTime()) < tempAge {
		return nil
	}
	return ignoreMissing(os.Remove(path))
}

// Remove removes a blob. It is no error if there is none with that id.
func (d *Dir) Remove(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil || !validID(id) {
		return err
	}
	return d.remove(id)
}

// remove removes the document first: content without a document is not a blob.
func (d *Dir) remove(id string) error {
	return errors.Join(ignoreMissing(os.Remove(d.file(id)+metaSuffix)), ignoreMissing(os.Remove(d.file(id))))
}

// file returns the path of a blob's content. The last two digits of an id are random,
// which spreads blobs evenly.
func (d *Dir) file(id string) string { return filepath.Join(d.root, id[len(id)-2:], id) }

// write creates a file with what fill writes, completely or not at all.
func (d *Dir) write(path string, fill func(io.Writer) (int64, error)) (n int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*") // mode 0600
	if err != nil {
		return 0, fmt.Errorf("blob: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(f.Close()), ignoreMissing(os.Remove(f.Name())))
		}
	}()
	if n, err = fill(f); err != nil {
		return 0, err
	}
	if err = f.Sync(); err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return 0, fmt.Errorf("blob: %w", err)
	}
	return n, nil
}

// copyBounded copies r; it stops when ctx ends or the limit is exceeded.
func copyBounded(ctx context.Context, w io.Writer, r io.Reader, max int64) (int64, error) {
	n, err := io.Copy(w, io.LimitReader(&contextReader{ctx, r}, max+1))
	if err != nil {
		return 0, fmt.Errorf("blob: %w", err)
	}
	if n > max {
		return 0, ErrTooLarge
	}
	return n, nil
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// newID returns an unguessable id that sorts by time.
func newID() (string, error) {
	u, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("blob: %w", err)
	}
	var secret [16]byte
	rand.Read(secret[:]) // never fails
	return hex.EncodeToString(u[:]) + hex.EncodeToString(secret[:]), nil
}

// validID reports whether an id is lower-case hexadecimal of the right length; nothing
// else may become part of a path.
func validID(id string) bool {
	if len(id) != idLength {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	return nil
}

func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("blob: %w", toolkeep.ErrNotFound)
	}
	return fmt.Errorf("blob: %w", err)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
