package schema

import (
	"context"
	"crypto/sha256"
	"math"
	"sync"

	"github.com/maypok86/otter/v2"
)

// DefaultCacheBytes is the default bound of a Cache. A compiled schema takes about ten times its text, so that
// is 60 MB of memory.
const DefaultCacheBytes = 6 << 20

// cacheEntry is what an entry counts beside its text.
const cacheEntry = 100

// Cache keeps compiled schemas. It is bounded, evicts the least used, and does not lock on a hit.
type Cache struct{ schemas *otter.Cache[string, *Schema] }

// NewCache makes a cache of schemas whose texts have at most max bytes together, 100 more for each counted;
// DefaultCacheBytes if max is 0 or less. A schema that is larger alone is compiled for each call.
func NewCache(max int) *Cache {
	if max <= 0 {
		max = DefaultCacheBytes
	}
	return &Cache{schemas: otter.Must(&otter.Options[string, *Schema]{MaximumWeight: uint64(max),
		Weigher: func(_ string, s *Schema) uint32 { return uint32(min(s.text+cacheEntry, math.MaxUint32)) }})}
}

// Get returns the schema for key and compiles raw on a miss; concurrent callers for one key share one compilation.
// key must determine raw, as a digest does. A failed compilation is not kept. The error is that of Compile.
func (c *Cache) Get(key string, raw []byte) (*Schema, error) {
	if s, ok := c.schemas.GetIfPresent(key); ok {
		return s, nil
	}
	return c.schemas.Get(context.Background(), key,
		otter.LoaderFunc[string, *Schema](func(context.Context, string) (*Schema, error) {
			s, err := Compile(raw)
			if err == nil {
				s.text = len(raw)
			}
			return s, err
		}))
}

// Check returns the error that Compile has for raw. A schema that is imported, planned and published is checked at each
// of these steps, so Check remembers the digests of the 16,384 to 32,768 usable schemas that it saw last, in about 2 MB,
// and does not compile those again.
func Check(raw []byte) error { return usable.check(raw) }

var usable = memory{max: 16_384}

// memory keeps digests of schemas that Compile took, in two generations of at most max.
type memory struct {
	max         int
	mu          sync.Mutex
	now, before map[digest]struct{}
}

type digest = [sha256.Size]byte

func (m *memory) check(raw []byte) error {
	d := sha256.Sum256(raw)
	m.mu.Lock()
	_, now := m.now[d]
	_, before := m.before[d]
	m.mu.Unlock()
	if now {
		return nil
	}
	if !before {
		if _, err := Compile(raw); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil || len(m.now) >= m.max {
		m.now, m.before = map[digest]struct{}{}, m.now
	}
	m.now[d] = struct{}{}
	return nil
}
