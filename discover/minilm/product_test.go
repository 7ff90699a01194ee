package minilm

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestMultiply compares accelerated and plain tiles with the definition of a product.
func TestMultiply(t *testing.T) {
	t.Logf("this processor has AVX2 and FMA: %v, AVX-512: %v; what it has not is not tested", accelerated, wide)
	defer func(a, w bool) { accelerated, wide = a, w }(accelerated, wide)
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(r.NormFloat64())
		}
		return out
	}
	for _, on := range [][2]bool{{accelerated, wide}, {accelerated, false}, {false, false}} {
		accelerated, wide = on[0], on[1]
		for _, c := range []struct{ rows, steps, columns int }{{1, 1, 16}, {3, 32, 16}, {4, 384, 48}, {7, 5, 32}, {8, 1, 32}, {12, 33, 80}, {13, 64, 384}} {
			const spare = 3 // a row has more numbers than are used
			padded := roundUp(c.rows, tileRows)
			a, w, bias := random(padded*(c.steps+spare)), random(c.columns*c.steps), random(c.columns)
			dst := make([]float32, padded*(c.columns+spare))
			multiply(dst, c.columns+spare, a, c.steps+spare, c.rows, c.steps, panelsOf(w, c.columns, c.steps), bias)
			for row := range c.rows {
				for column := range c.columns {
					want := float64(bias[column])
					for k := range c.steps {
						want += float64(a[row*(c.steps+spare)+k]) * float64(w[column*c.steps+k])
					}
					if got := dst[row*(c.columns+spare)+column]; math.Abs(float64(got)-want) > 1e-4 {
						t.Fatalf("%+v, AVX2 %v, AVX-512 %v, row %d column %d: %v, want %v", c, accelerated, wide, row, column, got, want)
					}
				}
				for i := range spare {
					if got := dst[row*(c.columns+spare)+c.columns+i]; got != 0 {
						t.Fatalf("%+v, AVX2 %v, AVX-512 %v: %v was written beside row %d", c, accelerated, wide, got, row)
					}
				}
			}
		}
	}
}

func TestGelu(t *testing.T) {
	for _, x := range []float32{-1e30, -7, -6, -5.999, -3.14159, -0.5, -1e-9, 0, 0.001, 1, 2.7, 5.9999, 6, 6.1, 1e30} {
		got := []float32{x}
		gelu(got)
		want := float64(x) * 0.5 * (1 + math.Erf(float64(x)/math.Sqrt2))
		if math.Abs(float64(got[0])-want) > 1e-5*max(1, math.Abs(want)) {
			t.Errorf("gelu(%v) = %v, want %v", x, got[0], want)
		}
	}
	got := []float32{float32(math.NaN())}
	if gelu(got); got[0] == got[0] {
		t.Errorf("gelu(NaN) = %v", got[0])
	}
}

func BenchmarkMultiply(b *testing.B) {
	const rows, steps, columns = 32, Dimensions, inner
	a, w, bias, dst := make([]float32, rows*steps), make([]float32, steps*columns), make([]float32, columns), make([]float32, rows*columns)
	m := panelsOf(w, columns, steps)
	b.ReportAllocs()
	for b.Loop() {
		multiply(dst, columns, a, steps, rows, steps, m, bias)
	}
	b.ReportMetric(2*rows*steps*columns*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
