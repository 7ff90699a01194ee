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
	maxSeen  = 4096 // maximum references of principals
	keepLast = 24 * time.Hour
)

// memory records, per reference that calls used, the version last seen and, if enabled, the sealed value. It never
// replaces a store that answers.
type memory struct {
	mu     sync.Mutex
	byRef  map[[32]byte]*list.Element
	recent *list.List // of *trace, latest first
}

type trace struct {
	key    [32]byte
	value  Value  // without bytes
	sealed []byte // nil if nothing is kept
	at     time.Time
}

func newMemory() *memory { return &memory{byRef: map[[32]byte]*list.Element{}, recent: list.New()} }

// traceKey separates principals that may get different values for a reference.
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

// get returns a copy of the trace.
func (m *memory) get(key [32]byte) (trace, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if el, has := m.byRef[key]; has {
		return *el.Value.(*trace), true
	}
	return trace{}, false
}

// put stores a trace and returns the previous one.
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

// noticed records what a store returned and counts a changed version.
func (r *Resolver) noticed(p *toolkeep.Principal, ref string, v Value) {
	t := trace{key: traceKey(p, ref), value: v, at: r.c.Clock()}
	t.value.Bytes = nil
	// A credential made for this call alone serves no other.
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

// lastGood returns the kept value of the last 24 hours while a store is unreachable, else err. If the store
// refused, the kept value is dropped.
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
	r.seldom.Warn("a secret's store cannot be reached; the last value from it is used", "secret_hash", RefHash(ref), "since", t.at, "error", err.Cause)
	v := t.value
	v.Bytes, v.KeptSince = plain, t.at
	return v, nil
}
