// Package resultcache keeps results that may be given again, and lets callers that
// ask the same question at the same time share one run.
//
// # What may be kept
//
// Only what succeeded, under the cache rule of the tool's manifest. That the tool
// does not write and that the call owes no approval is for the caller to see to,
// for Put and for Do alike: a shared run of a tool that writes would do once what
// was asked twice.
//
// # Lock order
//
// The store calls back (index.removed) under locks of its own. The index's lock
// is therefore the innermost one: nothing is called while it is held. The lock of
// the shared runs is never held while the store or a run is called.
package resultcache
