package usage

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// dayOf returns the number of the day in UTC.
func dayOf(t time.Time) int32 { return int32(t.Unix() / 86400) }

// dayStart returns the start of a day.
func dayStart(day int32) time.Time { return time.Unix(int64(day)*86400, 0).UTC() }

// counts are the counts of one day for a tool, a user or a strategy.
type counts struct {
	Day int32
	// Offered are the searches that offered the tool, or that the user made; Chosen those of them
	// after which the tool, or any tool, was called; Ranks the sum of the ranks, from 1, of the
	// first tool chosen.
	Offered, Chosen, Ranks uint32
	// Rated are the searches with a relevance, Relevance the sum of these values.
	Rated     uint32
	Relevance float64
	Calls     uint32 // that succeeded or failed
	Worked    uint32
	Timed     uint32 // Calls that were executed and not answered from a cache
	Micros    uint64 // total time of the timed calls
	Times     []bin  // of the timed calls, shortest first
}

// bin counts calls of similar duration: four bins per doubling.
type bin struct {
	At uint8
	N  uint32
}

// binOf returns the bin of a duration in microseconds.
func binOf(us uint64) uint8 {
	n := bits.Len64(us)
	if n <= 2 {
		return uint8(us)
	}
	return uint8(4*(n-2) + int(us>>(n-3)&3))
}

// binTop returns the longest duration of a bin.
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

// call counts a call that succeeded or failed: 1 adds it, -1 takes it back.
func (d *counts) call(c *call, n int) {
	if n < 0 && d.Calls == 0 { // its day was dropped
		return
	}
	d.Calls += uint32(n)
	if c.OK {
		d.Worked += uint32(n)
	}
	if c.Timed {
		d.Timed += uint32(n)
		d.Micros += uint64(n) * c.Micros
		d.addBin(binOf(c.Micros), uint32(n))
	}
}

func (d *counts) addBin(at uint8, n uint32) {
	i, ok := slices.BinarySearchFunc(d.Times, at, func(b bin, at uint8) int { return cmp.Compare(b.At, at) })
	if !ok {
		d.Times = slices.Insert(d.Times, i, bin{At: at})
	}
	d.Times[i].N += n
}

// add adds the counts of another day.
func (d *counts) add(o *counts) {
	d.Offered += o.Offered
	d.Chosen += o.Chosen
	d.Ranks += o.Ranks
	d.Rated += o.Rated
	d.Relevance += o.Relevance
	d.Calls += o.Calls
	d.Worked += o.Worked
	d.Timed += o.Timed
	d.Micros += o.Micros
	for _, b := range o.Times {
		d.addBin(b.At, b.N)
	}
}

// quantile returns the duration in microseconds that a share of the timed calls did not exceed, to
// within a fifth.
func (d *counts) quantile(share float64) uint64 {
	want := max(uint32(share*float64(d.Timed)+0.5), 1)
	n := uint32(0)
	for _, b := range d.Times {
		if n += b.N; n >= want {
			return binTop(b.At)
		}
	}
	return 0
}

// days are daily counts, oldest first.
type days []counts

// on returns the counts of a day.
func (d *days) on(day int32) *counts {
	if n := len(*d); n > 0 && (*d)[n-1].Day == day { // nearly always
		return &(*d)[n-1]
	}
	i, ok := slices.BinarySearchFunc(*d, day, func(c counts, day int32) int { return cmp.Compare(c.Day, day) })
	if !ok {
		*d = slices.Insert(*d, i, counts{Day: day})
	}
	return &(*d)[i]
}

// drop removes the days before a day.
func (d *days) drop(before int32) {
	i := slices.IndexFunc(*d, func(c counts) bool { return c.Day >= before })
	switch {
	case i < 0:
		*d = nil
	case i > 0:
		*d = slices.Clone((*d)[i:])
	}
}

// sum adds up the days from from to to, inclusive.
func (d days) sum(from, to int32) (sum counts) {
	for i := range d {
		if d[i].Day >= from && d[i].Day <= to {
			sum.add(&d[i])
		}
	}
	return sum
}
