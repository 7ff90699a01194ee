// Package policy decides calls by attributes: with OPA in this process, with an OPA server, or
// with a service that answers POST /api/v1/abac/check-permission. It implements access.Policy.
//
// # What a policy is
//
// A policy is a directory, or a gzipped tar archive of one, with Rego files and JSON data.
// Package toolkeep in it has the rules that are asked:
//
//	allow             true or false; if the rule is there, a call needs true
//	deny              a set of reasons; a call with one is refused
//	require_approval  a set of reasons; a call with one needs a person's approval
//	visible           true or false; if the rule is there, a tool that gets no true is hidden
//
// A reason is a text, or an object with reason and rule. docs/policies.md describes the input.
// A policy is refused if it has rules below these names, or rules of these names among its tests:
// they would not be asked.
//
// # Deny on doubt
//
// An evaluation that fails, takes longer than its limit or answers something else is an error,
// and the call is refused. A builtin that fails ends the evaluation, so that no rule of deny is
// passed over. A policy can use no builtin outside an allow-list: none reaches the network, the
// environment or files.
//
// # Change
//
// A policy is loaded whole, compiled, and its own tests (rules named test_ in files named
// *_test.rego) are run, before it replaces the one in use with all answers that were kept. One
// that fails is not taken.
//
// # Answers that are kept
//
// Answers are kept for a time under the SHA-256 of everything that the policy can read of the
// input, which a walk over all its references finds. A reference that is not constant counts as
// all of the input. Answers of a policy that reads the time are not kept.
package policy
