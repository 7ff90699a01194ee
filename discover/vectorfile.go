package discover

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/toolkeep/toolkeep/discover/mapped"
)

// A vector file is a header of 64 KiB with the model's name, then chunks of 1024 slots. A chunk
// holds the numbers of all its vectors, as compared in memory, then a label for each: the digest of
// the text and a checksum over digest and numbers. A chunk begins at a multiple of 64 KiB, so that
// it can be mapped with any page size. A slot without a label is free; so is one whose checksum is
// wrong after a crash or bit rot. Slots are written once, in order, so that readers need no lock; a
// replaced or dropped vector loses its label, and its numbers stay until the file is rewritten.
const (
	vectorMagic   = "TKVEC2"
	vectorFileEnd = ".vec"
	headBytes     = 64 << 10
	chunkRows     = 1024
	labelBytes    = sha256.Size + 4
	maxDimensions = 8192
	noSlot        = ^uint32(0)
)

var checksum = crc32.MakeTable(crc32.Castagnoli)

// rows are the numbers of vectors, in chunks of chunkRows, mapped from a file or in process memory.
type rows struct {
	dimensions int
	chunks     [][]float32
	mapped     *mappings
	// gone is set when a part of the file was found missing: from then on nothing is compared with
	// these rows, and Selections return none of them.
	gone atomic.Bool
}

// mappings are unmapped when the last reader is gone.
type mappings struct{ list [][]byte }

func newRows(dimensions int) *rows {
	r := &rows{dimensions: dimensions, mapped: &mappings{}}
	runtime.AddCleanup(r, func(m *mappings) {
		for _, b := range m.list {
			_ = unmap(b) // no caller to report to
		}
	}, r.mapped)
	return r
}

func (r *rows) at(slot uint32) []float32 {
	at := int(slot%chunkRows) * r.dimensions
	return r.chunks[slot/chunkRows][at : at+r.dimensions]
}

// reading calls f, which may access chunks, some of them mapped.
func reading(chunks [][]float32, f func()) error {
	return mapped.Read(func(addr uintptr) bool {
		return slices.ContainsFunc(chunks, func(c []float32) bool { return mapped.Holds(c, addr) })
	}, f)
}

// next returns the first slot of the next chunk.
func (r *rows) next() uint32 { return uint32(len(r.chunks)) * chunkRows }

// hold keeps numbers in process memory.
func (r *rows) hold(slot uint32, numbers []float32) {
	if slot == r.next() {
		r.chunks = append(r.chunks, make([]float32, chunkRows*r.dimensions))
	}
	copy(r.at(slot), numbers)
}

type vectorFile struct {
	f          *os.File
	path       string
	model      string
	dimensions int
	damaged    bool // it was not a vector file when opened
}

func spaceHead(model string, dimensions int) string {
	order := "big"
	if probe := uint16(1); *(*byte)(unsafe.Pointer(&probe)) == 1 {
		order = "little"
	}
	return fmt.Sprintf("%s\n%s\n%d\n%s\n", vectorMagic, strconv.Quote(model), dimensions, order)
}

func spaceSum(model string, dimensions int) [sha256.Size]byte {
	return sha256.Sum256([]byte(spaceHead(model, dimensions)))
}

// readSpace returns the space of a file's vectors; the zero value if it is not a vector file.
func readSpace(path string) (Space, error) {
	f, err := os.Open(path)
	if err != nil {
		return Space{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Space{}, err
	}
	head := make([]byte, 4096)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return Space{}, err
	}
	lines := strings.SplitN(string(head[:n]), "\n", 4)
	if len(lines) < 4 || lines[0] != vectorMagic {
		return Space{}, nil
	}
	model, err1 := strconv.Unquote(lines[1])
	dimensions, err2 := strconv.Atoi(lines[2])
	if err1 != nil || err2 != nil || dimensions < 1 || dimensions > maxDimensions {
		return Space{}, nil
	}
	s := Space{Model: model, Dimensions: dimensions}
	v := &vectorFile{f: f, dimensions: dimensions}
	for chunk := range v.chunksIn(info.Size()) {
		labels, err := v.labels(chunk)
		if err != nil {
			return Space{}, err
		}
		for i := range chunkRows {
			if _, ok := label(labels, i); ok {
				s.Vectors++
			}
		}
	}
	return s, nil
}

// openVectorFile creates the file if it is absent, and overwrites one of another model.
func openVectorFile(path, model string, dimensions int) (*vectorFile, error) {
	head := spaceHead(model, dimensions)
	if len(head) > 4096 {
		return nil, errors.New("the name of the model is too long")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	// Left by a crash during a rewrite.
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	v := &vectorFile{f: f, path: path, model: model, dimensions: dimensions}
	got := make([]byte, len(head))
	if _, err = io.ReadFull(f, got); err == nil && string(got) == head {
		return v, nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		v.damaged = !errors.Is(err, io.EOF)
		err = v.begin()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return v, nil
}

func (v *vectorFile) begin() error {
	if err := v.f.Truncate(0); err != nil {
		return err
	}
	if _, err := v.f.WriteAt([]byte(spaceHead(v.model, v.dimensions)), 0); err != nil {
		return err
	}
	return v.f.Truncate(headBytes)
}

func (v *vectorFile) numberBytes() int64 { return chunkRows * 4 * int64(v.dimensions) }

func (v *vectorFile) chunkBytes() int64 {
	return (v.numberBytes() + chunkRows*labelBytes + headBytes - 1) / headBytes * headBytes
}

func (v *vectorFile) chunksIn(size int64) int {
	return int((max(0, size-headBytes) + v.chunkBytes() - 1) / v.chunkBytes())
}

func (v *vectorFile) chunkAt(chunk int) int64 { return headBytes + int64(chunk)*v.chunkBytes() }

// labels returns those of a chunk; beyond the end of the file there are none.
func (v *vectorFile) labels(chunk int) ([]byte, error) {
	b := make([]byte, chunkRows*labelBytes)
	_, err := v.f.ReadAt(b, v.chunkAt(chunk)+v.numberBytes())
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

// label returns the label of a chunk's i-th slot; false for a free one.
func label(labels []byte, i int) ([]byte, bool) {
	l := labels[i*labelBytes : (i+1)*labelBytes]
	for _, b := range l {
		if b != 0 {
			return l, true
		}
	}
	return nil, false
}

// read maps the whole file into r and reports each vector's slot in write order.
func (v *vectorFile) read(r *rows, each func(uint32, Digest)) error {
	info, err := v.f.Stat()
	if err != nil {
		return err
	}
	for chunk := range v.chunksIn(info.Size()) {
		if err := v.extend(r); err != nil {
			return err
		}
		labels, err := v.labels(chunk)
		if err != nil {
			return err
		}
		for i := range chunkRows {
			l, ok := label(labels, i)
			if !ok {
				continue
			}
			slot := uint32(chunk*chunkRows + i)
			sum := crc32.Checksum(l[:sha256.Size], checksum)
			if err := reading(r.chunks, func() { sum = crc32.Update(sum, checksum, raw(r.at(slot))) }); err != nil {
				return fmt.Errorf("%s: %w", v.path, err)
			}
			if binary.LittleEndian.Uint32(l[sha256.Size:]) == sum {
				each(slot, Digest(l[:sha256.Size]))
			} else if err := v.erase(slot); err != nil {
				return err
			}
		}
	}
	return nil
}

// extend appends the chunk that r needs next to the file, and maps it.
func (v *vectorFile) extend(r *rows) error {
	at := v.chunkAt(len(r.chunks))
	info, err := v.f.Stat()
	if err != nil {
		return err
	}
	if end := at + v.chunkBytes(); info.Size() < end {
		if err := v.f.Truncate(end); err != nil {
			return err
		}
	}
	b, err := mapPart(v.f, at, int(v.numberBytes()))
	switch {
	case err == nil:
		r.mapped.list = append(r.mapped.list, b)
	case errors.Is(err, errors.ErrUnsupported):
		b = raw(make([]float32, v.numberBytes()/4))
		if _, err := v.f.ReadAt(b, at); err != nil {
			return err
		}
	default:
		return err
	}
	r.chunks = append(r.chunks, unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4))
	return nil
}

// cut reports whether the file is shorter than its mapping: writing would restore its length, but
// not its content.
func (v *vectorFile) cut(r *rows) bool {
	n := len(r.mapped.list)
	if n == 0 {
		return false
	}
	info, err := v.f.Stat()
	return err == nil && info.Size() < v.chunkAt(n) // else the write fails
}

// write stores a vector: the numbers, then the label that validates them.
func (v *vectorFile) write(r *rows, slot uint32, d Digest, numbers []float32) error {
	if slot == r.next() {
		if err := v.extend(r); err != nil {
			return err
		}
	}
	b := raw(numbers)
	chunk, i := int(slot/chunkRows), int64(slot%chunkRows)
	if _, err := v.f.WriteAt(b, v.chunkAt(chunk)+i*int64(len(b))); err != nil {
		return err
	}
	if !mapsFiles {
		copy(r.at(slot), numbers)
	}
	var l [labelBytes]byte
	copy(l[:], d[:])
	binary.LittleEndian.PutUint32(l[sha256.Size:], crc32.Update(crc32.Checksum(d[:], checksum), checksum, b))
	_, err := v.f.WriteAt(l[:], v.labelAt(slot))
	return err
}

func (v *vectorFile) labelAt(slot uint32) int64 {
	return v.chunkAt(int(slot/chunkRows)) + v.numberBytes() + int64(slot%chunkRows)*labelBytes
}

// erase removes a slot's label.
func (v *vectorFile) erase(slot uint32) error {
	var l [labelBytes]byte
	_, err := v.f.WriteAt(l[:], v.labelAt(slot))
	return err
}

// rewrite replaces v by a file with only these vectors, and maps it into r. A crash leaves one or
// the other.
func (v *vectorFile) rewrite(r *rows, of []Digest, numbers func(i int) ([]float32, error)) (_ *vectorFile, err error) {
	f, err := os.OpenFile(v.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	n := &vectorFile{f: f, path: v.path, model: v.model, dimensions: v.dimensions}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(v.path+".new"))
		}
	}()
	if err = n.begin(); err != nil {
		return nil, err
	}
	for i, d := range of {
		var its []float32
		if its, err = numbers(i); err == nil {
			err = n.write(r, uint32(i), d, its)
		}
		if err != nil {
			return nil, err
		}
	}
	if err = f.Sync(); err != nil {
		return nil, err
	}
	if err = os.Rename(v.path+".new", v.path); err != nil {
		return nil, err
	}
	// The folder is not synced: if a machine crash loses the rename, the old file is there, which
	// is as good.
	return n, nil
}

func (v *vectorFile) close() error { return v.f.Close() }

// raw returns the bytes of numbers.
func raw(numbers []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(numbers))), 4*len(numbers))
}
