// Package bulkhead bounds how many attempts of calls run at once in one process: in all, of each kind of executor, and of
// costly tools. Where one kind of upstream hangs, its calls fill their own bulkhead, and the process has room for the others.
//
// A tool belongs to the bulkhead total, to that of its executor (http, sql, grpc, mcp) if it has one of these kinds, and to
// costly if its manifest says so in cost.estimated_usd, the one field that tells what a call costs: risk says what it may
// break, tags are the publisher's own. mcp is not counted to http, because many of its servers are processes of this machine.
//
// # Places
//
// An attempt takes a place of each of its bulkheads, all or none, and holds none while it waits. So who holds places never
// waits for others, but for the calls below it. Those use the places that the call above them has, and only executors
// without a bulkhead of their own make calls below; no two calls can wait for each other's.
//
// Pauses between attempts hold no place. A call that waits for its caller's answer gives its places back; then it takes
// them again at once, over the limit if it must be.
//
// # Queue
//
// What finds a bulkhead full waits, first those of higher priority, then those that came first. A queue is bounded, and an agent
// has a quarter of it at most. Each bulkhead learns how long its places are held for; who would get one too late by
// that pace is refused at once.
//
// # Cost
//
// Where none waits, a take and a release are one atomic operation for each bulkhead, without a lock and without allocation. While any
// attempt waits, all take their places under one lock and look through the queue, which is short.
package bulkhead
