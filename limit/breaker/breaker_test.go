package breaker

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestWhatCounts(t *testing.T) {
	t.Parallel()
	with := func(c toolkeep.Code, key string, v any) *toolkeep.Error { return toolkeep.NewError(c, "").With(key, v) }
	for _, c := range []struct {
		e          *toolkeep.Error
		tool, host bool
	}{
		{nil, false, false},
		{toolkeep.NewError(toolkeep.NetworkError, ""), true, true},
		{toolkeep.NewError(toolkeep.UpstreamTimeout, ""), true, true},
		{toolkeep.NewError(toolkeep.MCPUnavailable, ""), true, true},
		{with(toolkeep.UpstreamServerError, "status", 500), true, false},
		{with(toolkeep.UpstreamServerError, "status", 503), true, true},
		{with(toolkeep.UpstreamClientError, "status", 404), false, false},
		{toolkeep.NewError(toolkeep.RateLimitExceeded, ""), false, false},
		{toolkeep.NewError(toolkeep.DBTimeout, ""), true, false},
		{toolkeep.NewError(toolkeep.QueryFailed, ""), false, false},
		{with(toolkeep.GRPCError, "grpc_code", "UNAVAILABLE"), true, true},
		{with(toolkeep.GRPCError, "grpc_code", "INTERNAL"), true, false},
		{with(toolkeep.GRPCError, "grpc_code", "INVALID_ARGUMENT"), false, false},
		{toolkeep.NewError(toolkeep.Cancelled, ""), false, false},
		{toolkeep.NewError(toolkeep.SecretNotFound, ""), false, false},
	} {
		if tool, host := Counts(c.e); tool != c.tool || host != c.host {
			t.Errorf("%v counts for the tool %v, for the host %v", c.e, tool, host)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Rule{{Window: MaxSeconds + 1}, {Count: true, Window: 5, MinCalls: 6}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	n, ms, no := MaxCalls+1, MaxOpen.Milliseconds()+1, false
	spec := &toolkeep.BreakerSpec{Enabled: &no, Window: "count", WindowSize: &n, MinimumCalls: &n, ConsecutiveFailures: &n, ErrorCount: &n, HalfOpenCalls: &n, OpenMS: &ms, SlowCallMS: &ms, HalfOpen: "canary"}
	if faults := Check(&toolkeep.Manifest{Breaker: spec}); len(faults) != 7 {
		t.Errorf("the faults are %v", faults)
	}
	if r := Defaults().With(spec); r.On || !r.Count || r.Window != MaxCalls || r.Open != MaxOpen || !r.Canary || r.HalfOpenCalls != MaxCalls {
		t.Errorf("the rule is %+v", r)
	}
	few := 5
	if r := Defaults().With(&toolkeep.BreakerSpec{Window: "count", WindowSize: &few}); r.MinCalls != 5 || r.Window != 5 {
		t.Errorf("a window of 5 calls waits for %d of %d", r.MinCalls, r.Window)
	}
	if r := Defaults().With(&toolkeep.BreakerSpec{}); r != Defaults() {
		t.Errorf("an empty one changes %+v", r)
	}
	if faults := Check(&toolkeep.Manifest{}); faults != nil {
		t.Error(faults)
	}
	var none *Breakers
	if a, err := none.Of(tool, "").Take(t.Context()); err != nil || none.Of(tool, "").Look() != nil {
		t.Error(err)
	} else {
		a.Done(Failed, Failed)
	}
}

// TestUpstream fails one tool of a host: its other tools are refused too, those of other hosts and tenants are not.
func TestUpstream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		named := func(tenant, id string) *toolkeep.Tool {
			return &toolkeep.Tool{Tenant: tenant, ID: id, Manifest: &toolkeep.Manifest{}}
		}
		for range 10 {
			a, err := s.Of(named("acme", "a.b"), "host:x").Take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a.Done(Succeeded, Failed)
		}
		is := func(tenant, id, upstream, want string) {
			t.Helper()
			got := ""
			if e := toolkeep.AsError(s.Of(named(tenant, id), upstream).Look()); e != nil {
				got = fmt.Sprint(e.Details["breaker"])
			}
			if got != want {
				t.Errorf("%s %s at %s is refused by %q, want %q", tenant, id, upstream, got, want)
			}
		}
		is("acme", "a.c", "host:x", "host:x")
		is("acme", "a.c", "host:y", "")
		is("acme", "a.b", "tool:acme/a.b", "")
		is("other", "a.c", "host:x", "")
		time.Sleep(30 * time.Second)
		is("acme", "a.c", "host:x", "")
		// A test call of a host that the tool's own breaker refuses is given back.
		if err := s.forceHere(key{"acme", "a.b", true}, ForcedOpen); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := s.Of(named("acme", "a.b"), "host:x").Take(t.Context()); err == nil {
				t.Error("a forced breaker lets a call through")
			}
		}
		a, err := s.Of(named("acme", "a.c"), "host:x").Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		is("acme", "a.d", "host:x", "host:x") // one test at a time
		a.Done(Ignored, Ignored)              // says nothing: another one may test
		is("acme", "a.d", "host:x", "")
	})
}

// forceHere forces a breaker without a store.
func (s *Breakers) forceHere(k key, state State) error {
	b := s.find(k)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setState(state)
	return nil
}

func TestRuleOfAnotherVersion(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	rate := 50.0
	v2 := &toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{Breaker: &toolkeep.BreakerSpec{FailureRate: &rate}}}
	s.Of(&toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{}}, "")
	s.Of(v2, "")
	if info, _ := s.Get("", "tool:a.b"); info.Rule.FailureRate != 50 || len(s.List("")) != 1 {
		t.Errorf("the rule is %+v", info.Rule)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Most: 6400})
		call := func(i int) {
			a, err := s.Of(&toolkeep.Tool{ID: fmt.Sprint("a.", i), Manifest: &toolkeep.Manifest{}}, "").Take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a.Done(Succeeded, Succeeded)
		}
		for i := range 20_000 {
			call(i)
		}
		if n := len(s.List("")); n > 6400 || n < 6000 {
			t.Errorf("%d breakers are kept", n)
		}
		time.Sleep(2 * time.Minute)
		for i := range 2_000 {
			call(i + 50_000)
		}
		if info, ok := s.Get("", "tool:a.50000"); !ok || info.Calls != 1 {
			t.Error("breakers that are idle keep a new one out")
		}
	})
}

func BenchmarkCall(b *testing.B) {
	s := New(Config{})
	pool := make([]*toolkeep.Tool, 100)
	for i := range pool {
		pool[i] = &toolkeep.Tool{ID: fmt.Sprint("shop.tool", i), Tenant: "acme", Manifest: &toolkeep.Manifest{}}
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			g := s.Of(pool[i%len(pool)], "host:shop.example")
			if g.Look() != nil {
				b.Error("refused")
			}
			a, err := g.Take(b.Context())
			if err != nil {
				b.Error(err)
			}
			a.Done(Succeeded, Succeeded)
		}
	})
}

// TestRates opens breakers above a rate, and at 100 when all calls failed or were slow.
func TestRates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		failures, slow    float64 // the rates of the rule
		failed, late, all int     // calls
		want              State
	}{
		{"at the rate", 50, 0, 5, 0, 10, Closed},
		{"above it", 50, 0, 6, 0, 10, Open},
		{"most of them at 100", 100, 0, 9, 0, 10, Closed},
		{"all at 100", 100, 0, 10, 0, 10, Open},
		{"one failure", 5, 0, 1, 0, 10, Closed},
		{"two of them", 5, 0, 2, 0, 10, Open},
		{"too few", 100, 0, 9, 0, 9, Closed},
		{"slow ones, which count nothing", 100, 0, 0, 10, 10, Closed},
		{"most of them slow at 100", 100, 100, 0, 9, 10, Closed},
		{"all slow at 100", 100, 100, 0, 10, 10, Open},
		{"slow above the rate", 100, 20, 0, 3, 10, Open},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var now time.Duration
			base := time.Now()
			r := Rule{On: true, Count: true, Window: 10, MinCalls: 10, FailureRate: c.failures, SlowRate: c.slow, Slow: time.Second, Open: time.Hour, HalfOpenCalls: 1}
			s := New(Config{Rule: &r, Clock: func() time.Time { return base.Add(now) }})
			for i := range c.all {
				a, err := s.Of(tool, "").Take(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if i >= c.all-c.late {
					now += time.Second
				}
				o := Succeeded
				if i >= c.all-c.failed {
					o = Failed
				}
				a.Done(o, Ignored)
			}
			if info, _ := s.Get("acme", "tool:shop.find"); info.State != c.want {
				t.Errorf("it is %s", info.State)
			}
		})
	}
}

// TestVersionsWithOtherWindows calls two versions of a tool in turn whose windows differ: what fails opens the breaker all the same, by
// its rate and by failures in a row. A version that is called alone has its window.
func TestVersionsWithOtherWindows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		version := func(kind string, size int) *toolkeep.Tool {
			return &toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{Breaker: &toolkeep.BreakerSpec{Window: kind, WindowSize: &size}}}
		}
		older, newer := version("time", 60), version("count", 50)
		calls := func(s *Breakers, most int, version func(n int) *toolkeep.Tool, fails func(n int) bool) (done int) {
			for n := range most {
				a, err := s.Of(version(n), "").Take(t.Context())
				if err != nil {
					return n
				}
				o := Succeeded
				if fails(n) {
					o = Failed
				}
				a.Done(o, Ignored)
			}
			return most
		}
		inTurn := func(n int) *toolkeep.Tool { return []*toolkeep.Tool{older, newer}[n%2] }
		if n := calls(New(Config{}), 100, inTurn, func(n int) bool { return n%3 == 0 }); n != 10 {
			t.Errorf("a third of the calls fails, and %d go through", n)
		}
		row := Defaults()
		row.MinCalls = 1000
		batches := func(n int) *toolkeep.Tool { return []*toolkeep.Tool{older, newer}[n/25%2] }
		s := New(Config{Rule: &row})
		if n := calls(s, 100, batches, func(n int) bool { return n >= 40 }); n != 50 { // the 45th changes the window
			t.Errorf("all calls fail from the 41st on, and %d go through", n)
		}
		s = New(Config{})
		window := func() int {
			info, _ := s.Get("", "tool:a.b")
			return info.Rule.Window
		}
		calls(s, 5, inTurn, func(int) bool { return false })
		if window() != 60 {
			t.Errorf("the window is of %d", window())
		}
		calls(s, settled, func(int) *toolkeep.Tool { return newer }, func(int) bool { return false })
		if window() != 50 {
			t.Errorf("after %d calls the window is of %d", settled, window())
		}
		calls(s, 1, inTurn, func(int) bool { return false })
		s.Of(older, "")
		if window() != 50 {
			t.Errorf("two calls make the window one of %d", window())
		}
	})
}

// TestLatency: the average is that of the calls in the window, of either kind, and that of the calls that opened a breaker stays
// with its state.
func TestLatency(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]*toolkeep.BreakerSpec{"time": {Window: "time", WindowSize: new(20)}, "count": {Window: "count", WindowSize: new(10), MinimumCalls: new(10)}} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{})
			tool := &toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{Breaker: spec}}
			call := func(took time.Duration, o Outcome) {
				a, err := s.Of(tool, "").Take(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(took)
				a.Done(o, Succeeded)
			}
			want := func(ms float64, calls int) Info {
				t.Helper()
				i, _ := s.Get("", OfTool("a.b"))
				if math.Abs(i.LatencyMS-ms) > 1e-3 || i.Calls != calls {
					t.Errorf("%s: %v ms of %d calls, want %v of %d", name, i.LatencyMS, i.Calls, ms, calls)
				}
				return i
			}
			for range 5 {
				call(10*time.Millisecond, Succeeded)
			}
			call(1500*time.Microsecond, Succeeded)
			call(time.Hour, Ignored)
			if name == "time" { // all are over
				want(0, 0)
				call(10*time.Millisecond, Succeeded)
			}
			if i := want(map[string]float64{"time": 10, "count": 51.5 / 6}[name], map[string]int{"time": 1, "count": 6}[name]); i.Last.IsZero() {
				t.Error("when the last call ended is not known")
			}
			for range 10 {
				call(100*time.Millisecond, Succeeded)
			}
			want(map[string]float64{"time": 1010. / 11, "count": 100}[name], map[string]int{"time": 11, "count": 10}[name])
			for i, _ := s.Get("", OfTool("a.b")); i.State == Closed; i, _ = s.Get("", OfTool("a.b")) {
				s.Failed(tool, toolkeep.UpstreamTimeout, 50*time.Millisecond)
			}
			if r := want(0, 0).Record; r.Failures != 2 || r.LatencyMS < 85 || r.LatencyMS > 90 {
				t.Errorf("%s: it opened with %+v", name, r)
			}
			s.Failed(tool, toolkeep.UpstreamTimeout, time.Second) // an open one counts nothing
			want(0, 0)
		})
	}
	var none *Breakers
	none.Failed(tool, toolkeep.UpstreamTimeout, 0)
}
