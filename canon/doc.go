// Package canon is the one JSON parser of the system, and the one place where
// JSON is written in a form that two parties can compare.
//
// # Trees
//
// Parse gives a tree of map[string]any, []any, string, bool, nil and
// encoding/json.Number. A number keeps the text it arrived with, so that
// 9007199254740993 and 1.10 stay what they are.
//
// # Two canonical forms
//
// Append and Hash serve this system alone: keys sorted by their bytes, numbers
// as they were written. Two texts of one number (1 and 1.0) are two values, so
// that no cache key joins what an upstream may tell apart.
//
// JCS is RFC 8785, which other systems compute as well. It writes numbers as
// ECMAScript does and so can hold only what an IEEE double can; a number that
// it would change is an error here.
package canon
