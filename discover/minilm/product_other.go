//go:build !amd64

package minilm

var accelerated, wide = false, false

func tile(dst []float32, dstStride int, a []float32, stride int, strip, bias []float32) {
	tileInGo(dst, dstStride, a, stride, strip, bias)
}

func multiplyWide([]float32, int, []float32, int, int, int, panels, []float32) int { return 0 }
