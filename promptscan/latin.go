package promptscan

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// lookalikes are letters of other scripts that common fonts draw like a Latin letter. Full-width,
// mathematical and other styled letters are not included: normalisation undoes them.
var lookalikes = func() map[rune]rune {
	pairs := map[rune]string{
		'a': "аɑ", 'A': "АΑᎪ", 'B': "ВΒᏴ", 'c': "сϲ", 'C': "СϹᏟ", 'd': "ԁᏧ", 'D': "Ꭰ", 'e': "еҽ", 'E': "ЕΕᎬ",
		'f': "ϝ", 'g': "ɡց", 'G': "ԌᏀ", 'h': "һհ", 'H': "НΗᎻ", 'i': "іıᎥι", 'I': "ІΙӀ", 'j': "јϳ", 'J': "ЈᎫ",
		'k': "κк", 'K': "КΚᏦ", 'l': "ӏ", 'L': "Ꮮ", 'M': "МΜᎷ", 'n': "ո", 'N': "Ν", 'o': "оοօ", 'O': "ОΟՕ",
		'p': "рρ", 'P': "РΡᏢ", 'q': "ԛգ", 'Q': "Ԛ", 'r': "г", 'R': "Ꭱ", 's': "ѕ", 'S': "ЅᏚՏ", 't': "т", 'T': "ТΤᎢ",
		'u': "սυ", 'U': "Ս", 'v': "νѵ", 'V': "Ꮩ", 'w': "ԝѡ", 'W': "ᎳԜ", 'x': "хχ", 'X': "ХΧ", 'y': "уγү", 'Y': "ΥҮ",
		'z': "ᴢ", 'Z': "ΖᏃ", '-': "‐‑‒–—−", '_': "＿ˍ",
	}
	m := map[rune]rune{}
	for latin, others := range pairs {
		for _, r := range others {
			m[r] = latin
		}
	}
	return m
}()

// Latin replaces lookalikes in s by Latin letters and drops accents and what is not seen.
func Latin(s string) string {
	if PlainASCII(s) {
		return s
	}
	near := nearLatin()
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		from := i
		for i < len(s) && s[i] < utf8.RuneSelf {
			i++
		}
		out = append(out, s[from:i]...)
		if i == len(s) {
			break
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if int(r) < len(near) {
			out = append(out, near[r]...)
		} else {
			out = appendParts(out, s[i:], r)
		}
		i += size
	}
	return string(out)
}

// nearLatin has for each character up to the Cyrillic and Armenian ones what Latin writes for it.
var nearLatin = sync.OnceValue(func() *[0x590]string {
	var near [0x590]string
	for r := range near {
		near[r] = string(appendParts(nil, string(rune(r)), rune(r)))
	}
	return &near
})

// appendParts appends what Latin writes for r, the first character of s.
func appendParts(out []byte, s string, r rune) []byte {
	parts := string(norm.NFKD.PropertiesString(s).Decomposition())
	if lookalikes[r] != 0 || parts == "" {
		return appendLatin(out, r)
	}
	for _, part := range parts {
		out = appendLatin(out, part)
	}
	return out
}

func appendLatin(out []byte, r rune) []byte {
	if r < utf8.RuneSelf {
		return append(out, byte(r))
	}
	if to, ok := lookalikes[r]; ok {
		return utf8.AppendRune(out, to)
	}
	if !unicode.IsLetter(r) && (!shows(r) && !unicode.Is(unicode.Zs, r) || unicode.Is(unicode.Mn, r)) || blank(r) {
		return out
	}
	return utf8.AppendRune(out, r)
}

// PosesAsLatin reports whether a letter of another script looks like a Latin one. Most small Greek
// letters are excluded, because formulas use them.
func PosesAsLatin(r rune) bool {
	if lookalikes[r] == 0 || !unicode.IsLetter(r) || unicode.Is(unicode.Latin, r) {
		return false
	}
	return !unicode.Is(unicode.Greek, r) || unicode.IsUpper(r) || r == 0x03bf
}
