//go:build !amd64

package minilm

var accelerated = false

func tile(dst []float32, dstStride int, a []float32, stride int, strip, bias []float32) {
	tileInGo(dst, dstStride, a, stride, strip, bias)
}
