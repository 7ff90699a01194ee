package schema

import (
	"context"

	"github.com/maypok86/otter/v2"
)

// DefaultCacheSize is the default maximum number of schemas in a Cache. A typical compiled schema takes about 17
// KB.
const DefaultCacheSize = 4096

// Cache keeps compiled schemas. It is bounded, evicts the least used, and does not lock on a hit.
type Cache struct{ schemas *otter.Cache[string, *Schema] }

// NewCache makes a cache of at most max schemas; DefaultCacheSize if max is 0 or less.
func NewCache(max int) *Cache {
	if max <= 0 {
		max = DefaultCacheSize
	}
	return &Cache{schemas: otter.Must(&otter.Options[string, *Schema]{MaximumSize: max})}
}

// Get returns the schema for key and compiles raw on a miss; concurrent callers for one key share one compilation.
// key must determine raw, as a digest does. A failed compilation is not kept. The error is that of Compile.
func (c *Cache) Get(key string, raw []byte) (*Schema, error) {
	if s, ok := c.schemas.GetIfPresent(key); ok {
		return s, nil
	}
	return c.schemas.Get(context.Background(), key,
		otter.LoaderFunc[string, *Schema](func(context.Context, string) (*Schema, error) { return Compile(raw) }))
}
