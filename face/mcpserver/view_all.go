package mcpserver

import "github.com/toolkeep/toolkeep"

// allListing returns every tool of the view that the caller may see. With most > 0 it stops after
// most + 1 tools.
func (x *exchange) allListing(most int) listing {
	var l listing
	for e := range x.s.index(x.p.Tenant).tools() {
		if t := e.pick(x.sees); t != nil {
			l.tools = append(l.tools, listed{e.name, t})
			if most > 0 && len(l.tools) > most {
				break
			}
		}
	}
	return l
}

// named finds a tool by its name in the view, whether or not it exists for the caller; nil if there is none.
// Tools that a list leaves out, such as deprecated ones and in view search all, can also be called by name.
func (x *exchange) named(name string) *entry {
	ix := x.s.index(x.p.Tenant)
	if x.v.kind == viewRelay {
		return ix.ofUpstream(x.v.relay)[name]
	}
	return ix.name(name)
}

// has reports whether visible admits any version of a tool; false for nil.
func (e *entry) has(visible func(*toolkeep.Tool) bool) bool {
	return e != nil && (e.pick(visible) != nil || visible(e.newest()))
}
