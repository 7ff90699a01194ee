package schema

// Settle waits until evictions that are due have happened.
func (c *Cache) Settle() { c.schemas.CleanUp() }
