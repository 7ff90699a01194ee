// Package catalog keeps the published versions of tools: it checks manifests,
// publishes them, compares a new version with the one below it, moves versions
// through their lifecycle and resolves references to one immutable version.
//
// # Snapshot
//
// All reading goes through a Snapshot behind one atomic pointer. One goroutine
// reads the store's feed and keeps what concerns the catalogue; another takes
// all that has gathered and builds the next snapshot from the last one, copying
// only the shards that changed. A burst of a thousand changes so costs one
// snapshot, and a reader never waits for a writer.
//
// # Who owns a tool id
//
// A tool belongs to one tenant, or to all of them (Tenant ""). Several tenants
// may each have a tool of the same id, which only they see. An id that belongs
// to all cannot be taken by a tenant, nor the other way round: publishing it is
// refused with E3007, so that no tenant can put its own tool in the place of a
// shared one. Should two nodes nevertheless publish both at the same moment,
// the shared tool is the one that resolves.
//
// # Locks
//
// Catalog.busy is taken first and held over a whole Publish, SetState or
// SetHolds, for the ids of its tools alone; those of other tools go on beside it
// and are shown by the same snapshot. Catalog.notify is held while a snapshot is made visible and its
// listeners run; follower.mu is held for a few instructions and inside of
// neither.
package catalog
