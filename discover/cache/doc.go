// Package cache keeps answers of search: in the process (L1), in a store that the
// nodes share (L2), and behind both the index itself (Discovery 5).
//
// # What makes a kept answer right
//
// Nothing is told to be dropped when a tool or a permission changes. An answer is given
// again only while everything that it was made from is the same:
//
//   - its key, tool:{strategy}:{query}:{permission}, holds the strategy; a hash of the
//     question, the number of tools wanted and what of the user's habits counts in it;
//     and a hash of the tenant, the audience (Access.Audience: roles with their rules,
//     scope, permissions) and what ranks (weights, build). Both are HMACs, so the shared
//     store learns no question and nobody can make a key;
//   - the sum of the tools that the tenant could see then, each version with its digest
//     and whether it has its vector (discover.View), is that of now. So any change of a
//     tool, its registration or its end makes every answer of the tenants that see it
//     an old one, on each node at the moment when that node's index shows the change;
//   - every tool of it is looked up in that view and asked of visible again. One that
//     may not be seen makes the answer an old one;
//   - nobody flushed it since it was made. Flushes are an item of the store for each
//     tenant, whose revision counts them; an answer holds the revision that it was made
//     under.
//
// An old answer is replaced by the next one under its key. No message has to arrive for
// that, so a lost one cannot leave a wrong answer, and a store that comes back after
// being away with answers of before serves those that are still right and no others.
//
// Questions after which tools were chosen count as they were up to a minute ago, and how
// often tools succeed as it was when the answer was made. Searches that depend on what just went
// on in a conversation, and answers that say that something was missing (Degraded), are
// not kept; but one of a few tools that wait for their vectors is (Partial), since the sum
// of the tools holds which those are.
//
// # What is in the shared store
//
// Ids, versions, scores and the words that matched, sealed with AES-256-GCM under a key
// of the deployment and bound to their key. Who writes there can make answers be worked
// out again, and no more.
package cache
