package search

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// TestOrdersFold gives orders while one is carried out: they are carried out as one, after
// it.
func TestOrdersFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done sync.WaitGroup
		did, hold, at := []string{}, make(chan struct{}), 0
		r := &reindexer{spawn: done.Go}
		r.do = func(o folded) {
			if at++; at != 1 {
				t.Error("two at once")
			}
			did = append(did, fmt.Sprint(o))
			<-hold
			at--
		}
		r.take("acme", order{IDs: []string{"b", "a"}})
		synctest.Wait() // it is at work
		for range 3 {
			r.take("acme", order{IDs: []string{"c", "a"}})
			r.take("acme", order{IDs: []string{"b"}})
			r.take("acme", order{IDs: []string{"d"}, Embeddings: true})
			r.take("rival", order{IDs: []string{"x"}, Embeddings: true})
			r.take("rival", order{All: true, Embeddings: true})
			r.take("rival", order{IDs: []string{"y"}, Embeddings: true})
		}
		hold <- struct{}{}
		synctest.Wait()
		hold <- struct{}{}
		done.Wait()
		// One that comes when nothing is left begins again.
		r.take("acme", order{All: true})
		hold <- struct{}{}
		done.Wait()
		want := []string{
			fmt.Sprint(folded{{"acme", false}: {IDs: []string{"a", "b"}}}),
			fmt.Sprint(folded{{"acme", false}: {IDs: []string{"a", "b", "c"}}, {"acme", true}: {IDs: []string{"d"}, Embeddings: true}, {"rival", true}: {All: true, Embeddings: true}}),
			fmt.Sprint(folded{{"acme", false}: {All: true}}),
		}
		if fmt.Sprint(did) != fmt.Sprint(want) {
			t.Errorf("did %v\nwant %v", did, want)
		}
	})
}
