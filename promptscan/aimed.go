package promptscan

import (
	"bytes"
	"strings"
)

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
	// Every second group of four bytes is looked at: of two that follow each other one is seen.
	i := 0
	for ; i+8 <= len(text); i += 6 {
		w := uint64(text[i]) | uint64(text[i+1])<<8 | uint64(text[i+2])<<16 | uint64(text[i+3])<<24 |
			uint64(text[i+4])<<32 | uint64(text[i+5])<<40 | uint64(text[i+6])<<48 | uint64(text[i+7])<<56 | lower
		if !anchors.has(uint32(w)) && !anchors.has(uint32(w>>16)) && !anchors.has(uint32(w>>32)) {
			continue
		}
		for n := 0; n < 6; n += 2 {
			if f, ok := a.look(text, i+n, uint32(w>>(8*n))); ok || a.More {
				return f, ok
			}
		}
	}
	for ; i+gram <= len(text); i += 2 {
		if f, ok := a.look(text, i, group(text[i:])); ok || a.More {
			return f, ok
		}
	}
	return Finding{}, false
}

// look looks for the phrases of which an anchor has the group of bytes at i.
func (a *Aimed) look(text string, i int, g uint32) (f Finding, ok bool) {
	if !anchors.has(g) {
		return Finding{}, false
	}
	for _, t := range anchors.of[g] {
		from := i - t.offset
		if from < 0 || len(text)-from < len(t.anchor) || !strings.EqualFold(text[from:from+len(t.anchor)], t.anchor) {
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
}

func before(n int, words ...string) side { return side{before: n, words: words} }
func after(n int, words ...string) side  { return side{after: n, words: words} }

func (t *told) beside(text string, from, to int) bool {
	var room [around]byte
	for _, s := range t.sides {
		near := room[:0]
		part := text[to:min(len(text), to+s.after)]
		if s.before > 0 {
			part = text[max(0, from-s.before):from]
		}
		for n := range len(part) {
			c := part[n]
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			near = append(near, c)
		}
		found := false
		for _, w := range s.words {
			if found = bytes.Contains(near, []byte(w)); found {
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// gram is how many bytes of an anchor are compared at once.
const gram = 4

// group is the first four bytes of s, with letters in lower case.
func group(s string) uint32 {
	return (uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24) | 0x20202020
}

// lower sets the bit by which small letters differ from capitals, in eight bytes.
const lower = 0x2020202020202020

// place says that an anchor of a phrase has a group of bytes at an offset.
type place struct {
	anchor       string
	phrase, told int
	offset       int
}

type places struct {
	may [1 << 10]uint64 // a bit by hash: whether of has any
	of  map[uint32][]place
}

func bit(w uint32) (word, mask uint64) {
	h := w * 0x9e3779b1 >> 16
	return uint64(h >> 6), 1 << (h & 63)
}

func (p *places) has(w uint32) bool {
	word, mask := bit(w)
	return p.may[word]&mask != 0
}

var anchors = func() (a places) {
	a.of = make(map[uint32][]place)
	for n, p := range phrases {
		for m, told := range p.told {
			for _, anchor := range told.anchors {
				first := rarest(anchor)
				for offset := first; offset < first+2; offset++ {
					w := group(anchor[offset:])
					word, mask := bit(w)
					a.may[word] |= mask
					a.of[w] = append(a.of[w], place{anchor, n, m, offset})
				}
			}
		}
	}
	return a
}()

// rarest returns which two groups of an anchor that follow each other are rare in other texts, by their letters.
func rarest(anchor string) (first int) {
	least := len(anchor) * gram
	for n := range len(anchor) - gram {
		common := 0
		for _, c := range anchor[n:n+gram] + anchor[n+1:n+1+gram] {
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
