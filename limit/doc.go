// Package limit refuses calls for load: requests a minute of an agent, of an
// agent on one tool, of a tool and of the whole server, and calls at once of an
// agent and of a tool.
//
// # Exactness
//
// A take looks at all its buckets under their locks and changes them only when
// every one of them admits, so a refused take costs nobody anything and there is
// nothing to give back. Locks are taken in the order agents, pairs, tools, one
// shard of each; no other order exists in the package. The global bucket is one
// atomic number and is changed last, while the agent's shard is held.
//
// # Memory
//
// A bucket is a few dozen bytes whatever the length of the names, because names
// are kept as 128-bit hashes with a seed of the process. Buckets that are full
// again and hold no slot carry no information and are dropped when their shard
// grows. No goroutine is owned.
package limit
