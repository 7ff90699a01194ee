package bindings

import (
	"sync"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
)

// maxKept bounds what a Kept holds.
const maxKept = 8192

// Kept holds the bindings of tools as an executor reads them, a B for each digest. The
// zero value is ready; it is safe for concurrent use.
type Kept[B any] struct {
	byDigest sync.Map // digest of a tool -> *B
	n        atomic.Int64
}

// Of gives the tool's binding, read once for each digest, and each time where the tool
// has none. When many were read it starts over, which costs one reading for each tool
// still in use. Errors: E3008 with the faults.
func (k *Kept[B]) Of(t *toolkeep.Tool, read func(*toolkeep.Manifest) (*B, []toolkeep.Fault)) (*B, *toolkeep.Error) {
	if b, ok := k.byDigest.Load(t.Digest); ok {
		return b.(*B), nil
	}
	b, faults := read(t.Manifest)
	if len(faults) > 0 {
		return nil, Error(faults)
	}
	if t.Digest != "" {
		if k.n.Add(1) > maxKept {
			k.byDigest.Clear()
			k.n.Store(1)
		}
		k.byDigest.Store(t.Digest, b)
	}
	return b, nil
}

// Error is what a call of a tool with such a binding fails with. Nothing was sent.
func Error(faults []toolkeep.Fault) *toolkeep.Error {
	err := toolkeep.FaultsError(toolkeep.InvalidManifest, "the tool's binding cannot be carried out; publish a corrected version", faults)
	err.NothingSent = true
	return err
}
