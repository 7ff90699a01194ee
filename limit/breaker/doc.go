// Package breaker stops calls to what has failed too often, so that a tool that is down costs no time and gets no more
// load, and tries it again after a while.
//
// There is a breaker for each tool, by the rule of its manifest, and one for each upstream that tools share, by the rule
// of the settings. A tool's breaker counts what shows that the tool does not work; an upstream's only what shows that the
// whole host does not (see Counts). What a caller causes, with bad arguments or a short deadline, counts for neither.
//
// # States
//
//	closed        calls go through and are counted
//	open          calls are refused, until Rule.Open has passed
//	half_open     one node makes test calls; enough of them that succeed close the breaker, one that fails opens it
//	forced_open   an operator refuses calls until the breaker is reset or forced closed
//	forced_closed an operator lets calls through whatever they end with
//
// # Nodes
//
// Each node counts its own calls. The state is shared: it is a document of the store, written by compare and swap
// together with the event that tells of it, and every node follows the feed of documents. No document means closed. A
// breaker that opens refuses on its own node at once, also before the document is written. Test calls need the document:
// the node that wrote it makes them, for all; another one takes over, where it left off, if nothing was heard of them for
// testLease. So a call to a tool whose breaker is closed never waits for the store, and while the store cannot be read or
// written no breaker leaves open.
//
// # Memory
//
// A breaker takes under 1 KB. Those that are closed and without a call in their window carry no information; they are
// dropped when their shard grows, and one that finds no room is not counted.
//
// Lock order: Breaker.io, then Breaker.mu. A shard's lock is never held with one of them, except that a sweep of a shard
// asks its breakers.
package breaker
