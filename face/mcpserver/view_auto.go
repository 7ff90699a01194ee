package mcpserver

import (
	"slices"
	"strings"
)

// Tools that a session has found enter the model's context with every list. Left out are tools
// whose definition is larger than maxFoundTool bytes, and the oldest finds once all together exceed
// maxFound; call_tool can still call them.
const (
	maxFoundTool = 16 << 10
	maxFound     = 64 << 10
)

// autoListing returns all tools if the caller sees few, else those of view search and those the
// session has found.
func (x *exchange) autoListing() listing {
	few := x.allListing(x.s.c.AutoTools)
	if len(few.tools) <= x.s.c.AutoTools {
		return few
	}
	l := listing{search: true}
	if x.ses == nil {
		return l
	}
	x.ses.mu.Lock()
	found := slices.Clone(x.ses.found)
	x.ses.mu.Unlock()
	ix := x.s.index(x.p.Tenant)
	room := maxFound
	for _, id := range slices.Backward(found) {
		e := ix.id(id)
		if e == nil {
			continue
		}
		t := e.pick(x.sees)
		if t == nil {
			continue
		}
		size := len(t.definition().rest)
		if size > maxFoundTool {
			continue
		}
		if room -= size; room < 0 {
			break
		}
		l.tools = append(l.tools, listed{e.name, t})
	}
	slices.SortFunc(l.tools, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	return l
}
