//go:build linux

package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// Each test has one kind of bad server and states what the caller sees.

func TestServerDiesInACall(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	first := call(t, s, toolCall(alice(), "pid", ""))
	e := fails(t, s, toolCall(alice(), "die", ""), toolkeep.MCPUnavailable)
	if e.NothingSent {
		t.Error("the call had been sent")
	}
	if !e.Retryable || !strings.Contains(e.Message, "ended while the call ran") {
		t.Errorf("%v", e)
	}
	// The next call gets a new process at once.
	if again := call(t, s, toolCall(alice(), "pid", "")); again == first {
		t.Error("the same process answers")
	}
	// The exit status is known shortly after the pipe closes.
	eventually(t, "the status tells of the death", func() bool {
		st := status(t, s, alice())
		return st.State == StateReady && st.Lost == 1 && strings.Contains(st.LastError, "status 9")
	})
}

func TestOthersInTheAirHearOfTheDeathAtOnce(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	call(t, s, toolCall(alice(), "echo", "x"))
	results := make(chan error, 5)
	for range cap(results) {
		go func() {
			_, err := s.Do(context.Background(), toolCall(alice(), "hang", ""))
			results <- err
		}()
	}
	eventually(t, "five calls are in the air", func() bool { return pending(s) == 5 })
	fails(t, s, toolCall(alice(), "die", ""), toolkeep.MCPUnavailable)
	for range cap(results) {
		if e := toolkeep.AsError(<-results); e.Code != toolkeep.MCPUnavailable || e.NothingSent {
			t.Errorf("%v", e)
		}
	}
}

// pending counts the pending requests of the server "s".
func pending(s *Servers) int {
	srv := s.find(alice(), "s")
	srv.mu.Lock()
	defer srv.mu.Unlock()
	n := 0
	for _, sl := range srv.slots {
		select {
		case <-sl.ready:
			sl.sess.link.mu.Lock()
			n += len(sl.sess.link.pending)
			sl.sess.link.mu.Unlock()
		default:
		}
	}
	return n
}

// TestDeadServerIsRebuiltForACallThatWasNotSent: between two calls the server stops
// reading without another sign. The second call fails to write, goes to a new process,
// and its caller sees no error.
func TestDeadServerIsRebuiltForACallThatWasNotSent(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	for range 3 {
		pid := call(t, s, toolCall(alice(), "close-stdin", ""))
		s.find(alice(), "s").state("acme").health.forgive()
		if again := call(t, s, toolCall(alice(), "pid", "")); again == pid {
			t.Error("a dead process answers")
		}
	}
	if n := strings.Count(logs(t, s, alice()), "the session was rebuilt for a call that had not been sent"); n != 3 {
		t.Errorf("it was rebuilt %d times", n)
	}
}

func TestServerHangs(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.CallTimeout = 2 * time.Second // the successful call must meet it too
	s := start(t, testConfig(t), spec)
	e := fails(t, s, toolCall(alice(), "hang", ""), toolkeep.UpstreamTimeout)
	if e.NothingSent || !strings.Contains(e.Message, "2s") {
		t.Errorf("%v", e)
	}
	eventually(t, "the server is told", func() bool { return strings.Contains(logs(t, s, alice()), "cancelled 3") })
	// Other calls are not delayed, and a late response would reach no caller.
	if got := call(t, s, toolCall(alice(), "echo", "still here")); got != "still here" {
		t.Error(got)
	}
}

func TestDeadlineAndCancelOfTheCaller(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	call(t, s, toolCall(alice(), "echo", ""))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // enough for the call to reach the server
	failsIn(t, ctx, s, toolCall(alice(), "hang", ""), toolkeep.UpstreamTimeout)
	cancel()
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		eventually(t, "the server has it", func() bool { return strings.Contains(logs(t, s, alice()), "hanging second") })
		cancel()
	}()
	failsIn(t, ctx, s, toolCall(alice(), "hang", "second"), toolkeep.Cancelled)
	eventually(t, "the server is told twice", func() bool { return strings.Count(logs(t, s, alice()), "cancelled ") == 2 })
}

// TestProgressIsASignOfLife: a call that reports progress may take longer than the
// limit for silence.
func TestProgressIsASignOfLife(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.CallTimeout = 2 * time.Second // less than all six steps of slow-progress, more than one
	s := start(t, testConfig(t), spec)
	r := toolCall(alice(), "slow-progress", "")
	r.Params = mcp.Set(r.Params, []byte(`"tok"`), "_meta", "progressToken")
	l := &listener{}
	r.Peer = l
	if got := call(t, s, r); got != "ok" {
		t.Error(got)
	}
	if n := len(l.heard()); n != 6 {
		t.Errorf("%d notifications", n)
	}
}

func TestServerIgnoresStdinsEndAndSIGTERM(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, "stubborn"))
	pid := pids(t, call(t, s, toolCall(alice(), "pid", "")))[0]
	if err := s.Restart(alice(), "s"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is dead", func() bool { return !alive(pid) })
}

func TestServerFloodsStderr(t *testing.T) {
	c := testConfig(t)
	c.logBytes = 64 << 10
	s := start(t, c, stdioSpec(t, ""))
	if got := call(t, s, toolCall(alice(), "flood", "")); got != "ok" {
		t.Error(got)
	}
	if n := len(logs(t, s, alice())); n > 64<<10+maxLogLine+100 || n < 32<<10 {
		t.Errorf("the log has %d bytes", n)
	}
}

func TestServerPrintsWhatIsNotMCP(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, "junk-first"))
	if got := call(t, s, toolCall(alice(), "junk", "")); got != "ok" {
		t.Error(got)
	}
	if log := logs(t, s, alice()); !strings.Contains(log, "not MCP: Welcome to the server!") {
		t.Errorf("the log says nothing of it: %s", log)
	}
	if st := status(t, s, alice()); st.Stray < 4 {
		t.Errorf("%d strays are counted", st.Stray)
	}
}

func TestServerPrintsNothingButJunk(t *testing.T) {
	spec := stdioSpec(t, "junk-for-ever")
	spec.MaxResultBytes = 64 << 10
	s := start(t, testConfig(t), spec)
	e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPUnavailable)
	if !e.NothingSent {
		t.Errorf("%v", e)
	}
}

func TestServerAnswersTwice(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	if got := call(t, s, toolCall(alice(), "twice", "")); got != "first" {
		t.Error(got)
	}
	if got := call(t, s, toolCall(alice(), "echo", "mine")); got != "mine" {
		t.Errorf("the second answer reached the next call: %s", got)
	}
	if st := status(t, s, alice()); st.Stray != 1 {
		t.Errorf("%d strays are counted", st.Stray)
	}
}

func TestServerAnswersWithAnotherID(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.CallTimeout = 2 * time.Second // the successful call must meet it too
	s := start(t, testConfig(t), spec)
	if got := call(t, s, toolCall(alice(), "other-id", "")); got != "right" {
		t.Error(got)
	}
	if st := status(t, s, alice()); st.Stray != 3 {
		t.Errorf("%d strays are counted", st.Stray)
	}
	fails(t, s, toolCall(alice(), "lost-id", ""), toolkeep.UpstreamTimeout)
}

// TestServerBreaksItsAnswer: an unreadable response is reported at once, and the
// session goes on.
func TestServerBreaksItsAnswer(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	e := fails(t, s, toolCall(alice(), "broken", ""), toolkeep.MCPError)
	if e.NothingSent || !strings.Contains(e.Message, "a name stands twice") {
		t.Errorf("%v", e)
	}
	if got := call(t, s, toolCall(alice(), "echo", "mine")); got != "mine" {
		t.Error(got)
	}
	if st := status(t, s, alice()); st.Lost != 0 || st.Sessions != 1 {
		t.Errorf("%+v", st)
	}
}

func TestServersOwnErrorComesAsItIs(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	_, err := s.Do(t.Context(), toolCall(alice(), "no-such-tool", ""))
	var rpc *mcp.Error
	if !errors.As(err, &rpc) || rpc.Code != -32602 || rpc.Message != "unknown tool" || string(rpc.Data) != `{"tool":"no-such-tool"}` {
		t.Errorf("%v", err)
	}
	for _, method := range []string{mcp.MethodInitialize, mcp.MethodDiscover, mcp.MethodListen, mcp.NotificationCancelled, "", mcp.MethodSetLevel, mcp.MethodSubscribe} {
		_, err := s.Do(t.Context(), &Request{Principal: alice(), Server: "s", Method: method})
		if !errors.As(err, &rpc) || rpc.Code != mcp.CodeMethodNotFound {
			t.Errorf("%q is passed on: %v", method, err)
		}
	}
}

func TestResultIsTooLarge(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.MaxResultBytes = 1 << 20
	s := start(t, testConfig(t), spec)
	fails(t, s, toolCall(alice(), "big", strconv.Itoa(3<<20)), toolkeep.ResultTooLarge)
	// The session lives on, and a call's own smaller limit applies too.
	r := toolCall(alice(), "big", "5000")
	if got := call(t, s, r); len(got) != 5000 {
		t.Errorf("%d bytes", len(got))
	}
	r.MaxBytes = 1000
	fails(t, s, r, toolkeep.ResultTooLarge)
	if st := status(t, s, alice()); st.Lost != 0 || st.Sessions != 1 {
		t.Errorf("%+v", st)
	}
}

func TestResultOf100MB(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.CallTimeout = 10 * time.Minute // a busy machine moves 100 MB slowly
	s := start(t, testConfig(t), spec)
	failsIn(t, t.Context(), s, toolCall(alice(), "big", strconv.Itoa(101<<20)), toolkeep.ResultTooLarge)
	if got := call(t, s, toolCall(alice(), "echo", "on")); got != "on" {
		t.Error(got)
	}
}

func TestServerHasManyTools(t *testing.T) {
	spec := stdioSpec(t, "many")
	s := start(t, testConfig(t), spec)
	d, err := s.Definitions(t.Context(), alice(), "s")
	if err != nil || len(d.Tools) != 10_000 || d.Instructions != "hello" || mcp.Text(d.Server, "name") != "bad" {
		t.Fatalf("%d tools, %v", len(d.Tools), err)
	}
	spec.MaxTools = 9_999
	s.Set([]Spec{spec})
	d, err = s.Refresh(t.Context(), alice(), "s")
	if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.MCPError || !strings.Contains(e.Message, "9999") {
		t.Errorf("%v", err)
	}
	if len(d.Tools) != 10_000 || d.Stale == nil {
		t.Errorf("the last good list is gone: %d tools", len(d.Tools))
	}
	if st := status(t, s, alice()); st.Tools != 10_000 || st.Stale == "" {
		t.Errorf("%+v", st)
	}
}

func TestListGoesInACircleOrOnForEver(t *testing.T) {
	for mode, words := range map[string]string{"circle": "in a circle", "endless": "more than 1000 pages"} {
		t.Run(mode, func(t *testing.T) {
			s := start(t, testConfig(t), stdioSpec(t, mode))
			_, err := s.Definitions(t.Context(), alice(), "s")
			if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.MCPError || !strings.Contains(e.Message, words) {
				t.Errorf("%s: %v", mode, err)
			}
			if got := call(t, s, toolCall(alice(), "echo", "works")); got != "works" {
				t.Error(got)
			}
		})
	}
}

// TestListThatFailsLaterKeepsTheTools: an error never empties the list.
func TestListThatFailsLaterKeepsTheTools(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, "once"))
	if d, err := s.Definitions(t.Context(), alice(), "s"); err != nil || len(d.Tools) != 2 || d.Stale != nil {
		t.Fatal(d, err)
	}
	if _, err := s.Refresh(t.Context(), alice(), "s"); err == nil {
		t.Fatal("the second reading worked")
	}
	d, err := s.Definitions(t.Context(), alice(), "s")
	if err != nil || len(d.Tools) != 2 || d.Stale == nil {
		t.Errorf("%d tools, stale %v, %v", len(d.Tools), d.Stale, err)
	}
}

func TestServerFlaps(t *testing.T) {
	c := testConfig(t)
	c.backoffBase, c.backoffMax, c.cooling, c.restartLimit = time.Minute, time.Minute, time.Hour, 4
	c.restartWindow = 24 * time.Hour
	var ahead atomic.Int64 // the pauses pass only on this clock
	c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	spec := stdioSpec(t, "flap")
	s := start(t, c, spec)
	starts := 0
	for deadline := time.Now().Add(limit); status(t, s, alice()).State != StateFailed; {
		e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPUnavailable)
		if !e.NothingSent || !e.Retryable {
			t.Fatalf("%+v", e)
		}
		if strings.Contains(e.Message, "ended before it was ready") && e.Details["state"] == nil {
			starts++
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not given up")
		}
		ahead.Add(int64(e.RetryAfter))
	}
	if starts != 4 {
		t.Errorf("it was started %d times", starts)
	}
	// Now it is refused at once, with the time and the reason.
	e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPUnavailable)
	if e.RetryAfter < 50*time.Minute || !strings.Contains(e.Message, "status 3") || e.Details["state"] != StateFailed {
		t.Errorf("%v after %s, %v", e, e.RetryAfter, e.Details)
	}
	if strings.Contains(e.Message, "boom") {
		t.Error("the caller sees stderr")
	}
	st := status(t, s, alice())
	if st.State != StateFailed || !strings.Contains(st.LastError, "boom: no such table") || st.RetryAt.IsZero() {
		t.Errorf("%+v", st)
	}
	// Another tenant is not affected: the failures are acme's.
	if e := fails(t, s, toolCall(carol(), "echo", ""), toolkeep.MCPUnavailable); e.Details["state"] != nil {
		t.Errorf("%v", e)
	}
	// Restart clears the failures.
	if err := s.Restart(alice(), "s"); err != nil {
		t.Fatal(err)
	}
	if e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPUnavailable); !strings.Contains(e.Message, "ended before it was ready") {
		t.Errorf("%v", e)
	}
	// A working spec works at once.
	s.Set([]Spec{stdioSpec(t, "")})
	if got := call(t, s, toolCall(alice(), "echo", "well")); got != "well" {
		t.Error(got)
	}
}

func TestServerIsNeverReady(t *testing.T) {
	for _, mode := range []string{"never-ready", "mute"} {
		t.Run(mode, func(t *testing.T) {
			spec := stdioSpec(t, mode)
			spec.StartTimeout = 300 * time.Millisecond
			s := start(t, testConfig(t), spec)
			e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPUnavailable)
			if !e.NothingSent || !strings.Contains(e.Message, "was not ready within 300ms") {
				t.Errorf("%s: %v", mode, e)
			}
		})
	}
}

func TestServerOfAnotherTime(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, "future"))
	e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPError)
	if !e.NothingSent || !strings.Contains(e.Message, `"2031-01-01"`) {
		t.Errorf("%v", e)
	}
}

func TestServerDoesNotSurviveOrAnswerDiscover(t *testing.T) {
	for _, mode := range []string{"dies-of-discover", "ignores-discover"} {
		t.Run(mode, func(t *testing.T) {
			spec := stdioSpec(t, mode)
			spec.StartTimeout = 9 * time.Second // the unanswered probe takes a third of it
			s := start(t, testConfig(t), spec)
			if got := call(t, s, toolCall(alice(), "echo", "hi")); got != "hi" {
				t.Errorf("%s: %s", mode, got)
			}
			if st := status(t, s, alice()); st.Lost != 0 || st.Version != mcp.V20251125 {
				t.Errorf("%s: %+v", mode, st)
			}
		})
	}
}

func TestServerAsksUnasked(t *testing.T) {
	// Even from a server that may send requests: this session has no caller.
	spec := stdioSpec(t, "asks-unasked")
	spec.Capabilities = []string{CapElicitation, CapSampling, CapRoots}
	s := start(t, testConfig(t), spec)
	if got := call(t, s, toolCall(alice(), "echo", "hi")); got != "hi" {
		t.Error(got)
	}
	eventually(t, "four questions are refused", func() bool { return status(t, s, alice()).Refused == 4 })
	if log := logs(t, s, alice()); !strings.Contains(log, "refused what the server asked: elicitation/create") {
		t.Error(log)
	}
	// A tool's request is refused as by a client without that method.
	if got := call(t, s, toolCall(alice(), "elicit", "x")); !strings.Contains(got, "-32601") {
		t.Error(got)
	}
	if got := call(t, s, toolCall(alice(), "roots", "")); !strings.Contains(got, "-32601") {
		t.Error(got)
	}
}

func TestListChangedStorm(t *testing.T) {
	c := testConfig(t)
	var mu sync.Mutex
	var seen []Definitions
	c.OnDefinitions = func(server, tenant string, d Definitions) {
		mu.Lock()
		defer mu.Unlock()
		if server != "s" || tenant != "acme" {
			t.Errorf("definitions of %s for %s", server, tenant)
		}
		seen = append(seen, d)
	}
	s := start(t, c, stdioSpec(t, "storm"))
	call(t, s, toolCall(alice(), "echo", ""))
	l := &listener{}
	b, err := s.Bind(t.Context(), &Request{Principal: alice(), Server: "s", Session: "d1", Peer: l})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
	eventually(t, "the lists are read after the storm", func() bool { return count() >= 2 })
	// The server counts the reads in a tool's name: 3,000 changes cause few.
	mu.Lock()
	last := string(seen[len(seen)-1].Tools[1])
	mu.Unlock()
	if !slices.Contains([]string{"call-2", "call-3", "call-4"}, mcp.Text([]byte(last), "name")) {
		t.Errorf("the lists were read until %s", last)
	}
	if n := len(l.heard()); n > 3 {
		t.Errorf("the bound session was told %d times", n)
	}
}

func TestServerClosesItsStdout(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	e := fails(t, s, toolCall(alice(), "close-stdout", ""), toolkeep.MCPUnavailable)
	if e.NothingSent {
		t.Errorf("%v", e)
	}
	if got := call(t, s, toolCall(alice(), "echo", "new")); got != "new" {
		t.Error(got)
	}
}

func TestServerThatIsDeafIsReplaced(t *testing.T) {
	spec := stdioSpec(t, "deaf")
	spec.PingEvery = 50 * time.Millisecond
	s := start(t, testConfig(t), spec)
	pid := pids(t, call(t, s, toolCall(alice(), "pid", "")))[0]
	eventually(t, "it is ended", func() bool { return !alive(pid) })
	if st := status(t, s, alice()); !strings.Contains(st.LastError, "does not answer to ping") {
		t.Errorf("%+v", st)
	}
}

func TestQuietServerIsPingedAndIdleOneEnds(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.PingEvery, spec.IdleStop = 20*time.Millisecond, 400*time.Millisecond
	s := start(t, testConfig(t), spec)
	pid := pids(t, call(t, s, toolCall(alice(), "pid", "")))[0]
	eventually(t, "it is ended", func() bool { return !alive(pid) })
	if st := status(t, s, alice()); st.State != StateIdle || st.Lost != 0 || st.LastError != "" {
		t.Errorf("%+v", st)
	}
	if !strings.Contains(logs(t, s, alice()), "session ended: idle") {
		t.Error(logs(t, s, alice()))
	}
}

func TestResultThatIsNoObject(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	fails(t, s, toolCall(alice(), "not-an-object", ""), toolkeep.MCPError)
	if !strings.Contains(logs(t, s, alice()), "not MCP: ") {
		t.Error("the log says nothing of it")
	}
}

// TestSlowServerHoldsUpNobody: one server hangs with many calls, another responds.
func TestSlowServerHoldsUpNobody(t *testing.T) {
	slow, quick := stdioSpec(t, ""), stdioSpec(t, "")
	slow.Name = "slow"
	s := start(t, testConfig(t), slow, quick)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			r := toolCall(alice(), "hang", "")
			r.Server = "slow"
			if _, err := s.Do(ctx, r); !toolkeep.IsCode(err, toolkeep.Cancelled) {
				t.Error(err)
			}
		})
	}
	for i := range 50 {
		if got := call(t, s, toolCall(bob(), "echo", fmt.Sprint(i))); got != fmt.Sprint(i) {
			t.Error(got)
		}
	}
	cancel()
	wg.Wait()
}
