package limit

import (
	"hash/maphash"
	"math/bits"
	"sync"
)

const (
	shardCount = 64
	// sweepFrom is the least number of new entries between two sweeps of a shard for droppable ones.
	sweepFrom = 64
	// sample is the number of entries compared when one must be evicted.
	sample = 32
)

// key is the hash of the names of an entry.
type key struct{ a, b uint64 }

// hasher hashes names to keys. Its two seeds are random, so a client cannot choose
// names that share an entry.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

// key hashes up to three names; order matters, and empty ones at the end are left out.
func (h hasher) key(x, y, z string) key {
	k := key{maphash.String(h.a, x), maphash.String(h.b, x)}
	if y != "" || z != "" {
		k = key{mix(k.a, maphash.String(h.a, y)), mix(k.b, maphash.String(h.b, y))}
	}
	if z != "" {
		k = key{mix(k.a, maphash.String(h.a, z)), mix(k.b, maphash.String(h.b, z))}
	}
	return k
}

// with adds a number to a key.
func (k key) with(n int) key {
	return key{mix(k.a, uint64(n)), mix(k.b, uint64(n))}
}

// mix combines two hashes; order matters.
func mix(x, y uint64) uint64 {
	return bits.RotateLeft64(x, 23)*0x9e3779b97f4a7c15 ^ y*0xd6e8feb86659fd93
}

// entry is what is counted of one agent, agent on a tool, tool, tenant or upstream.
type entry struct {
	meter
	counts
}

// table is a bounded map of entries in shards, each with its own lock.
type table struct {
	shards [shardCount]shard
}

// shard is one part of a table. mu guards all of it, including the entries.
type shard struct {
	mu      sync.Mutex
	entries map[key]*entry
	made    int // new entries since the last sweep
	sweepAt int // made at which it is swept
	max     int
}

// newTable returns a table of at most about size entries.
func newTable(size int) *table {
	t := new(table)
	for i := range t.shards {
		s := &t.shards[i]
		s.entries = make(map[key]*entry)
		s.max = max(1, size/shardCount)
		s.sweepAt = sweepFrom
	}
	return t
}

// open locks the shard of k, which the caller must unlock, and returns the entry of k.
// With take it creates a missing entry, and ok is false if there is no room; without
// take a missing entry is nil.
func (t *table) open(k key, take bool, now int64) (s *shard, e *entry, ok bool) {
	s = t.lock(k)
	if !take {
		return s, s.entries[k], true
	}
	e = s.make(k, now)
	return s, e, e != nil
}

// lock locks and returns the shard of k.
func (t *table) lock(k key) *shard {
	s := &t.shards[k.a%shardCount]
	s.mu.Lock()
	return s
}

// make returns the entry of k, creating it if needed; nil if the shard is full of
// entries in use.
func (s *shard) make(k key, now int64) *entry {
	if e, ok := s.entries[k]; ok {
		return e
	}
	if s.made++; s.made >= s.sweepAt {
		s.sweep(now)
	}
	if len(s.entries) >= s.max && !s.dropOne() {
		return nil
	}
	e := new(entry)
	s.entries[k] = e
	return e
}

// sweep drops entries that carry no information. The next sweep runs after as many new entries as stay, so the cost
// per new entry is constant, also where the shard is full.
func (s *shard) sweep(now int64) {
	for k, e := range s.entries {
		if !e.pinned() && e.freeAt() <= now {
			delete(s.entries, k)
		}
	}
	s.made, s.sweepAt = 0, max(sweepFrom, len(s.entries))
}

// dropOne drops, of a small sample, the entry that will be free soonest: its owner
// gains least. An entry that a call refers to stays.
func (s *shard) dropOne() bool {
	var victim key
	var soonest *entry
	looked := 0
	for k, e := range s.entries { // map order is random
		if !e.pinned() && (soonest == nil || e.freeAt() < soonest.freeAt()) {
			victim, soonest = k, e
		}
		if looked++; looked >= sample && soonest != nil {
			break
		}
	}
	if soonest == nil {
		return false
	}
	delete(s.entries, victim)
	return true
}
