// Package resultcache stores reusable results and lets concurrent callers with the same
// call share one run.
//
// # What may be stored
//
// Only successful results, under the cache rule of the tool's manifest. The caller must
// make sure that the tool does not write and that the call needs no approval, for Put
// and for Do: a shared run of a tool that writes would do once what was asked for
// twice.
//
// # Several nodes
//
// With Config.Shared, nodes share results (remote.go says when a shared one is of use), and a node that starts finds those
// of before. Memory is asked first: a hit there costs no request.
//
// # Lock order
//
// The cache library calls back (index.removed) under its own locks. The index's lock is
// therefore the innermost: no call is made while it is held. The lock of the shared
// runs is never held while the library or a run is called.
package resultcache
