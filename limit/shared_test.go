package limit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// book is a Counter of slots in memory.
type book struct {
	mu     sync.Mutex
	slots  map[string]map[string]bool             // ids by name
	answer func(*Question) Answer                 // to questions with rates; nil admits
	meets  func(op string) (time.Duration, error) // how long take, renew or free takes, and how it fails; nil is at once
}

func (b *book) begin(ctx context.Context, op string) error {
	b.mu.Lock()
	meets := b.meets
	b.mu.Unlock()
	if meets == nil {
		return ctx.Err()
	}
	d, err := meets(op)
	toolkeep.Sleep(ctx, d)
	return cmp.Or(err, ctx.Err())
}

func (b *book) Take(ctx context.Context, q *Question) (Answer, error) {
	if err := b.begin(ctx, "take"); err != nil {
		return Answer{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range q.Free {
		delete(b.slots[s.Name], s.ID)
	}
	if b.answer != nil && len(q.Rates) > 0 {
		if a := b.answer(q); a.Refused >= 0 {
			return a, nil
		}
	}
	for i, s := range q.Slots {
		if len(b.slots[s.Name]) >= s.Most && !b.slots[s.Name][s.ID] {
			return Answer{Refused: len(q.Rates) + i}, nil
		}
	}
	if !q.Dry {
		b.hold(q.Slots)
	}
	return Answer{Refused: -1, States: make([]State, len(q.Rates))}, nil
}

func (b *book) hold(all []Slot) {
	for _, s := range all {
		if b.slots[s.Name] == nil {
			b.slots[s.Name] = map[string]bool{}
		}
		b.slots[s.Name][s.ID] = true
	}
}

func (b *book) Renew(ctx context.Context, held []Slot) error {
	if err := b.begin(ctx, "renew"); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold(held)
	return nil
}

func (b *book) Free(ctx context.Context, held []Slot) error {
	if err := b.begin(ctx, "free"); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range held {
		delete(b.slots[s.Name], s.ID)
	}
	return nil
}

// set changes the book while calls run.
func (b *book) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// of returns how many slots are held under names with a part.
func (b *book) of(part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for name, ids := range b.slots {
		if strings.Contains(name, part) {
			n += len(ids)
		}
	}
	return n
}

// counted runs a test of nodes whose limits b counts, in a bubble of its own. What they log is in log.
func counted(t *testing.T, n int, c Config, test func(t *testing.T, b *book, nodes []*Limits, log *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &book{slots: map[string]map[string]bool{}}
		var log journal
		nodes := nodesOf(n, c)
		for _, l := range nodes {
			l.UseCounter(b, 0, slog.New(slog.NewTextHandler(&log, nil)))
			defer l.StopCounter()
		}
		test(t, b, nodes, &log)
	})
}

func away(string) (time.Duration, error) { return 0, errors.New("away") }

// slow is a counter whose answers nearly take the time of a call.
func slow(op string) (time.Duration, error) {
	if op == "free" {
		return 45 * time.Millisecond, nil
	}
	return 10 * time.Millisecond, nil
}

// journal keeps what is logged.
type journal struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.String()
}

func (j *journal) lines() int { return strings.Count(j.String(), "\n") }

// TestRefusedWhileSlotsAreGivenBack: a call that the counter refuses while its node gives back other slots
// waits for these and asks again, in a time of its own; if it cannot, the refusal stands. Neither says that
// the counter fails, and the node does not admit the call by its share.
func TestRefusedWhileSlotsAreGivenBack(t *testing.T) {
	for name, within := range map[string]time.Duration{"asks again": time.Hour, "caller has no time": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			counted(t, 2, Config{PerToolRPM: -1, Concurrent: -1}, func(t *testing.T, b *book, nodes []*Limits, log *journal) {
				one := &toolkeep.RateLimitSpec{MaxConcurrent: 1}
				b.set(func() { b.meets = slow })
				held, err := nodes[1].Take(t.Context(), agentOf("a"), toolOf("x.full", one), "", nil)
				must(t, err)
				other, err := nodes[0].Take(t.Context(), agentOf("a"), toolOf("x.other", one), "", nil)
				must(t, err)
				other.Release()
				synctest.Wait() // it is being given back
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				_, err = nodes[0].Take(ctx, agentOf("b"), toolOf("x.full", one), "", nil)
				refusal(t, err, toolkeep.ConcurrencyLimitExceeded, TypeTool)
				if err := nodes[0].Health(t.Context()); err != nil || log.lines() != 0 {
					t.Errorf("the counter counts as failed: %v %s", err, log)
				}
				held.Release()
			})
		})
	}
}

// TestOwnSlotGivenBackIsFree: on its own node the slot of a call that ended is free for the next one, also where
// the counter takes nearly as long as it may to get it back.
func TestOwnSlotGivenBackIsFree(t *testing.T) {
	counted(t, 1, Config{PerToolRPM: -1, Concurrent: -1}, func(t *testing.T, b *book, nodes []*Limits, log *journal) {
		tool := toolOf("x.y", &toolkeep.RateLimitSpec{MaxConcurrent: 1})
		b.set(func() { b.meets = slow })
		for range 20 {
			held, err := nodes[0].Take(t.Context(), agentOf("a"), tool, "", nil)
			must(t, err)
			held.Release()
			synctest.Wait()
		}
		if log.lines() != 0 {
			t.Error(log)
		}
	})
}

// TestResumeWithoutCounter: a call that goes on while the counter fails has one slot there as soon as that counts
// again, and keeps it.
func TestResumeWithoutCounter(t *testing.T) {
	counted(t, 1, Config{PerToolRPM: -1, Concurrent: -1}, func(t *testing.T, b *book, nodes []*Limits, _ *journal) {
		l := nodes[0]
		call, err := l.Take(t.Context(), agentOf("a"), toolOf("x.y", &toolkeep.RateLimitSpec{MaxConcurrent: 1}), "", nil)
		must(t, err)
		call.Pause()
		synctest.Wait()
		if n := b.of("tool:"); n != 0 {
			t.Fatalf("%d slots of a call that waits", n)
		}
		b.set(func() { b.meets = away })
		call.Resume()
		call.Await(t.Context())
		if l.Health(t.Context()) == nil {
			t.Fatal("health does not say that the counter fails")
		}
		b.set(func() { b.meets = nil })
		for l.Health(t.Context()) != nil {
			time.Sleep(time.Millisecond)
		}
		for range 2000 {
			if n := b.of("tool:"); n != 1 {
				t.Fatalf("the call has %d slots in the counter, want 1", n)
			}
			time.Sleep(10 * time.Millisecond)
		}
		call.Release()
		synctest.Wait()
		if n := b.of(""); n != 0 {
			t.Errorf("%d slots are left", n)
		}
	})
}

// TestCounterThatCannotTake: a counter that renews slots and does not answer calls, or too late for them, is
// away, and is asked by no call, until it answers a question like theirs in their time. The log has one line
// for each change.
func TestCounterThatCannotTake(t *testing.T) {
	broken := errors.New("no script for you")
	for name, tc := range map[string]struct {
		takes, renews time.Duration
		err           error
	}{
		"fails":                         {err: broken},
		"slow":                          {takes: 100 * time.Millisecond},
		"fails while slots are renewed": {err: broken, renews: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			counted(t, 1, Config{PerToolRPM: -1, Concurrent: -1}, func(t *testing.T, b *book, nodes []*Limits, log *journal) {
				l := nodes[0]
				b.set(func() {
					b.meets = func(op string) (time.Duration, error) {
						switch op {
						case "take":
							return tc.takes, tc.err
						case "renew":
							return tc.renews, nil
						}
						return 0, nil
					}
				})
				time.Sleep(renewEvery + renewEvery/10) // a renewal may run
				must(t, request(l, t.Context(), agentOf("a")))
				for range 2000 {
					if l.Health(t.Context()) == nil || log.lines() != 1 {
						t.Fatalf("%v %s", l.Health(t.Context()), log)
					}
					time.Sleep(10 * time.Millisecond)
				}
				b.set(func() { b.meets = nil })
				time.Sleep(3 * time.Second)
				if err := l.Health(t.Context()); err != nil || log.lines() != 2 {
					t.Errorf("%v %s", err, log)
				}
				if n := b.of(""); n != 0 {
					t.Errorf("%d slots are left", n)
				}
			})
		})
	}
}

// TestRefusalTeachesTheNode: a bucket that the counter refuses for is as empty on the node, which may never have
// seen a call of it: the headers say so, and the node's share goes on from there when the counter fails.
func TestRefusalTeachesTheNode(t *testing.T) {
	tool := toolOf("x.y", &toolkeep.RateLimitSpec{PerMinute: 60})
	p := agentOf("a")
	request := func(l *Limits) error { return request(l, context.Background(), p) }
	call := func(l *Limits) error {
		_, err := l.Take(context.Background(), p, tool, "host:x:443", nil)
		return err
	}
	for kind, tc := range map[string]struct {
		config Config
		take   func(*Limits) error
	}{
		TypeAgent:     {Config{PerAgentRPM: 60, GlobalRPM: -1}, request},
		TypeGlobal:    {Config{PerAgentRPM: -1, GlobalRPM: 60}, request},
		TypeAgentTool: {Config{PerToolRPM: 60}, call},
		TypeTool:      {Config{PerToolRPM: -1}, call},
		TypeTenant:    {Config{PerAgentRPM: -1, PerTenantRPM: 60, GlobalRPM: -1}, request},
		TypeUpstream:  {Config{PerToolRPM: -1, PerUpstreamRPM: 60}, call},
	} {
		t.Run(kind, func(t *testing.T) {
			counted(t, 2, tc.config, func(t *testing.T, b *book, nodes []*Limits, _ *journal) {
				l := nodes[0]
				b.answer = func(q *Question) Answer {
					by := len(q.Rates) - 1
					if kind == TypeAgentTool { // the tool has a limit too, and admits
						by = 0
					}
					return Answer{Refused: by, Wait: time.Second / 2, States: []State{{Reset: 59*time.Second + time.Second/2}}}
				}
				e := refusal(t, tc.take(l), toolkeep.RateLimitExceeded, kind)
				if e.RetryAfter != time.Second/2 || e.Rate != (toolkeep.RateLeft{Kind: kind, PerMinute: 60, Reset: 59*time.Second + time.Second/2}) {
					t.Errorf("RetryAfter %s of %+v", e.RetryAfter, e.Rate)
				}
				b.set(func() { b.meets = away })
				// One call of the share, half of the limit, takes two seconds.
				e = refusal(t, tc.take(l), toolkeep.RateLimitExceeded, kind)
				if e.Details["nodes"] != 2 || e.RetryAfter != 1500*time.Millisecond {
					t.Errorf("RetryAfter %s, want 1.5s; details %v", e.RetryAfter, e.Details)
				}
				time.Sleep(e.RetryAfter)
				must(t, tc.take(l))
			})
		})
	}
}

// TestLateAnswers: an answer that comes after a newer one does not empty the node's bucket again.
func TestLateAnswers(t *testing.T) {
	for kind, config := range map[string]Config{
		TypeAgent:  {PerAgentRPM: 60, GlobalRPM: -1},
		TypeTenant: {PerAgentRPM: -1, PerTenantRPM: 60, GlobalRPM: -1},
		TypeGlobal: {PerAgentRPM: -1, GlobalRPM: 60},
	} {
		t.Run(kind, func(t *testing.T) {
			config.Clock = new(clock).Now
			l := New(config)
			b := l.ofRequest(nil, agentOf("a"), false)[0]
			for _, reset := range []time.Duration{59 * time.Second, 60 * time.Second, 58 * time.Second} {
				l.copy(&b, &State{Reset: reset}, false, true)
			}
			refusal(t, request(l, t.Context(), agentOf("a")), toolkeep.RateLimitExceeded, kind)
		})
	}
}

// TestCallersDeadlineIsNoFailure: a connection that ends a moment before a short deadline of the caller says nothing
// about the counter; without one it does.
func TestCallersDeadlineIsNoFailure(t *testing.T) {
	for _, own := range []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			l := New(Config{})
			l.UseCounter(early{}, 0, slog.New(slog.DiscardHandler))
			defer l.StopCounter()
			ctx := t.Context()
			if own > 0 {
				within, cancel := context.WithTimeout(ctx, own)
				defer cancel()
				ctx = within
			}
			must(t, request(l, ctx, agentOf("a")))
			failed := l.Health(t.Context()) != nil
			if want := own == 0 || own > sharedWait; failed != want {
				t.Errorf("deadline %s: the counter counts as failed: %v, want %v", own, failed, want)
			}
		})
	}
}

// early is a Counter that does not answer, and gives up a moment before the deadline, as sockets do.
type early struct{}

func (early) Take(ctx context.Context, _ *Question) (Answer, error) {
	end, _ := toolkeep.Deadline(ctx)
	toolkeep.Sleep(ctx, time.Until(end)-time.Microsecond)
	return Answer{}, os.ErrDeadlineExceeded
}
func (early) Renew(context.Context, []Slot) error { return nil }
func (early) Free(context.Context, []Slot) error  { return nil }
