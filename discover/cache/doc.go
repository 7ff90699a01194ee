// Package cache is the result cache of search: in the process (L1), in a store shared by the nodes
// (L2), and behind both the index itself (Discovery 5).
//
// # When a cached answer is valid
//
// Changes of tools or permissions send no invalidations. An answer is returned only while
// everything it was built from is unchanged:
//
//   - its key, tool:{strategy}:{query}:{permission}, holds the strategy; a hash of the
//     query, the limit and the user's habits that count in it; and a hash of the tenant,
//     the audience (Access.Audience: roles with their rules, scope, permissions) and the
//     ranking (weights, build). Both are HMACs, so the shared store learns no query and
//     keys cannot be forged;
//   - the sum of the tools that the tenant could see, each version with its digest and
//     whether it has its vector (discover.Snapshot), equals the current one. So any change,
//     registration or end of a tool invalidates the answers of every tenant that sees it,
//     on each node as soon as that node's index shows the change;
//   - every tool of it is looked up in that view and checked with visible again. A tool
//     that may not be seen invalidates the answer;
//   - it was not flushed since it was built. Flushes are a store document per tenant,
//     whose revision counts them; an answer records the revision it was built under.
//
// An invalid answer is replaced by the next one under its key. This needs no message, so a lost
// message cannot leave a wrong answer, and a store that returns with old answers serves only those
// that are still valid.
//
// Learned queries count with up to a minute's delay, and success rates as they were when the answer
// was built. Searches that depend on the current conversation, and answers that report something
// missing (Degraded), are not cached; answers that only lack the vectors of a few tools (Partial)
// are, since the sum of the tools records which.
//
// # What is in the shared store
//
// Ids, versions, scores and the matched words, sealed with AES-256-GCM under a key of the
// deployment and bound to their cache key. An attacker who writes there can only cause answers to
// be computed again.
package cache
