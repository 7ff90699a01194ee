// Package sqlite keeps the state of Toolkeep in one SQLite file.
//
// # Connections
//
// One connection writes. It is a *sql.DB of size one, so that the queue, which
// shares it through WriteDB, and the store take turns on it instead of finding
// each other's locks. A small pool reads, and one more connection moves the
// write-ahead log into the database so that no commit ever pays for that.
//
// # The writer
//
// Apply prepares its changes where it is called (encoding, checks), queues them
// and waits. One goroutine takes all that is queued and commits it in one
// transaction. Each Apply that can fail runs inside a savepoint. Feed rows are
// gathered in memory and inserted together just before COMMIT, so an Apply that
// failed leaves neither rows nor sequence numbers behind, and the sequence has
// no holes of its own.
//
//	queued -> taken -> (savepoint -> changes -> release) -> feed rows -> COMMIT -> published -> answered
//
// Whatever the writer keeps in memory (head, ring, rows that still need
// indexing) moves only after COMMIT said yes.
//
// # The feed and the index
//
// A call that is over when it is recorded costs one narrow feed row. The table
// invocations follows: the writer copies such rows there in batches, between
// groups, and the mark "indexed" says how far it came. What is not yet copied
// is also in memory, bounded, so a claim still sees that an id is taken, and a
// reader asks the writer to catch up before it looks.
//
// # Lock order
//
// The locks of package flow are leaves. All fields of writer belong to its
// goroutine.
package sqlite
