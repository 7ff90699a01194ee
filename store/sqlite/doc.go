// Package sqlite stores the state of Toolkeep in one SQLite file.
//
// # Connections
//
// One connection writes. It is a *sql.DB of size one, so that the store and the queue,
// which shares it through WriteDB, take turns instead of running into each other's
// locks. A small pool reads, and one more connection checkpoints the write-ahead log,
// so that no commit has to.
//
// # The writer
//
// Apply prepares its changes (checks, encoding) in the caller, queues them and waits.
// One goroutine takes everything queued and commits it in one transaction. Each Apply
// that can fail runs inside a savepoint. Rows of the feed and of the journal are collected
// in memory and inserted together just before COMMIT, so a failed Apply leaves neither rows
// nor sequence numbers, and the sequences have no gaps of their own.
//
//	queued -> taken -> (savepoint -> changes -> release) -> feed and journal -> COMMIT -> published -> answered
//
// The writer's in-memory state (head, ring, rows still to be indexed) changes only
// after COMMIT has succeeded.
//
// # The journal and the index
//
// A call that has ended when it is recorded costs one narrow row of the journal. The table
// invocations follows: the writer copies such rows there in batches, between groups,
// and the mark "indexed" records its progress. Rows not yet copied are also in memory,
// up to a limit, so a claim still sees that an id is taken, and a reader makes the
// writer catch up first.
//
// A synchronous call that is claimed costs one row of the table claims, which has no index, and
// its end one more for the output, beside that of the journal. It is copied as it is then: mostly once, when it has
// ended. Get and ByKey find it in memory until the table has it, and changes that are rare, such as a request to
// cancel it, have the writer copy it first. The row of claims goes in the transaction that copies the call; a process that opens the file
// copies what the last one left there, with the ends that the journal has after the mark. For this no row
// of the journal after the mark is removed.
//
//	claimed -> running in memory and claims -> ended in memory, journal and claims -> table invocations
//	                                        -> table invocations, if it runs for longer than 250 ms
//
// # The chain
//
// Each entry has a hash, which the writer computes as it inserts the row: see toolkeep.ChainHash.
// A process that opens the file is a run with a number of its own and begins a new chain for each
// tenant; the table runs has its first entry. After FeedKeep an entry of a call becomes short: it
// keeps its hash, and its data is that of the call's row, where ended holds what was replaced
// since the call ended.
//
// # Lock order
//
// The locks of package flow are leaf locks. All fields of writer belong to its
// goroutine.
package sqlite
