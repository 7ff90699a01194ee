// Package vault reads secrets from HashiCorp Vault and OpenBao, which speaks the
// same API, and seals with Vault's transit engine.
//
// # References
//
//	vault://secret/acme/shop#token             field token of a KV secret, version 1 or 2
//	vault://secret/acme/shop?version=3#token   one version of it (KV version 2)
//	vault://secret/acme/shop                   its only field, else the whole as JSON
//	vault://database/creds/readonly#password   a field of a credential made for this call
//	vault://database/creds/readonly#username:password   two fields with a colon between
//	vault://database/creds/readonly            that credential as JSON
//	vault://./shop/token                       below Config.Prefix (Platform 5.1.6)
//
// A path is written as people write it for `vault kv get`; one that begins with
// data/ below a KV version 2 mount is taken as the path of the API, as policies and
// agent templates write it. Segments may be percent-encoded.
//
// # Who may use what
//
// Config.Paths lists prefixes of API paths, and what none of them covers is E3402,
// whatever Vault's policies say: a manifest comes from outside, and all tenants
// share the server's login. {tenant}, {workspace} and {subject} in a prefix stand
// for the caller's; a caller without one never matches. sys, auth, identity and
// cubbyhole are never read.
//
// # Leases
//
// A credential that comes with a lease belongs to the context it was read with.
// While that lasts the lease is renewed, when it ends the lease is revoked, and so
// are all that are left at Close. Where the context has a deadline, the lease is cut
// to end soon after it, so that nothing outlives a server that dies.
//
// Values are never cached. What is kept: the login, the version of each KV mount
// (five minutes), and the leases that are in use.
package vault
