// Package secret turns a reference in a manifest into its value at the last
// moment, and keeps the arguments of waiting calls unreadable at rest.
//
// # References
//
//	env://NAME       an environment variable of the server
//	file:///a/b/c    a file below one of Config.Dirs
//	secret://, vault://  not available in this build: E3401
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
// Values are never cached and never part of an error.
package secret
