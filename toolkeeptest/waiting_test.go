package toolkeeptest_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// queueing starts a system with a number of workers, a gate, a clock, and tools behind
// the gate.
func queueing(t *testing.T, workers int) (*toolkeeptest.Toolkeep, *gate, *clock) {
	c := new(clock)
	k, g := withGate(t, map[string]string{"calls.workers": fmt.Sprint(workers), "calls.poll": "5ms"},
		func(o *toolkeeptest.Option) { o.Options.Clock = c.now })
	k.Publish(gated("gate.read", "1.0.0", reads), gated("gate.write", "1.0.0", writes))
	return k, g, c
}

func withPriority(p toolkeep.Priority) string {
	return fmt.Sprintf(`"execution_options":{"async_mode":true,"priority":%q}`, p)
}

func TestPriorities(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	c.call("gate.read", named("first"), async).want(t, 202)
	g.awaits(t, "first")
	var ids []string
	for _, x := range []struct {
		name string
		p    toolkeep.Priority
	}{{"low-1", toolkeep.Low}, {"normal-1", toolkeep.Normal}, {"high-1", toolkeep.High}, {"low-2", toolkeep.Low}, {"high-2", toolkeep.High}, {"normal-2", toolkeep.Normal}} {
		a := c.call("gate.read", named(x.name), withPriority(x.p)).want(t, 202)
		if a.text(t, "status") != "pending" || a.header.Get("Location") != a.text(t, "polling_info", "status_url") {
			t.Errorf("%s", a)
		}
		ids = append(ids, a.id(t))
	}
	g.openAll()
	for _, id := range ids {
		c.ended(id).success(t)
	}
	want := []string{"first", "high-1", "high-2", "normal-1", "normal-2", "low-1", "low-2"}
	if got := g.starts(); !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

func TestQueueDeadline(t *testing.T) {
	t.Parallel()
	k, g, clock := queueing(t, 1)
	c := admin(t, k)
	first := c.call("gate.read", named("first"), async).want(t, 202).id(t)
	g.awaits(t, "first")
	late := c.call("gate.write", named("late"), async, `"timeout_seconds":5`).want(t, 202).id(t)
	patient := c.call("gate.write", named("patient"), async, `"timeout_seconds":3600`).want(t, 202).id(t)
	clock.advance(10 * time.Second)
	a := c.ended(late).failed(t, toolkeep.Timeout)
	if a.text(t, "status") != "timeout" || a.text(t, "state") != "failed" {
		t.Errorf("%s", a.body)
	}
	g.openAll()
	c.ended(first).success(t)
	c.ended(patient).success(t)
	if n := g.count("late"); n != 0 {
		t.Errorf("the late call ran %d times", n)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	running := c.call("gate.read", named("running"), async).want(t, 202).id(t)
	g.awaits(t, "running")
	queued := c.call("gate.write", named("queued"), async).want(t, 202).id(t)
	cancel := func(id string) answer {
		return c.do("POST", "/api/v1/invocations/"+id+"/cancel", `{"reason":"not needed"}`).want(t, 200)
	}
	if a := cancel(queued); a.at(t, "cancelled") != true {
		t.Errorf("%s", a.body)
	}
	a := c.do("GET", "/api/v1/invocations/"+queued, "").want(t, 200).failed(t, toolkeep.Cancelled)
	if a.text(t, "status") != "cancelled" {
		t.Errorf("%s", a.body)
	}
	cancel(queued) // a second cancel is harmless
	if a := cancel(running); a.at(t, "cancelled") != true {
		t.Errorf("%s", a.body)
	}
	c.ended(running).failed(t, toolkeep.Cancelled)
	waitUntil(t, "the executor was told", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.stopped["running"] })
	if a := cancel(c.call("std.echo", "{}").success(t).id(t)); a.at(t, "cancelled") != false {
		t.Errorf("an ended call was cancelled: %s", a.body)
	}
	g.openAll()
	c.ended(c.call("gate.write", named("next"), async).want(t, 202).id(t)).success(t)
	if n := g.count("queued"); n != 0 {
		t.Errorf("the cancelled call ran %d times", n)
	}
}

// lose makes a queued call look as if another process had taken it and died.
func lose(t *testing.T, k *toolkeeptest.Toolkeep, id string, sent bool) {
	t.Helper()
	row, err := k.Store().Invocations().Get(context.Background(), toolkeep.CallRef{Tenant: "default", ID: id})
	if err != nil {
		t.Fatal(err)
	}
	row.State, row.Sent, row.StartedAt = toolkeep.CallRunning, sent, time.Now()
	row.Writes = sent
	row.LeaseOwner, row.LeaseUntil = "node-that-died", time.Now().Add(-time.Second)
	err = k.Store().Apply(context.Background(), toolkeep.MoveCall{Invocation: row, From: []toolkeep.CallState{toolkeep.CallQueued}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLapsedLeases keeps the workers busy, so that the calls can be taken from them.
func TestLapsedLeases(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	c.call("gate.read", named("busy"), async).want(t, 202)
	g.awaits(t, "busy")
	read := c.call("gate.read", named("read"), async).want(t, 202).id(t)
	write := c.call("gate.write", named("write"), async).want(t, 202).id(t)
	lose(t, k, read, false)
	lose(t, k, write, true)
	a := c.ended(write).failed(t, toolkeep.OutcomeUnknown)
	if a.text(t, "state") != "unknown" {
		t.Errorf("%s", a.body)
	}
	g.openAll()
	c.ended(read).success(t)
	if g.count("read") != 1 || g.count("write") != 0 {
		t.Errorf("ran %v", g.starts())
	}
}

// TestClockJumpWhileCallsRun: a suspended process must not consider its own running
// calls lapsed.
func TestClockJumpWhileCallsRun(t *testing.T) {
	t.Parallel()
	k, g, clock := queueing(t, 4)
	c := admin(t, k)
	read := c.call("gate.read", named("read"), async).want(t, 202).id(t)
	write := c.call("gate.write", named("write"), async).want(t, 202).id(t)
	direct := make(chan answer, 1)
	go func() {
		a, err := c.try(context.Background(), "POST", "/api/v1/tools/invoke", envelope("gate.write", named("sync"), keyed("k")))
		if err != nil {
			a.body = err.Error()
		}
		direct <- a
	}()
	for _, n := range []string{"read", "write", "sync"} {
		g.awaits(t, n)
	}
	for range 3 {
		clock.advance(5 * time.Minute)
		if err := k.Pipeline().Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	g.openAll()
	c.ended(read).success(t)
	c.ended(write).success(t)
	if a := <-direct; a.status != 200 || a.text(t, "status") != "success" {
		t.Errorf("%s", a)
	}
	if n := len(g.starts()); n != 3 {
		t.Errorf("%d executions, want 3: %v", n, g.starts())
	}
}

func TestUnfetchedResultsExpire(t *testing.T) {
	t.Parallel()
	k, g, clock := queueing(t, 2)
	g.openAll()
	c := admin(t, k)
	finish := func(name string) string {
		id := c.call("gate.read", named(name), async).want(t, 202).id(t)
		waitUntil(t, name+" has ended", func() bool { // asking for it would count as fetching it
			row, err := k.Store().Invocations().Get(context.Background(), toolkeep.CallRef{Tenant: "default", ID: id})
			return err == nil && row.State.Ended()
		})
		return id
	}
	left, taken := finish("left"), finish("taken")
	c.do("GET", "/api/v1/invocations/"+taken, "").want(t, 200).success(t)
	clock.advance(23 * time.Hour)
	if err := k.Pipeline().Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	row, err := k.Store().Invocations().Get(context.Background(), toolkeep.CallRef{Tenant: "default", ID: left})
	if err != nil || row.State != toolkeep.CallSucceeded || len(row.Output) == 0 {
		t.Fatalf("after 23 h: %+v (%v)", row, err)
	}
	clock.advance(2 * time.Hour)
	waitUntil(t, "the answer is erased", func() bool {
		row, err := k.Store().Invocations().Get(context.Background(), toolkeep.CallRef{Tenant: "default", ID: left})
		return err == nil && row.State == toolkeep.CallExpired && len(row.Output) == 0
	})
	if a := c.do("GET", "/api/v1/invocations/"+left, ""); !strings.Contains(a.body, string(toolkeep.HandleExpired)) || strings.Contains(a.body, `"left"`) {
		t.Errorf("%s", a)
	}
	if a := c.do("GET", "/api/v1/invocations/"+taken, "").want(t, 200); a.text(t, "status") != "success" {
		t.Errorf("what was fetched is gone: %s", a.body)
	}
}

func TestSecondRequestWithARunningKey(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	first := make(chan answer, 1)
	go func() {
		a, err := c.try(context.Background(), "POST", "/api/v1/tools/invoke", envelope("gate.write", named("x"), keyed("k")))
		if err != nil {
			a.body = err.Error()
		}
		first <- a
	}()
	g.awaits(t, "x")
	c.call("gate.write", named("y"), keyed("k")).want(t, 409).refused(t, toolkeep.IdempotencyConflict)
	second := c.call("gate.write", named("x"), keyed("k"), `"timeout_seconds":1`).want(t, 202)
	if second.text(t, "status") != "running" || second.header.Get("Location") == "" {
		t.Errorf("%s", second)
	}
	g.letGo("x")
	a := <-first
	a.want(t, 200).success(t)
	if a.id(t) != second.id(t) {
		t.Errorf("the second request points to %s, the call is %s", second.id(t), a.id(t))
	}
	third := c.call("gate.write", named("x"), keyed("k")).success(t)
	if third.id(t) != a.id(t) || third.at(t, "execution_metadata", "idempotency_replayed") != true || g.count("x") != 1 {
		t.Errorf("%s after %v", third, g.starts())
	}
	// The same for waiting calls: the second request gets the first one's handle.
	key := `"execution_options":{"async_mode":true,"idempotency_key":"waiting"}`
	one := c.call("gate.read", named("w"), key).want(t, 202).id(t)
	two := c.call("gate.read", named("w"), key).want(t, 202).id(t)
	if one != two {
		t.Errorf("two handles for one key: %s and %s", one, two)
	}
	g.letGo("w")
	c.ended(one).success(t)
	if three := c.call("gate.read", named("w"), key).want(t, 200).success(t).id(t); three != one {
		t.Errorf("another call for the key: %s", three)
	}
}

// TestCallerHangsUp: hanging up cancels a call without an idempotency key; one with a
// key continues.
func TestCallerHangsUp(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	for _, name := range []string{"unkeyed", "keyed"} {
		ctx, hangUp := context.WithCancel(context.Background())
		gone := make(chan error, 1)
		var more []string
		if name == "keyed" {
			more = append(more, keyed("k"))
		}
		go func() {
			_, err := c.try(ctx, "POST", "/api/v1/tools/invoke", envelope("gate.write", named(name), more...))
			gone <- err
		}()
		g.awaits(t, name)
		hangUp()
		if err := <-gone; err == nil {
			t.Fatal("an answer in spite of hanging up")
		}
	}
	waitUntil(t, "the call without a key is stopped", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.stopped["unkeyed"] })
	g.letGo("keyed")
	a := c.call("gate.write", named("keyed"), keyed("k")).success(t)
	if a.at(t, "execution_metadata", "idempotency_replayed") != true || g.count("keyed") != 1 {
		t.Errorf("%s after %v", a.body, g.starts())
	}
	waitUntil(t, "the hung up call is recorded as cancelled", func() bool {
		return strings.Contains(c.do("GET", "/api/v1/invocations?state=cancelled", "").body, `"E3902"`)
	})
}

func TestEventStream(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	id := c.call("gate.read", named("x"), async).want(t, 202).id(t)
	g.awaits(t, "x")
	c.reaches(id, toolkeep.CallRunning)
	g.letGo("x")
	events := c.follow(id, nil)
	last := events[len(events)-1]
	if last.name != "result" || !strings.Contains(last.data, `"status":"success"`) || last.id == "" {
		t.Errorf("%v", events)
	}
	c.do("GET", "/api/v1/invocations/"+id+"/events", "", "Last-Event-ID", last.id).want(t, 204)
}

// TestQueueSurvivesARestart: calls waiting when the server stops run after the next
// start.
func TestQueueSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	g := newGate()
	o := toolkeeptest.Option{Settings: map[string]string{"calls.workers": "1"}}
	o.Options.Executors = []toolkeep.Executor{g}
	k := toolkeeptest.Open(t, dir, o)
	t.Cleanup(g.openAll)
	k.Publish(gated("gate.read", "1.0.0", reads))
	c := admin(t, k)
	key := c.key
	first := c.call("gate.read", named("first"), async).want(t, 202).id(t)
	g.awaits(t, "first")
	second := c.call("gate.read", named("second"), async).want(t, 202).id(t)
	stopped := make(chan struct{})
	go func() { k.Close(); close(stopped) }()
	waitUntil(t, "the server refuses", func() bool {
		_, err := k.Call("std.echo", "{}")
		return err != nil
	})
	g.letGo("first") // running calls may finish
	<-stopped
	again := toolkeeptest.Open(t, dir, o)
	c = as(t, again, key)
	g.letGo("second")
	c.ended(second).success(t)
	c.do("GET", "/api/v1/invocations/"+first, "").want(t, 200).success(t)
	if g.count("first") != 1 || g.count("second") != 1 {
		t.Errorf("ran %v", g.starts())
	}
}

// TestStopOutOfPatience: when the grace period for running calls is over, read-only
// ones return to the queue and possibly writing ones become unknown; no caller is left
// waiting.
func TestStopOutOfPatience(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	g := newGate()
	var o toolkeeptest.Option
	o.Options.Executors = []toolkeep.Executor{g}
	k := toolkeeptest.Open(t, dir, o)
	t.Cleanup(g.openAll)
	k.Publish(gated("gate.read", "1.0.0", reads), gated("gate.write", "1.0.0", writes))
	c := admin(t, k)
	key := c.key
	read := c.call("gate.read", named("read"), async).want(t, 202).id(t)
	write := c.call("gate.write", named("write"), async).want(t, 202).id(t)
	got := make(chan answer, 1)
	go func() {
		a, err := c.try(context.Background(), "POST", "/api/v1/tools/invoke", envelope("gate.write", named("sync"), keyed("k")))
		if err != nil {
			a.body = err.Error()
		}
		got <- a
	}()
	streamed := make(chan []event, 1)
	for _, n := range []string{"read", "write", "sync"} {
		g.awaits(t, n)
	}
	begun := make(chan struct{}, 10)
	go func() { streamed <- c.follow(read, func(event) bool { begun <- struct{}{}; return false }) }()
	<-begun

	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no grace period
	if err := k.Stop(ctx); err != nil {
		t.Logf("stop: %v", err)
	}
	if a := <-got; a.status != 200 || a.text(t, "error", "error_code") != string(toolkeep.OutcomeUnknown) {
		t.Errorf("the caller who was connected got %s", a)
	}
	if events := <-streamed; events[len(events)-1].name == "result" {
		t.Errorf("the stream had a result: %v", events)
	}

	again := toolkeeptest.Open(t, dir, o)
	c = as(t, again, key)
	g.letGo("read")
	c.ended(read).success(t)
	if a := c.ended(write).failed(t, toolkeep.OutcomeUnknown); a.text(t, "state") != "unknown" {
		t.Errorf("%s", a.body)
	}
	a := c.call("gate.write", named("sync"), keyed("k"))
	if g.count("sync") != 1 || g.count("write") != 1 || g.count("read") != 2 {
		t.Errorf("ran %v; the key got %s", g.starts(), a)
	}
}

// TestTimeoutIsAResult: a tool that does not respond in time has failed, cached or not;
// that is a result and not a refusal.
func TestTimeoutIsAResult(t *testing.T) {
	t.Parallel()
	k, _, _ := queueing(t, 1)
	k.Publish(gated("gate.cached", "1.0.0", reads, cached))
	c := admin(t, k)
	var wg sync.WaitGroup
	for _, tool := range []string{"gate.read", "gate.write", "gate.cached"} {
		wg.Go(func() {
			a := c.call(tool, named(tool), `"timeout_seconds":1`)
			if a.status != 200 || a.text(t, "status") != "timeout" || a.text(t, "error", "error_code") != string(toolkeep.Timeout) {
				t.Errorf("%s: %s", tool, a)
			}
			if b := c.do("GET", "/api/v1/invocations/"+a.id(t), ""); b.text(t, "status") != "timeout" || b.text(t, "state") != "failed" {
				t.Errorf("%s: %s", tool, b)
			}
		})
	}
	wg.Wait()
}

func TestOneKeyManyRequests(t *testing.T) {
	t.Parallel()
	k, g, clock := queueing(t, 1)
	c := admin(t, k)
	const n = 30
	got := make(chan answer, n)
	for range n {
		go func() {
			a, err := c.try(context.Background(), "POST", "/api/v1/tools/invoke", envelope("gate.write", named("x"), keyed("k")))
			if err != nil {
				a.body = err.Error()
			}
			got <- a
		}()
	}
	g.awaits(t, "x")
	g.letGo("x")
	ids := map[string]int{}
	for range n {
		a := <-got
		ids[a.success(t).id(t)]++
	}
	if len(ids) != 1 || g.count("x") != 1 {
		t.Errorf("%d executions, answers of %v", g.count("x"), ids)
	}
	// A key is valid for a day.
	clock.advance(23 * time.Hour)
	c.call("gate.write", named("x"), keyed("k")).success(t)
	c.call("gate.write", named("y"), keyed("k")).want(t, 409)
	clock.advance(2 * time.Hour)
	g.openAll()
	c.call("gate.write", named("y"), keyed("k")).success(t)
	if g.count("y") != 1 {
		t.Errorf("ran %v", g.starts())
	}
}
