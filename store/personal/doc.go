// Package personal seals what the records of ended calls and the events tell of a person, with a key
// of that person, before a store gets them. The hash chain covers the sealed form: when the key is
// destroyed, nothing opens it any more and the chain still verifies.
//
// Each person of a tenant has a random key of 32 bytes, in a document that is sealed by the server's
// sealing key and whose body is not in the feed. The document's id is a keyed digest of tenant and
// person, so that it names neither; the key of the digest is a document too. A key is made at the
// person's first call: of several nodes the first to commit wins. Keys are kept in memory, at most
// MaxKeys; the feed says when one was destroyed, and a person who calls afterwards gets another.
//
// A sealed value is a version byte, the digest (16 bytes), the first bytes of the key's SHA-256 (8),
// the nonce (12), the ciphertext and the tag (16). It is bound to tenant and id of its entry.
//
// Only what has ended is sealed: a call that waits needs its person, and is no entry of the journal.
package personal
