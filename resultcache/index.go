package resultcache

import (
	"maps"
	"slices"
	"sync"

	"github.com/maypok86/otter/v2"
)

// index tracks the keys of each tool and the total size of all entries. A key counts
// how many of its values are stored or about to be, because a new value is announced
// before the old one is reported as removed.
type index struct {
	mu          sync.Mutex
	tools       map[string]map[Key]int
	entries     int
	bytes       int64
	evictions   map[string]int64
	corruptions int64
	max         int
}

func (x *index) init(entries int) {
	x.tools = make(map[string]map[Key]int)
	x.evictions = make(map[string]int64, 4)
	x.max = entries
}

// adding announces a value that is about to be set.
func (x *index) adding(k Key, e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := x.tools[e.tool]
	if keys == nil {
		keys = make(map[Key]int)
		x.tools[e.tool] = keys
	}
	keys[k]++
	x.entries++
	x.bytes += e.size
}

// removed is called by the cache library for every removed value.
func (x *index) removed(d otter.DeletionEvent[Key, *entry]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case d.Cause == otter.CauseInvalidation && d.Value.corrupt.Load():
		x.corruptions++
	case d.Cause == otter.CauseInvalidation:
		x.evictions[ManualInvalidation]++
	case d.Cause == otter.CauseExpiration:
		x.evictions[TTLExpired]++
	case d.Cause == otter.CauseOverflow:
		if x.entries > x.max {
			x.evictions[CapacityExceeded]++
		} else {
			x.evictions[MemoryPressure]++
		}
	}
	x.entries--
	x.bytes -= d.Value.size
	keys := x.tools[d.Value.tool]
	if keys[d.Key]--; keys[d.Key] == 0 {
		delete(keys, d.Key)
		if len(keys) == 0 {
			delete(x.tools, d.Value.tool)
		}
	}
}

// keys returns the keys of a tool.
func (x *index) keys(tool string) []Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.tools[tool]))
}

func (x *index) toolIDs() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.tools))
}

func (x *index) stats(s *Stats) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s.Entries, s.Bytes, s.Evictions, s.Corruptions = x.entries, x.bytes, maps.Clone(x.evictions), x.corruptions
}
