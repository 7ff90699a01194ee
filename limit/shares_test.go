package limit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// nodesOf returns the limits of so many nodes that know of each other.
func nodesOf(n int, c Config) []*Limits {
	all := make([]*Limits, n)
	for i := range all {
		all[i] = New(c)
		all[i].SetNodes(i, n)
	}
	return all
}

// TestShares: the shares of a limit add up to it, and no two differ by more than 1. Where there
// are more nodes than the limit, each has 1.
func TestShares(t *testing.T) {
	for _, nodes := range []int{1, 2, 3, 7, 64, 1000} {
		all := nodesOf(nodes, Config{})
		for _, limit := range []int{1, 2, 4, 10, 63, 64, 65, 100, 999, 1001, 10_000, maxCount} {
			sum := 0
			for i, l := range all {
				n, of := l.Share(limit)
				if of != nodes {
					t.Fatalf("%d nodes, want %d", of, nodes)
				}
				if floor := limit / nodes; n < max(1, floor) || n > floor+1 {
					t.Errorf("node %d of %d has %d of %d", i, nodes, n, limit)
				}
				sum += n
			}
			if want := max(limit, nodes); sum != want {
				t.Errorf("%d nodes have %d of %d", nodes, sum, limit)
			}
		}
		for _, none := range []int{0, -1} {
			if n, _ := all[nodes-1].Share(none); n != none {
				t.Errorf("%d became %d: no limit must stay none", none, n)
			}
		}
	}
}

// TestSetNodes: a number of nodes that cannot be right leaves the shares as they are.
func TestSetNodes(t *testing.T) {
	l := New(Config{})
	l.SetNodes(1, 3)
	for _, bad := range [][2]int{{-1, 3}, {3, 3}, {0, 0}, {-1, 0}, {0, -1}, {5, 2}} {
		l.SetNodes(bad[0], bad[1])
		if n, of := l.Share(100); n != 33 || of != 3 {
			t.Errorf("SetNodes(%d, %d): a share of %d among %d nodes, want 33 among 3", bad[0], bad[1], n, of)
		}
	}
}

// specs are one limit of a tool for each algorithm.
func specs(perMinute int) map[string]toolkeep.RateLimitSpec {
	return map[string]toolkeep.RateLimitSpec{
		"token bucket":   {PerMinute: perMinute},
		"own burst":      {Algorithm: tokenBucket, PerMinute: perMinute, Burst: perMinute / 2},
		"leaky bucket":   {Algorithm: leakyBucket, PerMinute: perMinute, Burst: perMinute / 2},
		"fixed window":   {Algorithm: fixedWindow, PerMinute: perMinute},
		"sliding window": {Algorithm: slidingWindow, PerMinute: perMinute},
	}
}

// burstOf is how many calls a limit admits at once.
func burstOf(s toolkeep.RateLimitSpec) int {
	if s.Burst > 0 {
		return s.Burst
	}
	return s.PerMinute
}

// TestLimitsOfAllNodes: calls that reach several nodes at once are admitted exactly as often as on one.
func TestLimitsOfAllNodes(t *testing.T) {
	const off = -1
	p := agentOf("a")
	take := func(tool *toolkeep.Tool) func(l *Limits) error {
		return func(l *Limits) error { _, err := l.Take(context.Background(), p, tool, "host:x:443", nil); return err }
	}
	type limited struct {
		config Config
		want   int
		take   func(l *Limits) error
	}
	cases := map[string]limited{
		"agent":       {Config{PerAgentRPM: 101, GlobalRPM: off}, 101, func(l *Limits) error { return request(l, context.Background(), p) }},
		"global":      {Config{PerAgentRPM: off, GlobalRPM: 101}, 101, func(l *Limits) error { return request(l, context.Background(), p) }},
		"tenant":      {Config{PerAgentRPM: off, PerTenantRPM: 101}, 101, func(l *Limits) error { return request(l, context.Background(), p) }},
		"upstream":    {Config{PerToolRPM: off, PerUpstreamRPM: 101, Concurrent: off}, 101, take(toolOf("x.y", nil))},
		"pair":        {Config{PerToolRPM: 11, Concurrent: off}, 11, take(toolOf("x.y", nil))},
		"burst":       {Config{PerToolRPM: 110, Burst: 11, Concurrent: off}, 11, take(toolOf("x.y", nil))},
		"agent slots": {Config{PerToolRPM: off, Concurrent: 5}, 5, take(toolOf("x.y", nil))},
		"tool slots": {Config{PerToolRPM: off, Concurrent: off}, 5,
			take(toolOf("x.y", &toolkeep.RateLimitSpec{MaxConcurrent: 5}))},
	}
	for name, s := range specs(100) {
		cases[name] = limited{Config{PerToolRPM: off, Concurrent: off}, burstOf(s), take(toolOf("x.y", &s))}
		cases["agent, "+name] = limited{Config{Algorithm: s.Algorithm, PerAgentRPM: s.PerMinute, Burst: s.Burst, GlobalRPM: off}, burstOf(s), func(l *Limits) error { return request(l, context.Background(), p) }}
		cases["pair, "+name] = limited{Config{Algorithm: s.Algorithm, PerToolRPM: s.PerMinute, Burst: s.Burst, Concurrent: off}, burstOf(s), take(toolOf("x.y", nil))}
	}
	for name, tc := range cases {
		for _, nodes := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%s, %d nodes", name, nodes), func(t *testing.T) {
				tc.config.Clock = new(clock).Now
				var got atomic.Int64
				var wg sync.WaitGroup
				for _, l := range nodesOf(nodes, tc.config) {
					for range 2 {
						wg.Go(func() {
							for range tc.want + 1 {
								if tc.take(l) == nil {
									got.Add(1)
								}
							}
						})
					}
				}
				wg.Wait()
				if int(got.Load()) != tc.want {
					t.Errorf("%d calls were admitted, want %d", got.Load(), tc.want)
				}
			})
		}
	}
}

// TestNodesComeAndGo: while the number of nodes changes, a node admits no more than its bucket or window held: a
// call costs it the more the smaller its share is, and a change gives nothing back. A refused call waits no
// longer than for one call of the present share and, as bursts are whole numbers, one of the smallest share before.
func TestNodesComeAndGo(t *testing.T) {
	for name, spec := range specs(1000) {
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				var c clock
				l := New(Config{PerToolRPM: -1, Concurrent: -1, Clock: c.Now})
				tool := toolOf("x.y", &spec)
				used := 0.0 // of what the bucket holds
				for range 200 {
					nodes := 1 + rng.IntN(8)
					l.SetNodes(rng.IntN(nodes), nodes)
					share, _ := l.Share(burstOf(spec))
					for range rng.IntN(30) {
						_, err := l.Take(context.Background(), agentOf("a"), tool, "", nil)
						if err == nil {
							used += 1 / float64(share)
							continue
						}
						wait := refusal(t, err, toolkeep.RateLimitExceeded, TypeTool).RetryAfter
						most := 61 * time.Second
						if spec.Algorithm != fixedWindow && spec.Algorithm != slidingWindow {
							perMinute, _ := l.Share(spec.PerMinute)
							smallest := (&shares{7, 8}).of(spec.PerMinute)
							most = time.Minute/time.Duration(perMinute) + time.Minute/time.Duration(smallest)
						}
						if wait > most {
							t.Fatalf("%d nodes: a refused call is to wait %s, want at most %s", nodes, wait, most)
						}
					}
				}
				// The rounding of shares is under 1 %.
				if used < 0.98 || used > 1.02 {
					t.Errorf("%.3f of what the bucket holds was admitted", used)
				}
			})
		}
	}
}

// TestAgentsBucketAsNodesComeAndGo: what is left of the agent's requests is left in the same part.
func TestAgentsBucketAsNodesComeAndGo(t *testing.T) {
	var c clock
	l := New(Config{Clock: c.Now})
	p := agentOf("a")
	for range 80 {
		must(t, request(l, context.Background(), p))
	}
	for _, s := range []struct{ rank, nodes, limit, left int }{{1, 2, 50, 10}, {0, 4, 25, 5}, {0, 2, 50, 10}, {0, 1, 100, 20}} {
		l.SetNodes(s.rank, s.nodes)
		left, err := l.TakeRequest(context.Background(), p)
		if err != nil || left.PerMinute != s.limit || left.Left != s.left-1 {
			t.Errorf("%d nodes: %+v; want %d of %d, %v", s.nodes, left, s.left-1, s.limit, err)
		}
		// The request is taken back by time.
		c.pass(time.Minute / time.Duration(s.limit))
	}
	l.SetNodes(0, 100)
	if e := refusal(t, request(l, context.Background(), p), toolkeep.RateLimitExceeded, TypeAgent); e.Rate.Reset != 48*time.Second {
		t.Errorf("full in %s, want 48s", e.Rate.Reset)
	}
}

// TestCallsRunAsNodesCome: calls that run keep their slots when the share gets smaller, and those that wait go on
// when it gets larger.
func TestCallsRunAsNodesCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{PerToolRPM: -1, Concurrent: 4})
		p, tool := agentOf("a"), toolOf("x.y", &toolkeep.RateLimitSpec{MaxConcurrent: 4})
		var calls []*Slots
		for range 4 {
			s, err := l.Take(context.Background(), p, tool, "", nil)
			must(t, err)
			calls = append(calls, s)
		}
		l.SetNodes(0, 2)
		calls[0].Release()
		calls[1].Release()
		_, err := l.Take(context.Background(), p, tool, "", nil)
		refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeAgent)
		_, err = l.Take(context.Background(), agentOf("b"), tool, "", nil)
		refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeTool)
		calls[2].Pause()
		other, err := l.Take(context.Background(), agentOf("b"), tool, "", nil)
		must(t, err)
		calls[2].Resume()
		goesOn := make(chan struct{})
		go func() { calls[2].Await(context.Background()); close(goesOn) }()
		synctest.Wait()
		select {
		case <-goesOn:
			t.Error("a call goes on over the node's share")
		default:
		}
		l.SetNodes(0, 1)
		<-goesOn
		for _, s := range append(calls, other) {
			s.Release()
		}
		l.left(t)
	})
}

// TestRefusalsNameTheShare: a refusal of one of several nodes says what the limit is, and why less is admitted.
func TestRefusalsNameTheShare(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		spec   *toolkeep.RateLimitSpec
		detail string
	}{
		"pair":        {Config{PerToolRPM: 4}, nil, "per_minute"},
		"tool":        {Config{}, &toolkeep.RateLimitSpec{PerMinute: 4}, "per_minute"},
		"agent slots": {Config{Concurrent: 4}, nil, "concurrent"},
		"tool slots":  {Config{}, &toolkeep.RateLimitSpec{MaxConcurrent: 4}, "concurrent"},
	} {
		l := New(tc.config)
		tool := toolOf("x.y", tc.spec)
		l.SetNodes(2, 3)
		for _, want := range []error{nil, toolkeep.ErrNotFound} {
			_, err := l.Take(context.Background(), agentOf("a"), tool, "", nil)
			if want == nil {
				must(t, err)
				continue
			}
			e := toolkeep.AsError(err)
			if e.Details["nodes"] != 3 || e.Details["limit_"+tc.detail] != 4 || e.Details["share_"+tc.detail] != 1 {
				t.Errorf("%s: details %v", name, e.Details)
			}
			for _, part := range []string{" 4 calls ", "3 nodes", "share of 1"} {
				if !strings.Contains(e.Message, part) {
					t.Errorf("%s: the message lacks %q: %s", name, part, e.Message)
				}
			}
		}
		l = New(tc.config)
		for range 4 {
			_, err := l.Take(context.Background(), agentOf("a"), tool, "", nil)
			must(t, err)
		}
		_, err := l.Take(context.Background(), agentOf("a"), tool, "", nil)
		if e := toolkeep.AsError(err); e.Details["nodes"] != nil || strings.Contains(e.Message, "node") {
			t.Errorf("%s: a node alone tells of nodes: %v %s", name, e.Details, e.Message)
		}
	}
}
