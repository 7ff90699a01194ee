package minilm

import (
	"iter"
	"math"

	"github.com/viterin/vek/vek32"
)

const epsilon = 1e-12 // of the layer norms

// work is the reusable memory of one forward pass. Several texts share a pass, since most of the
// time of a short text goes into reading the weights.
type work struct {
	ids                    []int32 // of all texts
	ends                   []int   // of each text, in ids
	x, y, q, k, v, up, att []float32
	keys, values           panels // of one head
}

// grow makes room for whole tiles at every text's start.
func (w *work) grow(tokens int) {
	need := func(s *[]float32, n int) {
		if cap(*s) < n {
			*s = make([]float32, n)
		}
		*s = (*s)[:n]
	}
	rows, columns := tokens+tileRows-1, roundUp(tokens, tileColumns)
	for _, s := range []*[]float32{&w.x, &w.y, &w.q, &w.k, &w.v} {
		need(s, rows*Dimensions)
	}
	need(&w.up, rows*inner)
	need(&w.att, roundUp(tokens, tileRows)*columns)
	need((*[]float32)(&w.keys), columns*headSize)
	need((*[]float32)(&w.values), tokens*headSize)
	clear(w.x[tokens*Dimensions:])
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// forward returns the vectors of the texts in w.
func (m *Model) forward(w *work) [][]float32 {
	n := len(w.ids)
	w.grow(n)
	for from, to := range w.texts() {
		for t, id := range w.ids[from:to] {
			row := w.x[(from+t)*Dimensions:][:Dimensions]
			copy(row, m.w.words[int(id)*Dimensions:])
			vek32.Add_Inplace(row, m.w.places[t*Dimensions:][:Dimensions])
			vek32.Add_Inplace(row, m.w.kinds[:Dimensions])
			normalise(row, m.w.first)
		}
	}
	for i := range m.w.layers {
		l := &m.w.layers[i]
		l.query.apply(w.q, w.x, n)
		l.key.apply(w.k, w.x, n)
		l.value.apply(w.v, w.x, n)
		for from, to := range w.texts() {
			w.attend(from, to-from)
		}
		l.attended.apply(w.q, w.y, n)
		for t := range n {
			row := w.x[t*Dimensions:][:Dimensions]
			vek32.Add_Inplace(row, w.q[t*Dimensions:][:Dimensions])
			normalise(row, l.afterAttention)
		}
		l.up.apply(w.up, w.x, n)
		gelu(w.up[:n*inner])
		l.down.apply(w.y, w.up, n)
		for t := range n {
			row := w.x[t*Dimensions:][:Dimensions]
			vek32.Add_Inplace(row, w.y[t*Dimensions:][:Dimensions])
			normalise(row, l.afterFeed)
		}
	}
	var out [][]float32
	for from, to := range w.texts() {
		v := make([]float32, Dimensions)
		for t := from; t < to; t++ {
			vek32.Add_Inplace(v, w.x[t*Dimensions:][:Dimensions])
		}
		// The mean has the direction of the sum, and only the direction matters.
		if length := float32(math.Sqrt(float64(vek32.Dot(v, v)))); length > 0 {
			vek32.DivNumber_Inplace(v, length)
		}
		out = append(out, v)
	}
	return out
}

// texts yields where each text begins and ends.
func (w *work) texts() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		from := 0
		for _, to := range w.ends {
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// apply writes src W + b to dst for each token.
func (l linear) apply(dst, src []float32, tokens int) {
	out, in := len(l.b), len(l.w)/len(l.b)
	multiply(dst, out, src, in, tokens, in, l.w, l.b)
}

var none [maxTokens]float32 // a bias

// attend computes the attention of n tokens into y, head by head.
func (w *work) attend(from, n int) {
	const (
		scale   = 1 / 5.656854249492381 // the root of headSize
		nothing = -80                   // its exponential is negligible; vek32's is wrong below -88
	)
	columns := roundUp(n, tileColumns)
	q, k, v, y := w.q[from*Dimensions:], w.k[from*Dimensions:], w.v[from*Dimensions:], w.y[from*Dimensions:]
	for h := 0; h < Dimensions; h += headSize {
		for s := range n {
			strip := w.keys[s/tileColumns*tileColumns*headSize+s%tileColumns:]
			for i, v := range k[s*Dimensions+h:][:headSize] {
				strip[i*tileColumns] = v
			}
			for i := 0; i < headSize; i += tileColumns {
				copy(w.values[i*n+s*tileColumns:][:tileColumns], v[s*Dimensions+h+i:])
			}
		}
		multiply(w.att, columns, q[h:], Dimensions, n, headSize, w.keys, none[:columns])
		for t := range n {
			row := w.att[t*columns:][:n]
			vek32.SubNumber_Inplace(row, vek32.Max(row))
			vek32.MulNumber_Inplace(row, scale)
			vek32.MaximumNumber_Inplace(row, nothing)
			vek32.Exp_Inplace(row)
			vek32.MulNumber_Inplace(row, 1/vek32.Sum(row))
		}
		// Up to three rows of the next text are overwritten; they are computed later.
		multiply(y[h:], Dimensions, w.att, columns, n, n, w.values, none[:headSize])
	}
}

// normalise is a layer norm.
func normalise(x []float32, s scale) {
	mean := vek32.Sum(x) / Dimensions
	vek32.SubNumber_Inplace(x, mean)
	variance := vek32.Dot(x, x) / Dimensions
	vek32.MulNumber_Inplace(x, float32(1/math.Sqrt(float64(variance)+epsilon)))
	vek32.Mul_Inplace(x, s.w)
	vek32.Add_Inplace(x, s.b)
}

// gelu is x times the normal distribution's CDF at x, interpolated linearly in a table: it is
// within 0.00001 of the formula; beyond the table's ends it is x or 0.
func gelu(all []float32) {
	for i, x := range all {
		at := (x + geluEnd) * geluSteps
		switch {
		case at >= 2*geluEnd*geluSteps:
		case at > 0:
			k := int(at)
			all[i] = geluTable[k] + (at-float32(k))*(geluTable[k+1]-geluTable[k])
		case at <= 0:
			all[i] = 0
		}
	}
}

const (
	geluEnd   = 6
	geluSteps = 128 // for each 1 of x
)

var geluTable = func() (t [2*geluEnd*geluSteps + 1]float32) {
	for i := range t {
		x := float64(i)/geluSteps - geluEnd
		t[i] = float32(x * 0.5 * (1 + math.Erf(x/math.Sqrt2)))
	}
	return t
}()
