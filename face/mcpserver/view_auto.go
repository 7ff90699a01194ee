package mcpserver

import (
	"slices"
	"strings"
)

// What a session has found goes into the context of a model with every list. A tool that
// is larger than maxFoundTool, in bytes of its definition, is not in it, nor what was
// found long ago once all are larger than maxFound: call_tool calls those too.
const (
	maxFoundTool = 16 << 10
	maxFound     = 64 << 10
)

// autoListing is all tools while the caller sees few, else those of view search
// and what the session has found.
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
