// Package job holds the queue of waiting calls and the periodic work of a node.
//
// The queue carries only ids. What a call is, its state and who runs it are in its
// invocation row; a job is only a hint to look at that row. The rules of the package
// follow from this:
//
//   - A job may arrive twice, late, or for a call that has ended. The Runner reads
//     the row and returns nil if there is nothing to do.
//   - A call waits at most once: Enqueue of an id that already waits adds nothing,
//     but brings the waiting job forward if the new one is more urgent.
//   - A running job does not count as waiting. Otherwise the job of a dead process,
//     or of a worker that is about to finish, would swallow the very Enqueue that
//     is meant to replace it.
//   - A job that could not be done becomes a new job with a later time. A job is
//     never moved back from running to waiting while another may wait under the
//     same id.
//
// # River
//
// The queue is River. On both databases River's scheduler, which looks every 5 s for
// jobs that have become due, has nothing to do: jobs for later are in the same line as
// all others and are skipped until they are due.
//
// On SQLite one process owns the database. At Start every job still marked as running
// belonged to a dead process and becomes waiting again. Two River features do not fit
// SQLite and are off: leader election with its maintenance (this package removes the
// few finished rows) and the notification outbox (a row for every insert and a poll
// every 50 ms, on the one write connection). Instead, Enqueue wakes the fetcher in
// process while its transaction is still open: the fetcher needs the same single
// connection, so it sees the job as soon as the transaction ends. A pool with more than
// one connection is still correct, as the queue also polls every PollInterval.
//
// On PostgreSQL several nodes share the queue. River notifies them of new jobs in the
// inserting transaction and elects a leader for its maintenance, so package membership has no
// work for that. Each node sends a
// heartbeat every 2 s for the jobs it works; a job without a heartbeat for 8 s is
// dropped and its call waits again. This matters only for a node that died between
// taking a job and taking the lease of its call, or that never received the response
// that assigned it the job. If the node had the lease, the lapsed-lease reaper enqueues
// the call, and the dead job is not in its way.
package job
