package invoke_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/store/blob"
)

// answer makes the executor return a body, kept as it arrives if that is possible.
func (h *harness) answer(contentType string, body func() io.Reader, keeps bool) {
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		o := &toolkeep.Output{ContentType: contentType}
		if keeps {
			kept, err := x.Keep(o, body())
			if kept || err != nil {
				return o, err
			}
		}
		var err error
		o.Body, err = io.ReadAll(body())
		return o, err
	}
}

// whole reads the attachments of a result.
func (h *harness) whole(res *toolkeep.Result) (all []string) {
	h.t.Helper()
	for _, a := range res.Attachments {
		b, r, err := h.config.Blobs.(*blob.Dir).Open(h.t.Context(), path.Base(a.URL))
		if err != nil {
			h.t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			h.t.Fatal(err)
		}
		all = append(all, strings.Join([]string{a.Kind, a.ContentType, b.Tenant, b.Subject, b.ContentType, string(text)}, "|"))
	}
	return all
}

// stored returns the blobs of the blob store.
func (h *harness) stored() (files []string) {
	h.t.Helper()
	err := filepath.WalkDir(filepath.Join(h.dir, "blobs"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "folder.id" { // which names the folder
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return files
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestBrokenBodiesLeaveNothing: of a body that ends early nothing is stored, and the attempt fails as it does without.
func TestBrokenBodiesLeaveNothing(t *testing.T) {
	h := newHarness(t)
	h.tool("body")
	for _, size := range []int{10, 100_000, 3 << 20} {
		for _, media := range []string{"application/octet-stream", "text/plain"} {
			h.answer(media, func() io.Reader {
				return io.MultiReader(bytes.NewReader(make([]byte, size)), iotest.ErrReader(toolkeep.NewError(toolkeep.ResultTooLarge, "too large")))
			}, true)
			res, err := h.call(&toolkeep.Call{Tool: "std.body"})
			if err != nil {
				t.Fatal(err)
			}
			wantCode(t, res.Error, toolkeep.ResultTooLarge)
		}
	}
	if files := h.stored(); len(files) > 0 {
		t.Errorf("stored: %v", files)
	}
}

// TestBodiesWithoutAStore: a body that cannot be stored is a result with a warning, as one that was held.
func TestBodiesWithoutAStore(t *testing.T) {
	h := newHarness(t)
	h.tool("body")
	dir := filepath.Join(h.dir, "blobs")
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var results [2]*toolkeep.Result
	for i, keeps := range []bool{false, true} {
		h.answer("image/png", func() io.Reader { return bytes.NewReader(make([]byte, 3<<20)) }, keeps)
		res, err := h.call(&toolkeep.Call{Tool: "std.body"})
		if err != nil {
			t.Fatal(err)
		}
		results[i] = res
	}
	held, now := results[0], results[1]
	if len(now.Warnings) != 1 || !reflect.DeepEqual(held.Warnings, now.Warnings) || !bytes.Equal(held.Output, now.Output) || len(now.Attachments) > 0 {
		t.Errorf("held: %s, %v; kept: %s, %v", held.Output, held.Warnings, now.Output, now.Warnings)
	}
}

// TestShownWholeIsNotStored: of a long text that is short without its secrets, nothing is stored, and nothing warns if
// the store fails.
func TestShownWholeIsNotStored(t *testing.T) {
	const secret = "hunter2-hunter2"
	h := newHarness(t)
	defer h.redact.Hold(redact.AllTenants, secret)()
	h.tool("body", func(m *toolkeep.Manifest) { m.Result = &toolkeep.ResultSpec{MaxOutputBytes: 100_001} })
	h.answer("text/plain", func() io.Reader { return strings.NewReader(strings.Repeat(secret, 20_000)) }, true)
	look := func(when string) {
		res, err := h.call(&toolkeep.Call{Tool: "std.body"})
		if err != nil || res.Error != nil || string(res.Output) != `"[REDACTED]"` || len(res.Warnings)+len(res.Attachments) > 0 {
			t.Errorf("%s: %+v, %v", when, res, err)
		}
	}
	look("with a store")
	if files := h.stored(); len(files) > 0 {
		t.Errorf("stored: %v", files)
	}
	dir := filepath.Join(h.dir, "blobs")
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	look("without a store")
}

// endedBy is a store that ends the call while it stores.
type endedBy struct {
	invoke.Blobs
	end func()
}

func (s *endedBy) Put(ctx context.Context, b toolkeep.Blob, r io.Reader) (toolkeep.Blob, error) {
	s.end()
	<-ctx.Done()
	return s.Blobs.Put(ctx, b, r)
}

// TestCancelledWhileKept: a call that is cancelled while its body goes to the store is cancelled; the store did not fail.
func TestCancelledWhileKept(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log bytes.Buffer
	h := newHarness(t, func(c *invoke.Config) {
		c.Blobs = &endedBy{c.Blobs, cancel}
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	h.tool("body")
	h.answer("image/png", func() io.Reader { return bytes.NewReader(make([]byte, 3<<20)) }, true)
	_, err := h.pipeline.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.body"})
	wantCode(t, toolkeep.AsError(err), toolkeep.Cancelled)
	if strings.Contains(log.String(), "could not be stored") {
		t.Errorf("the log: %s", log.String())
	}
}

// TestKeptAnswersAreBounded: a long answer that is kept for who asks again is cut for all who get it, and whole in a blob.
func TestKeptAnswersAreBounded(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) { c.KeptBytes = 100_000 })
	text := strings.Repeat("a line of text\n", 20_000)
	own := func(m *toolkeep.Manifest) { m.Result = &toolkeep.ResultSpec{MaxOutputBytes: 1_000} }
	h.tool("long")
	h.tool("short", own)
	h.tool("cached", func(m *toolkeep.Manifest) { m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 3600} })
	for _, keeps := range []bool{false, true} {
		h.answer("text/plain", func() io.Reader { return strings.NewReader(text) }, keeps)
		for _, c := range []struct {
			call toolkeep.Call
			most int // of the output; 0 is whole
		}{
			{toolkeep.Call{Tool: "std.long"}, 0},
			{toolkeep.Call{Tool: "std.long", Key: fmt.Sprint("k", keeps)}, 100_000},
			{toolkeep.Call{Tool: "std.cached", Key: fmt.Sprint("c", keeps)}, 100_000},
			{toolkeep.Call{Tool: "std.cached"}, 0},
			{toolkeep.Call{Tool: "std.cached", Key: fmt.Sprint("d", keeps)}, 100_000},
			{toolkeep.Call{Tool: "std.short", Key: fmt.Sprint("s", keeps)}, 1_000},
		} {
			for range 2 { // the second of a key is a repeat
				res, err := h.call(&c.call)
				if err != nil {
					t.Fatal(err)
				}
				if res.Truncated != (c.most > 0) || c.most > 0 && (len(res.Output) > c.most || len(res.Output) < c.most-20) {
					t.Errorf("%+v: %d bytes, truncated: %v", c.call, len(res.Output), res.Truncated)
				}
				if whole := h.whole(res); c.most > 0 && (len(whole) != 1 || !strings.HasSuffix(whole[0], "|"+text)) {
					t.Errorf("%+v: the whole is not stored", c.call)
				}
			}
		}
	}
}
