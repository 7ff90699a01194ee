package discover

import "github.com/toolkeep/toolkeep"

// Tools gives every tool of the index that visible lets through (nil lets all through),
// ordered by id, then tenant.
func (x *Index) Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool {
	docs := x.current.Load().docs
	out := make([]*toolkeep.Tool, 0, len(docs))
	for _, d := range docs {
		if visible == nil || visible(d.tool) {
			out = append(out, d.tool)
		}
	}
	return out
}
