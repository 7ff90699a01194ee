package promptscan

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

// Characters finds control characters and invisible ones, one finding for each run of them. Many have
// legitimate uses, joining emoji, Arabic or Indic letters, or marking the direction of Hebrew; only other
// uses are reported.
func Characters(text string) (found []Finding) {
	if PlainASCII(text) {
		return nil
	}
	runes := []rune(text)
	at := 0 // the byte of text where runes[i] begins
	after := func(n int) int {
		to := at
		for range n {
			_, size := utf8.DecodeRuneInString(text[to:])
			to += size
		}
		return to
	}
	for i := 0; i < len(runes); {
		rule, severity, message := hiddenAt(runes, i)
		if rule == "" {
			i, at = i+1, after(1)
			continue
		}
		end := i + 1
		for end < len(runes) {
			next, worse, _ := hiddenAt(runes, end)
			if next != rule {
				break
			}
			if worse == High {
				severity = High
			}
			end++
		}
		if said := decoded(runes[i:end]); said != "" {
			severity, message = High, message+`, which say "`+toolkeep.Clip(OneLine(said), 80)+`"`
		}
		to := after(end - i)
		found = append(found, Finding{rule, severity, message, Excerpt(text, at, to)})
		i, at = end, to
	}
	return found
}

// Hides returns the first thing that Characters reports of hidden characters with more than low severity, without Text. Its
// work grows with the text alone, however many there are.
func Hides(text string) (f Finding, ok bool) {
	i := 0
	for i < len(text) {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if mayHide(r) {
			break
		}
		i += size
	}
	if i == len(text) {
		return Finding{}, false
	}
	runes := []rune(text)
	for i := range runes {
		if !mayHide(runes[i]) {
			continue
		}
		if rule, severity, message := hiddenAt(runes, i); rule == RuleHidden && severity != Low {
			return Finding{Rule: rule, Severity: severity, Message: message}, true
		}
	}
	return Finding{}, false
}

// mayHide reports whether hiddenAt may find a character hidden, with more than low severity.
func mayHide(r rune) bool {
	switch {
	case r < 0x034f:
		return false
	case r < 0x2000:
		return r == 0x034f || r == 0x115f || r == 0x1160 || r == 0x180e
	case r <= 0x206f:
		return r >= 0x200b && r <= 0x200d || r >= 0x202a && r <= 0x202e || r >= 0x2060
	case r < 0xfe00:
		return r == 0x2800 || r == 0x3164
	}
	return r <= 0xfe0f || r == 0xfeff || r == 0xffa0 || r >= 0xfff9 && r <= 0xfffb || r >= 0xe0000 && r <= 0xe01ef
}

// PlainASCII reports whether a text is of ASCII characters that a reader sees, spaces and line breaks alone.
func PlainASCII(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x7f || c < 0x20 && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}

// hiddenAt judges the character at i; the rule is "" if nothing is wrong.
func hiddenAt(runes []rune, i int) (rule string, severity Severity, message string) {
	r := runes[i]
	before, after := func() rune { return neighbour(runes, i, -1) }, func() rune { return neighbour(runes, i, +1) }
	switch {
	case r == '\n' || r == '\r' || r == '\t':
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return RuleControl, High, "control characters, which a terminal obeys and a reader does not see"
	case r >= 0xe0000 && r <= 0xe007f:
		if flagOf(runes, i) {
			return "", "", ""
		}
		return RuleHidden, High, "invisible tag characters"
	case r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
		return RuleHidden, High, "characters that reorder the text around them"
	case r == 0x200e || r == 0x200f || r == 0x061c:
		if rightToLeft(before()) || rightToLeft(after()) {
			return "", "", ""
		}
		return RuleHidden, Low, "direction marks in text that has no need of them"
	case r == 0x200c || r == 0x200d:
		if joins(before()) && (r == 0x200c || joins(after()) || after() == 0xfe0f) {
			return "", "", ""
		}
		return RuleHidden, Medium, "invisible joiners between letters that do not join"
	case selector(r):
		// One after its base character is legitimate, a sequence encodes text.
		if alone := i+1 == len(runes) || !selector(runes[i+1]); alone && i > 0 && !selector(runes[i-1]) && varies(before(), r) {
			return "", "", ""
		}
		return RuleHidden, Medium, "variation selectors behind characters that have no variants"
	case r == 0xfeff || r == 0x200b:
		return RuleHidden, Medium, "zero-width spaces"
	case r == 0x2060 || r == 0x180e || r >= 0x2061 && r <= 0x2064 || r >= 0x206a && r <= 0x206f || r >= 0xfff9 && r <= 0xfffb || r == 0x034f:
		return RuleHidden, Medium, "invisible characters"
	case r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0 || r == 0x2800:
		return RuleHidden, Medium, "letters that are drawn as nothing"
	case r == 0x00ad:
		return RuleHidden, Low, "soft hyphens"
	case unicode.Is(unicode.Co, r):
		return RuleHidden, Low, "characters for private use, which every font draws differently"
	}
	return "", "", ""
}

// selector reports whether the character selects a variant of the one before it.
func selector(r rune) bool { return r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef }

// maxJoiners is how many joiners and selectors in a row are passed over; no text has so many.
const maxJoiners = 64

// neighbour returns the next character in a direction that is neither a joiner nor a variation
// selector; 0 if there is none.
func neighbour(runes []rune, i, step int) rune {
	for n := 0; n < maxJoiners; n++ {
		if i += step; i < 0 || i >= len(runes) {
			break
		}
		switch r := runes[i]; {
		case r == 0x200c, r == 0x200d, r >= 0xfe00 && r <= 0xfe0e, r >= 0x1f3fb && r <= 0x1f3ff:
		case r == 0xfe0f && step < 0:
		default:
			return r
		}
	}
	return 0
}

// maxFlag is how many tags a flag has at most, its end tag left out.
const maxFlag = 6

// flagOf reports whether a tag character is part of a flag, such as Scotland's: a black flag, a few
// tags and the end tag.
func flagOf(runes []rune, i int) bool {
	start, end := i, i
	for start > 0 && i-start <= maxFlag && runes[start-1] >= 0xe0020 && runes[start-1] <= 0xe007e {
		start--
	}
	for end < len(runes) && end-start <= maxFlag && runes[end] >= 0xe0020 && runes[end] <= 0xe007e {
		end++
	}
	return start > 0 && runes[start-1] == 0x1f3f4 && end-start <= maxFlag && end < len(runes) && runes[end] == 0xe007f
}

func rightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Adlam)
}

// joins reports whether zero-width joiners and non-joiners change how the character is drawn.
func joins(r rune) bool {
	return symbol(r) || unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Nko, unicode.Devanagari, unicode.Bengali,
		unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam,
		unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Tibetan, unicode.Thai, unicode.Lao)
}

func symbol(r rune) bool { return unicode.In(r, unicode.So, unicode.Sm, unicode.Sk) && r >= 0x80 }

// varies reports whether a variation selector is legitimate after the character.
func varies(r, selector rune) bool {
	switch {
	case selector == 0xfe0e || selector == 0xfe0f:
		return symbol(r) || r >= '0' && r <= '9' || r == '#' || r == '*' || r == 0x2139 || unicode.Is(unicode.P, r) && r >= 0x80
	case unicode.In(r, unicode.Han, unicode.Mongolian, unicode.Phags_Pa, unicode.Myanmar):
		return true
	}
	return symbol(r)
}

// decoded returns the text encoded in tag characters or variation selectors, "" if it is not text.
func decoded(runes []rune) string {
	var b strings.Builder
	for _, r := range runes {
		switch {
		case r > 0xe0000 && r < 0xe007f:
			b.WriteByte(byte(r - 0xe0000))
		case r >= 0xfe00 && r <= 0xfe0f:
			b.WriteByte(byte(r - 0xfe00))
		case r >= 0xe0100 && r <= 0xe01ef:
			b.WriteByte(byte(r-0xe0100) + 16)
		}
	}
	out := b.String()
	if len(out) < 3 || !Readable(out) {
		return ""
	}
	return out
}

// Readable reports whether bytes are text that a person could have written.
func Readable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	letters, all := 0, 0
	for _, r := range s {
		all++
		switch {
		case unicode.IsLetter(r) || r == ' ':
			letters++
		case r == '\n' || r == '\r' || r == '\t':
		case !unicode.IsPrint(r):
			return false
		}
	}
	return letters*2 >= all
}
