package mcpserver

import (
	"slices"
	"strings"
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
	for _, id := range found {
		e := ix.id(id)
		if e == nil {
			continue
		}
		if t := e.pick(x.sees); t != nil {
			l.tools = append(l.tools, listed{e.name, t})
		}
	}
	slices.SortFunc(l.tools, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	return l
}
