package redact

// Held is how many values are in memory.
func (s *Secrets) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}
