package invoke

// PrivateCalls is how many calls run alone, or wait for that, because nothing of what
// they asked together may be shared.
func (p *Pipeline) PrivateCalls() (n int) {
	p.private.mu.Lock()
	defer p.private.mu.Unlock()
	for _, at := range p.private.of {
		n += at.users
	}
	return n
}
