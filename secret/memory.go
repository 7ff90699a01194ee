package secret

import (
	"container/list"
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	maxSeen  = 4096 // references of principals that are remembered
	keepLast = 24 * time.Hour
)

// memory is what is remembered of references that calls used: the version that was
// seen last and, where that is switched on, the sealed value. It never stands in for
// a store that answers.
type memory struct {
	mu     sync.Mutex
	byRef  map[[32]byte]*list.Element
	recent *list.List // of *trace, latest first
}

type trace struct {
	key    [32]byte
	value  Value  // without bytes
	sealed []byte // nil where nothing is kept
	at     time.Time
}

func newMemory() *memory { return &memory{byRef: map[[32]byte]*list.Element{}, recent: list.New()} }

// traceKey tells apart whoever may get different values for a reference.
func traceKey(p *toolkeep.Principal, ref string) [32]byte {
	h := sha256.New()
	who := toolkeep.Principal{}
	if p != nil {
		who = *p
	}
	for _, part := range []string{who.Tenant, who.Workspace, who.Subject, who.OnBehalf, ref} {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return [32]byte(h.Sum(nil))
}

// get gives a copy of the trace.
func (m *memory) get(key [32]byte) (trace, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if el, has := m.byRef[key]; has {
		return *el.Value.(*trace), true
	}
	return trace{}, false
}

// put remembers, and gives what was there before.
func (m *memory) put(t trace) (before trace, had bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if el, has := m.byRef[t.key]; has {
		now := el.Value.(*trace)
		before = *now
		*now = t
		m.recent.MoveToFront(el)
		return before, true
	}
	m.byRef[t.key] = m.recent.PushFront(&t)
	if m.recent.Len() > maxSeen {
		last := m.recent.Remove(m.recent.Back()).(*trace)
		delete(m.byRef, last.key)
	}
	return trace{}, false
}

func (m *memory) drop(key [32]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if el, has := m.byRef[key]; has {
		delete(m.byRef, m.recent.Remove(el).(*trace).key)
	}
}

// noticed remembers what a store gave, and counts a version that is another than
// before.
func (r *Resolver) noticed(p *toolkeep.Principal, ref string, v Value) {
	t := trace{key: traceKey(p, ref), value: v, at: r.c.Clock()}
	t.value.Bytes = nil
	// What was made for this call alone serves no other.
	if r.c.KeepLast != nil && (v.Version != "" || v.Expires.IsZero()) {
		if sealed, err := r.c.KeepLast.Seal(v.Bytes, t.key[:]); err == nil {
			t.sealed = sealed
		}
	}
	before, had := r.seen.put(t)
	if had && before.value.Version != "" && v.Version != "" && before.value.Version != v.Version && before.value.Scope == v.Scope {
		r.c.Rotated("picked_up")
	}
}

// lastGood is what serves while a store cannot be reached: what it gave within the
// last 24 hours, if that is kept, else err. What the store has refused is forgotten.
func (r *Resolver) lastGood(ctx context.Context, p *toolkeep.Principal, ref string, err *toolkeep.Error) (Value, error) {
	key := traceKey(p, ref)
	switch err.Code {
	case toolkeep.SecretRetrievalFailed:
	case toolkeep.SecretNotFound, toolkeep.SecretAccessDenied:
		r.seen.drop(key)
		return Value{}, err
	default:
		return Value{}, err
	}
	t, has := r.seen.get(key)
	now := r.c.Clock()
	if !has || t.sealed == nil || r.c.KeepLast == nil || ctx.Err() != nil || now.Sub(t.at) > keepLast || !t.value.Expires.IsZero() && !now.Before(t.value.Expires) {
		return Value{}, err
	}
	plain, openErr := r.c.KeepLast.Open(t.sealed, key[:])
	if openErr != nil {
		return Value{}, err
	}
	r.c.Log.Warn("a secret's store cannot be reached; what it gave last is used", "secret_hash", RefHash(ref), "since", t.at, "error", err.Cause)
	v := t.value
	v.Bytes, v.KeptSince = plain, t.at
	return v, nil
}
