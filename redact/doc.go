// Package redact takes secrets out of text where the text is made: errors, log
// attributes, events and results.
//
// It knows two kinds of secrets. Held values are the credentials of the calls in
// flight; they are found wherever they stand, also in disguise. Tokens are found
// by their form alone: bearer and basic credentials, JSON Web Tokens, sk-… and
// tk_… keys, GitHub and AWS keys, PEM private keys, passwords in URLs.
//
// # Who knows what
//
// A value is held for a Scope: everybody, one tenant, or one person within it. The
// Cleaner of a principal cleans what that principal is shown of what its scopes hold,
// and the views of the logs of more; see Redactor.
//
// # Disguises of held values
//
// As they are; as base64 (both alphabets, padded or not, at any of the three
// alignments, so that user:secret is found as well); as hex; within JSON strings
// however escaped; within URLs however escaped; within HTML and XML however
// escaped; and up to three of the last three on top of each other. Base64 broken
// into lines, hex with separators, UTF-16, quotes doubled as in CSV and any other
// code are not found.
//
// # Cost
//
// Text is read once to look for the first bytes of tokens and, where something
// is held, once to look up the first four bytes at each position in a bitmap.
// Only text with backslashes, percent signs, pluses or ampersands is decoded as
// well. Readers work on immutable snapshots, which Hold replaces when a value is new,
// without a lock; a Cleaner takes a read lock to find those of its scopes, and none
// while nothing is held for less than everybody. All snapshots are searched before
// anything is taken out, so that overlapping values of several scopes go as one.
package redact
