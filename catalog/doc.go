// Package catalog stores the published versions of tools: it checks manifests, publishes them, compares a new
// version with the previous one, moves versions through their lifecycle and resolves references to one immutable
// version.
//
// # Snapshot
//
// All reads go through a Snapshot behind one atomic pointer. One goroutine reads the store's feed and collects the
// catalogue's changes; another builds the next snapshot from all collected changes, copying only the changed
// shards. A burst of a thousand changes costs one snapshot, and readers never wait for writers.
//
// # Who owns a tool id
//
// A tool belongs to one tenant, or to all of them (Tenant ""). Several tenants may each have a tool with the same
// id, visible only to them. A tenant cannot take an id that belongs to all, nor the other way round: publishing it
// is refused with E3007, so no tenant can replace a shared tool. If two nodes nevertheless publish both at the same
// moment, the shared tool resolves.
//
// # Locks
//
// Catalog.busy is taken first and held for a whole Publish, SetState or SetHolds, only for the ids of its tools;
// changes of other tools run concurrently and appear in the same snapshot. Catalog.notify is held while a snapshot
// is made visible and its listeners run. follower.mu is held for a few instructions and inside neither.
package catalog
