// Package usage learns from how tools are used, so that search can: how a tool did for
// a tenant, what was called in a conversation, which tools go together, which a user
// prefers, and after which questions a tool was chosen (Discovery 2.2.3, 7).
//
// # State
//
// The state is a function of the store's feed and of nothing else: finished calls
// (RecordCall, MoveCall), and events of the types in event.go that faces and people
// write. Every node folds the same changes in the same order and so knows the same,
// within the moment that the feed takes. Time is that of the feed: a day ends on all
// nodes with the first change of the next one, and what is older than Config.Keep is
// dropped then.
//
// A change counts once. The state holds the number of the change that it reached; a
// checkpoint is the state at one such number, and a start reads the checkpoint and then
// the feed after it. The checkpoint is the JSON of the state in documents of the store,
// replaced in one Apply once a day. A crash loses nothing and counts nothing twice. The
// first start on an old store, and one that cannot read the checkpoint, reads what the
// feed still has.
//
// # Readers
//
// One goroutine folds and holds the write lock for microseconds, once a day for the
// milliseconds in which a tenant grows a day older. All readers take the read lock.
//
// # Bounds
//
// For each tenant: 10,000 sessions of 50 calls, 20,000 tools with 32 pairs and 20
// questions each, 10,000 users with 50 tools each, 20,000 questions, 2,000 searches
// that wait for a choice and 2,000 of which something was chosen; 1,000 tenants. What is
// over a bound drives out what was not used for longest, or counts least. 10,000 tools,
// with sessions, questions and searches up to their bounds, were measured at 33 MB after
// a day in which each was called, and at 70 MB after 30 such days; their checkpoint
// takes 3.8 MB.
package usage
