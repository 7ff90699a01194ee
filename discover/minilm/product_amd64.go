package minilm

import "github.com/viterin/vek/vek32"

var accelerated = vek32.Info().Acceleration // AVX2 and FMA

// tile writes 4 rows of 16 numbers to dst: those of a, times strip, plus bias.
func tile(dst []float32, dstStride int, a []float32, stride int, strip, bias []float32) {
	if !accelerated {
		tileInGo(dst, dstStride, a, stride, strip, bias)
		return
	}
	tileAVX2(&dst[0], &a[0], &strip[0], &bias[0], len(strip)/tileColumns, 4*stride, 4*dstStride)
}

// tileAVX2 takes strides in bytes; steps is at least 1.
//
//go:noescape
func tileAVX2(dst, a, strip, bias *float32, steps, stride, dstStride int)
