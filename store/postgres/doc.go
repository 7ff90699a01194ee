// Package postgres stores the state of Toolkeep in PostgreSQL, for one node or for
// several that share it. It needs PostgreSQL 14 or newer, reached directly or through a
// pooler, through which it polls the feed unless Config.DirectDSN lets it listen.
//
// # Order of the feed
//
// The feed is what every node must know. Several nodes write, and a reader must never see
// a change before one with a lower sequence number. A sequence object does not guarantee
// this: numbers are drawn in one order and committed in another. Here the numbers come
// from the single row of feed_head:
//
//	UPDATE feed_head SET seq = seq + n RETURNING seq
//
// A transaction that has updated the row holds its lock until it ends, and the next one
// gets the lock only after the previous transaction has become visible (PostgreSQL
// makes a transaction visible to new snapshots before it releases its locks). So
// commits happen in the order of their numbers, a snapshot with number n has all
// numbers below n, and a transaction that is rolled back returns its numbers: there are
// no gaps to wait for. A reader simply asks for what is above the last number it has.
//
// The cost is that these commits of all nodes are serialised. They are few: nothing of a
// call is among them.
//
// # Order of the journal
//
// A call that ended has in its row the writer that ended it and the number of the entry;
// events are rows of their own with the same two. The writer counts the numbers in memory
// and commits one group after the other, so a reader that sees an entry sees all those of
// the writer before it; numbers of a request that failed leave gaps. No transaction of a
// call touches a row that another writer's needs, unless it is the same call or the same
// idempotency key.
//
// An event, and the end of a call that was claimed, draws a stamp from the sequence journal_stamp: see
// toolkeep.Link. It was drawn after all that the maker of the entry had read was committed, and waits for no
// other transaction.
//
// Each entry has a hash, which covers the tenant's entry before it: see toolkeep.ChainHash. It is
// computed when the statement is made, in the order of the numbers. A request that fails takes its
// hash back; if later ones of the group were already sent, the group is tried again with one request
// at a time. A call's data may be replaced when its answer expires; ended then holds what it was.
//
// # The writer
//
// Each node has one goroutine that writes, on its own connection. As in the SQLite
// store, concurrent Applies share a transaction; each that can fail runs inside a
// savepoint. A group that consists only of finished calls and events is one message and
// one transaction. Single-change Applies with a claim or a move also go in one message, and
// only those that changed no row are then examined one by one.
//
//	queued -> taken -> [claims, moves], (savepoint -> changes -> release) -> [writer, calls, events, (head, feed rows, NOTIFY), COMMIT] -> answered
//
// If the connection is lost during a COMMIT, its outcome is unknown. The first
// statement of the last message therefore advances the writer's number in its row of
// writers by one. A new connection reads that row, which waits for a transaction that
// is still open, and skips one number, so that anything from the old connection that
// has not yet reached the server fails. Then the group is known to be committed, or is
// retried, within Config.Timeout.
//
// # Readers
//
// A node passes its own commits directly to its watchers, those of the feed if no other
// node committed in between. A follower fetches everything else of the feed when a
// notification names a number that is not there yet, when a commit of this node saw one,
// and every pollInterval in case a notification was lost. While the database is
// unreachable, watchers wait, and then continue where they were.
//
// The table invocations is written in the same transaction, so reads see every Apply that
// has returned, on any node.
//
// # Partitions
//
// The tables invocations and events are partitioned by time: see partitions.go. Ids are UUIDs of version 7
// in most cases, whose text has the order of time; whatever an id is, its row has a partition,
// and (tenant, id) is unique in all of them. Idempotency keys are unique across partitions,
// so they are rows of call_keys. writers has the number of each writer's newest entry.
//
// # Text
//
// PostgreSQL text cannot hold NUL or invalid UTF-8. Such strings are stored in an
// escaped form (see text), so that no call fails because of them.
//
// # Lock order
//
// Rows of calls, versions, keys and items in the order of the changes; then the row of feed_head. The row of a
// call's idempotency key comes before the call's when it is claimed, and after it when the call frees
// its key or takes it to another subject. Retention locks a partitioned table before its
// partitions. Two groups that touch the same calls in opposite order deadlock; PostgreSQL aborts
// one of them and the writer retries it.
package postgres
