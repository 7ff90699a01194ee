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
//   - One process owns the database. At Start whatever is still marked as running
//     belonged to a process that is gone, and waits again.
//
// # River
//
// The queue is River on SQLite. Three of its habits do not fit here and are
// turned off: leader election with its maintenance (there is one process; the
// few rows that are done are removed by this package), the notification outbox
// (a row for every insert, and a poll every 50 ms, on the one write connection)
// and the scheduler that looks every 5 s for jobs that have become due (such jobs
// wait in the same line as all others and are passed over until they are due).
//
// Instead of the outbox, Enqueue wakes the fetcher in process, while its
// transaction is still open: the fetcher needs the same single connection and so
// sees the job as soon as the transaction is over. A pool of more than one
// connection stays correct, as the queue also looks every PollInterval.
package job
