package schema

// Settle waits for pending evictions.
func (c *Cache) Settle() { c.schemas.CleanUp() }

// Len returns the approximate number of cached schemas.
func (c *Cache) Len() int { return c.schemas.EstimatedSize() }
