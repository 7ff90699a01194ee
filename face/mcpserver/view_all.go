package mcpserver

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

// named finds a tool by its name in the view; nil if it does not exist for the caller. Tools that a
// list leaves out, such as deprecated ones and in view search all, can also be called by name.
func (x *exchange) named(name string) *entry {
	ix := x.s.index(x.p.Tenant)
	e := ix.name(name)
	if x.v.kind == viewRelay {
		e = ix.ofUpstream(x.v.relay)[name]
	}
	if e == nil || !x.known(e) {
		return nil
	}
	return e
}

// known reports whether any version of a tool exists for the caller.
func (x *exchange) known(e *entry) bool { return e.pick(x.sees) != nil || x.sees(e.newest()) }
