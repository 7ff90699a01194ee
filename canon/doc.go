// Package canon contains the system's only JSON parser, and writes JSON in canonical forms that two parties can
// compare.
//
// # Trees
//
// Parse returns a tree of map[string]any, []any, string, bool, nil and encoding/json.Number. A number keeps its
// text, so 9007199254740993 and 1.10 stay exact.
//
// # Two canonical forms
//
// Append and Hash are for this system only: keys sorted by their bytes, numbers as written. Two texts of one number
// (1 and 1.0) are two values, so cache keys never merge values that an upstream may distinguish.
//
// JCS is RFC 8785, which other systems compute as well. It writes numbers as ECMAScript does, so it can hold only
// IEEE doubles; a number that it would change is an error here.
package canon
