package schema

// Settle waits until evictions that are due have happened.
func (c *Cache) Settle() { c.schemas.CleanUp() }

// Len is about how many schemas are held.
func (c *Cache) Len() int { return c.schemas.EstimatedSize() }
