package redis

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/limit/limittest"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
)

// wait is longer than the default: a busy machine is no Redis that fails.
const wait = time.Minute

// steady is waited for by a busy machine, and for a second while Redis is away.
type steady struct {
	limit.Counter
	away *atomic.Bool
}

func (s steady) Take(ctx context.Context, q *limit.Question) (limit.Answer, error) {
	if s.away.Load() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	return s.Counter.Take(ctx, q)
}

func (s steady) Renew(ctx context.Context, held []limit.Slot) error {
	if !s.away.Load() {
		ctx = context.WithoutCancel(ctx)
	}
	return s.Counter.Renew(ctx, held)
}

func (s steady) Free(ctx context.Context, held []limit.Slot) error {
	if !s.away.Load() {
		ctx = context.WithoutCancel(ctx)
	}
	return s.Counter.Free(ctx, held)
}

// nodes returns limits that one Redis counts, each with connections of its own.
func nodes(t *testing.T, url, prefix string, n int, c limit.Config) []*limit.Limits {
	t.Helper()
	return nodesOf(t, url, prefix, n, c, new(atomic.Bool))
}

// nodesOf is nodes of a Redis that is away at times.
func nodesOf(t *testing.T, url, prefix string, n int, c limit.Config, away *atomic.Bool) []*limit.Limits {
	t.Helper()
	all := make([]*limit.Limits, n)
	for i := range all {
		all[i] = limit.New(c)
		all[i].SetNodes(i, n)
		client, err := New(Config{URL: url, Prefix: prefix, Timeout: wait})
		if err != nil {
			t.Fatal(err)
		}
		all[i].UseCounter(steady{client.Limits(), away}, wait, slog.New(slog.DiscardHandler))
		t.Cleanup(func() {
			if err := all[i].Health(t.Context()); err != nil { // it would have counted by itself
				t.Error(err)
			}
			all[i].StopCounter()
			all[i].StopCounter()
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return all
}

// TestLimits runs the suite of limits on both servers; time passes only in process.
func TestLimits(t *testing.T) {
	var runs atomic.Int64
	prefix := func() string { return "t" + time.Duration(runs.Add(1)).String() + ":" }
	t.Run("in process", func(t *testing.T) {
		s := miniredis.RunT(t)
		now := time.Unix(1_800_000_000, 0)
		s.SetTime(now)
		var passed atomic.Int64
		pass := func(_ *testing.T, d time.Duration) {
			passed.Add(int64(d))
			now = now.Add(d)
			s.SetTime(now)
			s.FastForward(d)
		}
		limittest.Run(t, limittest.Harness{
			Grain: 2 * time.Microsecond,
			Pass:  pass,
			New: func(t *testing.T, n int, c limit.Config) []*limit.Limits {
				pass(t, now.Truncate(time.Minute).Add(time.Minute).Sub(now)) // windows of minutes begin
				c.Clock = func() time.Time { return time.Unix(0, passed.Load()) }
				return nodes(t, "redis://"+s.Addr(), prefix(), n, c)
			},
		})
	})
	t.Run("real", func(t *testing.T) {
		s := redistest.Start(t)
		limittest.Run(t, limittest.Harness{Grain: 2 * time.Microsecond, New: func(t *testing.T, n int, c limit.Config) []*limit.Limits {
			return nodes(t, s.URL(), prefix(), n, c)
		}})
	})
}

// TestSlotsOfADeadNode: slots that are not renewed come free after their life.
func TestSlotsOfADeadNode(t *testing.T) {
	s := redistest.Start(t)
	counter := open(t, Config{URL: s.URL()}).Limits()
	tool := limittest.Tool("x.y", &toolkeep.RateLimitSpec{MaxConcurrent: 1})
	c := limit.Config{PerToolRPM: -1}
	two := nodes(t, s.URL(), "", 2, c)
	held, err := two[0].Take(t.Context(), limittest.Agent("a"), tool, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = two[1].Take(t.Context(), limittest.Agent("b"), tool, "", nil)
	limittest.Refused(t, err, toolkeep.ConcurrencyLimitExceeded, limit.TypeTool)
	raw := s.Client(t)
	keys, err := raw.Keys(t.Context(), "*slots*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("keys %q %v", keys, err)
	}
	for _, key := range keys {
		if ttl := raw.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > limit.SlotLife+time.Second {
			t.Errorf("%s lives %s", key, ttl)
		}
		// As if the time had come, without waiting for it.
		for _, id := range raw.ZRange(t.Context(), key, 0, -1).Val() {
			raw.ZIncrBy(t.Context(), key, -float64(limit.SlotLife.Microseconds()), id)
		}
	}
	other, err := two[1].Take(t.Context(), limittest.Agent("b"), tool, "", nil)
	if err != nil {
		t.Fatalf("the slot of a dead node is not free: %v", err)
	}
	held.Release()
	other.Release()
	if err := counter.Renew(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestLimitsWithoutRedis: while Redis is away each node admits its share, and says that; a Redis that comes back
// without its state gets the slots that are held again.
func TestLimitsWithoutRedis(t *testing.T) {
	for name, server := range map[string]struct {
		gone, back func(*redistest.Server, testing.TB)
	}{
		"killed": {(*redistest.Server).Down, (*redistest.Server).Up},
		"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			var away atomic.Bool
			two := nodesOf(t, s.URL(), "", 2, limit.Config{PerAgentRPM: 100, PerToolRPM: -1, Concurrent: 4}, &away)
			p, plain := limittest.Agent("a"), limittest.Tool("x.plain", nil)
			ctx := t.Context()
			var held []*limit.Slots
			for range 2 {
				slots, err := two[0].Take(ctx, p, plain, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, slots)
			}
			for range 40 {
				if err := limittest.Request(two[0], ctx, p); err != nil {
					t.Fatal(err)
				}
			}
			away.Store(true)
			server.gone(s, t)
			left, err := two[0].TakeRequest(ctx, p)
			if err != nil {
				t.Fatalf("a request is refused while Redis is away: %v", err)
			}
			if err := two[0].Health(ctx); err == nil {
				t.Error("health does not say that Redis does not count")
			}
			// Of 60 that are left to both this node has 30, of which one was taken.
			if left.PerMinute != 50 || left.Left < 28 || left.Left > 40 { // more by and by
				t.Errorf("%+v are left", left)
			}
			_, err = two[0].Take(ctx, p, plain, "", nil)
			e := limittest.Refused(t, err, toolkeep.ConcurrencyLimitExceeded, limit.TypeAgent)
			if e.Details["share_concurrent"] != 2 || e.Details["nodes"] != 2 {
				t.Errorf("%v", e.Details)
			}
			server.back(s, t)
			for two[0].Health(ctx) != nil || two[1].Health(ctx) != nil {
				time.Sleep(10 * time.Millisecond) // it looks once a second
			}
			away.Store(false)
			for range 2 { // two more on the other node, as both hold four together
				for {
					shared := two[1].Health(ctx) == nil
					slots, err := two[1].Take(ctx, p, plain, "", nil)
					if err == nil {
						held = append(held, slots)
						break
					}
					if shared {
						t.Fatal(err)
					}
				}
			}
			_, err = two[1].Take(ctx, p, plain, "", nil)
			if e := limittest.Refused(t, err, toolkeep.ConcurrencyLimitExceeded, limit.TypeAgent); e.Details["nodes"] != nil {
				t.Errorf("a limit that Redis counts names shares: %v", e.Details)
			}
			for _, slots := range held {
				slots.Release()
			}
		})
	}
}

// TestCallersEndIsNoFailure: a caller that hangs up says nothing about Redis.
func TestCallersEndIsNoFailure(t *testing.T) {
	s := redistest.Start(t)
	l := nodes(t, s.URL(), "", 1, limit.Config{})[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = limittest.Request(l, ctx, limittest.Agent("a"))
	if err := l.Health(t.Context()); err != nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Error(err)
	}
}

// TestLimitsOfARestrictedUser: the commands that docs/caches.md names suffice.
func TestLimitsOfARestrictedUser(t *testing.T) {
	s := redistest.Start(t)
	doc, err := os.ReadFile("../../docs/caches.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := []any{"ACL", "SETUSER", "default", "resetkeys", "-@all", "~toolkeep:*"}
	for _, word := range strings.FieldsFunc(string(doc), func(r rune) bool { return strings.ContainsRune(" `\n,.", r) }) {
		if strings.HasPrefix(word, "+") {
			rules = append(rules, word)
		}
	}
	if err := s.Client(t).Do(t.Context(), rules...).Err(); err != nil || len(rules) < 20 {
		t.Fatal(rules, err)
	}
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window"} {
		l := nodes(t, s.URL(), "", 1, limit.Config{PerToolRPM: 2})[0]
		tool := limittest.Tool("x."+algorithm, &toolkeep.RateLimitSpec{Algorithm: algorithm, PerMinute: 1, MaxConcurrent: 1})
		slots, err := l.Take(t.Context(), limittest.Agent("a"), tool, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		slots.Release()
		if slots, err = l.Take(t.Context(), limittest.Agent("a"), tool, "", nil); err == nil && algorithm == "fixed_window" { // a minute has ended
			slots.Release()
			_, err = l.Take(t.Context(), limittest.Agent("a"), tool, "", nil)
		}
		limittest.Refused(t, err, toolkeep.RateLimitExceeded, limit.TypeTool)
	}
}

// TestClockOfRedisIsSetBack: what Redis counted before its clock was set back, by more than that lasts, does not
// count until the clock is there again; a bucket is filled from empty. Set back by less, it lasts longer by that. A
// slot that a call holds is there again with its renewal.
func TestClockOfRedisIsSetBack(t *testing.T) {
	s := miniredis.RunT(t)
	begin := time.Unix(1_800_000_000, 0)
	c := open(t, Config{URL: "redis://" + s.Addr()}).Limits()
	for name, q := range map[string]limit.Question{
		"token_bucket":   {Rates: []limit.Rate{{Name: "b", Step: 30 * time.Second, Depth: time.Minute}}},
		"fixed_window":   {Rates: []limit.Rate{{Name: "f", Algorithm: "fixed_window", PerMinute: 2}}},
		"sliding_window": {Rates: []limit.Rate{{Name: "s", Algorithm: "sliding_window", PerMinute: 2}}},
		"slots":          {Slots: []limit.Slot{{Name: "p", Most: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			take := func() bool {
				t.Helper()
				calls++
				for i := range q.Slots {
					q.Slots[i].ID = strconv.Itoa(calls)
				}
				a, err := c.Take(t.Context(), &q)
				if err != nil {
					t.Fatal(err)
				}
				return a.Refused < 0
			}
			admits := func(when string) {
				t.Helper()
				for i, want := range []bool{true, true, false} {
					if take() != want {
						t.Fatalf("%s: call %d of 3 is admitted: %t", when, i+1, !want)
					}
				}
			}
			s.SetTime(begin)
			admits("at first")
			s.SetTime(begin.Add(-10 * time.Second))
			if name != "fixed_window" && take() { // that begins with each minute
				t.Error("a clock that was set a bit back admits more")
			}
			hour := begin.Add(-time.Hour)
			s.SetTime(hour)
			if name == "token_bucket" { // it is at most empty
				if take() {
					t.Error("a bucket is full again")
				}
				hour = hour.Add(time.Minute)
				s.SetTime(hour)
			}
			admits("an hour before")
			if len(q.Slots) > 0 {
				if err := c.Renew(t.Context(), []limit.Slot{{Name: "p", ID: "held"}}); err != nil {
					t.Fatal(err)
				}
				hour = hour.Add(limit.SlotLife - 1)
				s.SetTime(hour)
				if take() {
					t.Error("slots that are held are not counted")
				}
				hour = hour.Add(time.Second)
			}
			s.SetTime(hour.Add(2 * time.Minute))
			admits("after it")
		})
	}
}

func BenchmarkLimits(b *testing.B) {
	s := redistest.Start(b)
	for _, shared := range []bool{false, true} {
		name := map[bool]string{false: "in process", true: "Redis"}[shared]
		b.Run(name, func(b *testing.B) {
			l := limit.New(limit.Config{PerAgentRPM: 1e8, PerToolRPM: 1e8, GlobalRPM: 1e8, Concurrent: 1000})
			if shared {
				client, err := New(Config{URL: s.URL()})
				if err != nil {
					b.Fatal(err)
				}
				defer client.Close()
				l.UseCounter(client.Limits(), 0, slog.New(slog.DiscardHandler))
				defer l.StopCounter()
			}
			p, tool := limittest.Agent("a"), limittest.Tool("x.y", &toolkeep.RateLimitSpec{PerMinute: 1e8, MaxConcurrent: 1000})
			b.ReportAllocs()
			for b.Loop() {
				if err := limittest.Request(l, b.Context(), p); err != nil {
					b.Fatal(err)
				}
				slots, err := l.Take(b.Context(), p, tool, "", nil)
				if err != nil {
					b.Fatal(err)
				}
				slots.Release()
			}
		})
	}
}

// TestPausesOnNodes: a call that waits for its caller gives its slots to other nodes, and goes on only when these
// have one for it; an agent's slot it gets at once. Slots that are held are renewed.
func TestPausesOnNodes(t *testing.T) {
	s := redistest.Start(t)
	two := nodes(t, s.URL(), "", 2, limit.Config{PerToolRPM: -1, Concurrent: 1})
	tool, ctx := limittest.Tool("x.y", &toolkeep.RateLimitSpec{MaxConcurrent: 1}), t.Context()
	take := func(node int, agent string) (*limit.Slots, error) {
		return two[node].Take(ctx, limittest.Agent(agent), tool, "", nil)
	}
	first, err := take(0, "a")
	if err != nil {
		t.Fatal(err)
	}
	first.Pause()
	var other *limit.Slots
	for other == nil { // the pause is told without being waited for
		if other, err = take(1, "a"); err != nil {
			limittest.Refused(t, err, toolkeep.ConcurrencyLimitExceeded, limit.TypeAgent)
		}
	}
	first.Resume()
	goesOn := make(chan struct{})
	go func() { first.Await(ctx); close(goesOn) }()
	for range 5 {
		_, err = take(0, "b")
		limittest.Refused(t, err, toolkeep.ConcurrencyLimitExceeded, limit.TypeTool)
	}
	select {
	case <-goesOn:
		t.Error("the call goes on while another node has the slot")
	default:
	}
	other.Release()
	<-goesOn
	_, err = take(1, "b")
	limittest.Refused(t, err, toolkeep.ConcurrencyLimitExceeded, limit.TypeTool)
	first.Release()
	for {
		if last, err := take(1, "b"); err == nil {
			last.Release()
			break
		}
	}
	raw := s.Client(t)
	for {
		left := int64(0)
		for _, key := range raw.Keys(ctx, "*slots*").Val() {
			left += raw.ZCard(ctx, key).Val()
		}
		if left == 0 {
			break
		}
	}
}

// TestLimitsAreAccurate: callers that compete on three nodes for longer than a burst lasts get what the limit says, within 2 %.
// Of windows they get exactly that: limittest, at once.
func TestLimitsAreAccurate(t *testing.T) {
	const count, callers, perSecond, burst = 3, 4, 200, 100
	s := redistest.Start(t)
	raw, ctx := s.Client(t), t.Context()
	now := func() time.Time {
		t.Helper()
		at, err := raw.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	algorithms := []string{"token_bucket", "leaky_bucket"}
	for try := range 20 {
		if len(algorithms) == 0 {
			return
		}
		tool := limittest.Tool("x.rush", &toolkeep.RateLimitSpec{Algorithm: algorithms[0], PerMinute: 60 * perSecond, Burst: burst})
		all := nodes(t, s.URL(), strconv.Itoa(try)+":", count, limit.Config{PerToolRPM: -1, Concurrent: -1})
		var admitted, refused, longest, last atomic.Int64
		take := func(l *limit.Limits) bool {
			_, err := l.Take(ctx, limittest.Agent("a"), tool, "", nil)
			at := time.Now().UnixNano()
			if gap := at - last.Swap(at); gap > longest.Load() {
				longest.Store(gap) // about: it only finds that the machine stood still
			}
			if err != nil {
				refused.Add(1)
				return false
			}
			admitted.Add(1)
			return true
		}
		each := func(do func(*limit.Limits)) {
			var wg sync.WaitGroup
			for i := range count * callers {
				wg.Go(func() { do(all[i%count]) })
			}
			wg.Wait()
		}
		empty := func(l *limit.Limits) {
			for i := 0; i < 2*burst && take(l); i++ {
			}
		}
		last.Store(time.Now().UnixNano())
		first := now()
		each(empty) // a bucket that is full loses what comes
		burnt, second := admitted.Load(), now()
		each(func(l *limit.Limits) {
			for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
				take(l)
			}
		})
		before, turned := now(), refused.Load()
		passed := before.Sub(second).Seconds()
		takes := float64(admitted.Load() - burnt + turned)
		empty(all[0])
		after := now()
		if refused.Load() == turned || takes < 2*perSecond*passed {
			t.Logf("the machine is slow: %.0f takes in %.2f s are no competition", takes, passed)
			continue
		}
		if longest.Load() > int64(time.Second)*burst/perSecond/2 {
			t.Logf("the machine stood still for %s: a full bucket may have lost calls", time.Duration(longest.Load()))
			continue
		}
		least := float64(burnt) + perSecond*passed
		most := burst + perSecond*after.Sub(first).Seconds()
		got := float64(admitted.Load())
		t.Logf("%s: %.0f calls were admitted of %.0f to %.0f, %d refused", algorithms[0], got, least, most, refused.Load())
		if got < 0.98*least || got > 1.02*most {
			t.Errorf("%.0f calls were admitted of %.0f to %.0f within 2 %%, %d refused", got, least, most, refused.Load())
		}
		algorithms = algorithms[1:]
	}
	t.Error("the machine stood still or was slow each time")
}
