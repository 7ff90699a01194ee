// Package usage records how tools are used, so that search can learn from it: a tool's success for
// a tenant, what was called in a conversation, which tools are used together, which a user prefers,
// and after which queries a tool was chosen (Discovery 2.2.3, 7).
//
// # State
//
// The state is a function of the store's journal only: ended calls, and the events in event.go that
// faces and people write. It holds a position, the newest entry by writer, and everything up to
// there; an entry counts once, whichever node reads it. A day ends with the first entry of the next one,
// and data older than Config.Keep is dropped then.
//
// Every node folds its own entries as they are committed. One, the leader, also reads what the
// others wrote, each second, and writes checkpoints: the JSON of the state with its position, in
// documents of the store, replaced in one Apply once a day, and about every minute where other nodes
// share the store. A node that does not lead takes each checkpoint, folds again what it knows and
// the checkpoint does not have, and shows the result: the leader's state of a minute ago and its own
// calls of now. It reads the others' entries only where a caller must know what was just written
// there: for feedback on a search that another node made, and to forget a user.
//
// Any node may write a checkpoint, and it may lead without knowing that another does: the head's
// revision decides between them, and the loser takes the winner's. A crash loses nothing and counts
// nothing twice. The first start on an old store, and one that cannot read the checkpoint, folds
// what the journal still has.
//
// # Order
//
// Entries have an order for each writer only. What is counted does not depend on the others: a call
// is attributed to its search, and feedback too, whichever is read first; a user who was forgotten
// stays so though entries of before are read afterwards. What may differ is named at TestAnyOrder.
//
// # Readers
//
// Folding holds the write lock for microseconds (0.1 ms for what is read in batches), and once a day
// for the milliseconds in which a tenant's counts age. All readers take the read lock.
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
