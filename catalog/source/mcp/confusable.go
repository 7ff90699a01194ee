package mcp

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/toolkeep/toolkeep"
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

// latin replaces lookalikes in s by Latin letters.
func latin(s string) string {
	if plainASCII(s) {
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

// skeleton is equal for names that look the same.
func skeleton(name string) string {
	s := latin(name)
	if !strings.ContainsAny(s, "01I|m") {
		return s
	}
	return strings.NewReplacer("0", "O", "1", "l", "I", "l", "|", "l", "m", "rn").Replace(s)
}

// Names maps tool names to the servers that offer them. One Read at a time uses it.
type Names struct {
	servers map[string][]string // by name
	looks   map[string][]string // names by skeleton
}

// NewNames creates an empty Names.
func NewNames() *Names {
	return &Names{servers: map[string][]string{}, looks: map[string][]string{}}
}

// Add adds a server's own name of a tool. Duplicates are harmless.
func (n *Names) Add(server, tool string) {
	list := n.servers[tool]
	if len(list) == 0 {
		k := skeleton(tool)
		n.looks[k] = append(n.looks[k], tool)
	}
	if !slices.Contains(list, server) {
		n.servers[tool] = append(list, server)
	}
}

// of returns the servers that offer a tool of that name.
func (n *Names) of(tool string) []string {
	if n == nil {
		return nil
	}
	return n.servers[tool]
}

// like returns a different name that looks the same, "" if there is none.
func (n *Names) like(tool string) string {
	if n == nil {
		return ""
	}
	for _, other := range n.looks[skeleton(tool)] {
		if other != tool {
			return other
		}
	}
	return ""
}

// name checks the tool's name.
func (s *scanner) name() {
	at, name := "/name", s.self
	foreign := strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 })
	for _, n := range s.names {
		other := n.like(name)
		if other == "" {
			continue
		}
		severity := Medium
		if foreign {
			severity = High
		}
		s.add(RuleLookAlike, at, excerpt(name, 0, len(name)), severity, "the name looks like %q, which is another tool's", Visible(toolkeep.Clip(other, 80)))
		return
	}
	if foreign && plainASCII(latin(name)) && strings.ContainsFunc(name, posesAsLatin) {
		s.add(RuleLookAlike, at, excerpt(name, 0, len(name)), High, "the name is read as %q and written with other letters", toolkeep.Clip(latin(name), 80))
	}
}

// posesAsLatin reports whether a letter of another script looks like a Latin one. Most small Greek
// letters are excluded, because formulas use them.
func posesAsLatin(r rune) bool {
	if lookalikes[r] == 0 || !unicode.IsLetter(r) || unicode.Is(unicode.Latin, r) {
		return false
	}
	return !unicode.Is(unicode.Greek, r) || unicode.IsUpper(r) || r == 0x03bf
}

// disguised reports whether a word mixes Latin letters with letters of another script, all of which
// are lookalikes. So Δx and µm are not disguised, nor is a word entirely in Greek or Cyrillic.
func disguised(word string) bool {
	var latins, others int
	for _, r := range word {
		switch {
		case unicode.Is(unicode.Latin, r):
			latins++
		case posesAsLatin(r):
			others++
		case unicode.IsLetter(r):
			return false
		}
	}
	return latins > 0 && others > 0 && latins+others >= 3
}

// words finds words of mixed scripts.
func (s *scanner) words(pointer, text string) {
	if plainASCII(text) {
		return
	}
	start := -1
	check := func(end int) {
		if start < 0 {
			return
		}
		if word := text[start:end]; !plainASCII(word) && disguised(word) {
			s.add(RuleMixed, pointer, excerpt(text, start, end), High, "a word that is read as %q and written with letters of another script", toolkeep.Clip(latin(word), 80))
		}
		start = -1
	}
	for i, r := range text {
		if unicode.IsLetter(r) || unicode.Is(unicode.Mn, r) {
			if start < 0 {
				start = i
			}
			continue
		}
		check(i)
	}
	check(len(text))
}
