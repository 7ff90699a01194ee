// Package postgres keeps the state of Toolkeep in PostgreSQL, for one node or
// for several that behave as one. It needs PostgreSQL 14 or newer, reached
// directly or through a pooler in session mode, because it listens for
// notifications.
//
// # Order of the feed
//
// Several nodes write, and a reader must never see a change before one with a
// lower sequence number is there. A sequence object does not give this: numbers
// are drawn in one order and committed in another. Here the numbers come from
// the one row of feed_head:
//
//	UPDATE feed_head SET seq = seq + n RETURNING seq
//
// Whoever has updated that row holds its lock until the transaction is over, and
// the next one gets the lock only after the transaction before has become
// visible (PostgreSQL ends a transaction for new snapshots before it releases
// its locks). So commits happen in the order of their numbers, any snapshot
// that has number n has all below n, and a transaction that is rolled back takes
// its numbers with it: there are no holes to wait for. A reader needs no horizon
// and no patience: it asks for what is above the last number it has.
//
// The price is that commits of all nodes happen one after the other. It stays
// small because the lock is taken last: everything else a group does comes
// before, and the update, the feed rows, the notification and the COMMIT go to
// the server in one message, so the lock is held for the work of the server and
// never for a wait on the network.
//
// # The writer
//
// Each node has one goroutine that writes, on a connection of its own. As in the
// store on SQLite, concurrent Applies share a transaction; each that can fail
// runs inside a savepoint. A group of nothing but finished calls is one message
// and one transaction. Claims and moves that are an Apply each go in one message
// too, and only those that changed no row are looked at one by one.
//
//	queued -> taken -> [claims, moves], (savepoint -> changes -> release) -> [head, feed rows, NOTIFY, COMMIT] -> answered
//
// Where the connection is lost while a COMMIT is under way nobody knows whether
// it happened. The first statement of each transaction therefore sets the
// writer's number in its row of writers, from the one before to the next; a new
// connection reads that row, which waits for a transaction that is still open,
// and burns one number, so that whatever of the old connection has not yet reached
// the server can no longer succeed. The group is then known to be done, or is
// done again, within Config.Timeout.
//
// # Readers
//
// What a node commits goes straight to its own watchers if no other node
// committed in between. Everything else is fetched by a follower when a
// notification names a number that is not there yet, and every PollInterval in
// case one was lost. Watchers of a node whose database is away wait and go on
// where they were.
//
// The table invocations is written in the same transaction as the feed, so
// reads see every Apply that returned, on whatever node.
//
// # Text
//
// Text in PostgreSQL cannot hold NUL or broken UTF-8. Such strings are kept in
// an escaped form (see text), so they cost nobody their call.
//
// # Lock order
//
// Rows of calls, versions, keys and items in the order of the changes; then the row of
// feed_head. Two groups that touch the same calls in opposite order deadlock;
// PostgreSQL ends one of them and the writer does it again.
package postgres
