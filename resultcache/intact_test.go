package resultcache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		defer c.Stop()
		c.Put(keyOf(1), "t", "x.y", output("1"), &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 10, StaleIfErrorS: 20})
		<-time.After(4 * time.Second)
		if r, ok := c.Get(keyOf(1)); !ok || r.Age != 4*time.Second {
			t.Errorf("%+v, %t", r, ok)
		}
		<-time.After(6 * time.Second)
		if _, ok := c.Get(keyOf(1)); ok || c.Peek(keyOf(1)) {
			t.Error("a result past its TTL was given without a failure")
		}
		<-time.After(20*time.Second - 1)
		if r, ok := c.Stale(keyOf(1)); !ok || string(r.Output) != "1" || !r.Cached || r.Age != 30*time.Second-1 {
			t.Errorf("%+v, %t", r, ok)
		}
		<-time.After(1)
		if _, ok := c.Stale(keyOf(1)); ok {
			t.Error("a result is given for ever")
		}
		if s := c.Stats(); s.Hits != 1 || s.Misses != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestCorrupt changes the bytes of a stored result, as a fault of memory or of a program would.
func TestCorrupt(t *testing.T) {
	c := New(Config{})
	defer c.Stop()
	for n := range 2 {
		c.Put(keyOf(n), "t", "x.y", output(`{"a":1}`), ttl)
	}
	e, _ := c.store.GetEntryQuietly(keyOf(0))
	e.Value.result.Output[5] ^= 1
	if _, ok := c.Stale(keyOf(0)); ok {
		t.Error("a corrupt result was given")
	}
	if _, ok := c.Get(keyOf(0)); ok {
		t.Error("a corrupt result was given")
	}
	if _, ok := c.Get(keyOf(1)); !ok {
		t.Error("an intact result is gone")
	}
	if s := c.Stats(); s.Corruptions != 1 || s.Evictions[ManualInvalidation] != 0 || s.Entries != 1 || s.Misses != 1 {
		t.Errorf("%+v", s)
	}
}

// applier hands changes to the caches of other nodes, as the feed does.
type applier func(...toolkeep.Change) error

func (f applier) Apply(_ context.Context, changes ...toolkeep.Change) error { return f(changes...) }
func (f applier) Head(context.Context) (int64, error)                       { return 0, nil }

// TestDropReachesEveryNode drops results on one node and looks at another.
func TestDropReachesEveryNode(t *testing.T) {
	there := New(Config{})
	defer there.Stop()
	here := New(Config{Store: applier(func(changes ...toolkeep.Change) error {
		for _, ch := range changes {
			there.Follow(toolkeep.Committed{Change: ch})
		}
		return nil
	})})
	defer here.Stop()
	fill := func() {
		for _, c := range []*Cache{here, there} {
			c.Put(keyOf(1), "t", "x.y", output("1"), ttl)
			c.Put(keyOf(2), "t", "x.z", output("1"), ttl)
			c.Put(keyOf(3), "u", "x.y", output("1"), ttl)
		}
	}
	for _, tc := range []struct {
		tenant, tool string
		want         [3]bool
		n            int
	}{{"t", "x.y", [3]bool{false, true, true}, 1}, {"t", "", [3]bool{false, false, true}, 2}, {"", "x.y", [3]bool{false, true, false}, 2}, {"", "", [3]bool{}, 3}} {
		fill()
		n, err := here.Drop(t.Context(), tc.tenant, tc.tool)
		if err != nil || n != tc.n {
			t.Errorf("%q of %q: %d dropped, %v", tc.tool, tc.tenant, n, err)
		}
		for _, c := range []*Cache{here, there} {
			if got := [3]bool{c.Peek(keyOf(1)), c.Peek(keyOf(2)), c.Peek(keyOf(3))}; got != tc.want {
				t.Errorf("%q of %q: left are %v, want %v", tc.tool, tc.tenant, got, tc.want)
			}
		}
	}
	away := New(Config{Store: applier(func(...toolkeep.Change) error { return errors.New("away") })})
	defer away.Stop()
	if _, err := away.Drop(t.Context(), "t", ""); err == nil {
		t.Error("the other nodes were not told, and no error says so")
	}
}
