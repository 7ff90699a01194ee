package limit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func agentOf(subject string) *toolkeep.Principal {
	return &toolkeep.Principal{Tenant: "acme", Subject: subject}
}

func toolOf(id string, spec *toolkeep.RateLimitSpec) *toolkeep.Tool {
	return &toolkeep.Tool{ID: id, Version: "1.0.0", Manifest: &toolkeep.Manifest{ToolID: id, RateLimit: spec}}
}

// clock is a settable time for tests.
type clock struct{ now atomic.Int64 }

func (c *clock) Now() time.Time { return time.Unix(1_800_000_000, c.now.Load()) }

func (c *clock) pass(d time.Duration) { c.now.Add(int64(d)) }

// refusal asserts that err is a rejection and returns it.
func refusal(t *testing.T, err error, code toolkeep.Code, kind string) *toolkeep.Error {
	t.Helper()
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want %s", err, code)
	}
	if e.Code != code || e.Details["limit_type"] != kind {
		t.Fatalf("got %s %v (%v), want %s %s", e.Code, e.Details, e.Message, code, kind)
	}
	if e.RetryAfter <= 0 {
		t.Fatalf("no RetryAfter in %+v", e)
	}
	return e
}

func request(l *Limits, ctx context.Context, p *toolkeep.Principal) error {
	_, err := l.TakeRequest(ctx, p)
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
}

func TestRequestsOfAnAgent(t *testing.T) {
	var c clock
	l := New(Config{Clock: c.Now})
	p := agentOf("a")
	for range 100 {
		must(t, request(l, context.Background(), p))
	}
	e := refusal(t, request(l, context.Background(), p), toolkeep.RateLimitExceeded, TypeAgent)
	if e.RetryAfter != 600*time.Millisecond || !e.Retryable {
		t.Errorf("RetryAfter %v retryable %v, want 600ms true", e.RetryAfter, e.Retryable)
	}
	must(t, request(l, context.Background(), agentOf("b")))
	must(t, request(l, context.Background(), &toolkeep.Principal{Tenant: "other", Subject: "a"}))

	// One nanosecond before RetryAfter it still refuses; at RetryAfter it admits one.
	c.pass(e.RetryAfter - 1)
	refusal(t, request(l, context.Background(), p), toolkeep.RateLimitExceeded, TypeAgent)
	c.pass(1)
	must(t, request(l, context.Background(), p))
	refusal(t, request(l, context.Background(), p), toolkeep.RateLimitExceeded, TypeAgent)
}

// TestBurst: a burst admits so many at once, but no bucket holds more than its calls of a minute.
func TestBurst(t *testing.T) {
	for _, tc := range []struct{ burst, agent, pair, tool int }{{0, 100, 10, 6}, {5, 5, 5, 5}, {8, 8, 8, 6}, {500, 100, 10, 6}} {
		var c clock
		l := New(Config{Burst: tc.burst, Concurrent: -1, Clock: c.Now})
		p := agentOf("a")
		for name, b := range map[string]struct {
			want int
			take func() error
		}{
			"agent": {tc.agent, func() error { return request(l, context.Background(), p) }},
			"pair":  {tc.pair, func() error { _, err := l.Take(context.Background(), p, toolOf("x.y", nil), "", nil); return err }},
			"tool": {tc.tool, func() error {
				_, err := l.Take(context.Background(), p, toolOf("x.z", &toolkeep.RateLimitSpec{PerMinute: 6}), "", nil)
				return err
			}},
		} {
			got := 0
			for b.take() == nil {
				got++
			}
			if got != b.want {
				t.Errorf("burst %d: the bucket of %s holds %d, want %d", tc.burst, name, got, b.want)
			}
		}
		if left, err := New(Config{Burst: tc.burst, Clock: c.Now}).TakeRequest(context.Background(), p); err != nil || left.Left != tc.agent-1 || left.PerMinute != 100 {
			t.Errorf("burst %d: %+v are left, %v", tc.burst, left, err)
		}
	}
}

func TestRefusedTakesCostNothing(t *testing.T) {
	t.Run("global refuses, the agent keeps its request", func(t *testing.T) {
		var c clock
		l := New(Config{PerAgentRPM: 1, GlobalRPM: 6, Clock: c.Now})
		for i := range 6 {
			must(t, request(l, context.Background(), agentOf(fmt.Sprint(i))))
		}
		for range 10 {
			refusal(t, request(l, context.Background(), agentOf("a")), toolkeep.RateLimitExceeded, TypeGlobal)
		}
		c.pass(10 * time.Second)
		must(t, request(l, context.Background(), agentOf("a")))
	})
	t.Run("no slot, the buckets keep their call", func(t *testing.T) {
		var c clock
		l := New(Config{Concurrent: 1, PerToolRPM: 2, Clock: c.Now})
		p, tool := agentOf("a"), toolOf("x.y", &toolkeep.RateLimitSpec{PerMinute: 2})
		slots, err := l.Take(context.Background(), p, tool, "", nil)
		must(t, err)
		for range 10 {
			_, err := l.Take(context.Background(), p, tool, "", nil)
			refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeAgent)
			refusal(t, l.Peek(context.Background(), p, tool, "", false), toolkeep.ConcurrencyLimitExceeded, TypeAgent)
		}
		slots.Release()
		_, err = l.Take(context.Background(), p, tool, "", nil)
		must(t, err)
	})
	t.Run("the tool refuses, the pair keeps its call", func(t *testing.T) {
		var c clock
		l := New(Config{PerToolRPM: 2, Clock: c.Now})
		tool := toolOf("x.y", &toolkeep.RateLimitSpec{PerMinute: 2, Burst: 1})
		_, err := l.Take(context.Background(), agentOf("other"), tool, "", nil)
		must(t, err)
		for range 10 {
			_, err := l.Take(context.Background(), agentOf("a"), tool, "", nil)
			e := refusal(t, err, toolkeep.RateLimitExceeded, TypeTool)
			if e.RetryAfter != 30*time.Second {
				t.Fatalf("RetryAfter %v, want 30s", e.RetryAfter)
			}
		}
		c.pass(30 * time.Second)
		_, err = l.Take(context.Background(), agentOf("a"), tool, "", nil)
		must(t, err)
	})
}

// TestRefusedMeetsNoLockOfOthers: a request and a call over a limit of their agent return while the locks of what comes after it
// in the order are held.
func TestRefusedMeetsNoLockOfOthers(t *testing.T) {
	l := New(Config{PerAgentRPM: 1, PerToolRPM: 1, PerTenantRPM: 100, PerUpstreamRPM: 100, Clock: new(clock).Now})
	p, tool := agentOf("a"), toolOf("x.y", &toolkeep.RateLimitSpec{PerMinute: 100})
	must(t, request(l, t.Context(), p))
	_, err := l.Take(t.Context(), p, tool, "host:x:443", nil)
	must(t, err)
	for _, table := range []*table{l.tenants, l.tools, l.upstreams} {
		for i := range table.shards {
			table.shards[i].mu.Lock()
			defer table.shards[i].mu.Unlock()
		}
	}
	done := make(chan [2]error, 1)
	go func() {
		_, err := l.Take(context.Background(), p, tool, "host:x:443", nil)
		done <- [2]error{request(l, context.Background(), p), err}
	}()
	select {
	case errs := <-done:
		refusal(t, errs[0], toolkeep.RateLimitExceeded, TypeAgent)
		refusal(t, errs[1], toolkeep.RateLimitExceeded, TypeAgentTool)
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a lock of other agents")
	}
}

func TestConcurrency(t *testing.T) {
	l := New(Config{PerToolRPM: -1})
	p := agentOf("a")
	plain, bounded := toolOf("x.plain", nil), toolOf("x.bounded", &toolkeep.RateLimitSpec{MaxConcurrent: 2})
	var calls []*Slots
	for range 4 {
		s, err := l.Take(context.Background(), p, plain, "", nil)
		must(t, err)
		calls = append(calls, s)
	}
	_, err := l.Take(context.Background(), p, plain, "", nil)
	refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeAgent)

	// A child call uses its root's slot but needs one of the tool.
	for i := range 2 {
		s, err := l.Take(context.Background(), p, bounded, "", calls[i])
		must(t, err)
		calls = append(calls, s)
	}
	_, err = l.Take(context.Background(), p, bounded, "", calls[2])
	refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeTool)
	_, err = l.Take(context.Background(), agentOf("b"), bounded, "", nil)
	refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeTool)

	for range 3 { // releasing again is harmless
		calls[0].Release()
	}
	_, err = l.Take(context.Background(), p, plain, "", nil)
	must(t, err)
	_, err = l.Take(context.Background(), p, plain, "", nil)
	refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeAgent)
	calls[4].Release()
	_, err = l.Take(context.Background(), agentOf("b"), bounded, "", nil)
	must(t, err)
}

func TestUnlimited(t *testing.T) {
	l := New(Config{PerAgentRPM: -1, PerToolRPM: -1, GlobalRPM: -1, Concurrent: -1})
	p, tool := agentOf("a"), toolOf("x.y", nil)
	for range 1000 {
		must(t, request(l, context.Background(), p))
		r, err := l.Take(context.Background(), p, tool, "", nil)
		must(t, err)
		if r == nil {
			t.Fatal("no slots")
		}
	}
	if left, err := l.TakeRequest(context.Background(), p); err != nil || left != (toolkeep.RateLeft{}) {
		t.Errorf("%+v %v", left, err)
	}
	if n := l.agents.size() + l.pairs.size(); n != 0 {
		t.Errorf("%d buckets kept for nothing", n)
	}
}

func TestVersionsShareTheToolsBucket(t *testing.T) {
	l := New(Config{Clock: new(clock).Now})
	one, two := toolOf("x.y", &toolkeep.RateLimitSpec{PerMinute: 1}), toolOf("x.y", &toolkeep.RateLimitSpec{PerMinute: 1})
	two.Version = "1.1.0"
	_, err := l.Take(context.Background(), agentOf("a"), one, "", nil)
	must(t, err)
	_, err = l.Take(context.Background(), agentOf("a"), two, "", nil)
	refusal(t, err, toolkeep.RateLimitExceeded, TypeTool)
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		spec     *toolkeep.RateLimitSpec
		pointers []string
	}{
		{nil, nil},
		{&toolkeep.RateLimitSpec{}, nil},
		{&toolkeep.RateLimitSpec{Algorithm: "token_bucket", PerMinute: 5, Burst: 2, MaxConcurrent: 3}, nil},
		{&toolkeep.RateLimitSpec{Algorithm: "sliding_window", PerMinute: 5}, nil},
		{&toolkeep.RateLimitSpec{Algorithm: "fixed_window", PerMinute: 5, Burst: 2}, []string{"/rate_limit/burst"}},
		{&toolkeep.RateLimitSpec{Algorithm: "gcra", Burst: 2}, []string{"/rate_limit/algorithm", "/rate_limit/per_minute"}},
		{&toolkeep.RateLimitSpec{PerMinute: -1, MaxConcurrent: maxCount + 1}, []string{"/rate_limit/per_minute", "/rate_limit/max_concurrent"}},
	} {
		faults := Check(&toolkeep.Manifest{RateLimit: tc.spec})
		var got []string
		for _, f := range faults {
			got = append(got, f.Pointer)
		}
		if fmt.Sprint(got) != fmt.Sprint(tc.pointers) {
			t.Errorf("%+v: faults %v, want %v", tc.spec, got, tc.pointers)
		}
	}
}

func TestBucketsAreBounded(t *testing.T) {
	t.Run("idle buckets go first", func(t *testing.T) {
		var c clock
		l := New(Config{most: 64 * 8, GlobalRPM: -1, Clock: c.Now})
		for i := range 20_000 {
			must(t, request(l, context.Background(), agentOf(fmt.Sprint(i))))
			c.pass(10 * time.Millisecond)
		}
		if n := l.agents.size(); n > 64*8 {
			t.Errorf("%d buckets, want at most %d", n, 64*8)
		}
	})
	t.Run("an emptied bucket outlives a flood of others", func(t *testing.T) {
		var c clock
		l := New(Config{most: 64 * 16, GlobalRPM: -1, Clock: c.Now})
		p := agentOf("victim")
		for range 100 {
			must(t, request(l, context.Background(), p))
		}
		for i := range 20_000 {
			must(t, request(l, context.Background(), agentOf(fmt.Sprint(i))))
		}
		refusal(t, request(l, context.Background(), p), toolkeep.RateLimitExceeded, TypeAgent)
	})
	t.Run("slots in use are never forgotten", func(t *testing.T) {
		var c clock
		l := New(Config{most: 64, Concurrent: 1, Clock: c.Now})
		tool := toolOf("x.y", nil)
		holders := map[string]bool{}
		for i := range 1000 {
			name := fmt.Sprint(i)
			if _, err := l.Take(context.Background(), agentOf(name), tool, "", nil); err == nil {
				holders[name] = true
			} else {
				refusal(t, err, toolkeep.RateLimitExceeded, TypeAgent)
			}
		}
		if len(holders) == 0 || len(holders) > 64 {
			t.Fatalf("%d holders", len(holders))
		}
		for name := range holders {
			_, err := l.Take(context.Background(), agentOf(name), tool, "", nil)
			refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeAgent)
		}
	})
}

// manyAgents has n agents ask and call once each, and returns the memory that their buckets take.
func manyAgents(t testing.TB, l *Limits, n int) (bytes int64) {
	tool := toolOf("x.y", nil)
	memory := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := memory()
	for i := range n {
		p := agentOf("agent-" + strconv.Itoa(i))
		if err := request(l, context.Background(), p); err != nil {
			t.Fatal(err)
		}
		slots, err := l.Take(context.Background(), p, tool, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		slots.Release()
	}
	bytes = memory() - before
	runtime.KeepAlive(l)
	return bytes
}

// TestManyAgents: more agents than are tracked, none of whose buckets is full again, take no more memory than those that are.
func TestManyAgents(t *testing.T) {
	const most = 20_000 // the default is 100,000: BenchmarkMillionAgents
	l := New(Config{most: most, GlobalRPM: -1, Clock: new(clock).Now})
	full := manyAgents(t, l, most)
	more := manyAgents(t, l, most*5/4) // the first ones again, and others
	if a, p := l.agents.size(), l.pairs.size(); a > most || p > most {
		t.Errorf("%d agents and %d pairs are tracked", a, p)
	}
	if more > full/2 {
		t.Errorf("%d agents took %d bytes, and a quarter more of them %d more", most, full, more)
	}
}

// BenchmarkMillionAgents reports the memory of a million agents that each asked and called once, and how many are tracked.
func BenchmarkMillionAgents(b *testing.B) {
	for b.Loop() {
		l := New(Config{GlobalRPM: -1, Clock: new(clock).Now})
		b.ReportMetric(float64(manyAgents(b, l, 100_000))/1e6, "MB/100k-agents")
		b.ReportMetric(float64(manyAgents(b, l, 1_000_000))/1e6, "MB-more/1M-agents")
		b.ReportMetric(float64(l.agents.size()), "agents-tracked")
	}
}

// TestRealClock runs the default clock in a synctest bubble.
func TestRealClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerAgentRPM: 60})
		p := agentOf("a")
		for range 60 {
			must(t, request(l, context.Background(), p))
		}
		e := refusal(t, request(l, context.Background(), p), toolkeep.RateLimitExceeded, TypeAgent)
		<-time.After(e.RetryAfter)
		must(t, request(l, context.Background(), p))
	})
}

// TestHammer: many goroutines compete for every kind of bucket while the clock stands
// still; exactly the limit is admitted.
func TestHammer(t *testing.T) {
	var c clock
	l := New(Config{PerAgentRPM: 50, PerToolRPM: 30, GlobalRPM: 220, Concurrent: 3, Clock: c.Now})
	tool := toolOf("x.y", &toolkeep.RateLimitSpec{PerMinute: 100, MaxConcurrent: 8})
	const agents, workers, rounds = 8, 4, 400
	var requests, calls, running, runningMost atomic.Int64
	var perAgent [agents]atomic.Int64
	var wg sync.WaitGroup
	for i := range agents {
		for range workers {
			wg.Go(func() {
				p := agentOf(fmt.Sprint(i))
				for range rounds {
					if request(l, context.Background(), p) == nil {
						requests.Add(1)
					}
					_ = l.Peek(context.Background(), p, tool, "", false)
					slots, err := l.Take(context.Background(), p, tool, "", nil)
					if err != nil {
						continue
					}
					calls.Add(1)
					perAgent[i].Add(1)
					n := running.Add(1)
					for m := runningMost.Load(); n > m && !runningMost.CompareAndSwap(m, n); m = runningMost.Load() {
					}
					running.Add(-1)
					slots.Release()
					slots.Release()
				}
			})
		}
	}
	wg.Wait()
	if n := requests.Load(); n != 220 {
		t.Errorf("%d requests admitted, want 220", n)
	}
	if n := calls.Load(); n != 100 {
		t.Errorf("%d calls admitted, want 100", n)
	}
	if n := runningMost.Load(); n > 8 {
		t.Errorf("%d calls at once, want at most 8", n)
	}
	for i := range perAgent {
		if n := perAgent[i].Load(); n > 30 {
			t.Errorf("agent %d had %d calls, want at most 30", i, n)
		}
	}
	c.pass(time.Hour)
	for i := range agents { // all slots were released
		for range 3 {
			_, err := l.Take(context.Background(), agentOf(fmt.Sprint(i)), toolOf("x.z", nil), "", nil)
			must(t, err)
		}
	}
}

func BenchmarkTakeRequest(b *testing.B) {
	b.ReportAllocs()
	l := New(Config{PerAgentRPM: maxCount, GlobalRPM: maxCount})
	p := agentOf("a")
	for b.Loop() {
		if err := request(l, context.Background(), p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	b.ReportAllocs()
	l := New(Config{PerToolRPM: maxCount})
	p, tool := agentOf("a"), toolOf("x.y", &toolkeep.RateLimitSpec{PerMinute: maxCount, MaxConcurrent: 10})
	for b.Loop() {
		slots, err := l.Take(context.Background(), p, tool, "", nil)
		if err != nil {
			b.Fatal(err)
		}
		slots.Release()
	}
}

// size counts the entries.
func (t *table) size() int {
	n := 0
	for i := range t.shards {
		t.shards[i].mu.Lock()
		n += len(t.shards[i].entries)
		t.shards[i].mu.Unlock()
	}
	return n
}
