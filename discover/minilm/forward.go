package minilm

import (
	"math"

	"github.com/viterin/vek/vek32"
)

const epsilon = 1e-12 // of the layer norms

// work is the memory of one forward pass; it is used again.
type work struct {
	ids                    []int32
	x, y, q, k, v, up, att []float32
}

func (w *work) grow(tokens int) {
	need := func(s *[]float32, n int) {
		if cap(*s) < n {
			*s = make([]float32, n)
		}
		*s = (*s)[:n]
	}
	for _, s := range []*[]float32{&w.x, &w.y, &w.q, &w.k, &w.v} {
		need(s, tokens*Dimensions)
	}
	need(&w.up, tokens*inner)
	need(&w.att, tokens)
}

// forward gives the vector of the tokens in w.ids.
func (m *Model) forward(w *work) []float32 {
	n := len(w.ids)
	w.grow(n)
	for t, id := range w.ids {
		row := w.x[t*Dimensions:][:Dimensions]
		copy(row, m.w.words[int(id)*Dimensions:])
		vek32.Add_Inplace(row, m.w.places[t*Dimensions:][:Dimensions])
		vek32.Add_Inplace(row, m.w.kinds[:Dimensions])
		normalise(row, m.w.first)
	}
	for i := range m.w.layers {
		l := &m.w.layers[i]
		apply(w.q, w.x, l.query, n)
		apply(w.k, w.x, l.key, n)
		apply(w.v, w.x, l.value, n)
		w.attend(n)
		apply(w.q, w.y, l.attended, n)
		for t := range n {
			row := w.x[t*Dimensions:][:Dimensions]
			vek32.Add_Inplace(row, w.q[t*Dimensions:][:Dimensions])
			normalise(row, l.afterAttention)
		}
		apply(w.up, w.x, l.up, n)
		for i, v := range w.up {
			w.up[i] = gelu(v)
		}
		apply(w.y, w.up, l.down, n)
		for t := range n {
			row := w.x[t*Dimensions:][:Dimensions]
			vek32.Add_Inplace(row, w.y[t*Dimensions:][:Dimensions])
			normalise(row, l.afterFeed)
		}
	}
	out := make([]float32, Dimensions)
	for t := range n {
		vek32.Add_Inplace(out, w.x[t*Dimensions:][:Dimensions])
	}
	// The mean has the direction of the sum, and only that is left of it.
	if length := float32(math.Sqrt(float64(vek32.Dot(out, out)))); length > 0 {
		vek32.DivNumber_Inplace(out, length)
	}
	return out
}

// apply gives dst = src W + b for each token.
func apply(dst, src []float32, l linear, tokens int) {
	out, in := len(l.b), len(l.w)/len(l.b)
	vek32.MatMul_Into(dst[:tokens*out], src[:tokens*in], l.w, in)
	for t := range tokens {
		vek32.Add_Inplace(dst[t*out:][:out], l.b)
	}
}

// attend puts into y what each token takes from the values of all, head by head.
func (w *work) attend(n int) {
	const root = 5.656854249492381 // of headSize
	clear(w.y)
	for h := 0; h < Dimensions; h += headSize {
		for t := range n {
			q := w.q[t*Dimensions+h:][:headSize]
			top := float32(math.Inf(-1))
			for s := range n {
				v := vek32.Dot(q, w.k[s*Dimensions+h:][:headSize]) / root
				w.att[s] = v
				top = max(top, v)
			}
			sum := float32(0)
			for s, v := range w.att {
				e := float32(math.Exp(float64(v - top)))
				w.att[s] = e
				sum += e
			}
			out := (*[headSize]float32)(w.y[t*Dimensions+h:])
			for s, e := range w.att {
				e /= sum
				v := (*[headSize]float32)(w.v[s*Dimensions+h:])
				for i := range out {
					out[i] += e * v[i]
				}
			}
		}
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

func gelu(x float32) float32 {
	return x * 0.5 * (1 + float32(math.Erf(float64(x)/math.Sqrt2)))
}
