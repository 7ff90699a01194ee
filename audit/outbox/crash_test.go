package outbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/file"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// childDir and childHold make the test binary a process that delivers to a file, until it stands between a delivery and its
// cursor for that many times.
const (
	childDir  = "OUTBOX_TEST_CHILD_DIR"
	childHold = "OUTBOX_TEST_CHILD_HOLD"
)

// crashEvents is how many events are recorded.
const crashEvents = 200

func child(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	hold, err := strconv.ParseInt(os.Getenv(childHold), 10, 64)
	fail(err)
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "toolkeep.db")})
	fail(err)
	var moves atomic.Int64
	o, err := outbox.New(outbox.Config{Store: store, Dir: dir, Sinks: []outbox.Settings{{Name: "sink", FromStart: true, Batch: 10, Flush: 10 * time.Millisecond, Timeout: time.Minute}},
		Open: func(outbox.Settings) (outbox.Sink, error) { return file.New(filepath.Join(dir, "out.jsonl")), nil },
		Hook: func(string) {
			if moves.Add(1) == hold {
				fmt.Println("delivered")
				select {} // until it is killed
			}
		}})
	fail(err)
	if hold == 1 { // the first one records
		for i := range crashEvents {
			fail(store.Apply(ctx, toolkeep.AppendEvent{Event: toolkeep.Event{ID: strconv.Itoa(i), Type: "x", Tenant: "t", Time: time.Now(), Data: []byte(`{}`)}}))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			if list, err := o.Statuses(ctx); hold == 0 && err == nil && list[0].Begun && list[0].Behind == 0 {
				cancel()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	o.Run(ctx)
	fail(o.Stop())
	fail(store.Close())
	fmt.Println("done")
}

// TestKilledBeforeTheCursorMoves: a process that is killed between a delivery and the move of its cursor loses
// nothing; what it repeats comes after its first delivery.
func TestKilledBeforeTheCursorMoves(t *testing.T) {
	dir := t.TempDir()
	for _, hold := range []int{1, 2, 5, 0} {
		run(t, dir, hold)
	}
	f, err := os.Open(filepath.Join(dir, "out.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var ids []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		ids = append(ids, e.ID)
	}
	same(t, "first deliveries", firsts(ids), names("", 0, crashEvents))
	if n := len(ids) - crashEvents; n != 30 { // a batch for each kill
		t.Errorf("%d events were repeated, want 30", n)
	}
}

// run runs a child until it stands where it is to be killed, or, with hold 0, until it has delivered all.
func run(t *testing.T, dir string, hold int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childHold+"="+strconv.Itoa(hold))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := bufio.NewScanner(out)
	line.Scan()
	if want := map[bool]string{true: "done", false: "delivered"}[hold == 0]; line.Text() != want {
		t.Errorf("the child said %q, want %q", line.Text(), want)
	}
	if hold != 0 {
		_ = cmd.Process.Kill() // SIGKILL
	}
	_ = cmd.Wait() // the error is the signal
}
