// Package servers is what people decide about the MCP servers behind Toolkeep: it
// imports, changes and removes them, compares what they offer with what was accepted,
// holds, publishes and retires their tools, seals the values of their definitions and
// says who sees which server.
//
// # Pins
//
// A definition of a tool is pinned by being published: its digest stands in the
// manifest's source. What a server offers later is compared with that whenever its lists
// are read.
//
//	(not offered) ── offered ──→ pending ── accept, or on_change=additive ──→ published
//	published ── changed, gone or invalid ──→ held ── as it was, or accept ──→ published
//	held ── gone and accepted ──→ blocked ── offered again and accepted ──→ published
//
// No state of this stands beside the catalogue, so every node comes to the same, and a
// comparison made twice changes nothing. Causes (toolkeep.Cause) say what blocked or held a
// version: what an administrator blocked or held is left alone.
//
// A call is verified against the definition that the server offered its tenant last
// (VerifyPinned), which needs neither the store nor a hold that has reached this node.
//
// Lock order: the lock of a server, then Servers.mu or index.mu, of which neither is
// taken while the other is held.
package servers
