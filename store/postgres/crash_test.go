package postgres

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

const childDSN = "TOOLKEEP_POSTGRES_TEST_CHILD"

// childMain is the process that TestKill kills: it applies numbered changes from
// several goroutines and prints the acknowledged numbers.
func childMain() bool {
	dsn := os.Getenv(childDSN)
	if dsn == "" {
		return false
	}
	ctx := context.Background()
	s, err := Open(ctx, Config{DSN: dsn, Node: "child", Log: quiet()})
	if err != nil {
		fmt.Println("error", err)
		return true
	}
	var next atomic.Int64
	next.Store(childFrom())
	var out sync.Mutex
	parallel(8, func(int) {
		for {
			n := next.Add(1)
			if err := s.Apply(ctx, childChanges(n)...); err != nil {
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

// childFrom lets several children use one database.
func childFrom() int64 {
	n, err := strconv.ParseInt(os.Getenv(childDSN+"_FROM"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// childChanges returns recorded calls and, for every third, a claimed call together
// with an event.
func childChanges(n int64) []toolkeep.Change {
	id := strconv.FormatInt(n, 10)
	if n%3 != 0 {
		return []toolkeep.Change{recorded(id)}
	}
	return []toolkeep.Change{
		toolkeep.ClaimCall{Invocation: call(id, toolkeep.CallRunning)},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Type: "invoked", Tenant: "t"}},
	}
}

// TestKill kills processes in the middle of their work while another node continues:
// everything acknowledged is stored, each Apply completely or not at all, and the journal
// has it in the order of each.
func TestKill(t *testing.T) {
	ctx, dsn := testContext(t), pgtest.NewDatabase(t)
	s := mustOpen(t, Config{DSN: dsn})
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				mustApply(t, s, recorded(fmt.Sprint("other-", i)))
			}
		}
	})
	var acknowledged []string
	for round := range 3 {
		acknowledged = append(acknowledged, killChild(t, dsn, round*1_000_000, 300*(round+1))...)
	}
	close(stop)
	others.Wait()
	for _, n := range acknowledged {
		v, err := s.Invocations().Get(ctx, toolkeep.CallRef{Tenant: "t", ID: n})
		if err != nil || v.ID != n {
			t.Fatalf("call %s was acknowledged and is lost: %v", n, err)
		}
	}
	list, events := storetest.Entries(ctx, t, s), 0
	last := toolkeep.JournalPosition{}
	for _, e := range list {
		if e.Seq <= last[e.Writer] {
			t.Fatalf("writer %d has %d after %d", e.Writer, e.Seq, last[e.Writer])
		}
		last[e.Writer] = e.Seq
		if e.Event == nil {
			continue
		}
		events++
		if _, err := s.Invocations().Get(ctx, toolkeep.CallRef{Tenant: "t", ID: e.Event.ID}); err != nil {
			t.Errorf("event %s came without its claim: %v", e.Event.ID, err)
		}
	}
	if claims := number(t, dsn, "SELECT count(*) FROM invocations WHERE state = 'running'"); claims != events || events == 0 {
		t.Errorf("%d claims and %d events", claims, events)
	}
	if calls := number(t, dsn, "SELECT count(*) FROM invocations WHERE state <> 'running'"); calls != len(list)-events || len(last) != 4 {
		t.Errorf("%d calls ended, the journal has %d, of %d writers", calls, len(list)-events, len(last))
	}
	t.Logf("%d acknowledged, %d in the journal", len(acknowledged), len(list))
}

// killChild runs a child until it has acknowledged enough changes, kills it, and
// returns every number that it printed.
func killChild(t *testing.T, dsn string, from, enough int) (acknowledged []string) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childDSN+"="+dsn, fmt.Sprintf("%s_FROM=%d", childDSN, from))
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
	_ = child.Wait() // the error is the signal
	if n := len(acknowledged); n > 0 && killed {
		// The last line may be truncated and does not count.
		return acknowledged[:n-1]
	}
	t.Fatalf("the child ended by itself after %d", len(acknowledged))
	return nil
}
