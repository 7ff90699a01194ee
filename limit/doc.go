// Package limit rejects calls above the limits: requests a minute per agent, per agent
// and tool, per tool and for the whole server, and concurrent calls per agent and per
// tool.
//
// # Exactness
//
// A take checks all its buckets under their locks and changes them only if every one
// admits the call, so a rejected take costs nothing and needs no rollback. Lock order:
// agents, pairs, tools, one shard of each. The global bucket is one atomic number and
// is changed last, while the agent's shard is locked.
//
// # Nodes
//
// A node of several admits its share of each limit (SetNodes). A call costs a bucket or window
// its part of the share, so that what is used up stays the same part when the share changes.
//
// # Memory
//
// A bucket takes a few dozen bytes, whatever the length of the names, because names are
// kept as 128-bit hashes with a per-process seed. Buckets that are full again and that
// no call refers to carry no information; they are dropped when their shard grows. The
// package starts no goroutine.
package limit
