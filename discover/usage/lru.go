package usage

import (
	"container/list"
	"iter"
	"slices"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// lru is a map that keeps its values in order of last use. Its JSON is the list of values, least
// recently used first.
type lru[K comparable, V interface{ key() K }] struct {
	m map[K]*list.Element
	l list.List
}

func (c *lru[K, V]) len() int { return c.l.Len() }

func (c *lru[K, V]) get(k K) (v V, ok bool) {
	e, ok := c.m[k]
	if !ok {
		return v, false
	}
	return e.Value.(V), true
}

// put adds v, or replaces the value with its key, and makes it the most recently used.
func (c *lru[K, V]) put(v V) {
	k := v.key()
	if e, ok := c.m[k]; ok {
		e.Value = v
		c.l.MoveToBack(e)
		return
	}
	if c.m == nil {
		c.m = map[K]*list.Element{}
	}
	c.m[k] = c.l.PushBack(v)
}

func (c *lru[K, V]) drop(k K) {
	if e, ok := c.m[k]; ok {
		c.l.Remove(e)
		delete(c.m, k)
	}
}

// all yields the values, least recently used first. The loop may drop the current one.
func (c *lru[K, V]) all() iter.Seq[V] {
	return func(yield func(V) bool) {
		for e := c.l.Front(); e != nil; {
			next := e.Next()
			if !yield(e.Value.(V)) {
				return
			}
			e = next
		}
	}
}

// evict drops the least recently used values until n are left, and yields them.
func (c *lru[K, V]) evict(n int) iter.Seq[V] {
	return func(yield func(V) bool) {
		for c.l.Len() > n {
			v := c.l.Front().Value.(V)
			c.drop(v.key())
			if !yield(v) {
				return
			}
		}
	}
}

func (c *lru[K, V]) MarshalJSONTo(enc *jsontext.Encoder) error {
	return json.MarshalEncode(enc, slices.AppendSeq(make([]V, 0, c.len()), c.all()))
}

func (c *lru[K, V]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var list []V
	if err := json.UnmarshalDecode(dec, &list); err != nil {
		return err
	}
	for _, v := range list {
		c.put(v)
	}
	return nil
}
