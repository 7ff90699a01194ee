package usage

import (
	"math/bits"
	"slices"
	"time"
)

// dayOf is the number of the day in UTC.
func dayOf(t time.Time) int32 { return int32(t.Unix() / 86400) }

// dayStart is when a day begins.
func dayStart(day int32) time.Time { return time.Unix(int64(day)*86400, 0).UTC() }

// tally is what happened on one day to a tool, a user or a strategy.
type tally struct {
	Day int32 `json:"d"`
	// Offered are the retrievals that gave the tool, or that the user made; Chosen those
	// of them after which the tool, or any, was called; Places the sum of the places, from
	// 1, of the first that was.
	Offered uint32 `json:"o,omitzero"`
	Chosen  uint32 `json:"c,omitzero"`
	Places  uint32 `json:"p,omitzero"`
	// Rated are the retrievals that somebody rated, Relevance the sum of what they said.
	Rated     uint32  `json:"r,omitzero"`
	Relevance float64 `json:"s,omitzero"`
	Calls     uint32  `json:"n,omitzero"` // that ended as worked or failed
	Worked    uint32  `json:"w,omitzero"`
	Timed     uint32  `json:"t,omitzero"`  // those of Calls that were carried out and not answered from a cache
	Micros    uint64  `json:"u,omitzero"`  // that the timed ones took
	Times     []bin   `json:"h,omitempty"` // of the timed ones, by time
}

// bin counts calls that took about as long: four bins to each doubling.
type bin struct {
	At uint8  `json:"b"`
	N  uint32 `json:"n"`
}

// binOf is the bin of a time in microseconds.
func binOf(us uint64) uint8 {
	n := bits.Len64(us)
	if n <= 2 {
		return uint8(us)
	}
	return uint8(4*(n-2) + int(us>>(n-3)&3))
}

// binTop is the longest time of a bin.
func binTop(b uint8) uint64 {
	if b < 4 {
		return uint64(b)
	}
	n := int(b)/4 + 2
	if n > 62 {
		return 1 << 62
	}
	return (uint64(4+b%4)+1)<<(n-3) - 1
}

func (t *tally) time(us uint64) {
	t.Timed++
	t.Micros += us
	t.addBin(binOf(us), 1)
}

func (t *tally) addBin(at uint8, n uint32) {
	i, there := slices.BinarySearchFunc(t.Times, at, func(b bin, at uint8) int { return int(b.At) - int(at) })
	if !there {
		t.Times = slices.Insert(t.Times, i, bin{At: at})
	}
	t.Times[i].N += n
}

// add takes another day in.
func (t *tally) add(o *tally) {
	t.Offered += o.Offered
	t.Chosen += o.Chosen
	t.Places += o.Places
	t.Rated += o.Rated
	t.Relevance += o.Relevance
	t.Calls += o.Calls
	t.Worked += o.Worked
	t.Timed += o.Timed
	t.Micros += o.Micros
	for _, b := range o.Times {
		t.addBin(b.At, b.N)
	}
}

// quantile is the time that a share of the timed calls did not exceed, in
// microseconds; it is exact to a fifth.
func (t *tally) quantile(share float64) uint64 {
	want := uint32(share*float64(t.Timed) + 0.5)
	seen := uint32(0)
	for _, b := range t.Times {
		if seen += b.N; seen >= max(want, 1) {
			return binTop(b.At)
		}
	}
	return 0
}

// days are tallies, the oldest first.
type days []tally

// on gives the tally of a day, which is the last one or a later one in all but rare
// cases.
func (d *days) on(day int32) *tally {
	if n := len(*d); n > 0 {
		if last := &(*d)[n-1]; last.Day == day {
			return last
		}
	}
	i, there := slices.BinarySearchFunc(*d, day, func(t tally, day int32) int { return int(t.Day) - int(day) })
	if !there {
		*d = slices.Insert(*d, i, tally{Day: day})
	}
	return &(*d)[i]
}

// drop forgets the days before one.
func (d *days) drop(before int32) {
	i := 0
	for i < len(*d) && (*d)[i].Day < before {
		i++
	}
	if i > 0 {
		*d = append(days(nil), (*d)[i:]...)
	}
}

// sum is what happened from one day to another, both included.
func (d days) sum(from, to int32) (t tally) {
	for i := range d {
		if d[i].Day >= from && d[i].Day <= to {
			t.add(&d[i])
		}
	}
	return t
}

// clone shares nothing with d.
func (d days) clone() days {
	out := slices.Clone(d)
	for i := range out {
		out[i].Times = slices.Clone(out[i].Times)
	}
	return out
}
