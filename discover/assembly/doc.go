// Package assembly builds what a language model is shown of the tools it may use, in the four
// phases of Discovery 6: an index of all tools while it plans, full manifests once it chooses,
// related tools before it calls, and recovery advice after a failed call. Every phase has a token
// budget that is never exceeded, and the context says what was left out.
//
// The package sees only tools visible to the caller. Its output reveals nothing about any other
// tool, not even that it exists: names in a tool's relationships that lead to no visible tool are
// dropped silently.
//
// The same request gives the same context, byte for byte.
package assembly
