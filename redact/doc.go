// Package redact removes secrets from text where the text is made: errors, log attributes, events and results.
//
// It finds two kinds of secrets. Held values are the credentials of the calls in progress; they are found anywhere,
// also encoded. Tokens are found by their format alone: bearer and basic credentials, JSON Web Tokens, sk-… and
// tk_… keys, tks_… signing secrets, keys of GitHub, AWS, Google, Azure and Slack, PEM private keys, passwords in URLs.
//
// # Redaction scopes
//
// A value is held for a Scope: everyone, one tenant, or one person within it. A principal's Cleaner redacts the
// values of its scopes from what that principal is shown; the Cleaners of the logs redact more; see Redactor.
//
// # Encodings of held values
//
// Plain; with quotes doubled as in CSV and SQL; with other line ends, indents or spaces in their place, or none; base64
// (both alphabets, padded or not, at any of the three alignments, so that user:secret is found as well) and hex, both
// also broken into lines; in JSON strings with any escapes; in URLs with any escapes; in HTML and XML with any
// escapes; and up to three of the last three nested. Not found are deliberate encodings: hex with separators, UTF-16,
// a value reversed, compressed, encrypted or in pieces, and any other.
//
// # Cost
//
// Text is scanned once for the first bytes of tokens and, if values are held, once to look up the first four bytes
// at each position in a bitmap. Only text with backslashes, percent signs, pluses, ampersands or line ends is decoded as
// well.
// Readers use immutable snapshots without a lock; Hold replaces them for a new value. A Cleaner takes a read lock
// to find the snapshots of its scopes, but not while only values for everyone are held. All snapshots are searched
// before anything is removed, so overlapping values of several scopes are removed as one.
//
// A stream is cleaned in windows that overlap; Cleaner.Reader says what memory they take.
package redact
