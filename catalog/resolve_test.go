package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestResolve(t *testing.T) {
	c, _, _ := open(t, func(cfg *Config) { cfg.MaxActive = 20 })
	publish(t, c, "a.b", "0.9.0", "1.0.0", "1.2.0", "1.2.3", "1.3.0-rc.1", "1.10.0", "2.0.0", "3.0.0-beta.1")
	publish(t, c, "a.pre", "1.0.0-alpha", "1.0.0-beta")
	p := admin("acme")
	for _, r := range []struct{ rng, want string }{
		{"", "2.0.0"}, {"latest", "2.0.0"}, {"*", "2.0.0"},
		{"1.2.3", "1.2.3"}, {"=1.2.3", "1.2.3"}, {"v1.2.3", "1.2.3"}, {" 1.2.3 ", "1.2.3"},
		{"^1.2", "1.10.0"}, {"^1", "1.10.0"}, {"~1.2", "1.2.3"}, {"~1", "1.10.0"}, {"1.x", "1.10.0"}, {"1.2.x", "1.2.3"}, {"1", "1.10.0"},
		{">=1 <3", "2.0.0"}, {">=1, <2", "1.10.0"}, {"<1", "0.9.0"}, {"0.9.0 || 1.2.0", "1.2.0"}, {"1 || 2", "2.0.0"}, {"1.0 - 1.5", "1.2.3"},
		{">=1.3.0-0 <1.4", "1.3.0-rc.1"}, {"3.0.0-beta.1", "3.0.0-beta.1"}, {">=2.5", "3.0.0-beta.1"},
	} {
		v, warnings, err := c.Resolve(t.Context(), p, "a.b", r.rng, nil)
		if err != nil {
			t.Errorf("%q: %v", r.rng, err)
		} else if v.Tool.Version != r.want || len(warnings) > 0 {
			t.Errorf("%q gives %s %v, want %s", r.rng, v.Tool.Version, warnings, r.want)
		}
	}
	if v, _, err := c.Resolve(t.Context(), p, "a.pre", "", nil); err != nil || v.Tool.Version != "1.0.0-beta" {
		t.Errorf("only prereleases: %v %v", v.Tool, err)
	}
	for _, r := range []struct {
		tool, rng string
		code      toolkeep.Code
		says      string
	}{
		{"a.none", "", toolkeep.ToolNotFound, `"a.none"`},
		{"a.b", "9.9.9", toolkeep.ToolVersionNotFound, "2.0.0"},
		{"a.b", "^4", toolkeep.VersionConflict, `"^4"`},
		{"a.b", "^3", toolkeep.VersionConflict, "3.0.0-beta.1"}, // it is lower than 3.0.0
		{"a.b", "newest", toolkeep.InvalidParameters, `"newest"`},
		{"a.b", strings.Repeat("1", 300), toolkeep.InvalidParameters, "256"},
		{"a.b", "1 ||", toolkeep.InvalidParameters, ""},
	} {
		_, _, err := c.Resolve(t.Context(), p, r.tool, r.rng, nil)
		e := wantCode(t, err, r.code)
		if !strings.Contains(e.Message, r.says) {
			t.Errorf("%s %s: %q is not in %q", r.tool, r.rng, r.says, e.Message)
		}
	}
	_, _, err := c.Resolve(t.Context(), p, "a.b", "^4", nil)
	if available := fmt.Sprint(wantCode(t, err, toolkeep.VersionConflict).Details["available"]); !strings.HasPrefix(available, "[3.0.0-beta.1 2.0.0 1.10.0") {
		t.Error(available)
	}
}

func TestResolveVisible(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0")
	p := admin("acme")
	only := func(versions ...string) func(*toolkeep.Tool) bool {
		return func(t *toolkeep.Tool) bool { return strings.Contains(strings.Join(versions, " "), t.Version) }
	}
	if v, _, err := c.Resolve(t.Context(), p, "a.b", "", only("1.0.0")); err != nil || v.Tool.Version != "1.0.0" {
		t.Errorf("%v %v", v.Tool, err)
	}
	_, _, err := c.Resolve(t.Context(), p, "a.b", "2.0.0", only("1.0.0"))
	if e := wantCode(t, err, toolkeep.ToolVersionNotFound); strings.Contains(fmt.Sprint(e.Details["available"]), "2.0.0") {
		t.Error("an invisible version is listed")
	}
	_, _, hidden := c.Resolve(t.Context(), p, "a.b", "", only())
	_, _, missing := c.Resolve(t.Context(), p, "a.c", "", only())
	if a, b := hidden.Error(), missing.Error(); strings.ReplaceAll(a, "a.b", "a.c") != b {
		t.Errorf("hidden and missing differ:\n%s\n%s", a, b)
	}
	if _, _, err := c.Resolve(t.Context(), p, "a.c", "", nil); wantCode(t, err, toolkeep.ToolNotFound).Details["nearest"] != "a.b" || !strings.HasSuffix(err.Error(), "did you mean a.b?") {
		t.Error(err)
	}
	if _, _, err := c.Describe(t.Context(), p, "a.c", "^1", nil); wantCode(t, err, toolkeep.ToolNotFound).Details["nearest"] != "a.b" || !strings.HasSuffix(err.Error(), "did you mean a.b?") {
		t.Errorf("reading names no nearest one: %v", err)
	}
	if _, _, err := c.Describe(t.Context(), p, "a.c", "", func(*toolkeep.Tool) bool { return false }); wantCode(t, err, toolkeep.ToolNotFound).Details["nearest"] != nil {
		t.Errorf("a tool that is not visible is named: %v", err)
	}
	if _, _, err := c.Find(p, "a.c", "", nil); wantCode(t, err, toolkeep.ToolNotFound).Details["nearest"] != nil {
		t.Errorf("%v", err)
	}
	if _, _, err := c.Resolve(t.Context(), p, "x.unlike", "", nil); wantCode(t, err, toolkeep.ToolNotFound).Details["nearest"] != nil {
		t.Error(err)
	}
	if _, _, err := c.Resolve(t.Context(), admin("other"), "a.b", "", nil); codeOf(err) != toolkeep.ToolNotFound {
		t.Errorf("another tenant sees the tool: %v", err)
	}
	if _, _, err := c.Resolve(t.Context(), nil, "a.b", "", nil); codeOf(err) != toolkeep.ToolNotFound {
		t.Errorf("nobody sees the tool: %v", err)
	}
}

// TestNearest: however many tools there are, the nearest id is proposed, and few are asked about.
func TestNearest(t *testing.T) {
	c, _, _ := open(t)
	var all [][]byte
	for i := range 400 {
		all = append(all, manifest(fmt.Sprintf("big.op%04d", i), "1.0.0", `{"description":"one of many"}`))
	}
	if _, err := c.Publish(t.Context(), admin("acme"), all, PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	asked := 0
	seen := func(hidden string) func(*toolkeep.Tool) bool {
		return func(t *toolkeep.Tool) bool { asked++; return hidden != "*" && t.ID != hidden }
	}
	for _, tc := range []struct{ tenant, id, hidden, want string }{
		{"acme", "big.oop0399", "", "big.op0399"},
		{"acme", "bgi.op0399", "", "big.op0399"},
		{"acme", "big.oop0399", "big.op0399", "big.op0099"},
		{"acme", "big.oop0399", "*", ""},
		{"acme", "big.unlike", "", ""},
		{"other", "big.oop0399", "", ""},
	} {
		asked = 0
		_, _, err := c.Resolve(t.Context(), admin(tc.tenant), tc.id, "", seen(tc.hidden))
		if got, _ := wantCode(t, err, toolkeep.ToolNotFound).Details["nearest"].(string); got != tc.want || asked > maxNear {
			t.Errorf("%+v: %q after %d questions", tc, got, asked)
		}
	}
}

// TestLifecycleTable tests the table of docs/lifecycle.md.
func TestLifecycleTable(t *testing.T) {
	c, _, now := open(t)
	p := admin("acme")
	resolve := func(rng string) (string, []toolkeep.Warning, error) {
		v, w, err := c.Resolve(t.Context(), p, "a.b", rng, nil)
		if err != nil {
			return "", w, err
		}
		return v.Tool.Version, w, nil
	}
	want := func(rng, version string, warned bool) {
		t.Helper()
		v, w, err := resolve(rng)
		if err != nil || v != version || (len(w) > 0) != warned {
			t.Errorf("%q gives %s %v %v, want %s", rng, v, w, err, version)
		}
	}
	publish(t, c, "a.b", "1.0.0", "1.1.0", "2.0.0")

	setState(t, c, "a.b", "1.1.0", StateChange{State: toolkeep.Deprecated, Reason: "slow", Successor: "2.0.0"})
	want("^1", "1.0.0", false)
	want("1.1.0", "1.1.0", true)
	_, w, _ := resolve("1.1.0")
	if w[0].Code != toolkeep.ToolDeprecated || w[0].Details["successor"] != "2.0.0" || w[0].Details["remove_after"] != "2026-04-02T03:04:05Z" || !strings.Contains(w[0].Message, "slow") {
		t.Errorf("%+v", w[0])
	}
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated})
	want("^1", "1.1.0", true)
	want("", "2.0.0", false)

	date := now.Now().Add(100 * day)
	setState(t, c, "a.b", "1.1.0", StateChange{State: toolkeep.Sunset, Date: date})
	want("^1", "1.0.0", true)
	want("1.1.0", "1.1.0", true)
	_, w, _ = resolve("1.1.0")
	if w[0].Details["sunset_at"] != stamp(date) {
		t.Errorf("%+v", w[0])
	}

	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Blocked, Reason: "leak"})
	_, _, err := resolve("1.0.0")
	if e := wantCode(t, err, toolkeep.ToolBlocked); e.Details["reason"] != "leak" {
		t.Errorf("%+v", e)
	}
	_, _, err = resolve("^1")
	if e := wantCode(t, err, toolkeep.VersionConflict); !strings.Contains(e.Message, "1.1.0 is in sunset") {
		t.Error(e.Message)
	}
	_, _, err = resolve("~1.0")
	wantCode(t, err, toolkeep.ToolBlocked)

	now.add(101 * day)
	_, _, err = resolve("1.1.0")
	if e := wantCode(t, err, toolkeep.ToolRemoved); e.Details["successor"] != "2.0.0" {
		t.Errorf("%+v", e)
	}
	setState(t, c, "a.b", "1.1.0", StateChange{State: toolkeep.Removed})
	_, _, err = resolve("1.1.0")
	wantCode(t, err, toolkeep.ToolRemoved)
	_, _, err = resolve("~1.1")
	wantCode(t, err, toolkeep.ToolRemoved)

	setState(t, c, "a.b", "2.0.0", StateChange{State: toolkeep.Removed, Now: true})
	_, _, err = resolve("latest")
	wantCode(t, err, toolkeep.ToolRemoved)

	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Active})
	want("latest", "1.0.0", false)
}

func TestResolveUnknownState(t *testing.T) {
	tool := parsed(t)
	v, err := newReader(Defaults{}).version(toolkeep.Version{Tool: tool, Life: toolkeep.Lifecycle{State: "quarantined"}})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{})
	if _, _, err := c.give(everything, newEntry(&toolKey{id: "a.b"}, []*version{v}), v); codeOf(err) != toolkeep.ToolBlocked {
		t.Errorf("a state that this build does not know executes: %v", err)
	}
}

func TestRangeCacheIsBounded(t *testing.T) {
	var r ranges
	for i := range 3 * maxCachedRanges {
		if _, err := r.parse(fmt.Sprintf("^%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.known) > maxCachedRanges {
		t.Errorf("%d ranges are kept", len(r.known))
	}
}

func TestResolveAllocatesNothing(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0")
	p := admin("acme")
	visible := func(*toolkeep.Tool) bool { return true }
	for _, rng := range []string{"", "latest", "1.0.0"} {
		if n := testing.AllocsPerRun(100, func() { _, _, _ = c.Resolve(t.Context(), p, "a.b", rng, visible) }); n > 0 {
			t.Errorf("%q allocates %v times", rng, n)
		}
	}
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"^1.2", ">=1 <3", "1 || 2", "1.0 - 2", "*", "v1", "=1.2.3", "!=1", "^", "~>1"} {
		f.Add(s)
	}
	c, _, _ := open(f)
	publish(f, c, "a.b", "1.0.0", "2.0.0-x")
	f.Fuzz(func(t *testing.T, s string) {
		v, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", s, nil)
		if err == nil && v.Tool == nil {
			t.Errorf("%q gives nothing", s)
		}
		if err != nil && codeOf(err) == "" {
			t.Errorf("%q: %v", s, err)
		}
	})
}

func BenchmarkResolve10000(b *testing.B) {
	c := New(Config{})
	var changes []toolkeep.Committed
	for i := range 10_000 {
		tool, err := ParseManifest(manifest(fmt.Sprintf("ns%d.tool%d", i%100, i), "1.0.0"))
		if err != nil {
			b.Fatal(err)
		}
		tool.Tenant = "acme"
		changes = append(changes, toolkeep.Committed{Seq: int64(i + 1), Change: toolkeep.PublishVersion{
			Version: toolkeep.Version{Tool: tool, Life: toolkeep.Lifecycle{State: toolkeep.Active}}}})
	}
	c.show(c.current.Load().next(changes, c.unreadable))
	p := admin("acme")
	visible := func(*toolkeep.Tool) bool { return true }
	for _, rng := range []string{"", "1.0.0", "^1"} {
		b.Run("range="+rng, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := c.Resolve(b.Context(), p, "ns42.tool4242", rng, visible); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("next snapshot", func(b *testing.B) {
		b.ReportAllocs()
		seq := int64(20_000)
		for b.Loop() {
			seq++
			c.current.Load().next([]toolkeep.Committed{{Seq: seq, Change: toolkeep.SetLifecycle{Tenant: "acme", ToolID: "ns42.tool4242", Version: "1.0.0"}}}, c.unreadable)
		}
	})
}
