package minilm

// Matrix products take nearly all of the time. They are computed in tiles of 4 rows and 16 columns
// that stay in registers until complete: viterin/vek's product adds to memory at each step, and was
// measured at half the speed. With AVX-512 a tile has up to 8 rows of two strips.
const (
	tileRows    = 4
	tileColumns = 16 // divides all sizes of the model
)

// panels is a matrix cut into strips of 16 columns, one after the other, so that a tile reads
// sequentially.
type panels []float32

// panelsOf converts the transpose of w.
func panelsOf(w []float32, columns, rows int) panels {
	out := make(panels, 0, len(w))
	for c := 0; c < columns; c += tileColumns {
		for r := range rows {
			for i := range tileColumns {
				out = append(out, w[(c+i)*rows+r])
			}
		}
	}
	return out
}

// multiply writes a m + bias to dst. A row of a has steps numbers, and rows are stride apart; there
// are as many strips as bias has room for. All rows up to a multiple of 4 are read and written.
func multiply(dst []float32, dstStride int, a []float32, stride, rows, steps int, m panels, bias []float32) {
	for c := multiplyWide(dst, dstStride, a, stride, rows, steps, m, bias); c < len(bias); c += tileColumns {
		strip := m[c*steps:][:steps*tileColumns]
		for r := 0; r < rows; r += tileRows {
			tile(dst[r*dstStride+c:][:(tileRows-1)*dstStride+tileColumns], dstStride,
				a[r*stride:][:(tileRows-1)*stride+steps], stride, strip, bias[c:][:tileColumns])
		}
	}
}

// tileInGo is tile in plain Go. It takes two columns at a time, so that their sums stay in
// registers.
func tileInGo(dst []float32, dstStride int, a []float32, stride int, strip, bias []float32) {
	steps := len(strip) / tileColumns
	a0, a1, a2, a3 := a[:steps], a[stride:][:steps], a[2*stride:][:steps], a[3*stride:][:steps]
	for c := 0; c < tileColumns; c += 2 {
		x, y := bias[c], bias[c+1]
		x0, x1, x2, x3, y0, y1, y2, y3 := x, x, x, x, y, y, y, y
		for k, v := range a0 {
			b := strip[k*tileColumns+c:][:2]
			x0 += v * b[0]
			y0 += v * b[1]
			x1 += a1[k] * b[0]
			y1 += a1[k] * b[1]
			x2 += a2[k] * b[0]
			y2 += a2[k] * b[1]
			x3 += a3[k] * b[0]
			y3 += a3[k] * b[1]
		}
		for r, sums := range [tileRows][2]float32{{x0, y0}, {x1, y1}, {x2, y2}, {x3, y3}} {
			copy(dst[r*dstStride+c:], sums[:])
		}
	}
}
