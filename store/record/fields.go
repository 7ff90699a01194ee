package record

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// codecVersion starts every record. It changes only if the order of existing fields has
// to change.
const codecVersion = 1

// ErrDamaged reports that a stored record cannot be read.
var ErrDamaged = errors.New("a stored record is damaged")

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendBytes(b, s []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendInt(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

// appendTime keeps nanoseconds and drops the zone. A leading 0 marks the zero time, so
// that the start of 1970 stays distinct from it.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	b = append(b, 1)
	b = binary.AppendVarint(b, t.Unix())
	return binary.AppendUvarint(b, uint64(t.Nanosecond()))
}

func appendFloat(b []byte, f float64) []byte {
	bits := math.Float64bits(f)
	if bits == 0 {
		return append(b, 0)
	}
	b = append(b, 8)
	return binary.LittleEndian.AppendUint64(b, bits)
}

func appendHash(b []byte, h *[32]byte) []byte {
	if *h == ([32]byte{}) {
		return append(b, 0)
	}
	b = append(b, 32)
	return append(b, h[:]...)
}

// decoder reads a record. Its methods return zero at the end of the record and after
// damage; the caller checks err once.
type decoder struct {
	b   []byte
	err error
}

// open starts a record whose first byte is the version.
func open(b []byte) *decoder {
	d := &decoder{b: b}
	if len(b) == 0 || b[0] == 0 {
		d.fail()
		return d
	}
	d.b = b[1:]
	return d
}

func (d *decoder) fail() {
	d.err = ErrDamaged
	d.b = nil
}

func (d *decoder) uint() uint64 {
	if len(d.b) == 0 {
		return 0
	}
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) int() int64 {
	if len(d.b) == 0 {
		return 0
	}
	n, size := binary.Varint(d.b)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return n
}

// span returns the next length-prefixed bytes without copying them.
func (d *decoder) span() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	s := d.b[:n:n]
	d.b = d.b[n:]
	return s
}

func (d *decoder) string() string { return string(d.span()) }

// bytes returns a copy, nil if empty.
func (d *decoder) bytes() []byte {
	s := d.span()
	if len(s) == 0 {
		return nil
	}
	return append([]byte(nil), s...)
}

func (d *decoder) strings() []string {
	n := d.count()
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.string())
	}
	return list
}

// count reads the number of elements that follow. Each takes at least one byte, which
// bounds the allocation for a damaged record.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) time() time.Time {
	if d.uint() == 0 {
		return time.Time{}
	}
	sec := d.int()
	nsec := d.uint()
	if d.err != nil {
		return time.Time{}
	}
	if nsec >= 1e9 {
		d.fail()
		return time.Time{}
	}
	return time.Unix(sec, int64(nsec)).UTC()
}

func (d *decoder) float() float64 {
	s := d.span()
	switch len(s) {
	case 0:
		return 0
	case 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(s))
	}
	d.fail()
	return 0
}

func (d *decoder) hash() (h [32]byte) {
	s := d.span()
	switch len(s) {
	case 0:
	case 32:
		copy(h[:], s)
	default:
		d.fail()
	}
	return h
}
