package discover

import "github.com/toolkeep/toolkeep"

// Tools gives every tool of the index that visible lets through (nil lets all through),
// ordered by id, then tenant.
func (x *Index) Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool {
	p := x.current.Load()
	out := make([]*toolkeep.Tool, 0, len(p.sorted))
	for _, at := range p.sorted {
		if t := p.docs[at].tool; visible == nil || visible(t) {
			out = append(out, t)
		}
	}
	return out
}
