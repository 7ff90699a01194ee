// Package membership is one node among the nodes of a store: it tells them what they should
// know of it, knows which of them live, and leads works that only one of them may do at a
// time.
//
// # Who lives
//
// A node writes its state every 3 s, a beat, and reads that of the others; one that has been
// silent for toolkeep.NodeGone counts as gone. Its name survives a restart, its Run does
// not. The last Run that joined has the name: an earlier one that still runs, which means
// that two processes were given one name, learns it from its next beat and is not ready.
//
// # Who leads
//
// A work has at most one leader. The store's clock decides: a lead lasts 10 s and is renewed
// every 3 s. The leader counts the 10 s from before it asked, by its own clock, so it is
// never longer than the store's, and ends the work 2 s before them. Both the monotonic and
// the wall clock count: the first stands still while a machine sleeps. So
//
//   - a dead node's work is taken over within 10 s and one interval of asking, 13 s,
//   - a node that cannot reach the store ends its works before another can begin them,
//   - a process that was stopped ends them when it wakes. What it does in the instant before
//     that must not hurt: works make each step in a transaction that checks what it changes.
package membership
