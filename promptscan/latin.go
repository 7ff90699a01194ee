package promptscan

import (
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
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			out = append(out, s[i])
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		parts := string(norm.NFKD.PropertiesString(s[i:]).Decomposition())
		i += size
		if lookalikes[r] != 0 || parts == "" {
			out = appendLatin(out, r)
			continue
		}
		for _, part := range parts {
			out = appendLatin(out, part)
		}
	}
	return string(out)
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
