package redact

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// snapshot is an immutable set of forms to find. Recent values are separate, so that a new value among thousands is
// cheap.
type snapshot struct {
	parts   [2]map[uint32][]form // by the first four bytes
	bitmap  [bitmapBits / 64]uint64
	longest int // bytes of the longest form
}

func (s *snapshot) empty() bool { return len(s.parts[0]) == 0 && len(s.parts[1]) == 0 }

const bitmapBits = 1 << 15

// value is a held value with all its forms.
type value struct {
	forms []form
	gone  atomic.Bool // expired: still in snapshots, but not redacted any more
}

// form is one encoding of a held value.
type form struct {
	of   *value
	text string
	// In base64 the first and the last character may also hold bits of neighbouring bytes. They are not compared,
	// but redacted as well.
	lead, trail bool
	// lines means that the form may be broken into lines: it is also compared with text without line ends.
	lines bool
}

func newValue(text string) *value {
	v := &value{forms: make([]form, 0, 10)}
	for _, quoted := range quotings(text) {
		v.add(form{text: quoted})
		v.addLines(quoted)
	}
	if utf8.RuneCountInString(text) != len(text) {
		v.add(form{text: latin1(text)})
	}
	h := hex.EncodeToString([]byte(text))
	v.add(form{text: h, lines: true})
	v.add(form{text: strings.ToUpper(h), lines: true})
	for shift := range 3 {
		v.add(base64Form(base64.RawStdEncoding, text, shift))
		v.add(base64Form(base64.RawURLEncoding, text, shift))
	}
	return v
}

// with returns a snapshot with values added to a part.
func (s *snapshot) with(part int, values []*value) *snapshot {
	next := *s
	next.parts[part] = make(map[uint32][]form, 8*len(values))
	for _, v := range values {
		if v.gone.Load() {
			continue
		}
		for _, f := range v.forms {
			key := firstFour(f.text)
			next.parts[part][key] = append(next.parts[part][key], f)
			bit := slot(key)
			next.bitmap[bit/64] |= 1 << (bit % 64)
			next.longest = max(next.longest, len(f.text))
		}
	}
	return &next
}

// latin1 returns v as a server repeats it that reads UTF-8 as Latin-1, as many do with headers: each byte becomes a
// character.
func latin1(v string) string {
	runes := make([]rune, len(v))
	for i := range len(v) {
		runes[i] = rune(v[i])
	}
	return string(runes)
}

// base64Form returns the base64 of v after shift other bytes, as far as v alone determines it: at least 4
// characters for 4 bytes.
func base64Form(enc *base64.Encoding, v string, shift int) form {
	text := enc.EncodeToString(append(make([]byte, shift), v...))
	from := (8*shift + 5) / 6
	bits := 8 * (shift + len(v))
	return form{text: text[from : bits/6], lead: shift > 0, trail: bits%6 > 0, lines: true}
}

// quotings returns text as it is, and with its quotes doubled as in CSV and SQL.
func quotings(text string) []string {
	all := []string{text}
	for _, quote := range []string{`"`, "'"} {
		for _, t := range all {
			if twice := strings.ReplaceAll(t, quote, quote+quote); twice != t {
				all = append(all, twice)
			}
		}
	}
	return all
}

// addLines adds the forms of a text of several lines with other line ends: any, a space, or none.
func (v *value) addLines(text string) {
	joined := joinLines(text, nil)
	if joined == nil {
		return
	}
	if len(joined.text) >= minLength {
		v.add(form{text: joined.text, lines: true})
	}
	v.add(form{text: strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(text)})
}

func (v *value) add(f form) {
	v.insert(f)
	if strings.IndexByte(f.text, '+') >= 0 {
		// Decoding a URL turns a plus into a space.
		f.text = strings.ReplaceAll(f.text, "+", " ")
		v.insert(f)
	}
}

func (v *value) insert(f form) {
	if f.of = v; !slices.Contains(v.forms, f) {
		v.forms = append(v.forms, f)
	}
}

func firstFour(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func slot(key uint32) uint32 { return key * 2654435761 >> 17 }

// maxViews is how many layers of escapes are removed.
const maxViews = 3

// find appends the spans of held values in text.
func (s *snapshot) find(text string, spans []span) []span {
	before := len(spans)
	spans = s.scan(text, nil, false, spans)
	if strings.IndexByte(text, '\\') >= 0 {
		for i := before; i < len(spans); i++ {
			spans[i] = wholeEscapes(text, spans[i])
		}
	}
	return s.descend(text, nil, maxViews, spans)
}

// descend searches text without its line ends, and with one more layer of escapes removed.
func (s *snapshot) descend(text string, parent *decoded, layers int, spans []span) []span {
	if v := joinLines(text, parent); v != nil {
		spans = s.scan(v.text, v, true, spans)
	}
	if layers == 0 {
		return spans
	}
	for _, decode := range []func(string, *decoded) *decoded{unescapeJSON, unescapeURL, unescapeHTML} {
		v := decode(text, parent)
		if v == nil {
			continue
		}
		spans = s.scan(v.text, v, false, spans)
		spans = s.descend(v.text, v, layers-1, spans)
	}
	return spans
}

// scan compares the forms with a text, of a decoded one only around what was decoded: the rest stands in its parent.
// joined means that the line ends of text were removed.
func (s *snapshot) scan(text string, v *decoded, joined bool, spans []span) []span {
	if v == nil {
		return s.compare(text, nil, false, span{0, len(text)}, spans)
	}
	for n := 0; n < len(v.pieces); {
		p := v.pieces[n]
		near := span{max(0, p.at-s.longest), p.at + p.size + 1}
		for n++; n < len(v.pieces) && v.pieces[n].at-s.longest <= near.end; n++ {
			near.end = v.pieces[n].at + v.pieces[n].size + 1
		}
		spans = s.compare(text, v, joined, near, spans)
	}
	return spans
}

// compare compares the forms at every position of a part of text. v maps positions in text to the original; nil means
// that text is the original.
func (s *snapshot) compare(text string, v *decoded, joined bool, at span, spans []span) []span {
	if len(text)-at.start < minLength {
		return spans
	}
	key := firstFour(text[at.start:]) << 8
	for i := at.start; i < at.end && i+3 < len(text); i++ {
		key = key>>8 | uint32(text[i+3])<<24
		bit := slot(key)
		if s.bitmap[bit/64]&(1<<(bit%64)) == 0 {
			continue
		}
		for _, part := range s.parts {
			for _, f := range part[key] {
				if strings.HasPrefix(text[i:], f.text) && (f.lines || !joined) && !f.of.gone.Load() {
					spans = appendSpan(spans, v.original(f.extent(text, i)))
				}
			}
		}
	}
	return spans
}

func (f form) extent(text string, at int) span {
	m := span{at, at + len(f.text)}
	if f.lead && m.start > 0 && isBase64(text[m.start-1]) {
		m.start--
	}
	if f.trail && m.end < len(text) && isBase64(text[m.end]) {
		m.end++
	}
	return m
}

// appendSpan merges m with the last span if they overlap, so that a text of one repeated character does not give a
// span for each.
func appendSpan(spans []span, m span) []span {
	if n := len(spans); n > 0 && spans[n-1].start <= m.start && m.start <= spans[n-1].end {
		spans[n-1].end = max(spans[n-1].end, m.end)
		return spans
	}
	return append(spans, m)
}

func isBase64(c byte) bool {
	return isAlnum(c) || c == '+' || c == '/' || c == '-' || c == '_'
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// wholeEscapes widens m so that it splits no JSON escape: removing the n of \n would leave invalid JSON.
func wholeEscapes(text string, m span) span {
	if start, _, inside := escapeAround(text, m.start); inside {
		m.start = start
	}
	if _, end, inside := escapeAround(text, m.end); inside {
		m.end = end
	}
	return m
}

// escapeAround finds the escape that starts before i and ends after it.
func escapeAround(text string, i int) (start, end int, inside bool) {
	for start = i - 1; start >= 0 && start >= i-5; start-- {
		if text[start] != '\\' {
			continue
		}
		run := 0
		for start-run >= 0 && text[start-run] == '\\' {
			run++
		}
		if run%2 == 0 {
			continue // the second half of an escaped backslash
		}
		end = start + 2
		if start+6 <= len(text) && text[start+1] == 'u' && isHex4(text[start+2:start+6]) {
			end = start + 6
		}
		if end = min(end, len(text)); end > i {
			return start, end, true
		}
	}
	return 0, 0, false
}

func isHex4(s string) bool {
	for i := range 4 {
		if unhex(s[i]) < 0 {
			return false
		}
	}
	return true
}
