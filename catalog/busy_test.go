package catalog

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestBusyKeepsChangesOfOneToolApart(t *testing.T) {
	var b busy
	free := b.take([]string{"a.one", "a.two"})
	// Another tool is free.
	b.take([]string{"a.three"})()
	took := make(chan struct{})
	go func() {
		defer close(took)
		b.take([]string{"a.four", "a.two"})()
	}()
	// A waiting change holds nothing: a.four stays free for others.
	for range 100 {
		b.take([]string{"a.four"})()
	}
	select {
	case <-took:
		t.Fatal("a.two was taken twice")
	default:
	}
	free()
	<-took
}

func TestBusyHammer(t *testing.T) {
	var b busy
	var inside [4]atomic.Int32
	sets := [][]int{{0}, {1, 2}, {2, 3}, {3, 0}, {0, 1, 2, 3}, {1}}
	names := [4]string{"a.a", "a.b", "a.c", "a.d"}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			set := sets[i%len(sets)]
			var ids []string
			for _, k := range set {
				ids = append(ids, names[k])
			}
			for range 300 {
				free := b.take(ids)
				for _, k := range set {
					if inside[k].Add(1) != 1 {
						t.Error("two at once")
					}
				}
				for _, k := range set {
					inside[k].Add(-1)
				}
				free()
			}
		})
	}
	wg.Wait()
}

// Publications of different tools do not wait for each other's snapshot: one shows them all.
func TestPublicationsShareASnapshot(t *testing.T) {
	c, m, _ := open(t)
	hold := make(chan struct{})
	var shown atomic.Int32
	c.OnChange(func(s *Snapshot) {
		if shown.Add(1) == 2 { // the first was the empty one
			<-hold
		}
	})
	var wg sync.WaitGroup
	const n = 20
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprintf("a.t%d", i)
			if _, err := c.Publish(t.Context(), publisher("acme"), [][]byte{manifest(id, "1.0.0")}, PublishOptions{}); err != nil {
				t.Error(err)
			}
			if v, _, err := c.Resolve(t.Context(), publisher("acme"), id, "", nil); err != nil || v.Tool.ID != id {
				t.Errorf("%s is not shown after it was published: %v", id, err)
			}
		})
	}
	look, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer look.Stop()
	for m.applied() < n && !t.Failed() {
		select {
		case <-look.C:
		case <-late:
			t.Error("publications wait for a listener")
		}
	}
	close(hold)
	wg.Wait()
	if shown.Load() > 6 {
		t.Errorf("%d snapshots for %d publications", shown.Load(), n)
	}
}
