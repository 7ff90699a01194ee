package redact

// Held is how many values are in memory.
func (s *Secrets) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Sets is how many scopes are in memory.
func (c *Redactor) Sets() int { return int(c.many.Load()) }
