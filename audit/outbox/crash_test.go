package outbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/file"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// childDir and childHold make the test binary a process that delivers to a file, until it stands at childAt for that many
// times.
const (
	childDir  = "OUTBOX_TEST_CHILD_DIR"
	childHold = "OUTBOX_TEST_CHILD_HOLD"
	childAt   = "OUTBOX_TEST_CHILD_AT"
)

// Where a child may stand.
const (
	beforeDelivery = "before a delivery"
	amidDelivery   = "amid a delivery" // a part of it is in the file
	beforeRefusal  = "before a refusal"
	beforeMove     = "between a delivery and its cursor"
	amidReplay     = "between a replay and its file"
)

// refused is the event that the child's sink refuses, except in a replay.
const refused = "77"

// stands blocks at a place for ever, the n-th time; 0 never.
type stands struct {
	at   string
	left atomic.Int64
}

func (s *stands) here(at string) {
	if at == s.at && s.left.Add(-1) == 0 {
		fmt.Println("stands")
		select {} // until it is killed
	}
}

// stepwise is the child's sink.
type stepwise struct {
	outbox.Sink
	*stands
	path    string
	replays bool
}

func (s stepwise) Deliver(ctx context.Context, events []outbox.Event) (int, error) {
	s.here(beforeDelivery)
	if s.replays {
		n, err := s.Sink.Deliver(ctx, events)
		s.here(amidReplay)
		return n, err
	}
	if slices.ContainsFunc(events, func(e outbox.Event) bool { return e.ID == refused }) {
		if len(events) == 1 {
			s.here(beforeRefusal)
		}
		return 0, &outbox.Refused{Err: errors.New("not this one")}
	}
	if s.at == amidDelivery {
		f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		if _, err := f.Write(append(append(slices.Clone(events[0].JSON), '\n'), events[0].JSON[:20]...)); err != nil {
			return 0, err
		}
		s.here(amidDelivery)
	}
	return s.Sink.Deliver(ctx, events)
}

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
	at := &stands{at: os.Getenv(childAt)}
	at.left.Store(hold)
	path := filepath.Join(dir, "out.jsonl")
	sink := stepwise{Sink: file.New(path), stands: at, path: path, replays: at.at == amidReplay}
	o, err := outbox.New(outbox.Config{Store: store, Dir: dir, Sinks: []outbox.Settings{{Name: "sink", FromStart: true, Batch: 10, Flush: 10 * time.Millisecond, Timeout: time.Minute, Retries: 1}},
		Open: func(outbox.Settings) (outbox.Sink, error) { return sink, nil }, Hook: func(string) { at.here(beforeMove) }})
	fail(err)
	if sink.replays {
		r, err := o.Replay(ctx, "sink")
		fail(err)
		fmt.Println("done", r.Sent, r.Remaining)
		return
	}
	if newest, err := store.ChainWriters(ctx, nil); err == nil && len(newest) == 0 { // the first one records
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

// TestKilledAtEachStep: a process that is killed between any two steps of a delivery, of a dead letter and of a replay loses
// nothing; what it repeats comes after its first delivery, and is what was not confirmed by a cursor.
func TestKilledAtEachStep(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		at   string
		hold int
	}{
		{beforeDelivery, 1}, {beforeMove, 1}, {beforeDelivery, 2}, {amidDelivery, 2}, {beforeMove, 2}, {beforeRefusal, 1}, {beforeRefusal, 2},
		{beforeMove, 1}, // after the dead letter
		{beforeMove, 5}, {"", 0},
	} {
		if got, want := run(t, dir, c.at, c.hold), map[bool]string{true: "done", false: "stands"}[c.hold == 0]; got != want {
			t.Fatalf("%s: the child said %q, want %q", c.at, got, want)
		}
	}
	ids := delivered(t, dir)
	same(t, "first deliveries", firsts(ids), slices.DeleteFunc(names("", 0, crashEvents), func(id string) bool { return id == refused }))
	t.Logf("%d events were repeated", len(ids)-(crashEvents-1))
	if n := len(ids) - (crashEvents - 1); n > 60 { // a batch for each kill that a delivery came before
		t.Errorf("%d events were repeated, want 60 at most", n)
	}
	if got := run(t, dir, amidReplay, 1); got != "stands" {
		t.Fatalf("the replay said %q", got)
	}
	for _, want := range []string{"done ", "done 0 0"} {
		if got := run(t, dir, amidReplay, 0); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, " 0") {
			t.Fatalf("the replay said %q, want %q", got, want)
		}
	}
	if more := delivered(t, dir)[len(ids):]; len(more) < 2 || slices.ContainsFunc(more, func(id string) bool { return id != refused }) {
		t.Errorf("the replays delivered %v, want %s at least twice", more, refused)
	}
}

// delivered are the ids of the events in the child's file.
func delivered(t *testing.T, dir string) (ids []string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "out.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// run runs a child until it stands where it is to be killed, or, with hold 0, until it is done, and returns what it said.
func run(t *testing.T, dir, at string, hold int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childHold+"="+strconv.Itoa(hold), childAt+"="+at)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := bufio.NewScanner(out)
	line.Scan()
	if hold != 0 {
		_ = cmd.Process.Kill() // SIGKILL
	}
	_ = cmd.Wait() // the error is the signal
	return line.Text()
}
