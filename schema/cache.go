package schema

import (
	"context"

	"github.com/maypok86/otter/v2"
)

// DefaultCacheSize is how many schemas a Cache keeps unless told otherwise. A
// compiled schema of ordinary size takes about 17 KB.
const DefaultCacheSize = 4096

// Cache keeps compiled schemas. It is bounded, drops what is used least, and
// does not lock on a hit.
type Cache struct{ schemas *otter.Cache[string, *Schema] }

// NewCache makes a cache of at most max schemas; DefaultCacheSize where max is 0
// or less.
func NewCache(max int) *Cache {
	if max <= 0 {
		max = DefaultCacheSize
	}
	return &Cache{schemas: otter.Must(&otter.Options[string, *Schema]{MaximumSize: max})}
}

// Get gives the schema for key and compiles raw where it is not held; callers
// that ask for one key at the same time wait for one compilation. key must
// determine raw, as a digest does. A failed compilation is not kept. The error is
// that of Compile.
func (c *Cache) Get(key string, raw []byte) (*Schema, error) {
	if s, ok := c.schemas.GetIfPresent(key); ok {
		return s, nil
	}
	return c.schemas.Get(context.Background(), key,
		otter.LoaderFunc[string, *Schema](func(context.Context, string) (*Schema, error) { return Compile(raw) }))
}
