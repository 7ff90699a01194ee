// Package vault reads secrets from HashiCorp Vault and from OpenBao, which has the same API, and seals with Vault's
// transit engine.
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
// A path is written as for `vault kv get`. A path that begins with data/ below a KV version 2 mount is taken as an
// API path, as in policies and agent templates. Segments may be percent-encoded.
//
// # Access rules
//
// Config.Paths lists prefixes of API paths. A path that none of them covers is E3402, whatever Vault's policies
// say: a manifest comes from outside, and all tenants share the server's login. {tenant}, {workspace} and {subject}
// in a prefix stand for the caller's; a caller without one never matches. sys, auth, identity and cubbyhole are
// never read.
//
// # Leases
//
// A credential with a lease belongs to the context it was read with. The lease is renewed while the context lasts
// and revoked when it ends; Close revokes the rest. If the context has a deadline, the lease is shortened to end
// soon after it, so that no lease outlives a crashed server for long.
//
// Values are never cached. Kept in memory are the login, the version of each KV mount (five minutes), and the
// leases in use.
package vault
