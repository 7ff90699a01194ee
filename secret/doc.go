// Package secret resolves the secret references of a manifest at the last moment, stores secrets sealed, and seals
// data that must be unreadable at rest.
//
// # References
//
//	secret://NAME    a value in the store (Local): the user's, else the workspace's,
//	                 else the organisation's (Agent 5.2)
//	env://NAME       an environment variable of the server
//	file:///a/b/c    a file below one of Config.Dirs
//	vault://…        package vault, one of Config.Stores
//
// # Access rules
//
// A manifest comes from outside, so its references must not reach anything that the operator did not mean for
// tools. A variable can be read only if its name starts with TOOLKEEP_SECRET_ or matches Config.EnvPrefix, so an
// imported tool cannot read the server's cloud keys. Variables belong to the operator and serve every tenant.
//
// Files are separated by tenant. Below each of Config.Dirs
//
//	<dir>/<tenant>/…   serves only callers of that tenant
//	<dir>/_shared/…    serves all tenants
//
// and nothing else can be read. Symbolic links must stay within such a folder. A file that its group or others can
// write is refused, and so is one over 64 KiB. A single newline at the end is dropped.
//
// A stored secret never crosses a tenant, a workspace or a user: a sealed value opens only in the place it was
// sealed for (bind).
//
// # Memory
//
// Values are never cached and never part of an error. For each reference, memory holds the version that a call last
// saw and, with Config.KeepLast, the sealed value. That value serves for 24 hours, and only while the store is
// unreachable.
//
// # Keys
//
// A Sealer has one or more keys, each identified by a hash of itself. The first key seals; every key opens. The
// program only adds keys to the file: it writes a key to disk before sealing with it, and never removes one.
package secret
