// Package outbox sends the entries of the journal to sinks: files, webhooks, message brokers.
//
// # The journal is the outbox
//
// What happened is recorded in the same transaction as the state it speaks of, so nothing is copied to a
// table of messages. A sink has a cursor for each writer of the journal: the number of the last entry that
// it is done with. The node that leads Work reads what comes after, in order and in batches, hands it to the
// sink, and moves the cursor in the store after the sink has confirmed. So
//
//   - each entry is delivered at least once: a crash between the two repeats a batch,
//   - entries of one writer are delivered in order, and so are those of one call, whichever writers recorded
//     them; an entry that is repeated is repeated after its first delivery, so a consumer drops what it has seen
//     by id,
//   - a sink that is down waits and catches up. Nothing waits for it, and memory holds about one batch of it
//     (leastPage entries of each writer, where there are more of them).
//
// # Order of a call
//
// A round reads at one moment how far all writers are, and of each the next entries up to there. It merges them
// by Link.Stamp, which is higher for an entry that was made by who had read the other one, and stops where the
// next entry in that order may not be read yet. It then moves the cursors of all writers at once: what they leave
// behind has all that came before it, so a leader that reads them, on any node, goes on in that order.
//
// Entries from before the chain of hashes (see package audit) are not sent.
//
// # Errors
//
// An entry that the sink refuses for good (Refused) is tried again Settings.Retries times alone and then
// goes to the sink's file of dead letters; the next one follows. While that file is full, the sink waits.
// Every other error is a sink that is down: its batch is tried until it is confirmed, with full jitter between
// tries. A moment in which two nodes lead repeats entries and loses none: a cursor moves only from where the
// node that moves it has read.
//
// # Retention
//
// store.keep_calls and store.keep_events remove entries whether they were sent or not. What a sink has lost by
// it is counted, logged, and shown by Statuses.
package outbox
