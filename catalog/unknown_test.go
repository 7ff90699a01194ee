package catalog

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// lateStore brings the feed from a time on; the zero time is never.
type lateStore struct {
	*memory
	from time.Time
	away error // of Head
}

func (s *lateStore) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		for c, err := range s.memory.Watch(ctx, after) {
			if s.from.IsZero() {
				<-ctx.Done()
			}
			toolkeep.Sleep(ctx, time.Until(s.from))
			if ctx.Err() != nil || !yield(c, err) {
				return
			}
		}
	}
}

func (s *lateStore) Head(ctx context.Context) (int64, error) {
	if s.away != nil {
		return 0, s.away
	}
	return s.memory.Head(ctx)
}

// TestToolOfAnotherNode: a tool, version or capability that this node has not read yet is looked for among all that is
// committed before it is refused.
func TestToolOfAnotherNode(t *testing.T) {
	agent := &toolkeep.Principal{Tenant: "acme", Subject: "bot"}
	look := func(t *testing.T, c *Catalog, id, rng string) (time.Duration, error) {
		start := time.Now()
		_, _, err1 := c.Resolve(t.Context(), agent, id, rng, nil)
		took := time.Since(start)
		if id[:1] == "c" { // capabilities are called and not described
			return took, err1
		}
		_, _, err2 := c.Describe(t.Context(), agent, id, rng, nil)
		if codeOf(err1) != codeOf(err2) {
			t.Errorf("%s: called %v, described %v", id, err1, err2)
		}
		return took, err1
	}
	for _, r := range []struct {
		name, id, rng string
		late, took    time.Duration
		away          error
		want          toolkeep.Code
	}{
		{"a tool", "a.new", "", 300 * time.Millisecond, 300 * time.Millisecond, nil, ""},
		{"an exact version", "a.b", "1.1.0", 300 * time.Millisecond, 300 * time.Millisecond, nil, ""},
		{"a range", "a.b", "~1.1", 300 * time.Millisecond, 300 * time.Millisecond, nil, ""},
		{"a capability", "capability:new-things", "", 300 * time.Millisecond, 300 * time.Millisecond, nil, ""},
		{"a known tool", "a.b", "", -1, 0, nil, ""},
		{"no tool", "a.none", "", 300 * time.Millisecond, 300 * time.Millisecond, nil, toolkeep.ToolNotFound},
		{"a feed that does not move", "a.new", "", -1, unknownWait, nil, toolkeep.RegistryUnavailable},
		{"a store that is away", "a.none", "", 0, 0, errors.New("away"), toolkeep.RegistryUnavailable},
	} {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, store, now := open(t)
				put := func(manifest []byte) {
					if _, err := one.Publish(t.Context(), admin("acme"), [][]byte{manifest}, PublishOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				put(manifest("a.b", "1.0.0"))
				late := &lateStore{memory: store, away: r.away}
				if r.late >= 0 {
					late.from = time.Now().Add(r.late)
				}
				two := New(Config{Store: late, Clock: now.Now, Load: one.loadNow})
				if err := two.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer two.Stop()
				put(manifest("a.new", "1.0.0", `{"capabilities":["new-things"]}`))
				put(manifest("a.b", "1.1.0"))
				took, err := look(t, two, r.id, r.rng)
				if codeOf(err) != r.want || took != r.took {
					t.Errorf("%v after %v, want %s after %v", err, took, r.want, r.took)
				}
			})
		})
	}
}

// loadNow is Config.Load of another catalogue on the same store.
func (c *Catalog) loadNow(ctx context.Context) ([]toolkeep.Version, int64, error) {
	head, err := c.store.Head(ctx)
	var all []toolkeep.Version
	for v := range c.Snapshot().All() {
		all = append(all, v)
	}
	return all, head, err
}
