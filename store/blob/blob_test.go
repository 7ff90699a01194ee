package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func put(t *testing.T, d *Dir, content string) toolkeep.Blob {
	t.Helper()
	b, err := d.Put(t.Context(), toolkeep.Blob{Tenant: "t", Subject: "s", ContentType: "text/plain"}, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func get(t *testing.T, d *Dir, id string) (toolkeep.Blob, string) {
	t.Helper()
	b, r, err := d.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b, string(data)
}

// files lists the files below the directory.
func files(t *testing.T, d *Dir) (names []string) {
	t.Helper()
	err := filepath.WalkDir(d.root, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != identity {
			names = append(names, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestID: one directory has one id, also for processes that open it first at once, and another
// directory another.
func TestID(t *testing.T) {
	dir, other := filepath.Join(t.TempDir(), "blobs"), filepath.Join(t.TempDir(), "blobs")
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			d, err := Open(dir)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = d.ID()
		})
	}
	all.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] || ReadID(dir) != id {
			t.Fatalf("one directory is %q", ids)
		}
	}
	d, err := Open(other)
	if err != nil || d.ID() == ids[0] || ReadID(t.TempDir()) != "" {
		t.Errorf("another directory is %q, too: %v", d.ID(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, tempPrefix+"*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// A start that was interrupted leaves a file without the name.
	half := t.TempDir()
	if err := os.WriteFile(filepath.Join(half, tempPrefix+"1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := Open(half); err != nil || d.ID() == "" {
		t.Errorf("after an interrupted start: %v", err)
	}
	if err := os.WriteFile(filepath.Join(other, identity), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), identity) {
		t.Errorf("a damaged id: %v", err)
	}
}

func TestPutAndOpen(t *testing.T) {
	d := open(t)
	seen := map[string]bool{}
	for _, content := range []string{"", "hello", strings.Repeat("x", 1<<20)} {
		before := time.Now()
		b := put(t, d, content)
		if !validID(b.ID) || seen[b.ID] {
			t.Errorf("id %q", b.ID)
		}
		seen[b.ID] = true
		if sum := sha256.Sum256([]byte(content)); b.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("the SHA-256 of %d bytes is %s", len(content), b.SHA256)
		}
		b.SHA256 = "" // which is not kept
		got, data := get(t, d, b.ID)
		if got != b || data != content {
			t.Errorf("got %+v with %d bytes, want %+v with %d", got, len(data), b, len(content))
		}
		if b.Tenant != "t" || b.Subject != "s" || b.ContentType != "text/plain" || b.Bytes != int64(len(content)) || b.CreatedAt.Before(before.Add(-time.Second)) {
			t.Errorf("got %+v", b)
		}
	}
	// Another process sees the same.
	again, err := Open(d.root)
	if err != nil {
		t.Fatal(err)
	}
	for id := range seen {
		get(t, again, id)
	}
	if _, err := d.Put(t.Context(), toolkeep.Blob{Subject: "s"}, strings.NewReader("x")); err == nil {
		t.Error("a blob of nobody was kept")
	}
}

func TestModes(t *testing.T) {
	d := open(t)
	put(t, d, "x")
	err := filepath.WalkDir(d.root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o", p, info.Mode().Perm())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestIDs(t *testing.T) {
	d := open(t)
	id := put(t, d, "x").ID
	outside := filepath.Join(filepath.Dir(d.root), "secret")
	for _, p := range []string{outside, outside + metaSuffix} {
		if err := os.WriteFile(p, []byte(`{}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{
		"", "x", "../secret", "../../secret", outside, strings.ToUpper(id), id + "0", id[1:], id + metaSuffix,
		id[:62] + "/x", id[:62] + "..", id[:63] + "\x00", strings.Repeat("../", 21) + "a", strings.Repeat("f", idLength),
	} {
		if _, r, err := d.Open(t.Context(), bad); !errors.Is(err, toolkeep.ErrNotFound) {
			t.Errorf("Open(%q): %v, %v", bad, r, err)
		}
	}
}

type failing struct{ after io.Reader }

var errBroken = errors.New("broken")

func (f failing) Read(p []byte) (int, error) {
	n, err := f.after.Read(p)
	if err == io.EOF {
		err = errBroken
	}
	return n, err
}

func TestFailuresLeaveNothing(t *testing.T) {
	d := open(t)
	d.max = 1000
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		want error
	}{
		"too large": {t.Context(), bytes.NewReader(make([]byte, 1001)), ErrTooLarge},
		"endless":   {t.Context(), zeros{}, ErrTooLarge},
		"broken":    {t.Context(), failing{strings.NewReader("some")}, errBroken},
		"cancelled": {ended, strings.NewReader("some"), context.Canceled},
	} {
		if _, err := d.Put(c.ctx, toolkeep.Blob{Tenant: "t"}, c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := files(t, d); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if b := put(t, d, strings.Repeat("x", 1000)); b.Bytes != 1000 {
		t.Errorf("%d bytes", b.Bytes)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestDamage(t *testing.T) {
	d := open(t)
	cut, odd, gone := put(t, d, "hello"), put(t, d, "hello"), put(t, d, "hello")
	if err := errors.Join(
		os.Truncate(d.file(cut.ID), 2),
		os.WriteFile(d.file(odd.ID)+metaSuffix, []byte("{"), 0o600),
		os.Remove(d.file(gone.ID)),
	); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"cut": cut.ID, "odd": odd.ID} {
		if _, _, err := d.Open(t.Context(), id); err == nil || errors.Is(err, toolkeep.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := d.Open(t.Context(), gone.ID); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("gone: %v", err)
	}
	if n, err := d.Sweep(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err == nil {
		t.Errorf("swept %d, and said nothing of the damaged one: %v", n, err)
	}
	if n, err := d.Sweep(t.Context(), time.Now().Add(time.Hour)); n != 3 || err != nil || len(files(t, d)) != 0 {
		t.Errorf("swept %d, %v, left %v", n, err, files(t, d))
	}
}

func TestSweep(t *testing.T) {
	d := open(t)
	now := time.Now()
	d.clock = func() time.Time { return now.Add(-48 * time.Hour) }
	old := put(t, d, "old")
	reading := put(t, d, "being read")
	_, r, err := d.Open(t.Context(), reading.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d.clock = func() time.Time { return now }
	fresh := put(t, d, "new")

	shard := filepath.Dir(d.file(fresh.ID))
	orphan := filepath.Join(shard, strings.Repeat("a", idLength-2)+fresh.ID[idLength-2:])
	stale, busy, alien := filepath.Join(shard, tempPrefix+"1"), filepath.Join(shard, tempPrefix+"2"), filepath.Join(shard, "README")
	for _, p := range []string{orphan, stale, busy, alien} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{orphan, stale} {
		if err := os.Chtimes(p, now.Add(-2*time.Hour), now.Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	n, err := d.Sweep(t.Context(), now.Add(-24*time.Hour))
	if err != nil || n != 2 {
		t.Errorf("swept %d, %v", n, err)
	}
	if _, _, err := d.Open(t.Context(), old.ID); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("the old one: %v", err)
	}
	get(t, d, fresh.ID)
	if data, err := io.ReadAll(r); err != nil || string(data) != "being read" {
		t.Errorf("who was reading got %q, %v", data, err)
	}
	want := map[string]bool{d.file(fresh.ID): true, d.file(fresh.ID) + metaSuffix: true, busy: true, alien: true}
	for _, p := range files(t, d) {
		if !want[p] {
			t.Errorf("%s is left", p)
		}
		delete(want, p)
	}
	if len(want) != 0 {
		t.Errorf("gone: %v", want)
	}
	if n, err := d.Sweep(t.Context(), now.Add(-24*time.Hour)); err != nil || n != 0 {
		t.Errorf("swept %d again, %v", n, err)
	}
}

// TestHammer puts, reads and sweeps concurrently.
func TestHammer(t *testing.T) {
	d := open(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				b, err := d.Put(t.Context(), toolkeep.Blob{Tenant: "t"}, strings.NewReader("content"))
				if err != nil {
					t.Error(err)
					return
				}
				_, r, err := d.Open(t.Context(), b.ID)
				if err != nil {
					t.Error(err)
					return
				}
				r.Close()
			}
		})
		wg.Go(func() {
			if n, err := d.Sweep(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
		})
	}
	wg.Wait()
}

// TestRemove: a blob is gone with its document; again, or with what is no id, nothing happens.
func TestRemove(t *testing.T) {
	d := open(t)
	b, other := put(t, d, "one"), put(t, d, "two")
	for _, id := range []string{b.ID, b.ID, "", "../x", "x"} {
		if err := d.Remove(t.Context(), id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, _, err := d.Open(t.Context(), b.ID); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
	if _, text := get(t, d, other.ID); text != "two" || len(files(t, d)) != 2 {
		t.Errorf("left: %q, %v", text, files(t, d))
	}
}
