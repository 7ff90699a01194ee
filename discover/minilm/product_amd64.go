package minilm

import (
	"github.com/viterin/vek/vek32"
	"golang.org/x/sys/cpu"
)

var (
	accelerated = vek32.Info().Acceleration // AVX2 and FMA
	wide        = accelerated && cpu.X86.HasAVX512F
)

// tile writes 4 rows of 16 numbers to dst: rows of a times strip, plus bias.
func tile(dst []float32, dstStride int, a []float32, stride int, strip, bias []float32) {
	if !accelerated {
		tileInGo(dst, dstStride, a, stride, strip, bias)
		return
	}
	tileAVX2(&dst[0], &a[0], &strip[0], &bias[0], len(strip)/tileColumns, 4*stride, 4*dstStride)
}

// multiplyWide is multiply with AVX-512, in tiles of 8 rows, finally of 4, and two strips. It
// returns the number of columns written; one strip may be left.
func multiplyWide(dst []float32, dstStride int, a []float32, stride, rows, steps int, m panels, bias []float32) (c int) {
	const columns = 2 * tileColumns
	for ; wide && c+columns <= len(bias); c += columns {
		strip := m[c*steps:][:steps*columns]
		for r, n := 0, 0; r < rows; r += n {
			if n = 2 * tileRows; rows-r <= tileRows {
				n = tileRows
			}
			to, from := dst[r*dstStride+c:][:(n-1)*dstStride+columns], a[r*stride:][:(n-1)*stride+steps]
			if n == tileRows {
				tile4AVX512(&to[0], &from[0], &strip[0], &bias[c], steps, 4*stride, 4*dstStride)
			} else {
				tile8AVX512(&to[0], &from[0], &strip[0], &bias[c], steps, 4*stride, 4*dstStride)
			}
		}
	}
	return c
}

// These take strides in bytes; steps is at least 1. The second strip follows the first.
//
//go:noescape
func tileAVX2(dst, a, strip, bias *float32, steps, stride, dstStride int)

//go:noescape
func tile4AVX512(dst, a, strip, bias *float32, steps, stride, dstStride int)

//go:noescape
func tile8AVX512(dst, a, strip, bias *float32, steps, stride, dstStride int)
