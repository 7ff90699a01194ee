package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestStartLoads(t *testing.T) {
	tool := parsed(t)
	bare := *tool
	bare.Manifest, bare.Tenant = nil, "acme" // as a store may give it
	broken := toolkeep.Tool{ID: "a.broken", Version: "one"}
	store := newMemory()
	c := New(Config{Store: store, Log: slog.New(slog.DiscardHandler), Load: func(context.Context) ([]toolkeep.Version, int64, error) {
		return []toolkeep.Version{
			{Tool: &bare, Life: toolkeep.Lifecycle{State: toolkeep.Active}},
			{Tool: &broken, Life: toolkeep.Lifecycle{State: toolkeep.Active}},
		}, 7, nil
	}})
	var seen []int64
	c.OnChange(func(s *Snapshot) { seen = append(seen, s.Seq()) })
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	v, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "", nil)
	if err != nil || v.Tool.Manifest.Category != "utility" || bare.Manifest != nil {
		t.Errorf("%+v %v", v.Tool, err)
	}
	if !slices.Equal(seen, []int64{7}) {
		t.Errorf("listeners saw %v", seen)
	}
	if all := slices.Collect(c.Snapshot().All()); len(all) != 1 || c.Snapshot().Count() != 1 {
		t.Errorf("%v", all)
	}
}

func TestStartFails(t *testing.T) {
	c := New(Config{Store: newMemory(), Load: func(context.Context) ([]toolkeep.Version, int64, error) {
		return nil, 0, errors.New("no disk")
	}})
	wantCode(t, c.Start(t.Context()), toolkeep.RegistryUnavailable)
	c.Stop()
	c.Stop()
	wantCode(t, New(Config{}).Start(t.Context()), toolkeep.InternalError)
}

func TestFollowsOtherNodes(t *testing.T) {
	c, store, _ := open(t)
	changed := make(chan *Snapshot, 10)
	c.OnChange(func(s *Snapshot) { changed <- s })
	<-changed // at once
	tool := parsed(t)
	tool.Tenant = "acme"
	if err := store.Apply(t.Context(), toolkeep.PublishVersion{Version: toolkeep.Version{Tool: tool, Life: toolkeep.Lifecycle{State: toolkeep.Active}}}); err != nil {
		t.Fatal(err)
	}
	if s := <-changed; s.Tools() != 1 || s.Seq() != 1 {
		t.Errorf("%d tools at %d", s.Tools(), s.Seq())
	}
	old := c.Snapshot()
	if err := store.Apply(t.Context(), toolkeep.RecordCall{}, toolkeep.SetLifecycle{Tenant: "acme", ToolID: "a.b", Version: "1.0.0", Life: toolkeep.Lifecycle{State: toolkeep.Blocked}}); err != nil {
		t.Fatal(err)
	}
	if s := <-changed; s.Seq() != 3 {
		t.Errorf("at %d", s.Seq())
	}
	if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "", nil); codeOf(err) != toolkeep.ToolBlocked {
		t.Error(err)
	}
	for v := range old.All() {
		if v.Life.State != toolkeep.Active {
			t.Error("an old snapshot changed")
		}
	}
}

func TestFeedBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		store.broken = errors.New("connection lost")
		c := New(Config{Store: store, Clock: time.Now, Log: slog.New(slog.DiscardHandler), Checkers: map[string]Checker{"builtin": allow}})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		publish(t, c, "a.b", "1.0.0")
		if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "", nil); err != nil {
			t.Error(err)
		}
		if store.watches != 2 {
			t.Errorf("%d watches", store.watches)
		}
	})
}

func TestStopReleasesWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Store: newMemory(), Log: slog.New(slog.DiscardHandler)})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- c.await(context.Background(), 100) }()
		synctest.Wait()
		c.Stop()
		if err := <-done; !errors.Is(err, toolkeep.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestBurstIsJoined(t *testing.T) {
	c, store, _ := open(t)
	var snapshots atomic.Int64
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	var once sync.Once
	c.OnChange(func(s *Snapshot) {
		if snapshots.Add(1) == 2 { // the first of the burst
			once.Do(func() { held <- struct{}{}; <-hold })
		}
	})
	tool := parsed(t)
	tool.Tenant = "acme"
	if err := store.Apply(t.Context(), toolkeep.PublishVersion{Version: toolkeep.Version{Tool: tool, Life: toolkeep.Lifecycle{State: toolkeep.Active}}}); err != nil {
		t.Fatal(err)
	}
	<-held
	for i := range 1000 {
		if err := store.Apply(t.Context(), toolkeep.SetLifecycle{Tenant: "acme", ToolID: "a.b", Version: "1.0.0", Life: toolkeep.Lifecycle{State: toolkeep.Active, Reason: fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	close(hold)
	head, _ := store.Head(t.Context())
	if err := c.await(t.Context(), head); err != nil {
		t.Fatal(err)
	}
	if v, _, _ := c.Resolve(t.Context(), admin("acme"), "a.b", "", nil); v.Life.Reason != "999" {
		t.Errorf("%+v", v.Life)
	}
	if n := snapshots.Load(); n > 500 {
		t.Errorf("%d snapshots for 1000 changes", n)
	}
}

// TestHammer resolves, lists and publishes concurrently under the race detector; no reader may see a half-made
// tool.
func TestHammer(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0")
	p := admin("acme")
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			last := int64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, _, err := c.Resolve(t.Context(), p, "a.b", "^1", nil)
				if err != nil || v.Tool.Manifest == nil {
					t.Errorf("%+v %v", v, err)
					return
				}
				if seq := c.Snapshot().Seq(); seq < last {
					t.Errorf("the snapshot went back from %d to %d", last, seq)
				} else {
					last = seq
				}
				c.List(p, Filter{IncludeDeprecated: true}, nil)
			}
		})
	}
	for w := range 3 {
		writers.Go(func() {
			for i := range 15 {
				id := fmt.Sprintf("w.tool%d", w)
				if w == 0 {
					id = "a.b"
				}
				version := fmt.Sprintf("1.%d.0", i+1)
				if _, err := c.Publish(t.Context(), p, [][]byte{manifest(id, version)}, PublishOptions{}); err != nil {
					t.Error(err)
					return
				}
				if v, _, err := c.Resolve(t.Context(), p, id, "", nil); err != nil || v.Tool.Version != version {
					t.Errorf("after publishing %s: %+v %v", version, v.Tool, err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// TestChanged follows snapshots only by Changed, and ends with all versions.
func TestChanged(t *testing.T) {
	c, store, _ := open(t)
	follow := map[string]toolkeep.VersionState{}
	whole := 0
	seq := int64(0)
	c.OnChange(func(s *Snapshot) {
		versions, ok := s.Changed(seq)
		if !ok {
			whole++
			clear(follow)
			versions = s.All()
		}
		for v := range versions {
			follow[v.Tool.ID+"@"+v.Tool.Version] = v.Life.State
		}
		seq = s.Seq()
	})
	base := parsed(t)
	active := toolkeep.Lifecycle{State: toolkeep.Active}
	for i := range 30 {
		tool := *base
		tool.ID, tool.Version = fmt.Sprintf("a.t%d", i%7), fmt.Sprintf("1.0.%d", i)
		changes := []toolkeep.Change{toolkeep.PublishVersion{Version: toolkeep.Version{Tool: &tool, Life: active}}}
		if i%3 == 2 {
			changes = append(changes, toolkeep.SetLifecycle{ToolID: tool.ID, Version: tool.Version, Life: toolkeep.Lifecycle{State: toolkeep.Deprecated}})
		}
		if err := store.Apply(t.Context(), changes...); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 { // otherwise some changes come together
			head, _ := store.Head(t.Context())
			if err := c.await(t.Context(), head); err != nil {
				t.Fatal(err)
			}
		}
	}
	head, _ := store.Head(t.Context())
	if err := c.await(t.Context(), head); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	n := 0
	for v := range c.Snapshot().All() {
		n++
		if got := follow[v.Tool.ID+"@"+v.Tool.Version]; got != v.Life.State {
			t.Errorf("%s@%s is %s by what changed, %s in all", v.Tool.ID, v.Tool.Version, got, v.Life.State)
		}
	}
	if n != 30 || len(follow) != n {
		t.Errorf("%d versions, %d by what changed", n, len(follow))
	}
	if whole > 2 {
		t.Errorf("looked at the whole %d times", whole)
	}
	if _, ok := c.Snapshot().Changed(seq - 1); ok {
		t.Error("what changed since another snapshot than the one before is given")
	}
}
