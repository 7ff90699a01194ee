package health

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store has documents and events, and tells followers of both.
type store struct {
	mu        sync.Mutex
	away      bool
	documents map[key]toolkeep.Document
	writes    int
	events    []map[string]any
	followers []*Monitor
}

func (s *store) Apply(_ context.Context, changes ...toolkeep.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("the store is away")
	}
	for _, c := range changes {
		switch c := c.(type) {
		case toolkeep.PutDocument:
			s.writes++
			s.documents[key{c.Document.Tenant, c.Document.ID}] = c.Document
		case toolkeep.DeleteDocument:
			k := key{c.Tenant, c.ID}
			if _, ok := s.documents[k]; !ok {
				return toolkeep.ErrNotFound
			}
			delete(s.documents, k)
		case toolkeep.AppendEvent:
			data := map[string]any{"tenant": c.Event.Tenant, "type": c.Event.Type}
			if err := json.Unmarshal(c.Event.Data, &data); err != nil {
				return err
			}
			s.events = append(s.events, data)
		}
		for _, m := range s.followers {
			m.Follow(toolkeep.Committed{Change: c})
		}
	}
	return nil
}

func (s *store) Documents(context.Context, string) (all []toolkeep.Document, _ int64, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.documents {
		all = append(all, d)
	}
	return all, 0, nil
}

func (s *store) leave(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// changes are the events, each as TOOL FROM TO.
func (s *store) changes() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		out = append(out, e["tool_id"].(string)+" "+e["from"].(string)+" "+e["to"].(string))
	}
	return out
}

// snapshot is a catalogue.
type snapshot struct {
	versions []toolkeep.Version
	number   int64
}

func (s *snapshot) All() iter.Seq[toolkeep.Version] { return slices.Values(s.versions) }
func (s *snapshot) Seq() int64                      { return s.number }

func probed(tenant, id string, seconds int) toolkeep.Version {
	return version(tenant, id, "1.0.0", toolkeep.Active, &toolkeep.HealthSpec{Endpoint: "/up", IntervalS: seconds})
}

func version(tenant, id, number string, state toolkeep.VersionState, h *toolkeep.HealthSpec) toolkeep.Version {
	return toolkeep.Version{Tool: &toolkeep.Tool{ID: id, Tenant: tenant, Version: number, Manifest: &toolkeep.Manifest{Health: h}}, Life: toolkeep.Lifecycle{State: state}}
}

// prober answers probes with what it is set to, and notes when they came.
type prober struct {
	mu     sync.Mutex
	answer func(ctx context.Context, t *toolkeep.Tool) error
	at     map[string][]time.Time
}

func (p *prober) CheckProbe(*toolkeep.Manifest) []toolkeep.Fault { return nil }

func (p *prober) Probe(ctx context.Context, t *toolkeep.Tool) error {
	p.mu.Lock()
	p.at[t.ID] = append(p.at[t.ID], time.Now())
	answer := p.answer
	p.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(ctx, t)
}

func (p *prober) with(answer func(ctx context.Context, t *toolkeep.Tool) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *prober) times(tool string) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.at[tool])
}

func fails(code toolkeep.Code) func(context.Context, *toolkeep.Tool) error {
	return func(context.Context, *toolkeep.Tool) error { return toolkeep.NewError(code, "it is not well") }
}

// noUpstream is an upstream that tools do not share.
type noUpstream struct{}

func (noUpstream) ServiceOf(*toolkeep.Principal, *toolkeep.Tool) string { return "" }

// oneUpstream is one that all share.
type oneUpstream string

func (u oneUpstream) ServiceOf(*toolkeep.Principal, *toolkeep.Tool) string { return string(u) }

type fixture struct {
	*Monitor
	t        *testing.T
	store    *store
	prober   *prober
	catalog  atomic.Pointer[snapshot]
	breakers *breaker.Breakers
}

func newStore() *store { return &store{documents: map[key]toolkeep.Document{}} }

func monitor(t *testing.T, node string, s *store, versions ...toolkeep.Version) *fixture {
	f := &fixture{t: t, store: s, prober: &prober{at: map[string][]time.Time{}}, breakers: breaker.New(breaker.Config{})}
	f.catalog.Store(&snapshot{versions, 1})
	f.Monitor = New(Config{Snapshot: func() Snapshot { return f.catalog.Load() }, Breakers: f.breakers, Upstreams: noUpstream{}, Prober: f.prober, Store: s, Node: node, Home: "default"})
	if _, err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers = append(s.followers, f.Monitor)
	return f
}

// lead runs the monitor until the returned function is called.
func (f *fixture) lead() (yield func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	return func() { cancel(); <-done }
}

func (f *fixture) of(v toolkeep.Version) Health {
	return f.Of(&toolkeep.Principal{Tenant: "default"}, v.Tool)
}

// pass lets time pass, and what is under way at its end end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) want(v toolkeep.Version, s Status, reasons ...string) Health {
	f.t.Helper()
	h := f.of(v)
	if h.Status != s || !slices.Equal(h.Metadata.Reasons, reasons) {
		f.t.Errorf("%s is %s because of %q, want %s because of %q", v.Tool.ID, h.Status, h.Metadata.Reasons, s, reasons)
	}
	return h
}

func TestProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := probed("acme", "shop.find", 10)
		s := newStore()
		f := monitor(t, "a", s, v)
		f.want(v, Unknown)
		defer f.lead()()
		pass(12 * time.Second)
		if h := f.want(v, Healthy); h.LastCheck.IsZero() || h.Metadata.Probe.Node != "a" {
			t.Errorf("%+v", h)
		}
		pass(10 * time.Minute)
		at := f.prober.times("shop.find")
		for i := range at[1:] {
			// The interval, give or take a tenth, and what the look for due ones takes.
			if d := at[i+1].Sub(at[i]); d < 9*time.Second || d > 12*time.Second {
				t.Errorf("between two probes were %s", d)
			}
		}
		if len(at) < 50 || s.writes != 1 || len(s.changes()) != 0 {
			t.Errorf("%d probes, %d writes, events %q", len(at), s.writes, s.changes())
		}

		f.prober.with(fails(toolkeep.UpstreamServerError))
		for f.of(v).Metadata.Probe.Failures < 2 {
			pass(time.Second)
		}
		if h := f.want(v, Degraded, ReasonProbeFailed, ReasonFailureRate); h.Metadata.Failures == 0 || h.Metadata.Probe.Error != "E3520: it is not well" {
			t.Errorf("the breaker was told of %d failures: %+v", h.Metadata.Failures, h.Metadata.Probe)
		}
		pass(12 * time.Second)
		f.want(v, Unhealthy, ReasonProbeFailed, ReasonFailureRate)
		f.prober.with(fails(toolkeep.UpstreamClientError)) // of which the breaker is not told
		pass(80 * time.Second)
		f.prober.with(nil)
		pass(100 * time.Second)
		f.prober.with(func(context.Context, *toolkeep.Tool) error { time.Sleep(Slow); return nil })
		pass(2 * time.Minute) // the breaker's window is over
		f.want(v, Degraded, ReasonProbeSlow)
		f.prober.with(fails(toolkeep.DestinationForbidden))
		pass(26 * time.Second)
		if h := f.want(v, Unknown); !strings.HasPrefix(h.Metadata.Probe.Error, "E3505") || h.Metadata.Failures != 0 {
			t.Errorf("%+v", h)
		}
		f.prober.with(fails(toolkeep.UpstreamClientError))
		pass(90 * time.Second)
		if h := f.want(v, Unhealthy, ReasonProbeFailed); h.Metadata.Failures != 0 {
			t.Errorf("the breaker was told of HTTP 4xx: %+v", h.Metadata)
		}
		want := []string{"shop.find healthy degraded", "shop.find degraded unhealthy", "shop.find unhealthy healthy", "shop.find healthy degraded",
			"shop.find degraded unknown", "shop.find unknown unhealthy"}
		if got := s.changes(); !slices.Equal(got, want) || s.writes != 7 || s.events[0]["tenant"] != "acme" || s.events[0]["type"] != eventChanged {
			t.Errorf("%d writes, events %q", s.writes, s.events)
		}
	})
}

// TestProbesOpenTheBreaker: a tool without calls is stopped by its probes, is left in peace while it is, and is probed again then.
func TestProbesOpenTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := probed("", "shop.find", 1)
		f := monitor(t, "a", newStore(), v)
		f.prober.with(fails(toolkeep.NetworkError))
		defer f.lead()()
		pass(30 * time.Second)
		h := f.of(v)
		if h.Status != Unhealthy || h.Breaker != "open" || !slices.Contains(h.Metadata.Reasons, ReasonBreakerOpen) || h.ErrorRate != 100 {
			t.Fatalf("%+v", h)
		}
		info, _ := f.breakers.Get("", "tool:shop.find")
		before := len(f.prober.times("shop.find"))
		if before != 10 {
			t.Errorf("it opened after %d probes, want 10 in a row", before)
		}
		pass(time.Until(info.Record.Until) - time.Second)
		if n := len(f.prober.times("shop.find")); n != before {
			t.Errorf("%d probes came while the breaker was open", n-before)
		}
		pass(4 * time.Second)
		if n := len(f.prober.times("shop.find")); n == before {
			t.Error("no probe came after the breaker's time")
		}
		f.prober.with(nil)
		pass(8 * time.Second)
		if h := f.of(v); h.Status != Unhealthy || h.Metadata.Probe.Status != Healthy {
			t.Errorf("a probe closed the breaker: %+v", h)
		}
		if a, err := f.breakers.Of(v.Tool, "").Take(t.Context()); err == nil {
			a.Done(breaker.Succeeded, breaker.Succeeded)
		}
		f.want(v, Healthy)
	})
}

// TestLeaderChanges: another node knows what the leader found, and goes on from it.
func TestLeaderChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v, w := probed("acme", "shop.find", 10), probed("acme", "shop.well", 10)
		s := newStore()
		a, b := monitor(t, "a", s, v, w), monitor(t, "b", s, v, w)
		failing := func(ctx context.Context, t *toolkeep.Tool) error {
			if t.ID == "shop.well" {
				return nil
			}
			return fails(toolkeep.NetworkError)(ctx, t)
		}
		a.prober.with(failing)
		b.prober.with(failing)
		yield := a.lead()
		pass(15 * time.Second)
		yield()
		h := b.want(v, Degraded, ReasonProbeFailed)
		if p := h.Metadata.Probe; p.Node != "a" || p.Failures != 1 || h.Metadata.Calls != 0 {
			t.Errorf("the other node knows %+v", h)
		}
		b.want(w, Healthy)
		defer b.lead()()
		for b.of(v).Metadata.Probe.Failures < Failures {
			pass(time.Second)
		}
		if h := a.of(v); h.Status != Unhealthy || h.Metadata.Probe.Node != "b" || len(b.prober.times("shop.find")) != Failures-1 {
			t.Errorf("the earlier leader knows %+v after %d probes of the next", h, len(b.prober.times("shop.find")))
		}
		// A node that starts knows it too.
		if h := monitor(t, "c", s, v).of(v); h.Status != Unhealthy {
			t.Errorf("a new node knows %+v", h)
		}
		if err := s.Apply(t.Context(), toolkeep.PutDocument{Document: toolkeep.Document{Kind: Kind, Tenant: "acme", ID: "shop.find", Body: []byte(`{"status":"fine"}`), UpdatedBy: "x"}}); err != nil {
			t.Fatal(err)
		}
		if p := a.of(v).Metadata.Probe; p.Status != Unknown || p.Error == "" {
			t.Errorf("a document that cannot be read is taken as %+v", p)
		}
	})
}

// TestEndpointsThatHang: those of one tenant do not keep those of another from being probed.
func TestEndpointsThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all []toolkeep.Version
		for i := range 200 {
			all = append(all, probed("hog", "hang.t"+strings.Repeat("x", i), 1))
		}
		all = append(all, probed("acme", "shop.find", 5))
		f := monitor(t, "a", newStore(), all...)
		f.prober.with(func(ctx context.Context, t *toolkeep.Tool) error {
			if t.Tenant == "hog" {
				<-ctx.Done()
				return toolkeep.NewError(toolkeep.UpstreamTimeout, "late")
			}
			return nil
		})
		yield := f.lead()
		pass(10 * time.Minute)
		yield()
		at := f.prober.times("shop.find")
		for i := range at[1:] {
			if d := at[i+1].Sub(at[i]); d > 5500*time.Millisecond+tick+Timeout {
				t.Errorf("between two probes were %s", d)
			}
		}
		if len(at) < 60 {
			t.Errorf("it was probed %d times in 10 minutes", len(at))
		}
		f.want(all[200], Healthy)
		f.prober.mu.Lock()
		defer f.prober.mu.Unlock()
		if n := len(f.prober.at); n != len(all) {
			t.Errorf("%d of %d tools were probed", n, len(all))
		}
	})
}

// TestWhichAreProbed: of each tool the version that calls get, and no tool whose version has no endpoint or is not active; what
// was found of one that is not probed any more goes.
func TestWhichAreProbed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := &toolkeep.HealthSpec{Endpoint: "/up", IntervalS: 1}
		held := version("", "a.held", "1.0.0", toolkeep.Active, up)
		held.Life.Held = &toolkeep.Hold{}
		newer := version("", "c.newerheld", "2.0.0", toolkeep.Active, up)
		newer.Life.Held = &toolkeep.Hold{}
		s := newStore()
		f := monitor(t, "a", s, held,
			version("", "b.both", "1.0.0", toolkeep.Active, nil), version("", "b.both", "2.0.0", toolkeep.Active, up), version("", "b.both", "3.0.0-rc.1", toolkeep.Active, nil),
			version("", "c.earlier", "1.0.0", toolkeep.Active, up), version("", "c.earlier", "2.0.0", toolkeep.Active, nil),
			version("", "c.newerheld", "1.0.0", toolkeep.Active, up), newer,
			version("", "d.blocked", "1.0.0", toolkeep.Blocked, up), version("", "e.pre", "1.0.0-rc.1+a-b", toolkeep.Active, up),
			version("", "f.none", "1.0.0", toolkeep.Active, &toolkeep.HealthSpec{IntervalS: 1}))
		defer f.lead()()
		pass(5 * time.Second)
		names := func() (out []string) {
			for _, h := range f.Known() {
				out = append(out, h.ToolID+" "+string(h.Status))
			}
			return out
		}
		if got := names(); !slices.Equal(got, []string{"b.both healthy", "e.pre healthy"}) {
			t.Errorf("probed are %q", got)
		}
		s.leave(true)
		f.catalog.Store(&snapshot{f.catalog.Load().versions[3:4], 2})
		pass(5 * time.Second)
		if got := names(); len(got) != 2 {
			t.Errorf("while the store is away, %q are known", got)
		}
		s.leave(false)
		pass(5 * time.Second)
		if got := names(); len(got) != 0 || len(s.documents) != 0 {
			t.Errorf("still known are %q, stored %d", got, len(s.documents))
		}
	})
}

// TestTheStoreIsAway: what could not be written is written when the store is back.
func TestTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := probed("acme", "shop.find", 10)
		s := newStore()
		f := monitor(t, "a", s, v)
		s.leave(true)
		f.prober.with(fails(toolkeep.UpstreamClientError))
		defer f.lead()()
		pass(time.Minute)
		f.want(v, Unhealthy, ReasonProbeFailed)
		s.leave(false)
		pass(15 * time.Second)
		if got := s.changes(); !slices.Equal(got, []string{"shop.find unknown unhealthy"}) || s.writes != 1 {
			t.Errorf("%d writes, events %q", s.writes, got)
		}
	})
}

// TestAProbeThatPanics: it says nothing of the tool, and the others go on.
func TestAProbeThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v, w := probed("", "bad.one", 1), probed("", "good.one", 1)
		f := monitor(t, "a", newStore(), v, w)
		f.prober.with(func(_ context.Context, t *toolkeep.Tool) error {
			if t.ID == "bad.one" {
				panic("no")
			}
			return nil
		})
		defer f.lead()()
		pass(5 * time.Second)
		f.want(v, Unknown)
		f.want(w, Healthy)
	})
}

// TestAnEndpointThatComesAndGoes: it changes no status, and what does is written twice a minute at most, the newest at the end.
func TestAnEndpointThatComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := probed("acme", "shop.find", 1)
		s := newStore()
		f := monitor(t, "a", s, v)
		var n, each atomic.Int64
		each.Store(1)
		f.prober.with(func(ctx context.Context, tool *toolkeep.Tool) error {
			if n.Add(1)/each.Load()%2 == 1 {
				return fails(toolkeep.UpstreamClientError)(ctx, tool)
			}
			return nil
		})
		defer f.lead()()
		pass(5 * time.Minute)
		if s.writes != 1 || len(s.changes()) > 1 {
			t.Errorf("%d writes, events %q", s.writes, s.changes())
		}
		each.Store(5)
		pass(10 * time.Minute)
		if s.writes < 3 || s.writes > 23 {
			t.Errorf("%d writes in 10 minutes", s.writes)
		}
		f.prober.with(nil)
		pass(2 * time.Minute)
		f.want(v, Healthy)
		if got := s.changes(); !strings.HasSuffix(got[len(got)-1], " healthy") {
			t.Errorf("the last of %q is not the state of now", got)
		}
	})
}

// TestBreakersOfOthers: an endpoint on another server than the tool's opens no breaker of the tool, and while the upstream's breaker is
// open nothing is probed.
func TestBreakersOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := func(endpoint string) *toolkeep.HealthSpec {
			return &toolkeep.HealthSpec{Endpoint: endpoint, IntervalS: 1}
		}
		same := version("acme", "a.same", "1.0.0", toolkeep.Active, up("https://Shop.example/up"))
		other := version("acme", "b.other", "1.0.0", toolkeep.Active, up("https://shop.example:8443/up"))
		f := monitor(t, "a", newStore(), same, other)
		f.c.Upstreams = oneUpstream("host:shop.example:443")
		f.prober.with(fails(toolkeep.NetworkError))
		defer f.lead()()
		pass(40 * time.Second)
		if h := f.of(same); h.Breaker != "open" {
			t.Errorf("of the tool's own server: %+v", h)
		}
		if h := f.of(other); h.Breaker != "closed" || h.Metadata.Failures != 0 || h.Status != Unhealthy {
			t.Errorf("of another server: %+v", h)
		}
		for range 50 {
			if a, err := f.breakers.Of(other.Tool, "host:shop.example:443").Take(t.Context()); err == nil {
				a.Done(breaker.Succeeded, breaker.Failed)
			}
		}
		if h := f.of(other); h.Metadata.Upstream == nil {
			t.Fatalf("the upstream's breaker is not open: %+v", h)
		}
		before := len(f.prober.times("b.other"))
		pass(10 * time.Second)
		if n := len(f.prober.times("b.other")); n > before+1 {
			t.Errorf("%d probes came while the upstream's breaker was open", n-before)
		}
	})
}

// TestAnotherManifestIsProbedSoon: a shorter interval is used at once, and failures are counted from zero.
func TestAnotherManifestIsProbedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := probed("acme", "shop.find", 3600)
		f := monitor(t, "a", newStore(), v)
		f.prober.with(fails(toolkeep.UpstreamClientError))
		defer f.lead()()
		pass(5 * time.Hour)
		f.want(v, Unhealthy, ReasonProbeFailed)
		w := probed("acme", "shop.find", 10)
		w.Tool.Digest = "sha256:other"
		f.catalog.Store(&snapshot{[]toolkeep.Version{w}, 2})
		began := time.Now()
		for f.of(w).Metadata.Probe.Failures != 2 {
			pass(time.Second)
		}
		f.want(w, Degraded, ReasonProbeFailed)
		if time.Since(began) > 30*time.Second {
			t.Error("the shorter interval is not used")
		}
	})
}

// TestShare: a tenant with many tools takes the places of no other, and of shared tools no other tenant sees how much they are called.
func TestShare(t *testing.T) {
	t.Parallel()
	var tools []*toolkeep.Tool
	for i := range 10 {
		tools = append(tools, probed("hog", "a.t"+string(rune('0'+i)), 1).Tool)
	}
	tools = append(tools, probed("acme", "z.one", 1).Tool, probed("acme", "z.two", 1).Tool)
	got := map[string]int{}
	for _, tool := range share(tools, 5) {
		got[tool.Tenant]++
	}
	if got["acme"] != 2 || got["hog"] != 3 {
		t.Errorf("probed are %v", got)
	}
	v := probed("", "shop.find", 1)
	f := monitor(t, "a", newStore(), v)
	if a, err := f.breakers.Of(v.Tool, "").Take(t.Context()); err == nil {
		a.Done(breaker.Failed, breaker.Succeeded)
	}
	if h := f.of(v); h.ErrorRate == 0 || h.LastCheck.IsZero() {
		t.Errorf("the home tenant reads %+v", h)
	}
	if h := f.Of(&toolkeep.Principal{Tenant: "acme"}, v.Tool); h.ErrorRate != 0 || h.Latency != 0 || !h.LastCheck.IsZero() {
		t.Errorf("another tenant reads %+v", h)
	}
}
