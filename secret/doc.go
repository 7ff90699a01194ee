// Package secret turns a reference in a manifest into its value at the last
// moment, keeps secrets sealed, and seals what must be unreadable at rest.
//
// # References
//
//	secret://NAME    a value in the store (Local): the user's, else the workspace's,
//	                 else the organisation's (Agent 5.2)
//	env://NAME       an environment variable of the server
//	file:///a/b/c    a file below one of Config.Dirs
//	vault://…        package vault, one of Config.Stores
//
// # Who may use what
//
// A manifest comes from outside, so a reference in it must not reach what the
// operator did not mean for tools. Variables are read only if their name starts
// with TOOLKEEP_SECRET_ or matches Config.EnvPrefix: an imported tool cannot
// read the server's cloud keys. They are the operator's and serve every tenant.
//
// Files are kept apart by tenant. Below each of Config.Dirs
//
//	<dir>/<tenant>/…   is for callers of that tenant alone
//	<dir>/_shared/…    is for all
//
// and everything else there is for nobody. Symbolic links may point within such
// a folder and not out of it, a file that its group or everyone can write is
// refused, and so is one over 64 KiB. A single newline at the end is dropped.
//
// Secrets of the store never cross a tenant, a workspace or a user, and what is
// sealed opens only where it was put (bind).
//
// # What is kept
//
// Values are never cached and never part of an error. What is remembered of a
// reference is the version that a call saw last, and with Config.KeepLast the sealed
// value, for 24 hours, which serves only while its store cannot be reached.
//
// # Keys
//
// A Sealer has several keys, each named by a hash of itself. The first seals, all
// open. The file only grows while the program writes it: a key is on the disk before
// it seals anything, and none is taken away.
package secret
