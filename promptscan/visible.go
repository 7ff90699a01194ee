package promptscan

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

// Visible returns s with every character that is invisible, or that moves the text around it,
// written as \u{200B}. Line breaks, tabs and ordinary spaces stay.
func Visible(s string) string {
	for i, r := range s {
		if !shows(r) {
			return escapeFrom(s, i)
		}
	}
	return s
}

func escapeFrom(s string, i int) string {
	var b strings.Builder
	b.WriteString(s[:i])
	for _, r := range s[i:] {
		if shows(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u{%04X}`, r)
		}
	}
	return b.String()
}

// shows reports whether a reader sees that the character is there.
func shows(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return true
	case r >= 0x20 && r < 0x7f:
		return true
	case r < 0xa0:
		return false
	}
	return !blank(r) && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Zs)
}

// blank are letters and marks that are drawn as nothing.
func blank(r rune) bool {
	switch {
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef: // variation selectors
		return true
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x3164, r == 0xffa0, r == 0x2800:
		return true
	}
	return false
}

// OneLine is Visible with line breaks and tabs written as \n and \t.
func OneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Visible(s))
}

const maxExcerpt = 120

// Excerpt returns s[from:to] with its surroundings, in one line of at most 120 characters.
func Excerpt(s string, from, to int) string {
	const around = 30
	start, end := from, to
	for n := 0; start > 0 && n < around; n++ {
		_, size := utf8.DecodeLastRuneInString(s[:start])
		start -= size
	}
	for n := 0; end < len(s) && n < around; n++ {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	// The match has priority over the text before it.
	out := OneLine(s[start:end])
	if utf8.RuneCountInString(out) > maxExcerpt {
		out = OneLine(s[from:end])
	}
	return toolkeep.Clip(out, maxExcerpt)
}
