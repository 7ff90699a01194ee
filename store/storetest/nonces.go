package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// testNonces: of all who claim a nonce one gets it, also after the store was opened again; a
// change beside a nonce that is taken is not made.
func testNonces(t *testing.T, f *fixture) {
	var won atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			err := f.store.Apply(t.Context(), toolkeep.ClaimNonce{Nonce: [32]byte{1}})
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, toolkeep.ErrNonceTaken) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d claims of one nonce won", won.Load())
	}
	f.store = f.reopen()
	f.refused(toolkeep.ErrNonceTaken, toolkeep.ClaimNonce{Nonce: [32]byte{1}, At: f.clock()})
	f.apply(toolkeep.ClaimNonce{Nonce: [32]byte{2}, At: f.clock()})
	f.refused(toolkeep.ErrNonceTaken, toolkeep.PutKey{Key: apiKey("t", "a")}, toolkeep.ClaimNonce{Nonce: [32]byte{2}})
	if f.head() != 0 {
		t.Errorf("the feed is at %d", f.head())
	}
}
