package toolkeep

import (
	"strings"
	"unicode/utf8"
)

// Clip is s where it has at most n characters, else its beginning with "…" as the last of n.
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

// ClipBytes is s where it has at most n bytes, else its first n bytes at most, as whole
// characters, and "…".
func ClipBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return CutBytes(s, n) + "…"
}

// CutBytes is s, or its beginning of at most n bytes, as whole characters.
func CutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:max(n, 0)], "")
}
