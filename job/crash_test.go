package job

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// childDir makes the test binary a process that works on one call forever.
const childDir = "JOB_TEST_CHILD_DIR"

// child enqueues a call, reports when it is being worked on, and waits to be killed.
func child(dir string) {
	fail := func(err error) {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	ctx := context.Background()
	db, err := openDB(filepath.Join(dir, "job.db"))
	if err != nil {
		fail(err)
	}
	q, err := NewSQLite(Config{DB: db, NodeID: "child", Workers: 2, Runner: runFunc( // so that it never picks up the third
		func(ctx context.Context, ref toolkeep.CallRef) error {
			fmt.Println("running", ref.ID)
			select {}
		})})
	if err != nil {
		fail(err)
	}
	if err := q.Migrate(ctx); err != nil {
		fail(err)
	}
	for _, id := range []string{"cut-off", "cut-off-too"} {
		if err := enqueue(ctx, q, id, toolkeep.High, time.Time{}); err != nil {
			fail(err)
		}
	}
	if err := enqueue(ctx, q, "waiting", toolkeep.Low, time.Now().Add(time.Second)); err != nil {
		fail(err)
	}
	if err := q.Start(ctx); err != nil {
		fail(err)
	}
	select {}
}

// killedChild runs the child until both calls are running, then kills it.
func killedChild(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines, running := bufio.NewScanner(out), map[string]bool{}
	for len(running) < 2 && lines.Scan() {
		running[lines.Text()] = true
	}
	if err := cmd.Process.Kill(); err != nil { // SIGKILL
		t.Error(err)
	}
	_ = cmd.Wait() // the error is the signal
	if !running["running cut-off"] || !running["running cut-off-too"] {
		t.Fatalf("the child said only %v", running)
	}
}

func TestKilledInTheMiddle(t *testing.T) {
	t.Run("the job runs again, and what waited too", func(t *testing.T) {
		ctx := testContext(t)
		dir := t.TempDir()
		killedChild(t, dir)
		db, err := openDB(filepath.Join(dir, "job.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		r := newRecorder()
		q := newSQLiteQueue(t, Config{DB: db, Runner: r, NodeID: "parent"})
		start(t, q)
		got := map[string]int{}
		for range 3 {
			got[r.wait(t, ctx)]++
		}
		if got["cut-off"] != 1 || got["cut-off-too"] != 1 || got["waiting"] != 1 {
			t.Fatalf("ran %v", got)
		}
	})
	t.Run("the dead job does not block a new one", func(t *testing.T) {
		ctx := testContext(t)
		dir := t.TempDir()
		killedChild(t, dir)
		db, err := openDB(filepath.Join(dir, "job.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		r := newRecorder()
		q := newSQLiteQueue(t, Config{DB: db, Runner: r, Workers: 1, NodeID: "parent"})
		// The lapsed-lease reaper enqueued it first.
		mustEnqueue(t, q, "cut-off", toolkeep.High, time.Time{})
		if n := waiting(t, q); n != 2 {
			t.Fatalf("%d wait, want 2", n)
		}
		start(t, q)
		// And again while the first is running or done.
		got := map[string]int{}
		for range 3 {
			got[r.wait(t, ctx)]++
		}
		if got["cut-off"] != 1 || got["cut-off-too"] != 1 || got["waiting"] != 1 {
			t.Fatalf("ran %v", got)
		}
		var n int
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM river_job WHERE state = 'available'`).Scan(&n); err != nil || n != 0 {
			t.Fatalf("%d still wait (%v)", n, err)
		}
	})
}
