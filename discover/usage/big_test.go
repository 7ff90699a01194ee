//go:build !race

package usage

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestBigState: a state with several parts.
func TestBigState(t *testing.T) {
	f := newFolder(t)
	r := rand.NewChaCha8([32]byte{5, 6})
	for i := range 8000 {
		var half [200]byte
		_, _ = r.Read(half[:]) // it has no error
		b := hex.AppendEncode(nil, half[:])
		f.searched(fmt.Sprint("r", i), string(b[:100]), fmt.Sprint("s", i), string(b[100:]), fmt.Sprint("tool.", string(b[:80])), string(b[:300]))
		f.after(time.Second).used(string(b[:100]), fmt.Sprint("s", i), fmt.Sprint("tool.", string(b[:80])))
	}
	if err := f.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := f.c.Store.(*memory)
	parts := store.count(func(c toolkeep.Change) bool {
		p, ok := c.(toolkeep.PutDocument)
		return ok && p.Document.ID != headID
	})
	if parts < 2 {
		t.Fatalf("%d parts", parts)
	}
	u := New(f.c)
	err := u.take(t.Context())
	if err != nil || !maps.Equal(u.state.position, f.state.position) || u.state.position[0] == 0 || u.dump(t) != f.dump(t) {
		t.Errorf("read up to %v, %v", u.state.position, err)
	}
}
