// Package assembly puts together what a language model is shown of the tools it may
// use, in the four phases of Discovery 6: an index of all tools while it plans, whole
// manifests once it chooses, what goes with a tool before it calls, and what helps once
// a call has failed. Every phase has a budget in tokens that is never exceeded, and what
// did not fit is told.
//
// The package sees only tools that the caller found visible. Nothing about any other
// tool, not even that there is one, is in what it makes: names in a tool's
// relationships that lead nowhere visible are passed over without a word.
//
// The same request gives the same context, byte by byte.
package assembly
