package promptscan

import (
	"slices"
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
	// Every second group of four bytes is looked at: an anchor has one that begins at its first or at its second byte.
	for i := 0; i+gram <= len(text); i += 2 {
		w := group(text[i:])
		if !anchors.may[hash(w)] {
			continue
		}
		for _, t := range anchors.of[w] {
			if from := i - t.offset; from < 0 || len(text)-from < len(t.anchor) || !strings.EqualFold(text[from:from+len(t.anchor)], t.anchor) {
				continue
			}
			p, near := &phrases[t.phrase], strings.ToLower(text[max(0, i-around):min(len(text), i+around)])
			if !slices.ContainsFunc(p.beside, func(w string) bool { return strings.Contains(near, w) }) {
				continue
			}
			if a.places++; a.places > maxPlaces {
				a.More = true
				return Finding{}, false
			}
			if p.pattern.MatchString(near) {
				return Finding{Rule: p.rule, Severity: p.severity, Message: p.message}, true
			}
		}
	}
	return Finding{}, false
}

// gram is how many bytes of an anchor are compared at once.
const gram = 4

// group is the first four bytes of s, with letters in lower case.
func group(s string) uint32 {
	return (uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24) | 0x20202020
}

func hash(w uint32) uint32 { return w * 0x9e3779b1 >> 20 }

// place says that an anchor of a phrase has a group of bytes at an offset.
type place struct {
	anchor string
	phrase int
	offset int
}

type places struct {
	may [1 << 12]bool // by hash: whether of has any
	of  map[uint32][]place
}

var anchors = func() (a places) {
	a.of = make(map[uint32][]place)
	for n, p := range phrases {
		for _, anchor := range p.told {
			for offset := range 2 {
				w := group(anchor[offset:])
				a.may[hash(w)] = true
				a.of[w] = append(a.of[w], place{anchor, n, offset})
			}
		}
	}
	return a
}()
