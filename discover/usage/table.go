package usage

import (
	"container/list"
	"iter"
	"sync"
)

// table is a map that one goroutine writes and any number read without a lock.
type table[K comparable, V any] struct {
	m    sync.Map
	size int // of the writer
}

func (t *table[K, V]) get(k K) (v V, ok bool) {
	x, ok := t.m.Load(k)
	if !ok {
		return v, false
	}
	return x.(V), true
}

func (t *table[K, V]) put(k K, v V) {
	if _, there := t.m.Swap(k, v); !there {
		t.size++
	}
}

func (t *table[K, V]) drop(k K) {
	if _, there := t.m.LoadAndDelete(k); there {
		t.size--
	}
}

// recency keeps things in the order in which they were last touched.
type recency[T any] struct{ l list.List }

// touch makes x the newest; at is nil for one that is new.
func (r *recency[T]) touch(x T, at *list.Element) *list.Element {
	if at == nil {
		return r.l.PushBack(x)
	}
	r.l.MoveToBack(at)
	return at
}

func (r *recency[T]) remove(at *list.Element) { r.l.Remove(at) }

func (r *recency[T]) len() int { return r.l.Len() }

// oldest is what was not touched for longest.
func (r *recency[T]) oldest() (x T, ok bool) {
	if e := r.l.Front(); e != nil {
		return e.Value.(T), true
	}
	return x, false
}

// all yields from the oldest to the newest. The one that it gave may be removed.
func (r *recency[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for e := r.l.Front(); e != nil; {
			next := e.Next()
			if !yield(e.Value.(T)) {
				return
			}
			e = next
		}
	}
}
