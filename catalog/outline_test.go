package catalog

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
)

// heavy is a manifest with every member that an outline lacks.
func heavy(id, version string) []byte {
	return []byte(`{"schema_version":1,"tool_id":"` + id + `","version":"` + version + `","description":"says it","side_effects":"reads",
		"parameters_schema":{"$defs":{"a":{"description":"` + strings.Repeat("at length; ", 40) + `"}},"properties":{"a":{"$ref":"#/$defs/a"}},"type":"object"},
		"result_schema":{"type":"object"},"examples":[{"scenario":"s","input":{"a":1}}],"execution":{"kind":"builtin","binding":{"name":"echo"}}}`)
}

// fromStore is a version as a store returns it: an outline without defaults.
func fromStore(t *testing.T, raw []byte) toolkeep.Version {
	t.Helper()
	tool, err := ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	tool.Tenant = "acme"
	m, err := pack.New(tool)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := pack.Decode(tool.Raw)
	if err != nil {
		t.Fatal(err)
	}
	tool.Raw, tool.Manifest, tool.Packed = nil, pack.Outline(decoded), m
	return toolkeep.Version{Tool: tool, Life: toolkeep.Lifecycle{State: toolkeep.Active}}
}

// TestOutlines: lists and snapshots have outlines, with the node's defaults; a call and a description get the whole
// manifest. So it is for what was published here and for what the store has from before.
func TestOutlines(t *testing.T) {
	published, _, _ := open(t, func(c *Config) { c.Defaults.Timeout = 7 * time.Second })
	must(t, published, heavy("ns.a", "1.0.0"))
	r := newReader(Defaults{Timeout: 7 * time.Second})
	read, err := r.version(fromStore(t, heavy("ns.a", "1.0.0")))
	if err != nil {
		t.Fatal(err)
	}
	for name, tool := range map[string]*toolkeep.Tool{"published": first(published).Tool, "stored": read.Tool} {
		m := tool.Manifest
		if tool.Raw != nil || m.ParametersSchema != nil || m.ResultSchema != nil || m.Examples != nil || m.Execution.Binding != nil {
			t.Errorf("%s: more than an outline is kept: %+v", name, m)
		}
		if m.Execution.TimeoutMS != 7000 || m.Retry.MaxAttempts != 3 || m.Result.MaxOutputBytes != 2_000_000 || m.Result.StrictAsked {
			t.Errorf("%s: the outline has other defaults: %+v %+v", name, m.Execution, m.Result)
		}
		whole, err := tool.Whole()
		if err != nil {
			t.Fatal(err)
		}
		checked, err := Check(heavy("ns.a", "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		want := checked.with(Defaults{Timeout: 7 * time.Second})
		want.Tenant = "acme"
		if d := Compare(want, whole); d.Bump != BumpNone || string(whole.Raw) != string(want.Raw) || whole.Tenant != "acme" || len(whole.Manifest.Examples) != 1 ||
			string(whole.Manifest.Execution.Binding) != `{"name":"echo"}` || whole.Manifest.Execution.TimeoutMS != 7000 {
			t.Errorf("%s: the whole one is %+v", name, whole)
		}
		if again, err := tool.Whole(); err != nil || again != whole {
			t.Errorf("%s: it is unpacked again at the next call: %v", name, err)
		}
	}
	v, _, err := published.Resolve(t.Context(), publisher("acme"), "ns.a", "", nil)
	if err != nil || len(v.Tool.Manifest.ParametersSchema) == 0 || len(v.Tool.Raw) == 0 {
		t.Errorf("a call gets %+v, %v", v.Tool, err)
	}
	if v, _, err = published.Find(publisher("acme"), "ns.a", "", nil); err != nil || v.Tool.Manifest.ParametersSchema != nil {
		t.Errorf("a look-up gets %+v, %v", v.Tool, err)
	}
}

func must(t *testing.T, c *Catalog, manifest []byte) {
	t.Helper()
	if _, err := c.Publish(t.Context(), publisher("acme"), [][]byte{manifest}, PublishOptions{}); err != nil {
		t.Fatal(err)
	}
}

func first(c *Catalog) (v toolkeep.Version) {
	for v = range c.Snapshot().All() {
		break
	}
	return v
}

// TestDamagedManifest: a stored manifest that is not the published one is E3003 for calls, never another tool; lists go
// on.
func TestDamagedManifest(t *testing.T) {
	good, other := fromStore(t, heavy("ns.a", "1.0.0")), fromStore(t, heavy("ns.a", "1.0.1"))
	good.Tool.Packed = other.Tool.Packed
	c, _, _ := open(t)
	s := c.Snapshot().next([]toolkeep.Committed{{Seq: 1, Change: toolkeep.PublishVersion{Version: good}}}, c.unreadable)
	c.current.Store(s)
	if _, _, err := c.Resolve(t.Context(), publisher("acme"), "ns.a", "", nil); !toolkeep.IsCode(err, toolkeep.RegistryUnavailable) {
		t.Errorf("a call: %v", err)
	}
	if list, n := c.List(publisher("acme"), Filter{}, nil); n != 1 || list[0].Description != "says it" {
		t.Errorf("the list has %+v", list)
	}
	if _, err := c.Publish(t.Context(), publisher("acme"), [][]byte{heavy("ns.a", "1.1.0")}, PublishOptions{}); !toolkeep.IsCode(err, toolkeep.RegistryUnavailable) {
		t.Errorf("a version that cannot be compared: %v", err)
	}
}

// TestWholeTogether: many callers of few tools get the right ones, while the cache has room for none.
func TestWholeTogether(t *testing.T) {
	c, _, _ := open(t)
	for _, id := range []string{"ns.a", "ns.b", "ns.c"} {
		must(t, c, heavy(id, "1.0.0"))
	}
	c.read.wholes.SetMaximum(4000)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 50 {
				id := "ns." + string(rune('a'+(i+k)%3))
				if v, _, err := c.Resolve(t.Context(), publisher("acme"), id, "", nil); err != nil || v.Tool.ID != id || !strings.Contains(string(v.Tool.Raw), id) {
					t.Errorf("%s: %v %v", id, v.Tool, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestLoadIsNext: the first snapshot, whose stored outlines become those of the catalogue, is the one that the same
// publications would make.
func TestLoadIsNext(t *testing.T) {
	made := func() (list []toolkeep.Version) {
		for i, of := range []struct{ tenant, id, version string }{
			{"", "b.two", "1.0.0"}, {"", "b.two", "2.0.0-beta"}, {"acme", "a.one", "10.0.0"}, {"acme", "a.one", "9.0.0"}, {"acme", "b.two", "1.0.0"}, {"blue", "a.one", "1.0.0"},
		} {
			extra := `{"cache":{"policy":"ttl"}}`
			if i%2 == 0 {
				extra = `{"retry":{"max_attempts":7}}`
			}
			v := fromStore(t, manifest(of.id, of.version, extra))
			v.Tool.Tenant = of.tenant
			list = append(list, v)
		}
		return append(list, toolkeep.Version{Tool: &toolkeep.Tool{ID: "a.broken", Version: "one"}})
	}
	var unread []string
	report := func(id, _ string, _ error) { unread = append(unread, id) }
	r := newReader(Defaults{CacheTTL: time.Minute})
	loaded := emptySnapshot(r)
	loaded.load(made(), report)
	var changes []toolkeep.Committed
	for _, v := range made() {
		changes = append(changes, toolkeep.Committed{Seq: 1, Change: toolkeep.PublishVersion{Version: v}})
	}
	next := emptySnapshot(r).next(changes, report)
	if !slices.Equal(unread, []string{"a.broken", "a.broken"}) {
		t.Errorf("unreadable were %v", unread)
	}
	a, b := slices.Collect(loaded.All()), slices.Collect(next.All())
	if len(a) != 6 || len(b) != 6 || loaded.Tools() != next.Tools() || loaded.Count() != next.Count() {
		t.Fatalf("%d and %d versions, %d and %d counted", len(a), len(b), loaded.Count(), next.Count())
	}
	for i := range a {
		x, y := a[i].Tool, b[i].Tool
		if x.Ref() != y.Ref() || x.Tenant != y.Tenant || !reflect.DeepEqual(x.Manifest, y.Manifest) {
			t.Errorf("%d: %s of %q\n%+v\n%+v", i, x.Ref(), x.Tenant, x.Manifest, y.Manifest)
		}
		latest := func(s *Snapshot) string { return s.entry(toolKey{x.ID, x.Tenant}).latest.Tool.Version }
		if latest(loaded) != latest(next) {
			t.Errorf("%s: latest is %s and %s", x.ID, latest(loaded), latest(next))
		}
	}
}
