package promptscan

import "strings"

// Aimed is a scan of the texts of one result. Its zero value works. It is not safe for concurrent use.
//
// A result is read on the way of each call, so only phrases that address the model are looked for, by their anchors in one
// pass, and a regular expression sees no more than the words around an anchor. What one result may cost is bounded: after
// 32 places that may be one, or 256 KiB of text that is not ASCII, the rest is not judged, and More says so.
type Aimed struct {
	places, foreign int
	More            bool
}

const (
	maxPlaces  = 32
	maxForeign = 256 << 10 // bytes
	around     = 120       // bytes on each side of an anchor
)

// Text returns the first thing in a text that addresses the model; ok is false if there is none. ascii says that the text is
// of ASCII alone. Text of the finding is not filled: a quotation would address the model too.
func (a *Aimed) Text(text string, ascii bool) (f Finding, ok bool) {
	if len(text) < gram+1 || a.More {
		return Finding{}, false
	}
	if !ascii {
		if a.foreign += len(text); a.foreign > maxForeign {
			a.More = true
			return Finding{}, false
		}
		text = Latin(text)
	}
	// Every fourth group of four bytes is looked at: of four that follow each other one is seen.
	i := 0
	for ; i+4*stride <= len(text); i += 4 * stride {
		t := text[i : i+4*stride]
		a0, a1 := eight(t[:8])|lower, eight(t[8:])|lower
		if (anchors.bit(uint32(a0))|anchors.bit(uint32(a0>>32))|anchors.bit(uint32(a1))|anchors.bit(uint32(a1>>32)))&1 == 0 {
			continue
		}
		for n, g := range [...]uint32{uint32(a0), uint32(a0 >> 32), uint32(a1), uint32(a1 >> 32)} {
			if anchors.bit(g)&1 == 0 {
				continue
			}
			if f, ok := a.look(text, i+n*stride, g); ok || a.More {
				return f, ok
			}
		}
	}
	for ; i+gram-1 <= len(text); i += stride {
		if f, ok := a.look(text, i, group(text[i:])); ok || a.More {
			return f, ok
		}
	}
	return Finding{}, false
}

// look looks for the phrases of which an anchor has the group of bytes at i.
func (a *Aimed) look(text string, i int, g uint32) (f Finding, ok bool) {
	of := anchors.of[hash(g)>>20]
	for n := range of {
		t := &of[n]
		from := i - t.offset
		if t.group != g || from < 0 || len(text)-from < len(t.anchor) || !equalsLower(text[from:from+len(t.anchor)], t.anchor) {
			continue
		}
		p := &phrases[t.phrase]
		if !p.told[t.told].beside(text, from, from+len(t.anchor)) {
			continue
		}
		if a.places++; a.places > maxPlaces {
			a.More = true
			return Finding{}, false
		}
		if p.pattern.MatchString(strings.ToLower(text[max(0, from-around):min(len(text), from+around)])) {
			return Finding{Rule: p.rule, Severity: p.severity, Message: p.message}, true
		}
	}
	return Finding{}, false
}

// told says by what a phrase is found in results: a match has one of the anchors, each of at least 5 bytes, and one
// word of each side near it. That is far cheaper than the regular expression, and hardly any other text has it.
type told struct {
	anchors []string
	sides   []side
}

// side is where one of some words must be: within so many bytes before the anchor and after it.
type side struct {
	before, after int
	words         []string
	starts        [1 << 10]bool // by the first two bytes of each word
	single        string        // words of one byte
}

func before(n int, words ...string) side { return near(side{before: n, words: words}) }
func after(n int, words ...string) side  { return near(side{after: n, words: words}) }

func near(s side) side {
	for _, w := range s.words {
		if len(w) == 1 {
			s.single += w
			continue
		}
		s.starts[pair(uint(w[0]), w[1])] = true
	}
	return s
}

// pair is a number below 1024 for two bytes, the same for capitals and small letters; a may be the pair that ends with the first.
func pair(a uint, b byte) uint { return (a<<5 | uint(b&31)) & 1023 }

func (t *told) beside(text string, from, to int) bool {
	for i := range t.sides {
		s := &t.sides[i]
		part := text[to:min(len(text), to+s.after)]
		if s.before > 0 {
			part = text[max(0, from-s.before):from]
		}
		if !s.in(part) {
			return false
		}
	}
	return true
}

// in reports whether a part of a text has one of the words.
func (s *side) in(part string) bool {
	var two uint
	for n := range len(part) {
		if two = pair(two, part[n]); !s.starts[two] || n == 0 {
			continue
		}
		for _, w := range s.words {
			if len(part)-n+1 >= len(w) && equalsLower(part[n-1:n-1+len(w)], w) {
				return true
			}
		}
	}
	return s.single != "" && strings.ContainsAny(part, s.single)
}

// equalsLower reports whether s, with ASCII letters in lower case, is the word.
func equalsLower(s, word string) bool {
	for n := range len(word) {
		c := s[n]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[n] {
			return false
		}
	}
	return true
}

// gram is how many bytes of an anchor are compared at once.
const gram = 4

// stride is how far from each other the groups are that are looked at.
const stride = 4

// group is the first four bytes of s, or three and a space, with letters in lower case.
func group(s string) uint32 {
	g := uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16
	if len(s) >= gram {
		g |= uint32(s[3]) << 24
	}
	return g | lower&0xffffffff
}

func eight(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// lower sets the bit by which small letters differ from capitals, in eight bytes.
const lower = 0x2020202020202020

// place says that an anchor of a phrase has a group of bytes at an offset.
type place struct {
	group        uint32
	anchor       string
	phrase, told int
	offset       int
}

type places struct {
	may [1 << 11]uint64 // a bit by hash: whether of has any
	of  [1 << 12][]place
}

func hash(w uint32) uint32 { return w * 0x9e3779b1 }

// bit is odd if there may be a place of the group.
func (p *places) bit(w uint32) uint64 {
	h := hash(w)
	return p.may[h>>21] >> (h >> 15 & 63)
}

func (p *places) add(t place) {
	h := hash(t.group)
	p.may[h>>21] |= 1 << (h >> 15 & 63)
	p.of[h>>20] = append(p.of[h>>20], t)
}

var anchors = func() (a places) {
	for n, p := range phrases {
		for m, told := range p.told {
			for _, anchor := range told.anchors {
				first := rarest(anchor)
				for offset := first; offset < first+stride; offset++ {
					for _, g := range groupsAt(anchor, offset) {
						a.add(place{g, anchor, n, m, offset})
					}
				}
			}
		}
	}
	return a
}()

// groupsAt returns the group of an anchor at an offset. That of -1 begins with any byte before it, that of its last three bytes
// ends with any byte behind it.
func groupsAt(anchor string, offset int) (all []uint32) {
	if offset >= 0 && offset+gram <= len(anchor) {
		return []uint32{group(anchor[offset:])}
	}
	for c := range 256 {
		switch {
		case c&0x20 == 0: // as a group has it
		case offset < 0:
			all = append(all, group(string([]byte{byte(c)})+anchor))
		default:
			all = append(all, group(anchor[offset:]+string([]byte{byte(c)})))
		}
	}
	return all
}

// rarest returns where the groups of an anchor that follow each other are rare in ordinary texts: at -1 in one that is too short
// for four whole groups.
func rarest(anchor string) (first int) {
	from, to := 0, len(anchor)-gram-stride+1
	if to < 0 {
		from, to = -1, len(anchor)-gram-stride+2
	}
	least := 2 * len(anchor) * gram
	for n := from; n <= to; n++ {
		common := 0
		for offset := max(n, 0); offset < min(n+stride, len(anchor)-gram+1); offset++ {
			common += gram * strings.Count(ordinary, anchor[offset:offset+gram])
		}
		for _, c := range anchor[max(n, 0):min(n+gram+stride-1, len(anchor))] {
			if strings.ContainsRune("etaoinshr ", c) {
				common++
			}
		}
		if common < least {
			first, least = n, common
		}
	}
	return first
}

// ordinary has the words that are most frequent in English texts.
const ordinary = " the be to of and a in that have i it for not on with he as you do at this but his by from they we say her she or an will my one all " +
	"would there their what so up out if about who get which go me when make can like time no just him know take people into year your good some could them see " +
	"other than then now look only come its over think also back after use two how our work first well way even new want because any these give day most us is are " +
	"was were must should been has had more may such where here every very before "
