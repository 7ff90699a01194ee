package toolkeep

import (
	"strings"
	"unicode/utf8"
)

// Clip returns s if it has at most n characters, otherwise at most its first n-1
// characters and "…".
func Clip(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	left := n
	for i := range s {
		if left--; left <= 0 {
			return strings.TrimRight(strings.ToValidUTF8(s[:i], "\uFFFD"), " \n\t") + "…"
		}
	}
	return s
}

// ClipBytes returns s if it has at most n bytes, otherwise at most its first n bytes,
// as whole characters, and "…".
func ClipBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return CutBytes(s, n) + "…"
}

// CutBytes returns the longest prefix of s with at most n bytes, as whole characters.
func CutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:max(n, 0)], "")
}
