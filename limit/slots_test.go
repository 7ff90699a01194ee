package limit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// left fails the test if a call that has ended is still counted, or waits.
func (l *Limits) left(t *testing.T) {
	t.Helper()
	for i := range shardCount {
		for _, a := range l.agents.shards[i].entries {
			if a.counts != (counts{}) {
				t.Errorf("of an agent %v calls are left", a.counts)
			}
		}
		for _, tl := range l.tools.shards[i].entries {
			if tl.counts != (counts{}) {
				t.Errorf("of a tool %v calls are left", tl.counts)
			}
		}
	}
	if n := len(l.waiters.list); n != 0 {
		t.Errorf("%d calls wait", n)
	}
}

// Calls that wait for their caller's answer are not concurrent ones of their agent; they
// go on when it comes, whatever runs by then.
func TestPauseOfAnAgentsCalls(t *testing.T) {
	l := New(Config{PerToolRPM: -1, Concurrent: 1})
	p, plain := agentOf("a"), toolOf("x.plain", nil)
	var calls []*Slots
	for range 4 {
		s, err := l.Take(context.Background(), p, plain, "", nil)
		must(t, err)
		s.Pause()
		calls = append(calls, s)
	}
	for i, s := range calls {
		for range 2 {
			s.Resume()
			s.Await(t.Context())
		}
		_, err := l.Take(context.Background(), p, plain, "", nil)
		refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeAgent)
		if i > 0 {
			s.Release()
		}
	}
	calls[0].Release()
	s, err := l.Take(context.Background(), p, plain, "", nil)
	must(t, err)
	s.Release()
	for _, s := range calls { // they have ended
		s.Pause()
		s.Resume()
		s.Await(t.Context())
		s.Release()
	}
	l.left(t)
}

// Nor are they concurrent calls of their tool; they go on when it has room, in the order of
// their answers and before new calls.
func TestPauseOfAToolsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerToolRPM: -1, Concurrent: 1})
		tool := toolOf("x.y", &toolkeep.RateLimitSpec{MaxConcurrent: 1})
		take := func(agent string) *Slots {
			t.Helper()
			s, err := l.Take(context.Background(), agentOf(agent), tool, "", nil)
			must(t, err)
			return s
		}
		full := func(kind, agent string) {
			t.Helper()
			refusal(t, l.Peek(context.Background(), agentOf(agent), tool, "", false), toolkeep.ConcurrencyLimitExceeded, kind)
			_, err := l.Take(context.Background(), agentOf(agent), tool, "", nil)
			refusal(t, err, toolkeep.ConcurrencyLimitExceeded, kind)
		}
		first := take("first")
		full(TypeTool, "other")
		first.Pause()
		second := take("second")
		second.Pause()
		third := take("third")
		third.Pause()
		other := take("other")

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		goesOn := make(chan string, 3)
		for name, s := range map[string]*Slots{"first": first, "second": second, "third": third} {
			go func() {
				time.Sleep(map[string]time.Duration{"first": 2, "second": 1, "third": 3}[name])
				s.Resume()
				if name == "third" {
					s.Await(ctx)
				} else {
					s.Await(context.Background())
				}
				goesOn <- name
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(goesOn) != 0 {
			t.Fatalf("%s goes on while another call runs", <-goesOn)
		}
		other.Release()
		if got := <-goesOn; got != "second" {
			t.Errorf("%s goes on before the call whose answer came first", got)
		}
		full(TypeTool, "new")
		full(TypeAgent, "second")
		second.Release()
		if got := <-goesOn; got != "first" {
			t.Errorf("%s goes on next", got)
		}
		began := time.Now()
		if got := <-goesOn; got != "third" || time.Since(began) != time.Minute-time.Second {
			t.Errorf("%s ends after %s", got, time.Since(began))
		}
		full(TypeTool, "new")
		third.Release()
		full(TypeTool, "new") // the first runs
		first.Release()
		take("new").Release()
		l.left(t)
	})
}

// TestAwaitOfAnEndedCall: new calls leave the slot of a call that waits for those above it. If it ends, it does not wait any longer.
func TestAwaitOfAnEndedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerToolRPM: -1})
		tool := toolOf("x.y", &toolkeep.RateLimitSpec{MaxConcurrent: 1})
		above, err := l.Take(context.Background(), agentOf("a"), tool, "", nil)
		must(t, err)
		below := toolOf("x.z", &toolkeep.RateLimitSpec{MaxConcurrent: 1})
		child, err := l.Take(context.Background(), agentOf("a"), below, "", above)
		must(t, err)
		above.Pause()
		child.Pause()
		other, err := l.Take(context.Background(), agentOf("b"), tool, "", nil)
		must(t, err)
		above.Resume()
		child.Resume()
		waits := make(chan struct{})
		go func() { child.Await(context.Background()); close(waits) }()
		synctest.Wait()
		select {
		case <-waits:
			t.Error("the child goes on without its parent")
		default:
		}
		_, err = l.Take(context.Background(), agentOf("c"), below, "", nil)
		refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeTool)
		child.Release()
		must(t, l.Peek(context.Background(), agentOf("c"), below, "", false))
		<-waits
		child.Await(context.Background())
		above.Release()
		other.Release()
		l.left(t)
	})
}

// hook pauses and resumes slots as a call does.
type hook struct {
	*Slots
	ctx context.Context
}

func (h hook) Await() { h.Slots.Await(h.ctx) }

// TestPausesOfManyCalls: calls and those below them ask, end and run out of time as they like. No tool ever has more
// calls that go on than it may, no call waits for ever, and in the end no slot is in use.
func TestPausesOfManyCalls(t *testing.T) {
	for _, limited := range []bool{false, true} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprintf("limited %t, seed %d", limited, seed), func(t *testing.T) {
				// Without limits a call that waits for ever is a deadlock, which synctest tells.
				synctest.Test(t, func(t *testing.T) { pauses(t, rand.New(rand.NewPCG(seed, 1)), limited) })
			})
		}
	}
}

// crowd is the calls of TestPausesOfManyCalls.
type crowd struct {
	t       *testing.T
	l       *Limits
	limited bool // calls have deadlines, and are cancelled
	tools   []*toolkeep.Tool
	busy    []atomic.Int32 // calls of each tool that go on

	mu  sync.Mutex
	rng *rand.Rand
}

func (c *crowd) n(below int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(below)
}

func (c *crowd) sleep() { time.Sleep(time.Duration(c.n(10)) * time.Millisecond) }

// call is one call of the crowd.
type call struct {
	*crowd
	tool    int
	above   *call
	ctx     context.Context
	slots   *Slots
	several bool // what happens below it or a call above it happens at once
}

func pauses(t *testing.T, rng *rand.Rand, limited bool) {
	c := &crowd{t: t, l: New(Config{PerAgentRPM: -1, PerToolRPM: -1, Concurrent: 3}), limited: limited, rng: rng, busy: make([]atomic.Int32, 5)}
	for i := range c.busy {
		c.tools = append(c.tools, toolOf(fmt.Sprintf("x.t%d", i), &toolkeep.RateLimitSpec{MaxConcurrent: 1 + i/2}))
	}
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range 10 {
				c.sleep()
				c.run(t.Context(), nil, false)
			}
		})
	}
	wg.Wait()
	synctest.Wait()
	c.l.left(t)
}

// run makes a call, of another tool than the calls above it.
func (c *crowd) run(ctx context.Context, above *call, several bool) {
	me := &call{crowd: c, above: above, several: several}
	var up *Slots
	if above != nil {
		up = above.slots
	}
	for me.tool = c.n(len(c.tools)); above.has(me.tool); {
		me.tool = c.n(len(c.tools))
	}
	var err error
	if me.slots, err = c.l.Take(context.Background(), agentOf(fmt.Sprint(c.n(12))), c.tools[me.tool], "", up); err != nil {
		return
	}
	defer me.slots.Release()
	if c.limited {
		var cancel context.CancelFunc
		ctx, cancel = toolkeep.WithPausableTimeout(ctx, time.Duration(1+c.n(60))*time.Millisecond, context.DeadlineExceeded)
		defer cancel()
		if c.n(4) == 0 {
			defer time.AfterFunc(time.Duration(c.n(60))*time.Millisecond, cancel).Stop()
		}
	}
	var over func()
	me.ctx, over = toolkeep.OnPause(ctx, hook{me.slots, ctx})
	defer over()
	for range 1 + c.n(3) {
		if !me.goOn() {
			return
		}
		switch c.n(4) {
		case 0:
			me.child(me.several)
		case 1:
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if c.n(2) == 0 {
						me.ask(true)
					} else {
						me.child(true)
					}
				})
			}
			both.Wait()
		default:
			me.ask(me.several)
		}
	}
	me.goOn()
	if c.n(8) == 0 { // a question outlives its call
		resume := toolkeep.PauseTimeout(me.ctx)
		time.AfterFunc(time.Duration(c.n(20))*time.Millisecond, resume)
	}
}

func (c *call) has(tool int) bool { return c != nil && (c.tool == tool || c.above.has(tool)) }

// child makes a call below c.
func (c *call) child(several bool) {
	if c.depth() < 3 {
		c.run(c.ctx, c, several)
		c.slots.Await(c.ctx)
	}
}

func (c *call) depth() int {
	if c == nil {
		return 0
	}
	return 1 + c.above.depth()
}

// ask waits for an answer, or for less.
func (c *call) ask(several bool) {
	resume := toolkeep.PauseTimeout(c.ctx)
	c.sleep()
	resume()
	if !several {
		c.goOn()
	}
}

// goOn is what a call does while it runs: it and those above it are so many of their tools, if nothing else happens
// below these. It returns false if the call has ended.
func (c *call) goOn() bool {
	if c.ctx.Err() != nil {
		return false
	}
	var all []*call
	for up := c; up != nil; up = up.above {
		all = append(all, up)
		if up.several {
			break
		}
	}
	for _, a := range all {
		if n := c.busy[a.tool].Add(1); int(n) > c.tools[a.tool].Manifest.RateLimit.MaxConcurrent {
			c.t.Errorf("%d calls of tool %d run", n, a.tool)
		}
	}
	defer func() {
		for _, a := range all {
			c.busy[a.tool].Add(-1)
		}
	}()
	select {
	case <-time.After(time.Duration(c.n(5)) * time.Millisecond):
	case <-c.ctx.Done():
	}
	return c.ctx.Err() == nil
}
