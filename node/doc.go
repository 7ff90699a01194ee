// Package node is one running Toolkeep: every part made from the configuration
// and wired to the others. cmd/toolkeep serves one, toolkeeptest starts one for a
// test.
//
// Start order is the order of the fields below; Stop goes backwards: no new calls
// (E3912), the listeners close and wait, the queue's workers end or give their
// calls back, then the feed's followers, then the store.
package node
