package resultcache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ttl = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}

func keyOf(n int) (k Key) {
	k[0], k[1], k[2], k[31] = byte(n), byte(n>>8), byte(n>>16), 1
	return k
}

func output(s string) *toolkeep.Result {
	return &toolkeep.Result{ToolID: "x.y", State: toolkeep.CallSucceeded, Output: []byte(s)}
}

func TestKeyOf(t *testing.T) {
	tool := func(change func(*toolkeep.Tool)) *toolkeep.Tool {
		t := &toolkeep.Tool{ID: "x.y", Version: "1.0.0", Digest: "sha256:1", Manifest: &toolkeep.Manifest{}}
		if change != nil {
			change(t)
		}
		return t
	}
	public := func(t *toolkeep.Tool) { t.Manifest = &toolkeep.Manifest{Result: &toolkeep.ResultSpec{Public: true}} }
	alice := &toolkeep.Principal{Tenant: "acme", Subject: "alice"}
	bob := &toolkeep.Principal{Tenant: "acme", Subject: "bob"}
	foreign := &toolkeep.Principal{Tenant: "other", Subject: "alice"}
	behalf := &toolkeep.Principal{Tenant: "acme", Subject: "alice", OnBehalf: "carol"}
	base := KeyOf(alice, tool(nil), [32]byte{1})
	for name, tc := range map[string]struct {
		p    *toolkeep.Principal
		t    *toolkeep.Tool
		args [32]byte
		same bool
	}{
		"the same":           {alice, tool(nil), [32]byte{1}, true},
		"roles do not count": {&toolkeep.Principal{Tenant: "acme", Subject: "alice", Roles: []string{"agent"}}, tool(nil), [32]byte{1}, true},
		"arguments":          {alice, tool(nil), [32]byte{2}, false},
		"subject":            {bob, tool(nil), [32]byte{1}, false},
		"tenant":             {foreign, tool(nil), [32]byte{1}, false},
		"on behalf":          {behalf, tool(nil), [32]byte{1}, false},
		"version":            {alice, tool(func(t *toolkeep.Tool) { t.Version = "1.0.1" }), [32]byte{1}, false},
		"digest":             {alice, tool(func(t *toolkeep.Tool) { t.Digest = "sha256:2" }), [32]byte{1}, false},
		"tool":               {alice, tool(func(t *toolkeep.Tool) { t.ID = "x.z" }), [32]byte{1}, false},
		"shifted names":      {&toolkeep.Principal{Tenant: "acmea", Subject: "lice"}, tool(nil), [32]byte{1}, false},
		"public":             {alice, tool(public), [32]byte{1}, false},
	} {
		if got := KeyOf(tc.p, tc.t, tc.args) == base; got != tc.same {
			t.Errorf("%s: same key %v, want %v", name, got, tc.same)
		}
	}
	if KeyOf(alice, tool(public), [32]byte{1}) != KeyOf(bob, tool(public), [32]byte{1}) {
		t.Error("a public result is not shared within the tenant")
	}
	if KeyOf(alice, tool(public), [32]byte{1}) == KeyOf(foreign, tool(public), [32]byte{1}) {
		t.Error("a public result is shared across tenants")
	}
	nobody := &toolkeep.Principal{Tenant: "acme"}
	if KeyOf(nobody, tool(nil), [32]byte{1}) == KeyOf(nobody, tool(public), [32]byte{1}) {
		t.Error("a private result of the empty subject has a public key")
	}
}

func TestWhatIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		r    *toolkeep.Result
		spec *toolkeep.CacheSpec
		want bool
	}{
		"success":           {output("1"), ttl, true},
		"state not yet set": {&toolkeep.Result{Output: []byte("1")}, ttl, true},
		"forever":           {output("1"), &toolkeep.CacheSpec{Policy: "forever"}, true},
		"no rule":           {output("1"), nil, false},
		"policy none":       {output("1"), &toolkeep.CacheSpec{Policy: "none", TTLSeconds: 60}, false},
		"policy unset":      {output("1"), &toolkeep.CacheSpec{TTLSeconds: 60}, false},
		"policy unknown":    {output("1"), &toolkeep.CacheSpec{Policy: "lru"}, false},
		"nothing":           {nil, ttl, false},
		"failed state":      {&toolkeep.Result{State: toolkeep.CallFailed}, ttl, false},
		"accepted":          {&toolkeep.Result{State: toolkeep.CallAccepted}, ttl, false},
		"error":             {&toolkeep.Result{State: toolkeep.CallSucceeded, Error: toolkeep.NewError(toolkeep.Timeout, "late")}, ttl, false},
		"too big":           {output(strings.Repeat("x", 1<<20)), ttl, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{Bytes: 1 << 20})
			defer c.Stop()
			c.Put(keyOf(1), "t", "x.y", tc.r, tc.spec)
			if c.Peek(keyOf(1)) != tc.want {
				t.Errorf("kept %v, want %v", !tc.want, tc.want)
			}
		})
	}
}

func TestCopies(t *testing.T) {
	c := New(Config{})
	defer c.Stop()
	put := output("one")
	put.InvocationID, put.CallID, put.Attempts, put.CostUSD, put.Replayed = "id", "call", 3, 1, true
	put.Warnings = append(make([]toolkeep.Warning, 0, 4), toolkeep.Warning{Message: "w", Details: map[string]any{"a": 1}})
	c.Put(keyOf(1), "t", "x.y", put, ttl)
	copy(put.Output, "TWO")
	put.Warnings[0].Details["a"] = 2

	got, ok := c.Get(keyOf(1))
	if !ok || string(got.Output) != "one" || got.Warnings[0].Details["a"] != 1 {
		t.Fatalf("got %+v %v", got, ok)
	}
	if !got.Cached || got.InvocationID != "" || got.CallID != "" || got.Attempts != 0 || got.CostUSD != 0 || got.Replayed {
		t.Errorf("the copy carries another call's data: %+v", got)
	}
	got.InvocationID = "mine"
	got.Warnings = append(got.Warnings, toolkeep.Warning{Message: "mine"})
	again, _ := c.Get(keyOf(1))
	if again.InvocationID != "" || len(again.Warnings) != 1 || cap(again.Warnings) != 1 {
		t.Errorf("a caller's changes are seen by the next: %+v", again)
	}
}

func TestLifetime(t *testing.T) {
	for name, tc := range map[string]struct {
		spec toolkeep.CacheSpec
		want time.Duration
	}{
		"own":       {toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}, time.Minute},
		"default":   {toolkeep.CacheSpec{Policy: "ttl"}, 300 * time.Second},
		"too long":  {toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 1 << 40}, 24 * time.Hour},
		"too short": {toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: -5}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Config{})
				defer c.Stop()
				c.Put(keyOf(1), "t", "x.y", output("1"), &tc.spec)
				<-time.After(tc.want - 1)
				if _, ok := c.Get(keyOf(1)); !ok {
					t.Fatal("gone before its time")
				}
				<-time.After(1)
				if _, ok := c.Get(keyOf(1)); ok || c.Peek(keyOf(1)) {
					t.Fatal("given after its time")
				}
			})
		})
	}
	t.Run("forever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := New(Config{})
			defer c.Stop()
			c.Put(keyOf(1), "t", "x.y", output("1"), &toolkeep.CacheSpec{Policy: "forever"})
			<-time.After(50 * 365 * 24 * time.Hour)
			if _, ok := c.Get(keyOf(1)); !ok {
				t.Fatal("gone")
			}
		})
	})
}

func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		_, _ = c.Start(t.Context())
		_, _ = c.Start(t.Context())
		for i := range 10 {
			c.Put(keyOf(i), "t", "x.y", output("1"), ttl)
		}
		<-time.After(3 * time.Minute)
		synctest.Wait()
		if s := c.Stats(); s.Entries != 0 || s.Bytes != 0 || s.Evictions[TTLExpired] != 10 {
			t.Errorf("stats %+v", s)
		}
		c.Stop()
		c.Stop()
		_, _ = c.Start(t.Context()) // no effect after Stop
	})
}

func TestCapacity(t *testing.T) {
	for name, tc := range map[string]struct {
		config  Config
		output  string
		reason  string
		entries int
	}{
		"entries": {Config{Entries: 100, Bytes: 10 << 20}, "1", CapacityExceeded, 100},
		"bytes":   {Config{Entries: 1000, Bytes: 1 << 20}, strings.Repeat("x", 9<<10), MemoryPressure, (1 << 20) / (9 << 10)},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(tc.config)
			defer c.Stop()
			for i := range 2000 {
				c.Put(keyOf(i), "t", "x.y", output(tc.output), ttl)
			}
			c.store.CleanUp()
			s := c.Stats()
			if s.Entries > tc.entries || s.Entries < tc.entries/2 || s.Bytes > tc.config.Bytes {
				t.Errorf("%d entries of %d bytes, want about %d", s.Entries, s.Bytes, tc.entries)
			}
			if got := s.Evictions[tc.reason]; got == 0 || int(got)+s.Entries > 2000 {
				t.Errorf("evictions %v", s.Evictions)
			}
		})
	}
}

func TestInvalidate(t *testing.T) {
	c := New(Config{})
	defer c.Stop()
	fill := func() {
		for i := range 6 {
			c.Put(keyOf(i), "t", []string{"a.a", "b.b"}[i%2], output("1"), ttl)
			c.Put(keyOf(i), "t", []string{"a.a", "b.b"}[i%2], output("2"), ttl) // replaced, counted once
		}
	}
	kept := func() (a, b int) {
		for i := range 6 {
			if c.Peek(keyOf(i)) {
				if i%2 == 0 {
					a++
				} else {
					b++
				}
			}
		}
		return a, b
	}
	fill()
	if n := c.Invalidate("t", "a.a"); n != 3 {
		t.Errorf("%d dropped, want 3", n)
	}
	if n := c.Invalidate("t", "a.a"); n != 0 {
		t.Errorf("%d dropped, want 0", n)
	}
	if a, b := kept(); a != 0 || b != 3 {
		t.Errorf("kept %d %d", a, b)
	}
	if s := c.Stats(); s.Entries != 3 || s.Evictions[ManualInvalidation] != 3 {
		t.Errorf("stats %+v", s)
	}
	for name, change := range map[string]toolkeep.Change{
		"lifecycle": toolkeep.SetLifecycle{ToolID: "b.b", Version: "1.0.0"},
		"version":   toolkeep.PublishVersion{Version: toolkeep.Version{Tool: &toolkeep.Tool{ID: "b.b"}}},
	} {
		fill()
		c.Follow(toolkeep.Committed{Change: change})
		if a, b := kept(); a != 3 || b != 0 {
			t.Errorf("%s: kept %d %d", name, a, b)
		}
	}
	fill()
	c.Follow(toolkeep.Committed{Change: toolkeep.RecordCall{Invocation: &toolkeep.Invocation{ToolID: "a.a"}}})
	if a, b := kept(); a != 3 || b != 3 {
		t.Errorf("an ordinary change dropped results: kept %d %d", a, b)
	}
}

func TestInvalidatedWhileRunning(t *testing.T) {
	c := New(Config{})
	defer c.Stop()
	run := func(during func()) {
		_, _, err := c.Do(t.Context(), keyOf(1), func(context.Context) (*toolkeep.Result, error) {
			during()
			c.Put(keyOf(1), "t", "x.y", output("old"), ttl)
			return output("old"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	run(func() { c.Invalidate("t", "x.y") })
	if c.Peek(keyOf(1)) {
		t.Error("a result from before the invalidation was kept")
	}
	run(func() {
		for i := range 2 * maxMarks {
			c.Invalidate("", fmt.Sprint("t.", i))
		}
	})
	if c.Peek(keyOf(1)) {
		t.Error("what is no longer remembered must count as invalidated")
	}
	run(func() { c.Invalidate("t", "other.tool") })
	if !c.Peek(keyOf(1)) {
		t.Error("another tool's invalidation kept the result out")
	}
	if len(c.dropped) != 0 || c.floor != 0 {
		t.Errorf("marks outlive the runs: %d, floor %d", len(c.dropped), c.floor)
	}
}

func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		defer c.Stop()
		var runs, shared atomic.Int64
		gate := make(chan struct{})
		var wg sync.WaitGroup
		results := make([]*toolkeep.Result, 20)
		for i := range results {
			wg.Go(func() {
				r, sh, err := c.Do(t.Context(), keyOf(1), func(context.Context) (*toolkeep.Result, error) {
					runs.Add(1)
					<-gate
					return output("1"), nil
				})
				if err != nil || string(r.Output) != "1" {
					t.Errorf("got %v %v", r, err)
				}
				if sh {
					shared.Add(1)
				}
				r.InvocationID = fmt.Sprint(i)
				results[i] = r
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if runs.Load() != 1 || shared.Load() != 19 || c.Stats().Shared != 19 {
			t.Errorf("%d runs, %d shared", runs.Load(), shared.Load())
		}
		for i, r := range results {
			if r.InvocationID != fmt.Sprint(i) {
				t.Fatal("callers share one result")
			}
		}
	})
}

func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		defer c.Stop()
		gate, ended := make(chan struct{}), make(chan error, 2)
		fn := func(ctx context.Context) (*toolkeep.Result, error) {
			select {
			case <-gate:
				return output("1"), nil
			case <-ctx.Done():
				ended <- ctx.Err()
				return nil, ctx.Err()
			}
		}
		code := func(err error, want toolkeep.Code) {
			t.Helper()
			var e *toolkeep.Error
			if !errors.As(err, &e) || e.Code != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}

		// The leader's deadline passes; the second caller still gets the result.
		leader, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := c.Do(leader, keyOf(1), fn)
			code(err, toolkeep.Timeout)
		})
		synctest.Wait()
		wg.Go(func() {
			r, shared, err := c.Do(t.Context(), keyOf(1), fn)
			if err != nil || !shared || string(r.Output) != "1" {
				t.Errorf("got %v %v %v", r, shared, err)
			}
		})
		<-time.After(2 * time.Second)
		close(gate)
		wg.Wait()

		// All callers leave: the run is cancelled, and a new caller gets its own.
		gate = make(chan struct{})
		one, leave := context.WithCancel(t.Context())
		wg.Go(func() {
			_, _, err := c.Do(one, keyOf(2), fn)
			code(err, toolkeep.Cancelled)
		})
		synctest.Wait()
		leave()
		wg.Wait()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the run ended with %v", err)
		}
		close(gate)
		if _, shared, err := c.Do(t.Context(), keyOf(2), fn); shared || err != nil {
			t.Errorf("the newcomer got shared %v, %v", shared, err)
		}

		// A caller with an ended context runs nothing.
		_, _, err := c.Do(one, keyOf(3), func(context.Context) (*toolkeep.Result, error) {
			t.Error("was run")
			return nil, nil
		})
		code(err, toolkeep.Cancelled)
		if len(c.runs) != 0 {
			t.Errorf("%d runs left", len(c.runs))
		}
	})
}

func TestRunContext(t *testing.T) {
	type ctxKey string
	c := New(Config{carry: func(run, caller context.Context) context.Context {
		return context.WithValue(run, ctxKey("trace"), caller.Value(ctxKey("trace")))
	}})
	defer c.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ctx = context.WithValue(context.WithValue(ctx, ctxKey("trace"), "abc"), ctxKey("user"), "alice")
	_, _, err := c.Do(ctx, keyOf(1), func(run context.Context) (*toolkeep.Result, error) {
		if _, ok := run.Deadline(); ok {
			t.Error("the run has the leader's deadline")
		}
		if run.Value(ctxKey("trace")) != "abc" || run.Value(ctxKey("user")) != nil {
			t.Error("the run has the wrong values")
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFailures(t *testing.T) {
	original := toolkeep.NewError(toolkeep.Timeout, "late").With("a", 1)
	for name, tc := range map[string]struct {
		fn   func(context.Context) (*toolkeep.Result, error)
		code toolkeep.Code
	}{
		"error":  {func(context.Context) (*toolkeep.Result, error) { return nil, original }, toolkeep.Timeout},
		"panic":  {func(context.Context) (*toolkeep.Result, error) { panic("boom") }, toolkeep.InternalError},
		"goexit": {func(context.Context) (*toolkeep.Result, error) { runtime.Goexit(); return nil, nil }, toolkeep.InternalError},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Config{})
				defer c.Stop()
				gate := make(chan struct{})
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						_, _, err := c.Do(t.Context(), keyOf(1), func(ctx context.Context) (*toolkeep.Result, error) {
							<-gate
							return tc.fn(ctx)
						})
						var e *toolkeep.Error
						if !errors.As(err, &e) || e.Code != tc.code {
							t.Errorf("got %v", err)
							return
						}
						e.InvocationID = "mine" // a data race if it were shared
						e.With("b", 2)
						if strings.Contains(e.Message, "boom") {
							t.Error("the message shows the panic")
						}
						if name == "panic" && !strings.Contains(e.Cause.Error(), "recall_test.go") {
							t.Errorf("the cause has no stack: %v", e.Cause)
						}
					})
				}
				synctest.Wait()
				close(gate)
				wg.Wait()
			})
		})
	}
	if len(original.Details) != 1 {
		t.Error("the original error was changed")
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := c.Do(t.Context(), keyOf(1), func(ctx context.Context) (*toolkeep.Result, error) {
				<-ctx.Done()
				return nil, toolkeep.NewError(toolkeep.Draining, "stopping")
			})
			if e := toolkeep.AsError(err); e.Code != toolkeep.Draining {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		c.Stop()
		wg.Wait()
		r, shared, err := c.Do(t.Context(), keyOf(1), func(context.Context) (*toolkeep.Result, error) { return output("own"), nil })
		if shared || err != nil || string(r.Output) != "own" {
			t.Errorf("after Stop: %v %v %v", r, shared, err)
		}
		_, _, err = c.Do(t.Context(), keyOf(1), func(context.Context) (*toolkeep.Result, error) { panic("boom") })
		if e := toolkeep.AsError(err); e.Code != toolkeep.InternalError {
			t.Errorf("after Stop: %v", err)
		}
	})
}

func TestHammer(t *testing.T) {
	c := New(Config{Entries: 200})
	_, _ = c.Start(t.Context())
	tools := []string{"a.a", "b.b", "c.c"}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 1500 {
				n := (i*7 + w*13) % 500
				k, tool := keyOf(n), tools[n%3]
				switch i % 10 {
				case 0:
					c.Invalidate("t", tool)
				case 1:
					c.Stats()
					c.Peek(k)
				case 2, 3, 4:
					ctx, cancel := context.WithCancel(t.Context())
					if i%20 == 3 {
						cancel()
					}
					r, _, err := c.Do(ctx, k, func(context.Context) (*toolkeep.Result, error) {
						r := output(fmt.Sprint(n))
						c.Put(k, "t", tool, r, ttl)
						return r, nil
					})
					cancel()
					if err == nil && string(r.Output) != fmt.Sprint(n) {
						t.Errorf("key %d gave %s", n, r.Output)
					}
				default:
					if r, ok := c.Get(k); ok {
						r.InvocationID = fmt.Sprint(w)
						if string(r.Output) != fmt.Sprint(n) {
							t.Errorf("key %d gave %s", n, r.Output)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	c.Stop()
	c.store.CleanUp()
	s, n := c.Stats(), 0
	for _, e := range c.store.All() {
		n++
		s.Bytes -= e.size
	}
	if s.Entries != n || s.Bytes != 0 || n > 200 {
		t.Errorf("%d entries counted, %d there, %d bytes too many", s.Entries, n, s.Bytes)
	}
	for _, tool := range tools {
		c.Invalidate("t", tool)
	}
	if s := c.Stats(); s.Entries != 0 || len(c.index.tools) != 0 || c.store.EstimatedSize() != 0 {
		t.Errorf("left after invalidation: %+v", s)
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		effects, policy string
		faults          int
	}{{"writes", "none", 0}, {"writes", "ttl", 1}, {"writes", "forever", 1}, {"reads", "ttl", 0}, {"reads", "forever", 1}, {"none", "forever", 0}} {
		m := &toolkeep.Manifest{SideEffects: tc.effects, Cache: &toolkeep.CacheSpec{Policy: tc.policy}}
		if got := Check(m); len(got) != tc.faults {
			t.Errorf("%s %s: %v", tc.effects, tc.policy, got)
		}
	}
	if Check(&toolkeep.Manifest{SideEffects: "writes"}) != nil {
		t.Error("no rule has a fault")
	}
}

func BenchmarkGetHit(b *testing.B) {
	b.ReportAllocs()
	c := New(Config{})
	defer c.Stop()
	c.Put(keyOf(1), "t", "x.y", output(strings.Repeat("x", 600)), ttl)
	for b.Loop() {
		if _, ok := c.Get(keyOf(1)); !ok {
			b.Fatal("miss")
		}
	}
}

func BenchmarkKeyOf(b *testing.B) {
	b.ReportAllocs()
	p := &toolkeep.Principal{Tenant: "acme", Subject: "alice"}
	t := &toolkeep.Tool{ID: "x.y", Version: "1.0.0", Digest: strings.Repeat("d", 71), Manifest: &toolkeep.Manifest{}}
	for b.Loop() {
		KeyOf(p, t, [32]byte{})
	}
}

func BenchmarkDo(b *testing.B) {
	b.ReportAllocs()
	c := New(Config{})
	defer c.Stop()
	r := output("1")
	for b.Loop() {
		if _, _, err := c.Do(b.Context(), keyOf(1), func(context.Context) (*toolkeep.Result, error) { return r, nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func TestInvalidateAll(t *testing.T) {
	c := New(Config{})
	spec := &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}
	for i, tool := range []string{"a.one", "a.two", "a.two"} {
		c.Put(Key{byte(i)}, []string{"t", "t", "other"}[i], tool, &toolkeep.Result{State: toolkeep.CallSucceeded, Output: []byte(`1`)}, spec)
	}
	if n := c.Invalidate("nobody", "") + c.Invalidate("other", "a.one"); n != 0 {
		t.Errorf("%d results of others were dropped", n)
	}
	if n := c.Invalidate("other", "a.two"); n != 1 || !c.Peek(Key{1}) || c.Peek(Key{2}) {
		t.Errorf("%d results of one tenant were dropped, want its own", n)
	}
	if n := c.Invalidate("", ""); n != 2 {
		t.Errorf("%d results were dropped, want 2", n)
	}
	if c.Peek(Key{0}) || c.Peek(Key{2}) {
		t.Error("a result is still there")
	}
}
