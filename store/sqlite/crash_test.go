package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

const childPath = "TOOLKEEP_SQLITE_TEST_CHILD"

// childMain is the process that TestKill kills: it applies numbered changes from
// several goroutines and prints the acknowledged numbers.
func childMain() bool {
	p := os.Getenv(childPath)
	if p == "" {
		return false
	}
	ctx := context.Background()
	s, err := Open(ctx, Config{Path: p, WALBytes: 1 << 20, Log: quiet()})
	if err != nil {
		fmt.Println("error", err)
		return true
	}
	var next atomic.Int64
	var out sync.Mutex
	parallel(8, func() {
		for {
			n := next.Add(1)
			err := s.Apply(ctx, childChanges(n)...)
			if err == nil && ends(n) {
				err = s.Apply(ctx, childEnd(n))
			}
			if err != nil {
				fmt.Println("error", err)
				return
			}
			out.Lock()
			fmt.Println(n)
			out.Unlock()
		}
	})
	return true
}

// childChanges returns recorded calls and, for every third, a claimed call together
// with an event.
func childChanges(n int64) []toolkeep.Change {
	id := strconv.FormatInt(n, 10)
	if n%3 != 0 {
		return []toolkeep.Change{recorded(id)}
	}
	v := call(id, toolkeep.CallRunning)
	v.Key, v.CreatedAt = id, time.Now()
	return []toolkeep.Change{
		toolkeep.ClaimCall{Invocation: v},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Type: "invoked", Tenant: "t"}},
	}
}

// ends reports whether a claimed call of the child ends, every other one.
func ends(n int64) bool { return n%6 == 0 }

func childEnd(n int64) toolkeep.Change {
	v := call(strconv.FormatInt(n, 10), toolkeep.CallSucceeded)
	v.Key, v.Output = v.ID, []byte(v.ID)
	return toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}}
}

// TestKill kills a process in the middle of its work, several times on the same file:
// everything acknowledged is stored, and each Apply completely or not at all.
func TestKill(t *testing.T) {
	for round := range 3 {
		p := path(t)
		acknowledged := killChild(t, p, 300*(round+1))
		s := mustOpen(t, Config{Path: p})
		for _, n := range acknowledged {
			v, err := s.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: n})
			if err != nil || v.ID != n {
				t.Fatalf("call %s was acknowledged and is lost: %v", n, err)
			}
			number, _ := strconv.ParseInt(n, 10, 64)
			if v.State == toolkeep.CallRunning && ends(number) || ends(number) && string(v.Output) != n {
				t.Fatalf("call %s ended, and is %s with %q", n, v.State, v.Output)
			}
		}
		events, next := 0, int64(1)
		list, at, err := s.ReadJournal(t.Context(), nil, 1000)
		for ; len(list) > 0 && err == nil; list, at, err = s.ReadJournal(t.Context(), at, 1000) {
			for _, e := range list {
				if e.Seq != next {
					t.Fatalf("the journal has %d where %d is due", e.Seq, next)
				}
				next++
				if e.Event == nil {
					continue
				}
				events++
				if _, err := s.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: e.Event.ID}); err != nil {
					t.Errorf("event %s came without its claim: %v", e.Event.ID, err)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if claims := count(t, s, "SELECT count(*) FROM invocations WHERE hold_key = id"); claims != events || events == 0 {
			t.Errorf("%d claims and %d events", claims, events)
		}
		mustApply(t, s, recorded("after"))
		if list, _, err := s.ReadJournal(t.Context(), at, 2); err != nil || len(list) != 1 || list[0].Seq != next {
			t.Errorf("the journal goes on with %+v, %v, want %d", list, err, next)
		}
		t.Logf("%d acknowledged, %d in the journal", len(acknowledged), next-1)
	}
}

// killChild runs a child until it has acknowledged enough changes, kills it, and
// returns every number that it printed.
func killChild(t *testing.T, p string, enough int) (acknowledged []string) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childPath+"="+p)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	killed := false
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "error") {
			t.Error(lines.Text())
			continue
		}
		acknowledged = append(acknowledged, lines.Text())
		if !killed && len(acknowledged) >= enough {
			killed = true
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	child.Wait()
	if n := len(acknowledged); n > 0 && killed {
		// The last line may be truncated and does not count.
		return acknowledged[:n-1]
	}
	t.Fatalf("the child ended by itself after %d", len(acknowledged))
	return nil
}

// fails applies a change that cannot be committed and waits for its error.
func fails(t *testing.T, s *Store, id string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Apply(ctx, recorded(id))
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Apply gave %v", err)
	}
	if s.Health(t.Context()) == nil {
		t.Error("the store says that it is well")
	}
	return err
}

func TestFullDisk(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t)})
	mustApply(t, s, recorded("a"))
	table(t, s)
	keepClaims(t, s) // what the writer does by itself may still fit, and then says that the store is well
	var pages int
	if err := s.WriteDB().QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	limit := func(n int) {
		if _, err := s.WriteDB().ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	limit(pages)
	head, _ := s.Head(t.Context())
	big := toolkeep.AppendEvent{Event: toolkeep.Event{ID: "big", Tenant: "t", Data: make([]byte, 1<<20)}}
	if err := s.Apply(t.Context(), big); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
	if s.Health(t.Context()) == nil {
		t.Error("the store says that it is well")
	}
	// The same inside a savepoint, after another change.
	err := s.Apply(t.Context(), toolkeep.ClaimCall{Invocation: call("c", toolkeep.CallRunning)}, big)
	if err == nil {
		t.Error("a full disk took it")
	}
	if got, _ := s.Head(t.Context()); got != head {
		t.Errorf("the feed went to %d", got)
	}
	limit(1 << 30)
	mustApply(t, s, toolkeep.ClaimCall{Invocation: call("c", toolkeep.CallRunning)}, big)
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("Health: %v", err)
	}
}

func TestLocked(t *testing.T) {
	p := path(t)
	s := mustOpen(t, Config{Path: p, busyTimeout: 20 * time.Millisecond})
	mustApply(t, s, recorded("a"))
	withDB(t, p, func(db *sql.DB) {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := fails(t, s, "b"); !strings.Contains(err.Error(), "locked") {
			t.Errorf("got %v", err)
		}
		tx.Rollback()
	})
	// The queue may hold the connection too, but not forever.
	conn, err := s.WriteDB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := fails(t, s, "c"); !strings.Contains(err.Error(), "write connection") {
		t.Errorf("got %v", err)
	}
	conn.Close()
	mustApply(t, s, recorded("b"), recorded("c"))

	// No Apply follows the failure: the store recovers on its own.
	conn, err = s.WriteDB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fails(t, s, "d")
	conn.Close()
	if err := s.do(t.Context(), func(_ context.Context, w *writer) error { w.indexSome(); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("Health: %v", err)
	}
}

func TestCorrupt(t *testing.T) {
	p := path(t)
	s := mustOpen(t, Config{Path: p})
	for i := range 200 {
		mustApply(t, s, recorded(fmt.Sprint(i)))
	}
	s.Close()
	f, err := os.OpenFile(p, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	junk := make([]byte, info.Size()-4096)
	for i := range junk {
		junk[i] = byte(i * 7)
	}
	if _, err := f.WriteAt(junk, 4096); err != nil { // all but the first page
		t.Fatal(err)
	}
	f.Close()
	if s, err := Open(t.Context(), Config{Path: p, Log: quiet()}); err == nil {
		s.Close()
		t.Error("a corrupt database was opened")
	}
	if err := os.WriteFile(p, []byte(strings.Repeat("this is no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: p, Log: quiet()}); err == nil {
		t.Error("a text file was opened")
	}

	// Damage while the store is open: an error, and no hang.
	s = mustOpen(t, Config{Path: path(t)})
	mustApply(t, s, recorded("a"))
	if _, err := s.WriteDB().ExecContext(t.Context(), "DROP TABLE journal"); err != nil {
		t.Fatal(err)
	}
	fails(t, s, "b")
}

// TestAdvice: an error of the machine or of the file says what the operator is to do.
func TestAdvice(t *testing.T) {
	if err := advised(fmt.Errorf("open: %w", syscall.EMFILE)); !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Error(err)
	}
	p := path(t)
	if err := os.WriteFile(p, bytes.Repeat([]byte("no database"), 500), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: p, Log: quiet()}); err == nil || !strings.Contains(err.Error(), "toolkeep restore") {
		t.Error(err)
	}
}

// TestApplyWithin: a caller that waits only a while leaves a commit under way and gets its
// outcome later; what was still queued is never committed.
func TestApplyWithin(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t)})
	conn, err := s.WriteDB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	within := func(id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the writer has long taken what is first
		defer cancel()
		return s.ApplyWithin(ctx, recorded(id))
	}
	var pending *toolkeep.PendingError
	if err := within("taken"); !errors.As(err, &pending) {
		t.Errorf("a commit under way gave %v", err)
	}
	if err := within("queued"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a change in the queue gave %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-pending.End; err != nil {
		t.Errorf("the commit ended with %v", err)
	}
	if err := s.ApplyWithin(t.Context(), recorded("after")); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]error{"taken": nil, "queued": toolkeep.ErrNotFound, "after": nil} {
		if _, err := s.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: id}); !errors.Is(err, want) {
			t.Errorf("the record %s gave %v, want %v", id, err, want)
		}
	}
}
