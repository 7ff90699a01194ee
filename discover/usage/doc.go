// Package usage records how tools are used, so that search can learn from it: a tool's success for
// a tenant, what was called in a conversation, which tools are used together, which a user prefers,
// and after which queries a tool was chosen (Discovery 2.2.3, 7).
//
// # State
//
// The state is a function of the store's feed only: finished calls (RecordCall, MoveCall), and the
// events in event.go that faces and people write. Every node folds the same changes in the same
// order and so has the same state, up to the delay of the feed. Time is the feed's: a day ends on
// all nodes with the first change of the next one, and data older than Config.Keep is dropped then.
//
// A change counts once. The state holds the number of the last change; a checkpoint is the state at
// one such number, and a start reads the checkpoint and then the feed after it. The checkpoint is
// the JSON of the state in documents of the store, replaced in one Apply once a day. A crash loses
// nothing and counts nothing twice. The first start on an old store, and one that cannot read the
// checkpoint, folds what the feed still has.
//
// # Readers
//
// One goroutine folds and holds the write lock for microseconds, and once a day for the
// milliseconds in which a tenant's counts age. All readers take the read lock.
//
// # Limits
//
// Per tenant: 10,000 sessions of 50 calls, 20,000 tools with 32 pairs and 20 queries each, 10,000
// users with 50 tools each, 20,000 queries, 2,000 searches that wait for a choice and 2,000 with a
// choice; 1,000 tenants. Above a limit, the least recently used or least weighted entries are
// dropped. 10,000 tools, with sessions, queries and searches at their limits, were measured at 33
// MB after a day in which each was called, and at 70 MB after 30 such days; their checkpoint takes
// 3.8 MB.
package usage
