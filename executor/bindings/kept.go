package bindings

import (
	"sync"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
)

// maxKept bounds the entries of a Kept.
const maxKept = 8192

// Kept caches parsed bindings, a B per tool digest. The zero value is ready to use; it
// is safe for concurrent use.
type Kept[B any] struct {
	byDigest sync.Map // digest of a tool -> *B
	n        atomic.Int64
}

// Of returns the tool's binding, read once per digest, or each time if the tool has no
// digest. A full cache is emptied, which costs one read for each tool still in use.
// Errors: E3008 with the faults.
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

// Error is the error of a call of a tool with faults in its binding. Nothing was sent.
func Error(faults []toolkeep.Fault) *toolkeep.Error {
	err := toolkeep.FaultsError(toolkeep.InvalidManifest, "the tool's binding cannot be executed; publish a corrected version", faults)
	err.NothingSent = true
	return err
}
