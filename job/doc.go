// Package job holds the queue of waiting calls, and the periodic work of a node.
//
// The queue carries ids and nothing else. What a call is, in which state it is
// and who runs it stands in its invocation row; a job is only the nudge to look
// at that row. From this follow the rules of the package:
//
//   - A job may come twice, late, or for a call that is over. The Runner looks
//     at the row and answers nil if there is nothing to do.
//   - A call is waiting at most once: Enqueue of an id that already waits adds
//     nothing, but brings the waiting job forward if the new one is more urgent.
//   - A job that is being worked does not count as waiting. Otherwise the job of
//     a dead process, or of a worker that is about to finish, would swallow the
//     very Enqueue that is meant to replace it.
//   - A job that could not be done becomes a new job with a later time. Nothing
//     is ever moved back from running to waiting while another may wait under
//     the same id.
//
// # River
//
// The queue is River. On both databases the scheduler that looks every 5 s for
// jobs that have become due has nothing to do: such jobs wait in the same line as
// all others and are passed over until they are due.
//
// On SQLite one process owns the database. At Start whatever is still marked as
// running belonged to a process that is gone, and waits again. Two of River's
// habits do not fit there and are turned off: leader election with its
// maintenance (the few rows that are done are removed by this package), and the
// notification outbox (a row for every insert, and a poll every 50 ms, on the one
// write connection). Instead, Enqueue wakes the fetcher in process, while its
// transaction is still open: the fetcher needs the same single connection and so
// sees the job as soon as the transaction is over. A pool of more than one
// connection stays correct, as the queue also looks every PollInterval.
//
// On PostgreSQL several nodes share the queue. River notifies them of new jobs
// in the transaction that inserts, and elects a leader for its maintenance. Each
// node says every 2 s that it lives, on the jobs that it works; a job of which
// nobody said so for 8 s is dropped and its call waits again. This matters only
// for a node that died between taking a job and taking the lease of its call, or
// that never got the answer that it has taken the job; where it had the lease, what
// looks for lapsed leases enqueues the call, and the dead job is not in its way.
package job
