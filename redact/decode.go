package redact

import (
	"html"
	"sort"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decoded is a text with one layer of escapes removed, and the positions of the escapes.
type decoded struct {
	text   string
	parent *decoded  // the text it was decoded from; nil is the original
	pieces []escaped // ordered
}

// escaped is a run of decoded bytes that replaced an escape.
type escaped struct {
	at, size     int // in the decoded text
	from, length int // in the parent
}

// original maps a span of v to the original text.
func (v *decoded) original(m span) span {
	for ; v != nil; v = v.parent {
		start, _ := v.outer(m.start)
		_, end := v.outer(m.end - 1)
		m = span{start, end}
	}
	return m
}

// outer returns the part of the parent that the decoded byte at i stands for.
func (v *decoded) outer(i int) (start, end int) {
	n := sort.Search(len(v.pieces), func(n int) bool { return v.pieces[n].at > i })
	if n == 0 {
		return i, i + 1
	}
	p := v.pieces[n-1]
	if i < p.at+p.size {
		return p.from, p.from + p.length
	}
	start = p.from + p.length + i - (p.at + p.size)
	return start, start + 1
}

// decodedWriter builds a decoded.
type decodedWriter struct {
	in     string
	out    []byte
	pieces []escaped
	copied int // how much of in has been copied
}

func (w *decodedWriter) replace(from, length int, with ...byte) {
	w.out = append(w.out, w.in[w.copied:from]...)
	w.pieces = append(w.pieces, escaped{at: len(w.out), size: len(with), from: from, length: length})
	w.out = append(w.out, with...)
	w.copied = from + length
}

func (w *decodedWriter) decoded(parent *decoded) *decoded {
	if len(w.pieces) == 0 {
		return nil
	}
	w.out = append(w.out, w.in[w.copied:]...)
	return &decoded{text: string(w.out), parent: parent, pieces: w.pieces}
}

// joinLines removes every run of line ends with the blanks behind it. nil means that there is none.
func joinLines(text string, parent *decoded) *decoded {
	const ends = "\r\n"
	i := strings.IndexAny(text, ends)
	if i < 0 {
		return nil
	}
	w := decodedWriter{in: text, out: make([]byte, 0, len(text))}
	for i < len(text) {
		run := len(text[i:]) - len(strings.TrimLeft(text[i:], "\r\n\t "))
		w.replace(i, run)
		next := strings.IndexAny(text[i+run:], ends)
		if next < 0 {
			break
		}
		i += run + next
	}
	return w.decoded(parent)
}

// unescapeJSON decodes every JSON escape in text, inside strings or not, and the quote \' of other languages. nil means that there is none.
func unescapeJSON(text string, parent *decoded) *decoded {
	if strings.IndexByte(text, '\\') < 0 {
		return nil
	}
	w := decodedWriter{in: text, out: make([]byte, 0, len(text)), pieces: make([]escaped, 0, strings.Count(text, `\`)/2+1)}
	for i := 0; i+1 < len(text); {
		next := strings.IndexByte(text[i:], '\\')
		if next < 0 || i+next+1 >= len(text) {
			break
		}
		i += next
		length := 2
		switch c := text[i+1]; c {
		case '"', '\\', '/', '\'': // the last is of other languages
			w.replace(i, 2, c)
		case 'b':
			w.replace(i, 2, '\b')
		case 'f':
			w.replace(i, 2, '\f')
		case 'n':
			w.replace(i, 2, '\n')
		case 'r':
			w.replace(i, 2, '\r')
		case 't':
			w.replace(i, 2, '\t')
		case 'u':
			r, n := unicodeEscape(text[i:])
			if n == 0 {
				length = 1
				break
			}
			length = n
			w.replace(i, n, utf8.AppendRune(nil, r)...)
		default:
			length = 1
		}
		i += length
	}
	return w.decoded(parent)
}

// unicodeEscape decodes \uXXXX, or a surrogate pair of them; 0 if there is none.
func unicodeEscape(s string) (rune, int) {
	hi, ok := codeUnit(s)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(hi) {
		if lo, ok := codeUnit(s[6:]); ok {
			if r := utf16.DecodeRune(hi, lo); r != utf8.RuneError {
				return r, 12
			}
		}
	}
	return hi, 6
}

func codeUnit(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' || !isHex4(s[2:6]) {
		return 0, false
	}
	var r rune
	for i := 2; i < 6; i++ {
		r = r<<4 | rune(unhex(s[i]))
	}
	return r, true
}

// unescapeURL decodes percent escapes and plus as a space.
func unescapeURL(text string, parent *decoded) *decoded {
	if strings.IndexByte(text, '%') < 0 && strings.IndexByte(text, '+') < 0 {
		return nil
	}
	w := decodedWriter{in: text, out: make([]byte, 0, len(text)), pieces: make([]escaped, 0, strings.Count(text, "%")+strings.Count(text, "+"))}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '+':
			w.replace(i, 1, ' ')
		case c == '%' && i+2 < len(text):
			hi, lo := unhex(text[i+1]), unhex(text[i+2])
			if hi >= 0 && lo >= 0 {
				w.replace(i, 3, byte(hi<<4|lo))
				i += 2
			}
		}
	}
	return w.decoded(parent)
}

// unescapeHTML decodes the character references of HTML and XML, by name and by number, and those without a
// semicolon that browsers commonly accept.
func unescapeHTML(text string, parent *decoded) *decoded {
	if strings.IndexByte(text, '&') < 0 {
		return nil
	}
	w := decodedWriter{in: text, out: make([]byte, 0, len(text))}
	for i := 0; i < len(text); {
		next := strings.IndexByte(text[i:], '&')
		if next < 0 {
			break
		}
		i += next
		n := reference(text[i:])
		if plain := html.UnescapeString(text[i : i+n]); plain != text[i:i+n] {
			w.replace(i, n, []byte(plain)...)
		}
		i += n
	}
	return w.decoded(parent)
}

// reference returns the length of the character reference at the start of s, which begins with &; 1 if there is
// none. s has no other &.
func reference(s string) int {
	n := 1
	run := func(of func(byte) bool) {
		for n < len(s) && of(s[n]) {
			n++
		}
	}
	if strings.HasPrefix(s, "&#") {
		n = 2
		if n < len(s) && s[n]|0x20 == 'x' {
			n++
			run(func(c byte) bool { return unhex(c) >= 0 })
		} else {
			run(func(c byte) bool { return '0' <= c && c <= '9' })
		}
		if n < len(s) && s[n] == ';' {
			n++
		}
		return n
	}
	run(func(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' })
	if n < len(s) && s[n] == ';' {
		return n + 1
	}
	for _, name := range [...]string{"amp", "lt", "gt", "quot"} {
		if 1+len(name) <= len(s) && strings.EqualFold(s[1:1+len(name)], name) {
			return 1 + len(name)
		}
	}
	return 1
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
