package invoke_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestRecordsLost: while neither the store nor the spool takes a record, the answer of a
// reading call warns, health tells and the count grows; all of it ends when the disk takes
// records again, also without another call.
func TestRecordsLost(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	down := &downStore{Applier: h.store}
	h.pipeline.Stop()
	dir := filepath.Join(h.dir, "disk")
	h.config.Store, h.config.SpoolPath = down, filepath.Join(dir, "spool.jsonl")
	var err error
	if h.pipeline, err = invoke.New(h.config); err != nil {
		t.Fatal(err)
	}
	if err := h.pipeline.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	read := func(warned bool) {
		t.Helper()
		res, err := h.call(&toolkeep.Call{Tool: "std.read"})
		if err != nil {
			t.Fatal(err)
		}
		got := len(res.Warnings) == 1 && res.Warnings[0].Code == toolkeep.RecordUnavailable
		if got != warned || !warned && len(res.Warnings) > 0 {
			t.Errorf("warnings %+v, want one %t", res.Warnings, warned)
		}
	}
	healthy := func(want string, lost int64) {
		t.Helper()
		got := ""
		if err := h.pipeline.RecordHealth(); err != nil {
			got = err.Error()
		}
		if _, n := h.pipeline.Spooled(); n != lost || want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("health %q with %d lost, want %q with %d", got, n, want, lost)
		}
	}
	sweep := func() {
		t.Helper()
		if err := h.pipeline.Sweep(context.Background()); err != nil {
			t.Log(err) // of the store that is down
		}
	}
	read(false)
	healthy("", 0)
	down.down.Store(true)
	read(true)
	read(true)
	healthy("records of calls are being lost, 2 since the start", 2)
	sweep()
	healthy("being lost", 2)
	if err := os.Mkdir(dir, 0o700); err != nil { // there is room again
		t.Fatal(err)
	}
	sweep()
	healthy("", 2)
	read(false)
	healthy("1 records wait for the store, 2 are lost", 2)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	read(true)
	healthy("being lost, 3", 3)
	down.down.Store(false)
	read(false) // the store takes records: nothing is lost any more
	if err := h.pipeline.RecordHealth(); err != nil && strings.Contains(err.Error(), "being lost") {
		t.Error(err)
	}
}
