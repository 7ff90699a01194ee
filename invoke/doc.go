// Package invoke runs a call: twelve steps in one straight function.
//
//	 1 admit      size, encoding, act-as, request buckets, what the key already got
//	 2 resolve    name@range to one immutable version among the visible
//	 3 authorise  scope, roles, risk; every check with its reason
//	 4 validate   coerce, fill defaults, JSON Schema
//	 5 limit      what the agent adds to the tool; tool buckets and concurrency
//	 6 recall     a cached result, or a part in a call that runs already
//	 7 approve    a call that owes an approval goes no further without one
//	 8 claim      the row in state running, committed before anything is sent
//	 9 equip      secrets at the last moment
//	10 execute    deadline, a place in the bulkheads, attempts, cancellation
//	11 inspect    parse, check, clean, cut; then the fallback of a tool that failed
//	12 record     the row's end, cache, metrics, log
//
// # States
//
// A reading call without a key has no row until step 12, which appends one
// record. A call that writes or carries a key is claimed in step 8 as running
// and moved to its end in step 12. A waiting call is claimed as queued, and a
// worker takes it through
//
//	queued -> running -> succeeded | failed | refused | cancelled | unknown
//	running -> queued        its lease lapsed and nothing can have been written
//	succeeded -> expired     the answer was not fetched in time
//
// # The record of a call
//
// activeCall (call.go) is a call under way. Its parts are filled in the order of the
// steps: asked (admit), resolved (resolve, authorise), checked (validate, limit,
// recall) and record (the row and the progress). prepared is the immutable input of
// equip, execute and inspect. A step with new data adds a part or a field of one.
//
// # Invariants
//
//   - A tool that writes is executed only after a committed row says sent.
//   - A row that says running and sent, of a tool that writes and does not
//     declare itself idempotent, ends as unknown (E3909) when its node is lost.
//   - Only the holder of a row's lease ends it; a worker that lost the lease ends nothing.
//   - Explain carries the call through the same steps in a dry run, in which nothing is
//     taken, claimed or sent.
package invoke
