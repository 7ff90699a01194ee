// Package access authenticates callers by API key or by an OAuth issuer's access token,
// and authorises them: roles decide which tools a principal can see and which it may
// call.
//
// # Deny by default
//
// A principal may do only what a rule allows. A deny rule of any of its roles beats
// every allow rule; a key's scope narrows what its roles grant and never widens it; a
// role that does not exist grants nothing; an unknown value in a manifest counts as the
// most dangerous one.
//
// # State
//
// The keys are an immutable map behind one pointer that follows the store's feed. A
// revoked key never becomes valid again, in any order of changes. The roles and all
// decisions made from them form a second immutable generation behind a pointer: new
// roles start without decisions, and a decision computed during the switch is stored in
// the old generation, which is no longer read. Decisions depend on the principal's
// tenant, roles, scope and permissions and on the tool's digest, never on arguments,
// time or subject, so a change of keys invalidates none of them.
//
// # Tokens
//
// A bearer in the form of a JSON Web Token is treated as one. Its signature is verified
// with the one issuer key that it names, and the key's type decides which algorithms
// are allowed. Claims are not read before that, and keys or addresses inside a token
// are never used. One goroutine fetches the issuer's keys; an unknown key triggers
// another fetch, at most one every Floor. Verified tokens are cached by hash together
// with the keys that verified them, and dropped with those keys.
//
// # Failures
//
// A block refuses what comes without a valid identity, and never a valid key or token:
// keys have 256 random bits and tokens are signed, so an attacker cannot guess one. A
// block of valid keys would let one client lock out all clients of its address, such as
// those behind a proxy.
//
// A hundred failures a minute block an address for fifteen minutes; ten block an agent
// at one address for five, so that knowing a key's public id locks its owner out
// nowhere. A caller with the right secret of a revoked or expired key is not guessing,
// so the address is not counted; the same holds for a token that the issuer has signed.
// A token that expired within the last hour is not counted at all: clients learn from
// the refusal that they need a new one. IPv6 addresses count by /64.
//
// After ten denied calls a minute (NoteDenied) who acted is told no reasons of further
// denials, from any address: the agent, the subject and the person that it acts for,
// together. What is allowed they still call. Calls of tools that do not exist count too
// (NoteUnknown), as a denied call of a tool that the caller does not see looks like one.
package access
