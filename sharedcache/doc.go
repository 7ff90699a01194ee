// Package sharedcache keeps the values of caches in a byte store that the nodes share, such as Redis. The store may lose
// everything at any time, and is trusted with nothing: values are sealed with AES-256-GCM under a key of the deployment and
// bound to their name, so that an attacker who writes there can only cause a value to be computed again. Names should be
// HMACs under NamingKey.
//
// Nothing waits long: a request gets Config.Patience, and after a failure the store is left alone for a second.
package sharedcache
