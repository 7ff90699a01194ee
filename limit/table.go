package limit

import (
	"hash/maphash"
	"math/bits"
	"sync"
)

const (
	shardCount = 64
	// sweepFrom is the least number of new buckets between two sweeps of a shard for droppable ones.
	sweepFrom = 64
	// sample is the number of buckets compared when one must be evicted.
	sample = 32
)

// key is the hash of a bucket's agent and tool names.
type key struct{ a, b uint64 }

// hasher hashes names to keys. Its two seeds are random, so a client cannot choose
// names that share a bucket.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

// key hashes three names; order matters.
func (h hasher) key(x, y, z string) key {
	return key{
		mix(mix(maphash.String(h.a, x), maphash.String(h.a, y)), maphash.String(h.a, z)),
		mix(mix(maphash.String(h.b, x), maphash.String(h.b, y)), maphash.String(h.b, z)),
	}
}

// with adds a number to a key.
func (k key) with(n int) key {
	return key{mix(k.a, uint64(n)), mix(k.b, uint64(n))}
}

// mix combines two hashes; order matters.
func mix(x, y uint64) uint64 {
	return bits.RotateLeft64(x, 23)*0x9e3779b97f4a7c15 ^ y*0xd6e8feb86659fd93
}

// bucket is an entry of a table.
type bucket interface {
	freeAt() int64 // when it is equivalent to a new one
	pinned() bool  // whether a call refers to it
}

// table is a bounded map of buckets in shards, each with its own lock.
type table[T any, B interface {
	*T
	bucket
}] struct {
	shards [shardCount]shard[T, B]
}

// shard is one part of a table. mu guards all of it, including the buckets.
type shard[T any, B interface {
	*T
	bucket
}] struct {
	mu      sync.Mutex
	buckets map[key]B
	made    int // new buckets since the last sweep
	sweepAt int // made at which it is swept
	max     int
}

// newTable returns a table of at most about size buckets.
func newTable[T any, B interface {
	*T
	bucket
}](size int) *table[T, B] {
	t := new(table[T, B])
	for i := range t.shards {
		s := &t.shards[i]
		s.buckets = make(map[key]B)
		s.max = max(1, size/shardCount)
		s.sweepAt = sweepFrom
	}
	return t
}

// open locks the shard of k, which the caller must unlock, and returns the bucket of k.
// With take it creates a missing bucket, and ok is false if there is no room; without
// take a missing bucket is nil.
func open[T any, B interface {
	*T
	bucket
}](t *table[T, B], k key, take bool, now int64) (s *shard[T, B], b B, ok bool) {
	s = t.lock(k)
	if !take {
		return s, s.buckets[k], true
	}
	b = s.make(k, now)
	return s, b, b != nil
}

// lock locks and returns the shard of k.
func (t *table[T, B]) lock(k key) *shard[T, B] {
	s := &t.shards[k.a%shardCount]
	s.mu.Lock()
	return s
}

// make returns the bucket of k, creating it if needed; nil if the shard is full of
// buckets in use.
func (s *shard[T, B]) make(k key, now int64) B {
	if b, ok := s.buckets[k]; ok {
		return b
	}
	if s.made++; s.made >= s.sweepAt {
		s.sweep(now)
	}
	if len(s.buckets) >= s.max && !s.dropOne() {
		return nil
	}
	b := B(new(T))
	s.buckets[k] = b
	return b
}

// sweep drops buckets that carry no information. The next sweep runs after as many new buckets as stay, so the cost
// per new bucket is constant, also where the shard is full.
func (s *shard[T, B]) sweep(now int64) {
	for k, b := range s.buckets {
		if !b.pinned() && b.freeAt() <= now {
			delete(s.buckets, k)
		}
	}
	s.made, s.sweepAt = 0, max(sweepFrom, len(s.buckets))
}

// dropOne drops, of a small sample, the bucket that will be full soonest: its owner
// gains least. A bucket that a call refers to stays.
func (s *shard[T, B]) dropOne() bool {
	var victim key
	var soonest B
	looked := 0
	for k, b := range s.buckets { // map order is random
		if !b.pinned() && (soonest == nil || b.freeAt() < soonest.freeAt()) {
			victim, soonest = k, b
		}
		if looked++; looked >= sample && soonest != nil {
			break
		}
	}
	if soonest == nil {
		return false
	}
	delete(s.buckets, victim)
	return true
}
