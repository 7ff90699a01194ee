package redact

import "io"

// Held returns the number of values in memory.
func (s *Secrets) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Sets returns the number of scopes in memory.
func (c *Redactor) Sets() int { return int(c.many.Load()) }

// ReaderOf is Reader with windows of another size.
func (v *Cleaner) ReaderOf(r io.Reader, piece, reach int) io.Reader {
	return &cleanReader{of: v, in: r, piece: piece, reach: reach}
}
