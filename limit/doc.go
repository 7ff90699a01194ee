// Package limit rejects calls above the limits: requests a minute per agent, per tenant and for the whole server, calls a minute
// per agent and tool, per tool and per upstream, and concurrent calls per agent and per tool.
//
// # Exactness
//
// A take checks all that it takes of under their locks and changes it only if all
// admit the call, so a rejected take costs nothing and needs no rollback. Lock order: that of the fields of Limits,
// one shard of each.
//
// # Nodes
//
// A node of several admits its share of each limit (SetNodes). A call costs a bucket or window
// its part of the share, so that what is used up stays the same part when the share changes.
//
// # Memory
//
// What is counted of one agent, pair, tool, tenant or upstream takes a few dozen bytes, with a sliding window 500 more, whatever the length of the names, because names are
// kept as 128-bit hashes with a per-process seed. Entries that are as new again and that
// no call refers to carry no information; they are dropped when their shard grows. The
// package starts no goroutine but that of UseCounter.
package limit
