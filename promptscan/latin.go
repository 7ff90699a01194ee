package promptscan

import (
	"strings"
	"unicode"

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

// Latin replaces lookalikes in s by Latin letters.
func Latin(s string) string {
	if PlainASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < 0x80 {
			return r
		}
		if to, ok := lookalikes[r]; ok {
			return to
		}
		if !shows(r) && !unicode.Is(unicode.Zs, r) || unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(s))
}

// PosesAsLatin reports whether a letter of another script looks like a Latin one. Most small Greek
// letters are excluded, because formulas use them.
func PosesAsLatin(r rune) bool {
	if lookalikes[r] == 0 || !unicode.IsLetter(r) || unicode.Is(unicode.Latin, r) {
		return false
	}
	return !unicode.Is(unicode.Greek, r) || unicode.IsUpper(r) || r == 0x03bf
}
