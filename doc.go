// Package toolkeep holds the nouns of the system: what a tool is, who may ask
// for it, what a call and its result are, which changes of state exist, and
// every error that a caller can meet.
//
// The package imports the standard library alone and everything else imports
// it. The rule for the rest of the tree is
//
//	root < leaves (canon, schema, redact) < domains < invoke < agent, workflow < faces and adapters < cmd
//
// and deps_test.go enforces it.
//
// # Values
//
// A JSON value is a Go tree of map[string]any, []any, string, bool, nil and
// encoding/json.Number. Numbers keep the exact text they arrived with, so that
// 9007199254740993 stays what it is. Package canon is the only parser.
//
// # Refusals and results
//
// A gateway that fails returns an *Error. A tool that fails is a *Result with
// an error in it. Code.Info tells which of the two a code belongs to.
package toolkeep
