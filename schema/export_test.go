package schema

import "context"

// Settle waits for pending evictions.
func (c *Cache) Settle() { c.schemas.CleanUp() }

// Len returns the approximate number of cached schemas.
func (c *Cache) Len() int { return c.schemas.EstimatedSize() }

// LibraryAccepts is the verdict of the library that compiles the schemas.
func (s *Schema) LibraryAccepts(v any) bool { return s.compiled.Validate(v) == nil }

// Steps returns how many steps a check of v takes; whether it is valid, or ends at a limit.
func (s *Schema) Steps(v any) (steps int, valid, limited bool) {
	parts, _ := checkNumbers(v)
	r := s.newRun(context.Background(), parts)
	defer func() {
		steps = r.used
		if p := recover(); p != nil {
			limited = true
		}
	}()
	return 0, len(r.faults(v, false)) == 0, false
}

// Memory is what Check keeps its digests in.
type Memory struct{ m memory }

// NewMemory makes a memory of two generations of at most max digests.
func NewMemory(max int) *Memory { return &Memory{memory{max: max}} }

func (m *Memory) Check(raw []byte) error { return m.m.check(raw) }

func (m *Memory) Len() int { return len(m.m.now) + len(m.m.before) }
