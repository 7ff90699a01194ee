package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/sharedcache"
)

func TestSameAnswerAgain(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprint("remote ", remote), func(t *testing.T) {
			s := newSystem(remote)
			a := s.node(t, some())
			q := ask("send a message")
			want, report := a.Cache.Find(t.Context(), q, sees("acme"))
			if len(want) != 3 || report.CacheHit {
				t.Fatalf("%d tools, %+v", len(want), report)
			}
			check := func(n *node, hit bool) {
				t.Helper()
				got, again := n.Cache.Find(t.Context(), q, sees("acme"))
				if again.CacheHit != hit {
					t.Fatalf("hit %v, want %v", again.CacheHit, hit)
				}
				again.CacheHit = false
				if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(again, report) {
					t.Errorf("got  %+v %+v\nwant %+v %+v", got, again, want, report)
				}
			}
			check(a, true)
			// A node with the same tools, published in another order, gets the answer from L2.
			tools := some()
			slices.Reverse(tools)
			b := s.node(t, tools)
			for i := range want {
				want[i].Tool = b.index.Snapshot("acme").Tool(want[i].Tool.ID, want[i].Tool.Tenant)
			}
			check(b, remote)
			check(b, true)
			if remote && b.finds != 0 {
				t.Errorf("the second node searched %d times", b.finds)
			}
			// An empty result is cached too.
			a.warm(t, ask("zebra"))
		})
	}
}

// TestChanges: after any change a tenant can see, its next answer is fresh; other changes do not
// matter.
func TestChanges(t *testing.T) {
	tools := some()
	blocked := slices.Clone(tools)
	blocked[0].Life.State = toolkeep.Blocked
	for name, c := range map[string]struct {
		to   []toolkeep.Version
		want string // "" is a hit with the earlier result
	}{
		"a new tool of everyone":             {append(some(), tool("", "sms.send", "1.0.0", "Sends a short message")), "sms.send"},
		"a new tool of the tenant":           {append(some(), tool("acme", "acme.fax", "1.0.0", "Sends a message by fax")), "acme.fax"},
		"a new tool of another tenant":       {append(some(), tool("rival", "rival.fax", "1.0.0", "Sends a message by fax")), ""},
		"a new version":                      {append(some(), tool("", "mail.send", "1.1.0", "Sends an e-mail message to anybody")), "mail.send"},
		"a tool that comes to fit":           {append(some(), tool("", "weather.now", "2.0.0", "Sends the weather as a message")), "weather.now"},
		"a tool that is blocked":             {blocked, "acme.letters"},
		"a tool that is gone":                {tools[1:], "acme.letters"},
		"one of another tenant that is gone": {tools[:4], ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(true)
			a := s.node(t, some())
			q := ask("send a message")
			before := a.warm(t, q)
			a.index.Update(slices.Values(c.to))
			ids := a.wantHit(t, q, c.want == "")
			if c.want == "" {
				if !slices.Equal(ids, before) {
					t.Errorf("%v, want %v", ids, before)
				}
				return
			}
			plain, _ := a.index.Find(t.Context(), q, sees("acme"))
			var want []string
			for _, m := range plain {
				want = append(want, m.Tool.ID)
			}
			if !slices.Equal(ids, want) || !slices.Contains(ids, c.want) {
				t.Errorf("%v, want %v with %s", ids, want, c.want)
			}
			// After reverting, the earlier answer is valid again, and the one in between is not.
			a.wantHit(t, q, true)
			a.index.Update(slices.Values(some()))
			if ids, _ := a.find(t, q); !slices.Equal(ids, before) {
				t.Errorf("back: %v, want %v", ids, before)
			}
		})
	}
}

// TestSlowNode: a node that has not yet seen a change neither replaces the answers of one that has,
// nor gets answers beyond its own state.
func TestSlowNode(t *testing.T) {
	s := newSystem(true)
	fast, slow := s.node(t, some()), s.node(t, some())
	q := ask("send a message")
	slow.warm(t, q)
	fast.index.Update(slices.Values(append(some(), tool("", "sms.send", "1.0.0", "Sends a short message"))))
	for range 3 {
		if ids, _ := fast.find(t, q); !slices.Contains(ids, "sms.send") {
			t.Fatalf("the fast node lacks the new tool: %v", ids)
		}
		s.clock.pass(6 * time.Minute) // L1 expired, L2 has not
		if ids, _ := slow.find(t, q); slices.Contains(ids, "sms.send") {
			t.Fatalf("the slow node has a tool that it does not know: %v", ids)
		}
		s.clock.pass(6 * time.Minute)
	}
}

// TestAudiences: audiences that see different tools have separate answers, and a cached answer is
// checked against visible each time.
func TestAudiences(t *testing.T) {
	s := newSystem(true)
	a := s.node(t, some())
	q := ask("send a message")
	a.warm(t, q)
	other := q
	other.Audience = "guests"
	a.wantHit(t, other, false)
	rival := q
	rival.Session.Tenant = "rival"
	if ids := a.wantHit(t, rival, false); slices.Contains(ids, "acme.letters") || !slices.Contains(ids, "rival.secret") {
		t.Errorf("a rival of the same audience gets %v", ids)
	}
	colleague := q
	colleague.Session.Subject = "bob"
	a.wantHit(t, colleague, true)

	// The same audience, but a tool is hidden: it is not shown, and a new search runs.
	hidden := "mail.send"
	visible := func(t *toolkeep.Tool) bool { return t.ID != hidden && sees("acme")(t) }
	found, report := a.Cache.Find(t.Context(), q, visible)
	if report.CacheHit || len(found) != 2 {
		t.Errorf("%d tools, %+v", len(found), report)
	}
	for _, m := range found {
		if m.Tool.ID == hidden {
			t.Error("a hidden tool is shown")
		}
	}
	// A nil visible lets all tools through.
	all := q
	all.Audience = "everyone"
	if found, _ := a.Cache.Find(t.Context(), all, nil); len(found) != 4 {
		t.Errorf("%d tools without visible, want those of all tenants", len(found))
	}
	if found, report := a.Cache.Find(t.Context(), all, nil); len(found) != 4 || !report.CacheHit {
		t.Errorf("%d tools, %+v", len(found), report)
	}
}

// TestKeyHoldsTheQuestion: every new field of Query needs a decision whether answers depend on it.
func TestKeyHoldsTheQuestion(t *testing.T) {
	a := newSystem(false).node(t, nil)
	base, ok := a.Cache.key(ask("q"))
	if !ok {
		t.Fatal("the question is not kept")
	}
	typ := reflect.TypeFor[discover.Query]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		q := ask("q")
		v := reflect.ValueOf(&q).Elem().Field(i)
		switch {
		case f.Name == "Session":
			q.Session.Tenant = "other"
			if k, ok := a.Cache.key(q); !ok || k == base {
				t.Error("the tenant is not in the key")
			}
			continue // subject and conversation: TestHistory
		case v.CanInt():
			v.SetInt(v.Int() + 1)
		case v.Kind() == reflect.String && f.Name == "Strategy":
			v.SetString(string(discover.Keyword))
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
		case v.CanFloat():
			v.SetFloat(v.Float() + 0.5)
		default:
			t.Errorf("Query.%s is of a kind that this test does not know; decide whether answers depend on it", f.Name)
			continue
		}
		if k, ok := a.Cache.key(q); ok && k == base {
			t.Errorf("Query.%s is not in the key", f.Name)
		}
	}
	// Parts of a key cannot run together.
	x, y := ask("ab"), ask("a")
	x.Audience, y.Audience = "c", "bc"
	kx, _ := a.Cache.key(x)
	if ky, _ := a.Cache.key(y); kx == ky || kx.permission == ky.permission || kx.query == ky.query {
		t.Error("two questions have one key")
	}
	implicit, explicit := ask("q"), ask("q")
	explicit.Strategy = discover.Hybrid
	ki, _ := a.Cache.key(implicit)
	if ke, _ := a.Cache.key(explicit); ki != ke {
		t.Error("the default strategy has another key than itself")
	}
	if name := base.String(); !strings.HasPrefix(name, "tool:hybrid:") || len(strings.Split(name, ":")) != 4 {
		t.Errorf("key %s, want tool:{strategy}:{query}:{permission}", name)
	}
	b := newSystem(false).node(t, nil, func(c *Config) { c.Ranking = "other weights" })
	if k, _ := b.Cache.key(ask("q")); k.permission == base.permission {
		t.Error("what ranks is not in the key")
	}
}

// fill sets every exported field below v to a non-zero value.
func fill(t *testing.T, v reflect.Value, skip string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != skip {
				fill(t, v.Field(i), skip)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), skip)
		fill(t, v.Index(1), skip)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, k, skip)
		fill(t, e, skip)
		v.SetMapIndex(k, e)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), skip)
	case reflect.String:
		v.SetString("würd <x>")
	case reflect.Float64, reflect.Float32:
		v.SetFloat(0.1)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("a %s in an answer; see that L2 keeps it", v.Type())
	}
}

// TestL2KeepsAllOfAnAnswer: every field of Match and Report survives L2.
func TestL2KeepsAllOfAnAnswer(t *testing.T) {
	s := newSystem(true)
	a := s.node(t, some())
	var m discover.Match
	fill(t, reflect.ValueOf(&m).Elem(), "Tool")
	m.Score = math.Pi
	var report discover.Report
	fill(t, reflect.ValueOf(&report).Elem(), "")
	report.CacheHit = false
	m.Tool = some()[0].Tool
	at := moment{view: a.index.Snapshot("acme"), flushed: none}
	want := newAnswer([]discover.Match{m}, report, at, s.clock.Now())
	k, _ := a.Cache.key(ask("q"))
	a.send(t.Context(), k, want)
	got := a.fetch(t.Context(), k)
	if got == nil {
		t.Fatal("nothing came back")
	}
	want.life = got.life
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// habits is a Usage with the test's data.
type habits struct {
	discover.Usage
	history  discover.History
	weights  discover.Weights
	examples []discover.Example
}

func (h *habits) Examples(string) []discover.Example { return h.examples }

func (h *habits) SuccessRates(string, []string) []float64 { return nil }

func (h *habits) History(discover.Session) discover.History { return h.history }
func (h *habits) Weights(string) (discover.Weights, bool) {
	return h.weights, h.weights != discover.Weights{}
}

func TestHistory(t *testing.T) {
	h := &habits{}
	s := newSystem(true)
	a := s.node(t, some(), func(c *Config) { c.Usage = h })
	q := ask("send a message")
	a.warm(t, q)
	h.history.Recent = []discover.Recent{{Tool: "mail.send"}}
	a.wantHit(t, q, false)
	a.wantHit(t, q, false)
	h.history.Recent, h.history.Paired = nil, map[string]float64{"mail.send": 1}
	a.wantHit(t, q, false)
	h.history.Paired = nil
	a.wantHit(t, q, true)
	h.history.Preferred = map[string]float64{"mail.send": 1, "mail.list": 0.5}
	a.wantHit(t, q, false)
	a.wantHit(t, q, true)
	h.history.Preferred = map[string]float64{"mail.send": 1, "mail.list": 0.6}
	a.wantHit(t, q, false)
	h.history.Preferred = nil
	a.wantHit(t, q, true)
	h.weights.Keyword = 1
	a.wantHit(t, q, false)
	a.wantHit(t, q, true)
	h.examples = []discover.Example{{Query: "write to somebody", Tool: "mail.send", Count: 1}}
	a.wantHit(t, q, false)
	h.examples = []discover.Example{{Query: "write to somebody", Tool: "mail.send", Count: 2}}
	a.wantHit(t, q, true) // less than a minute ago
	s.clock.pass(time.Minute)
	a.wantHit(t, q, false)
	a.wantHit(t, q, true)
}

// TestLearnedIsTakenIn: learned queries are processed in the background; answers from before that
// are not cached.
func TestLearnedIsTakenIn(t *testing.T) {
	h := &habits{examples: []discover.Example{{Query: "zebra crossing", Tool: "weather.now", Count: 3}}}
	a := newSystem(true).node(t, nil, func(c *Config) { c.Usage = h })
	a.index = discover.New(discover.Config{Usage: h})
	t.Cleanup(func() { _ = a.index.Close() })
	a.index.Update(slices.Values(some()))
	q := ask("zebra crossing")
	deadline := time.After(time.Minute)
	for {
		ids, hit := a.find(t, q)
		if hit {
			if !slices.Contains(ids, "weather.now") {
				t.Errorf("the kept answer knows nothing of what was learned: %v", ids)
			}
			return
		}
		select {
		case <-deadline:
			t.Fatal("no answer was kept")
		default:
		}
	}
}

type brokenEmbedder struct{}

func (brokenEmbedder) Model() string   { return "broken" }
func (brokenEmbedder) Dimensions() int { return 2 }
func (brokenEmbedder) Embed(context.Context, []string) ([][]float32, error) {
	return nil, errors.New("out of order")
}

// picky refuses one text until healed.
type picky struct{ healed atomic.Bool }

func (*picky) Model() string   { return "picky" }
func (*picky) Dimensions() int { return 2 }
func (e *picky) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		if strings.Contains(text, "town") && !e.healed.Load() {
			return nil, errors.New("too long")
		}
		out[i] = []float32{1, 0}
	}
	return out, nil
}

// TestKeptWhileOneToolWaits caches answers while a tool has no vector, and drops them afterwards.
func TestKeptWhileOneToolWaits(t *testing.T) {
	e := &picky{}
	s := newSystem(true)
	made := func() *node {
		n := s.node(t, nil)
		n.index = discover.New(discover.Config{Embedder: e})
		n.index.Update(slices.Values(some()))
		if err := n.index.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.index.Close(); err != nil {
				t.Error(err)
			}
		})
		return n
	}
	wait := func(n *node, have int) {
		t.Helper()
		for {
			changed := n.index.Changed()
			if got, _, _ := n.index.Embedded(); got == have && n.index.Embedding().Serving != "" {
				return
			}
			select {
			case <-changed:
			case <-t.Context().Done():
				t.Fatal("the tools are not embedded")
			}
		}
	}
	const told = "1 of 4 tools are compared by words only until they are embedded"
	q := ask("send a message")
	a, b := made(), made()
	wait(a, len(some())-1)
	wait(b, len(some())-1)
	for i, n := range []*node{a, a, b, b} {
		if _, r := n.Cache.Find(t.Context(), q, sees("acme")); r.Degraded != told || r.CacheHit != (i > 0) {
			t.Errorf("search %d: %+v", i, r)
		}
	}
	if b.finds != 0 {
		t.Error("the other node did not get the answer")
	}
	e.healed.Store(true)
	a.index.Reindex([]string{"mail.send"}, false) // which starts another round
	wait(a, len(some()))
	for i := range 2 {
		if _, r := a.Cache.Find(t.Context(), q, sees("acme")); r.Degraded != "" || r.CacheHit != (i > 0) {
			t.Errorf("embedded, search %d: %+v", i, r)
		}
	}
}

func TestNotKept(t *testing.T) {
	q := ask("send a message")
	for name, change := range map[string]func(*discover.Query){
		"no audience":      func(q *discover.Query) { q.Audience = "" },
		"no tenant":        func(q *discover.Query) { q.Session.Tenant = "" },
		"strategy session": func(q *discover.Query) { q.Strategy = discover.InSession },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(true)
			a := s.node(t, some())
			q := q
			change(&q)
			a.wantHit(t, q, false)
			a.wantHit(t, q, false)
			if st := a.Stats(); st.Passed != 2 || s.remote.asked() != 0 {
				t.Errorf("%+v, L2 was asked %d times", st, s.remote.asked())
			}
		})
	}
	t.Run("degraded", func(t *testing.T) {
		s := newSystem(true)
		a := s.node(t, nil)
		a.index = discover.New(discover.Config{Embedder: brokenEmbedder{}})
		a.index.Update(slices.Values(some()))
		for range 2 {
			if _, report := a.Cache.Find(t.Context(), q, sees("acme")); report.CacheHit || report.Degraded == "" {
				t.Fatalf("%+v", report)
			}
		}
		if s.remote.puts != 0 {
			t.Error("an answer without meanings was kept")
		}
	})
	t.Run("the index changed meanwhile", func(t *testing.T) {
		a := newSystem(true).node(t, some())
		a.after = func() { // there and back: the sums are equal again
			a.index.Update(slices.Values(some()[1:]))
			a.index.Update(slices.Values(some()))
		}
		a.wantHit(t, q, false)
		a.wantHit(t, q, false)
		a.wantHit(t, q, true)
	})
	t.Run("flushed meanwhile", func(t *testing.T) {
		a := newSystem(true).node(t, some())
		a.after = func() {
			if err := a.Flush(t.Context(), "acme", "x", All, ""); err != nil {
				t.Error(err)
			}
		}
		a.wantHit(t, q, false)
		a.wantHit(t, q, false)
		a.wantHit(t, q, true)
	})
}

func total(byCategory map[string]int) (n int) {
	for _, v := range byCategory {
		n += v
	}
	return n
}

func TestCount(t *testing.T) {
	s := newSystem(false)
	a := s.node(t, some())
	asked := 0
	counting := func(tool *toolkeep.Tool) bool { asked++; return sees("acme")(tool) }
	for range 3 {
		if n := total(a.Count(ask("q"), counting)); n != 4 {
			t.Errorf("%d tools", n)
		}
	}
	if asked != 5 {
		t.Errorf("visible was asked %d times, want once of each tool", asked)
	}
	narrow := ask("q")
	narrow.Audience = "guests"
	if n := total(a.Count(narrow, func(*toolkeep.Tool) bool { return false })); n != 0 {
		t.Errorf("another audience sees %d", n)
	}
	rival := ask("q")
	rival.Session.Tenant = "rival"
	if n := total(a.Count(rival, sees("guest"))); n != 3 {
		t.Errorf("another tenant sees %d", n)
	}
	a.index.Update(slices.Values(some()[1:]))
	if n := total(a.Count(ask("q"), counting)); n != 3 {
		t.Errorf("%d tools after one ended", n)
	}
	anyone := ask("q")
	anyone.Audience = ""
	if n := total(a.Count(anyone, sees(""))); n != 2 {
		t.Errorf("%d tools", n)
	}
	for i := range maxCounts + 10 {
		q := ask("q")
		q.Audience = fmt.Sprint(i)
		a.Count(q, sees("acme"))
	}
	if n := len(a.counts.of); n > maxCounts {
		t.Errorf("%d counts are kept", n)
	}
}

func TestLifetimes(t *testing.T) {
	s := newSystem(true)
	a := s.node(t, some())
	q := ask("send a message")
	a.warm(t, q)
	s.clock.pass(5*time.Minute - time.Second)
	a.wantHit(t, q, true)
	if st := a.Stats(); st.RemoteHits != 0 {
		t.Errorf("%+v", st)
	}
	s.clock.pass(time.Second) // L1 expired
	a.wantHit(t, q, true)
	if st := a.Stats(); st.RemoteHits != 1 {
		t.Errorf("%+v", st)
	}
	s.clock.pass(54 * time.Minute)
	a.wantHit(t, q, true)
	s.clock.pass(time.Minute) // the hour has passed, though L1 has had it for less than five minutes
	a.wantHit(t, q, false)
	alone := newSystem(false)
	b := alone.node(t, some())
	b.warm(t, q)
	alone.clock.pass(5 * time.Minute)
	b.wantHit(t, q, false)
}

func TestBounds(t *testing.T) {
	s := newSystem(false)
	a := s.node(t, some(), func(c *Config) { c.Entries, c.Bytes = 50, 1<<20 })
	for i := range 500 {
		a.find(t, ask(fmt.Sprint("send a message ", i)))
	}
	a.local.CleanUp()
	if st := a.Stats(); st.Entries > 50 || st.Entries < 25 {
		t.Errorf("%+v", st)
	}
	b := s.node(t, some(), func(c *Config) { c.Entries, c.Bytes = 1_000_000, 128<<10 })
	for i := range 500 {
		b.find(t, ask(fmt.Sprint("send a message ", i)))
	}
	b.local.CleanUp()
	if st := b.Stats(); st.Bytes > 128<<10 || st.Entries < 40 || st.Entries > 400 {
		t.Errorf("%+v", st)
	}
	// An oversized answer is not cached and evicts nothing.
	huge := s.node(t, some(), func(c *Config) { c.Bytes = 64 * 500 })
	huge.wantHit(t, ask("send a message"), false)
	huge.wantHit(t, ask("send a message"), false)
	huge.warm(t, ask("zebra"))
}

func TestRemoteAway(t *testing.T) {
	s := newSystem(true)
	a := s.node(t, some())
	q := ask("send a message")
	s.remote.set(errors.New("connection refused"), false)
	a.warm(t, q) // L1 and the index suffice
	if a.RemoteHealth() == nil || s.remote.asked() != 1 {
		t.Fatalf("health %v after %d questions, want one question and then a pause", a.RemoteHealth(), s.remote.asked())
	}
	a.find(t, ask("weather"))
	if s.remote.asked() != 1 {
		t.Error("L2 was asked during the pause")
	}
	s.clock.pass(time.Second)
	a.find(t, ask("town"))
	if s.remote.asked() != 2 {
		t.Errorf("L2 was asked %d times, want one more after the pause", s.remote.asked())
	}
	s.remote.set(nil, false)
	s.clock.pass(time.Second)
	a.find(t, ask("mailbox"))
	if err := a.RemoteHealth(); err != nil || s.remote.puts != 1 {
		t.Errorf("%v, %d answers sent", err, s.remote.puts)
	}
	// A caller's cancellation says nothing about L2.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	s.remote.set(nil, true)
	a.Cache.Find(gone, ask("letter"), nil)
	if err := a.RemoteHealth(); err != nil {
		t.Error(err)
	}
	if st := a.Stats(); st.RemoteErrors != 2 {
		t.Errorf("%+v", st)
	}
}

// TestRemoteHangs: a search waits for L2 up to its limit.
func TestRemoteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(true)
		s.remote.set(nil, true)
		a := s.node(t, some(), func(c *Config) { c.Clock = nil })
		began := time.Now()
		if ids := a.wantHit(t, ask("send a message"), false); len(ids) != 3 {
			t.Errorf("%v", ids)
		}
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("it took %s, want 50ms", took)
		}
		began = time.Now()
		a.wantHit(t, ask("weather"), false)
		if took := time.Since(began); took != 0 {
			t.Errorf("the next one waited %s", took)
		}
	})
}

// TestForged: a forged value under a key is not an answer.
func TestForged(t *testing.T) {
	s := newSystem(true)
	a := s.node(t, some())
	q, other := ask("send a message"), ask("weather of a town")
	a.warm(t, q)
	a.warm(t, other)
	k, _ := a.Cache.key(q)
	ko, _ := a.Cache.key(other)
	good, swapped := s.remote.values[k.String()], s.remote.values[ko.String()]
	for _, secret := range []string{"message", "mail.send", "Sends", "letters", "agents", "sha256"} {
		for name, v := range s.remote.values {
			if strings.Contains(name+string(v), secret) {
				t.Errorf("L2 shows %q", secret)
			}
		}
	}
	flipped := slices.Clone(good)
	flipped[len(flipped)/2] ^= 1
	stranger := newSystem(true)
	stranger.secret[0] ^= 1
	stranger.node(t, some()).warm(t, q)
	for name, v := range map[string][]byte{
		"nothing": {}, "one byte": {1}, "noise": []byte(strings.Repeat("x", 500)), "cut": good[:len(good)-1], "longer": append(slices.Clone(good), 0),
		"a flipped bit": flipped, "another question's answer": swapped, "another form": append([]byte{0xff}, good[1:]...),
		"huge": make([]byte, sharedcache.MaxBytes+1), "plain": []byte(`{"Found":[{"ID":"rival.secret","Tenant":"rival"}]}`),
	} {
		s.remote.values[k.String()] = v
		b := s.node(t, some())
		if ids := b.wantHit(t, q, false); len(ids) != 3 {
			t.Errorf("%s: %v", name, ids)
		}
	}
	s.remote.values[k.String()] = good
	if b := s.node(t, some()); len(b.wantHit(t, q, true)) != 3 {
		t.Error("the good one is not taken")
	}
	for name := range stranger.remote.values {
		if _, ok := s.remote.values[name]; ok {
			t.Error("another deployment has the same names")
		}
	}
}

// TestTogether: concurrent searches, changes and flushes. No answer begun after a tool was hidden
// may show it, and none begun after it was shown may lack it.
func TestTogether(t *testing.T) {
	s := newSystem(true)
	nodes := []*node{s.node(t, some()), s.node(t, some())}
	with := append(some(), tool("", "sms.send", "1.0.0", "Sends a short message"))
	var stop, seekers sync.WaitGroup
	done := make(chan struct{})
	var turn sync.RWMutex // held while both indexes change
	shown := false
	stop.Go(func() {
		for i := range 150 {
			turn.Lock()
			shown = i%2 == 0
			for _, n := range nodes {
				if shown {
					n.index.Update(slices.Values(with))
				} else {
					n.index.Update(slices.Values(some()))
				}
			}
			turn.Unlock()
			if i%10 == 0 {
				n := nodes[i/10%2]
				if err := n.Flush(t.Context(), "acme", "x", Tool, "mail.send"); err != nil {
					t.Error(err)
				}
			}
		}
		close(done)
	})
	for i := range 4 {
		seekers.Go(func() {
			n := nodes[i%2]
			for {
				select {
				case <-done:
					return
				default:
				}
				turn.RLock()
				ids, _ := n.find(t, ask("send a short message"))
				if slices.Contains(ids, "sms.send") != shown {
					t.Errorf("%v while the tool is there: %v", ids, shown)
				}
				turn.RUnlock()
			}
		})
	}
	// Seekers change nothing and hold no turn.
	seekers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				nodes[0].find(t, ask("send a short message"))
			}
		}
	})
	stop.Wait()
	seekers.Wait()
}

// TestLongQuestions keeps an answer by what is read of its question, without the question's memory.
func TestLongQuestions(t *testing.T) {
	n := newSystem(false).node(t, some())
	filler := strings.Repeat("mail ", discover.MaxQuestion/5)
	n.warm(t, ask(filler+"one"))
	n.wantHit(t, ask(filler+"two"), true)
	n.wantHit(t, ask(filler), false) // it is not cut
	if h := n.hasher(); cap(h.buf) > maxHasher {
		t.Errorf("a hasher holds %d bytes", cap(h.buf))
	}

	text := []byte("send a message " + filler)
	held := weak.Make(&text[0])
	n.warm(t, ask(unsafe.String(&text[0], len(text))))
	text = nil
	runtime.GC()
	if held.Value() != nil {
		t.Error("the question is still held")
	}
}
