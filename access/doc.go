// Package access decides who may what: API keys, and the access tokens of an OAuth
// issuer, say who asks; roles say which tools exist for a principal and which of
// them it may call.
//
// # Deny by default
//
// Nothing is granted that no rule grants. Any deny rule of any role of the
// principal beats every allow rule; a key's scope narrows what its roles grant
// and never widens it; a role that does not exist grants nothing; a value of a
// manifest that is not known counts as the most dangerous one.
//
// # State
//
// The keys are an immutable map behind one pointer that follows the store's feed.
// A revoked key never comes back, in whatever order changes arrive. The roles,
// with every decision made from them, are a second immutable generation behind a
// pointer: new roles start with no decisions, and a decision that was in the
// making when they came is kept in the generation that nobody asks any more.
// Decisions depend on tenant, roles, scope and permissions of the principal and
// on the tool's digest, never on arguments, time or subject, so a change of keys
// outdates none of them.
//
// # Tokens
//
// A bearer with the form of a JSON Web Token is one; its signature is verified by
// the one key of the issuer that it names, whose type decides which algorithms may
// be. Nothing is read of a token before, and nothing that it brings along (keys,
// addresses) is used. The issuer's keys are fetched by one goroutine; a key that is
// not known asks for them once more, at most every Floor. What was verified is
// remembered with the keys that did it, by the token's hash, and goes with them.
//
// # Failures
//
// Ten failures a minute block an agent for five minutes, a hundred an address for
// fifteen. A block holds for valid keys too: otherwise whoever guesses would learn
// from the other answer that a guess was right. Failures to authenticate count for
// the agent as seen from that address, so that who merely knows a key's public id
// cannot lock its owner out from elsewhere; refusals of an authenticated agent
// (NoteDenied) count for it everywhere. Who has the right secret of a key that is
// revoked or expired guesses nothing: that spares the address, and so does a token
// that the issuer has signed. One that expired within the hour counts for nothing:
// that is how clients learn that they need another. Addresses of IPv6 count by /64.
package access
