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

// TestCorrupt changes each part of a stored result, as a fault of memory or of a program would.
func TestCorrupt(t *testing.T) {
	whole := func() *toolkeep.Result {
		r := output(`{"a":1}`)
		r.ToolID, r.ToolVersion, r.State, r.StartedAt, r.EndedAt = "x.y", "1.0.0", toolkeep.CallSucceeded, time.Unix(1, 0), time.Unix(2, 0)
		r.Warnings = []toolkeep.Warning{{Code: toolkeep.FieldIgnored, Message: "w", Details: map[string]any{"n": 1, "m": 2}}}
		r.Attachments = []toolkeep.Attachment{{Kind: "blob", URL: "/b", ContentType: "text/plain", Bytes: 5, SHA256: "2c"}}
		return r
	}
	for name, change := range map[string]func(r *toolkeep.Result){
		"output":       func(r *toolkeep.Result) { r.Output[5] ^= 1 },
		"tool":         func(r *toolkeep.Result) { r.ToolID = "x.z" },
		"version":      func(r *toolkeep.Result) { r.ToolVersion = "1.0.1" },
		"state":        func(r *toolkeep.Result) { r.State = toolkeep.CallFailed },
		"truncated":    func(r *toolkeep.Result) { r.Truncated = true },
		"times":        func(r *toolkeep.Result) { r.EndedAt = r.EndedAt.Add(1) },
		"warning":      func(r *toolkeep.Result) { r.Warnings[0].Message = "v" },
		"its details":  func(r *toolkeep.Result) { r.Warnings[0].Details["n"] = 2 },
		"its code":     func(r *toolkeep.Result) { r.Warnings[0].Code = toolkeep.Hedged },
		"no warning":   func(r *toolkeep.Result) { r.Warnings = nil },
		"kind":         func(r *toolkeep.Result) { r.Attachments[0].Kind = "image" },
		"address":      func(r *toolkeep.Result) { r.Attachments[0].URL = "/c" },
		"content type": func(r *toolkeep.Result) { r.Attachments[0].ContentType = "text/html" },
		"size":         func(r *toolkeep.Result) { r.Attachments[0].Bytes++ },
		"SHA-256":      func(r *toolkeep.Result) { r.Attachments[0].SHA256 = "2d" },
		"nothing":      func(*toolkeep.Result) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{})
			defer c.Stop()
			for n := range 2 {
				c.Put(keyOf(n), "t", "x.y", whole(), ttl)
			}
			e, _ := c.store.GetEntryQuietly(keyOf(0))
			change(&e.Value.result)
			intact := name == "nothing"
			if _, ok := c.Stale(keyOf(0)); ok != intact {
				t.Error("a corrupt result was given")
			}
			if _, ok := c.Get(keyOf(0)); ok != intact {
				t.Error("a corrupt result was given")
			}
			if _, ok := c.Get(keyOf(1)); !ok {
				t.Error("an intact result is gone")
			}
			if s := c.Stats(); !intact && (s.Corruptions != 1 || s.Evictions[ManualInvalidation] != 0 || s.Entries != 1 || s.Misses != 1) {
				t.Errorf("%+v", s)
			}
		})
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
			if put, ok := ch.(toolkeep.PutDocument); !ok || put.Document.UpdatedBy != "ann" {
				t.Errorf("%+v does not say who asked", ch)
			}
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
		n, err := here.Drop(t.Context(), tc.tenant, tc.tool, "ann")
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
	if _, err := away.Drop(t.Context(), "t", "", "ann"); err == nil {
		t.Error("the other nodes were not told, and no error says so")
	}
}
