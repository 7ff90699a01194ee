package breaker

import "time"

// slots is into how many parts a window of seconds is divided: what it counts goes in steps of a twentieth.
const slots = 20

// counts are of calls.
type counts struct{ calls, failures, slow uint32 }

func (c *counts) add(d counts) {
	c.calls += d.calls
	c.failures += d.failures
	c.slow += d.slow
}

func (c *counts) sub(d counts) {
	c.calls -= d.calls
	c.failures -= d.failures
	c.slow -= d.slow
}

// window counts the calls of the last seconds, or the last calls. The zero value is empty.
type window struct {
	sum   counts
	row   int       // failures in a row, up to now
	parts []counts  // of seconds: one for each slot
	calls []uint8   // of calls: one for each, with its bits
	took  []float32 // milliseconds, by slot or by call
	at    int64     // of seconds: the number of the newest slot; of calls: how many there were
}

const (
	bitFailed = 1 << iota
	bitSlow
)

// clear forgets everything.
func (w *window) clear() { *w = window{} }

// pass lets time pass: calls that are too old are forgotten.
func (w *window) pass(r *Rule, now int64) {
	if r.Count || w.parts == nil {
		return
	}
	at := now / step(r)
	if at-w.at >= slots {
		clear(w.parts)
		clear(w.took)
		w.sum = counts{}
		w.at = at
	}
	for ; w.at < at; w.at++ {
		old := &w.parts[(w.at+1)%slots]
		w.sum.sub(*old)
		*old = counts{}
		w.took[(w.at+1)%slots] = 0
	}
}

// step is how long a slot is, in nanoseconds.
func step(r *Rule) int64 { return int64(time.Duration(r.Window) * time.Second / slots) }

// add counts a call that took so many nanoseconds.
func (w *window) add(r *Rule, now int64, failed, slow bool, took int64) {
	ms := float32(float64(max(0, took)) / float64(time.Millisecond))
	one := counts{calls: 1}
	var bits uint8
	if failed {
		one.failures, bits = 1, bitFailed
		w.row++
	} else {
		w.row = 0
	}
	if slow {
		one.slow, bits = 1, bits|bitSlow
	}
	if r.Count {
		if w.calls == nil {
			w.calls, w.took = make([]uint8, r.Window), make([]float32, r.Window)
		}
		i := w.at % int64(len(w.calls))
		if w.at >= int64(len(w.calls)) {
			old := w.calls[i]
			w.sum.sub(counts{1, uint32(old & bitFailed), uint32(old & bitSlow >> 1)})
		}
		w.calls[i], w.took[i] = bits, ms
		w.at++
		w.sum.add(one)
		return
	}
	if w.parts == nil {
		w.parts, w.took = make([]counts, slots), make([]float32, slots)
		w.at = now / step(r)
	}
	w.pass(r, now)
	w.parts[w.at%slots].add(one)
	w.took[w.at%slots] += ms
	w.sum.add(one)
}

// average is how long the calls in the window took, in milliseconds; 0 without any. It is summed up here and not with the counts:
// what is added to a sum of floats and taken away again leaves a remainder.
func (w *window) average() float64 {
	if w.sum.calls == 0 {
		return 0
	}
	var sum float64
	for _, ms := range w.took {
		sum += float64(ms)
	}
	return sum / float64(w.sum.calls)
}

// trips says why the counts open the breaker, "" if they do not. One failure is no rate where more than one call is asked for.
func (w *window) trips(r *Rule) string {
	s := w.sum
	switch {
	case r.Consecutive > 0 && w.row >= r.Consecutive:
		return ReasonConsecutive
	case r.Failures > 0 && int(s.failures) >= r.Failures:
		return ReasonErrorCount
	case int(s.calls) < r.MinCalls:
		return ""
	case (s.failures > 1 || r.MinCalls <= 1) && over(s.failures, s.calls, r.FailureRate):
		return ReasonFailureRate
	case r.SlowRate > 0 && over(s.slow, s.calls, r.SlowRate):
		return ReasonSlowRate
	}
	return ""
}

// over reports whether n of the calls are more than a percentage of them; of 100 all are.
func over(n, calls uint32, percent float64) bool {
	return float64(n)*100 > percent*float64(calls) || percent >= 100 && n == calls
}
