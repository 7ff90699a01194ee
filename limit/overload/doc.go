// Package overload refuses new calls of a process that has more of them than its processor does in time, so that those which it
// takes stay quick and the others are told when to come again.
//
// # What is measured
//
// A request waits for the processor three times at least: until it is read, after the store has its record, and with what other work
// its tool makes. The first of these waits is measured, by a byte that goes through a pipe: it becomes readable and
// then waits for the network poller and for the scheduler as a request does that has arrived. So tools that are slow, persons
// who take their time and services that do not answer refuse nothing. One byte is under way at a time, at most every 20 ms, and
// only while calls come.
//
// Of the last two measurements the shorter one counts, of which the second may still be under way (CoDel's minimum over an interval):
// a burst that is worked off between two of them refuses nothing.
//
// # Who is refused
//
// The share of calls that is refused rises with the wait (as in random early detection), which keeps the processor busy: a
// bound that all calls meet at once would have it idle while they stay away. Of priority low calls are refused from half of the
// bound on, all of them at the bound; then of normal, all of them at twice the bound; then of high, all at four times. Up to 32
// calls in flight are never refused for it. The pipeline has the wait for the store refuse calls in the same way.
//
// The bound of calls in flight is for the memory that calls take which wait for something else.
//
// # Cost
//
// A call reads a clock and a few atomics.
package overload
