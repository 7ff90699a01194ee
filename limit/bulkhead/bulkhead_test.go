package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func tool(kind string, usd float64) *toolkeep.Tool {
	return &toolkeep.Tool{ID: "std." + kind, Manifest: &toolkeep.Manifest{Execution: toolkeep.ExecutionSpec{Kind: kind}, Cost: &toolkeep.CostSpec{EstimatedUSD: usd}}}
}

func call(kind string) Call { return Call{Tool: tool(kind, 0), Tenant: "acme", Subject: "alice"} }

// now takes places that must be free.
func now(t *testing.T, b *Bulkheads, c Call) *Hold {
	t.Helper()
	h := new(Hold)
	waits, err := b.Peek(t.Context(), nil, c)
	if waits != "" || err != nil {
		t.Fatalf("%s would wait for %q, or be refused: %v", c.Tool.ID, waits, err)
	}
	if err := b.Take(t.Context(), h, nil, c); err != nil {
		t.Fatal(err)
	}
	return h
}

func refused(t *testing.T, err error, kind, bulkhead, reason string) *toolkeep.Error {
	t.Helper()
	var e *toolkeep.Error
	code := toolkeep.ConcurrencyLimitExceeded
	if reason == TooLate {
		code = toolkeep.DeadlineUnreachable
	}
	if !errors.As(err, &e) || e.Code != code || e.Details["limit_type"] != kind || e.Details["bulkhead"] != bulkhead ||
		e.Details["reason"] != reason || e.RetryAfter < time.Second || !e.NothingSent {
		t.Fatalf("got %v, want a refusal by %s (%s) with %s", err, bulkhead, kind, reason)
	}
	return e
}

func inUse(b *Bulkheads) string {
	var all []string
	for _, s := range b.Stats() {
		if s.InUse != 0 || s.Waiting != 0 {
			all = append(all, fmt.Sprintf("%s %d+%d", s.Name, s.InUse, s.Waiting))
		}
	}
	return strings.Join(all, ", ")
}

// TestWhichBulkheads: a tool has those of its executor and its cost; one without a limit does not count.
func TestWhichBulkheads(t *testing.T) {
	t.Parallel()
	b := New(Config{CostlyUSD: 0.5, GRPC: -1})
	for _, c := range []struct {
		tool *toolkeep.Tool
		want string
	}{
		{tool("builtin", 0), "total 1+0"}, {tool("file", 0.49), "total 1+0"}, {tool("http", 0), "total 1+0, http 1+0"}, {tool("sql", 0.5), "total 1+0, sql 1+0, costly 1+0"},
		{tool("mcp", 0), "total 1+0, mcp 1+0"}, {tool("grpc", 9), "total 1+0, costly 1+0"}, {&toolkeep.Tool{Manifest: &toolkeep.Manifest{}}, "total 1+0"},
	} {
		h := now(t, b, Call{Tool: c.tool})
		if got := inUse(b); got != c.want {
			t.Errorf("%s: %s, want %s", c.tool.ID, got, c.want)
		}
		h.Release()
		h.Release()
		if got := inUse(b); got != "" {
			t.Errorf("%s: %s after the release", c.tool.ID, got)
		}
	}
	want := []int{1000, 300, 50, 300, 10}
	for i, s := range b.Stats() {
		if s.Limit != want[i] {
			t.Errorf("%s has a limit of %d, want %d", s.Name, s.Limit, want[i])
		}
	}
	if _, err := New(Config{Total: -1, Costly: -1}).Peek(t.Context(), nil, Call{Tool: tool("builtin", 9)}); err != nil {
		t.Error(err)
	}
	var none *Bulkheads
	if err := none.Take(t.Context(), new(Hold), nil, call("http")); err != nil {
		t.Error(err)
	}
}

// TestOrder: of those that wait, the ones of higher priority come first, then those that came first. Who needs a place that is free
// does not wait for who needs another one, and who waits holds nothing.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Total: 3, SQL: 1})
		first := now(t, b, call("sql"))
		served := make(chan string, 10)
		holds := map[string]*Hold{}
		for i, p := range []toolkeep.Priority{toolkeep.Low, toolkeep.Normal, "", toolkeep.High} {
			c := call("sql")
			c.Priority = p
			name := fmt.Sprint(i, p)
			h := new(Hold)
			holds[name] = h
			go func() {
				if err := b.Take(t.Context(), h, nil, c); err != nil {
					t.Error(err)
				}
				served <- name
			}()
			synctest.Wait()
		}
		if got := inUse(b); got != "total 1+0, sql 1+4" {
			t.Errorf("while they wait: %s", got)
		}
		other := now(t, b, call("http")) // by the lock, as others wait
		if waits, err := b.Peek(t.Context(), nil, call("sql")); waits != "sql" || err != nil {
			t.Errorf("one more would wait for %q, %v", waits, err)
		}
		first.Release()
		var order []string
		for range 4 {
			name := <-served
			order = append(order, name)
			synctest.Wait()
			if got := inUse(b); !strings.HasPrefix(got, "total 2+0, http 1+0, sql 1") {
				t.Errorf("with %s: %s", name, got)
			}
			holds[name].Release()
		}
		if want := []string{"3high", "1normal", "2", "0low"}; !slices.Equal(order, want) {
			t.Errorf("served in the order %q, want %q", order, want)
		}
		other.Release()
		if got := inUse(b); got != "" {
			t.Errorf("at the end: %s", got)
		}
	})
}

// TestRefusals: who could not be served in time is told at once, and takes nothing of the queue.
func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Costly: 1, CostlyUSD: 1, Queue: 8, Wait: time.Minute})
		costly := func(agent string) Call {
			return Call{Tool: tool("http", 1), Tenant: "acme", Subject: agent, Usual: 2 * time.Second}
		}
		h := now(t, b, costly("a"))
		time.Sleep(4 * time.Second) // what a place is held for, as a rule
		h.Release()
		h = now(t, b, costly("a"))

		within := func(d time.Duration, agent string) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			began := time.Now()
			own := new(Hold)
			_, peeked := b.Peek(ctx, nil, costly(agent))
			err := b.Take(ctx, own, nil, costly(agent))
			if (peeked == nil) != (err == nil || time.Since(began) > 0) {
				t.Errorf("within %s: %v after %s, and Peek said %v", d, err, time.Since(began), peeked)
			}
			if err == nil {
				own.Release()
			}
			return err
		}
		// 4 s until it has its place and 2 s for the tool are more than 5 s, and less than 7 s.
		began := time.Now()
		e := refused(t, within(5*time.Second, "a"), TypeCostly, "costly", TooLate)
		if time.Since(began) != 0 || e.RetryAfter != 4*time.Second || e.Details["limit_concurrent"] != 1 {
			t.Errorf("refused after %s: %v, again after %s", time.Since(began), e, e.RetryAfter)
		}
		refused(t, within(7*time.Second, "a"), TypeCostly, "costly", NoPlace)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it waited for %s, want 5 s: 2 s before its deadline", took)
		}
		// A caller that leaves is no refusal.
		ctx, cancel := context.WithCancelCause(t.Context())
		left := errors.New("left")
		time.AfterFunc(time.Second, func() { cancel(left) })
		if err := b.Take(ctx, new(Hold), nil, costly("a")); !errors.Is(err, left) {
			t.Errorf("cancelled: %v", err)
		}
		// An agent has a quarter of the queue, and all have the whole.
		var waiting sync.WaitGroup
		for i := range 8 {
			waiting.Go(func() {
				own := new(Hold)
				if err := b.Take(t.Context(), own, nil, costly(fmt.Sprint("agent", i/2))); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				own.Release()
			})
			synctest.Wait()
			if i == 1 {
				refused(t, within(time.Hour, "agent0"), TypeCostly, "costly", AgentShare)
			}
		}
		refused(t, within(time.Hour, "other"), TypeCostly, "costly", QueueFull)
		if s := b.Stats(); s[5].Waiting != 8 || s[5].Refused != 4 || s[0].Refused != 0 {
			t.Errorf("%+v", s)
		}
		h.Release()
		waiting.Wait()
		if got := inUse(b); got != "" {
			t.Errorf("at the end: %s", got)
		}
		// Past the longest wait.
		h = now(t, b, costly("a"))
		began = time.Now()
		refused(t, b.Take(t.Context(), new(Hold), nil, costly("a")), TypeCostly, "costly", NoPlace)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it waited for %s", took)
		}
		h.Release()
		none := New(Config{HTTP: 1, Queue: -1})
		now(t, none, call("http"))
		refused(t, none.Take(t.Context(), new(Hold), nil, call("http")), TypeExecutor, "http", QueueFull)
		one := New(Config{Total: 1, Queue: -1})
		now(t, one, call("file"))
		refused(t, one.Take(t.Context(), new(Hold), nil, call("http")), TypeTotal, "total", QueueFull)
	})
}

// TestCallsBelow: a call below another uses the places of that one, and waits for others.
func TestCallsBelow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Total: 2, HTTP: 1})
		parent, busy := now(t, b, call("builtin")), now(t, b, call("http"))
		below, deeper := new(Hold), new(Hold)
		if waits, err := b.Peek(t.Context(), parent, call("builtin")); waits != "" || err != nil {
			t.Errorf("below: %q, %v", waits, err)
		}
		if err := b.Take(t.Context(), below, parent, call("builtin")); err != nil {
			t.Fatal(err)
		}
		if waits, err := b.Peek(t.Context(), below, call("http")); waits != "http" || err != nil {
			t.Errorf("deeper: %q, %v", waits, err)
		}
		done := make(chan error)
		go func() { done <- b.Take(t.Context(), deeper, below, call("http")) }()
		synctest.Wait()
		if got := inUse(b); got != "total 2+0, http 1+1" {
			t.Errorf("while it waits: %s", got)
		}
		busy.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := inUse(b); got != "total 1+0, http 1+0" {
			t.Errorf("it has: %s", got)
		}
		deeper.Release()
		below.Release()
		parent.Release()
		if got := inUse(b); got != "" {
			t.Errorf("at the end: %s", got)
		}
	})
}

// TestPause: who waits for an answer has no place, and then one at once, with those of the calls above.
func TestPause(t *testing.T) {
	t.Parallel()
	b := New(Config{HTTP: 1})
	h := now(t, b, call("http"))
	h.Pause()
	h.Pause()
	other := now(t, b, call("http"))
	h.Resume()
	h.Resume()
	if got := inUse(b); got != "total 1+0, http 1+0" {
		t.Errorf("before it goes on: %s", got)
	}
	below := new(Hold)
	if err := b.Take(t.Context(), below, h, call("sql")); err != nil {
		t.Fatal(err)
	}
	below.Pause()
	below.Resume()
	below.Retake()
	below.Retake()
	below.Release()
	if got := inUse(b); got != "total 2+0, http 2+0" {
		t.Errorf("both go on: %s", got)
	}
	other.Release()
	if waits, _ := b.Peek(t.Context(), nil, call("http")); waits != "http" {
		t.Errorf("a new one would wait for %q", waits)
	}
	h.Release()
	h.Resume()
	h.Pause()
	h.Resume()
	h.Retake()
	if got := inUse(b); got != "" {
		t.Errorf("at the end: %s", got)
	}
	zero := new(Hold)
	zero.Pause()
	zero.Resume()
	zero.Retake()
	zero.Release()
	(*Hold)(nil).Retake()
}

// TestHammer takes and gives places from many goroutines: no bulkhead is ever over its limit, all that wait are served, and
// nothing is left over.
func TestHammer(t *testing.T) {
	t.Parallel()
	b := New(Config{Total: 8, HTTP: 4, SQL: 2, Costly: 1, CostlyUSD: 1, Queue: 1000})
	tools := []*toolkeep.Tool{tool("http", 0), tool("http", 1), tool("sql", 0), tool("sql", 1), tool("file", 0), tool("grpc", 0)}
	var held [bulkheads]atomic.Int32
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for range 300 {
				c := Call{Tool: tools[random.IntN(len(tools))], Subject: fmt.Sprint(g), Priority: []toolkeep.Priority{toolkeep.Low, "", toolkeep.High}[random.IntN(3)]}
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(8) == 0 {
					go cancel()
				}
				h := new(Hold)
				err := b.Take(ctx, h, nil, c)
				if err == nil {
					for i := range held {
						if h.own&(1<<i) != 0 && held[i].Add(1) > b.gates[i].limit {
							t.Errorf("%s is over its limit", Names[i])
						}
					}
					for i := range held {
						if h.own&(1<<i) != 0 {
							held[i].Add(-1)
						}
					}
					h.Release()
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if got := inUse(b); got != "" || len(b.queue) != 0 || len(b.agents) != 0 || b.waiting.Load() != 0 {
		t.Errorf("at the end: %s; %d in the queue, %d agents, %d waiting", got, len(b.queue), len(b.agents), b.waiting.Load())
	}
}

// TestNoAllocation: an uncontended take allocates nothing.
func TestNoAllocation(t *testing.T) {
	b := New(Config{CostlyUSD: 1})
	c := Call{Tool: tool("http", 1), Tenant: "acme", Subject: "alice"}
	h, ctx := new(Hold), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		*h = Hold{}
		_ = b.Take(ctx, h, nil, c)
		h.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkTake is a take and a release: of free places by one and by all processors, and of places of which none is free while
// 100 others wait for them. Its floor is an atomic addition and its opposite for each of two bulkheads.
func BenchmarkTake(b *testing.B) {
	ctx, c := context.Background(), call("http")
	take := func(h *Bulkheads, own *Hold) {
		*own = Hold{}
		if err := h.Take(ctx, own, nil, c); err != nil {
			b.Error(err)
		}
		own.Release()
	}
	b.Run("floor", func(b *testing.B) {
		var x, y atomic.Int32
		for b.Loop() {
			x.Add(1)
			y.Add(1)
			x.Add(-1)
			y.Add(-1)
		}
	})
	b.Run("free", func(b *testing.B) {
		h, own := New(Config{}), new(Hold)
		b.ReportAllocs()
		for b.Loop() {
			take(h, own)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		h := New(Config{})
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			own := new(Hold)
			for pb.Next() {
				take(h, own)
			}
		})
	})
	b.Run("others wait", func(b *testing.B) {
		h := New(Config{SQL: 1, Wait: time.Hour})
		ctx, cancel := context.WithCancel(ctx)
		var waiting sync.WaitGroup
		for i := range 100 {
			waiting.Go(func() { _ = h.Take(ctx, new(Hold), nil, Call{Tool: tool("sql", 0), Subject: fmt.Sprint(i)}) })
		}
		for len(h.waits()) < 99 {
			runtime.Gosched()
		}
		own := new(Hold)
		b.ReportAllocs()
		for b.Loop() {
			take(h, own)
		}
		cancel()
		waiting.Wait()
	})
}

func (b *Bulkheads) waits() []*waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.queue)
}
