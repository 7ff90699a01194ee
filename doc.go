// Package toolkeep defines the shared types of the system: tools, principals, calls and
// results, all changes of state, and every error that a caller can see.
//
// The package imports only the standard library, and every other package imports it.
// The import rule for the rest of the tree is
//
//	root < leaves (canon, schema, redact, …) < domains < invoke and control < faces and adapters < node < cmd
//
// and deps_test.go enforces it.
//
// # Values
//
// A JSON value is a Go tree of map[string]any, []any, string, bool, nil and
// encoding/json.Number. Numbers keep their exact text, so that 9007199254740993 is not
// rounded. Package canon is the only parser.
//
// # Refusals and results
//
// A gateway that fails returns an *Error. A tool that fails is a *Result with an error
// in it. Code.Info says which of the two a code belongs to.
package toolkeep
