package minilm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"unsafe"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep/discover/mapped"
)

// Shape of the model.
const (
	Dimensions = 384
	layers     = 6
	heads      = 12
	headSize   = Dimensions / heads
	inner      = 4 * Dimensions
	vocabulary = 30_522
	positions  = 512
	maxHeader  = 1 << 20 // of the weights' file
)

// linear is y = x W + b.
type linear struct {
	w panels
	b []float32
}

// scale holds a layer norm's parameters.
type scale struct{ w, b []float32 }

type layer struct {
	query, key, value, attended linear
	afterAttention              scale
	up, down                    linear
	afterFeed                   scale
}

type weights struct {
	words, places, kinds []float32
	first                scale
	layers               [layers]layer
	data                 []byte // of the whole file; mapped if possible
	path                 string
	close                func() error
}

// reading calls f, which may access the weights, and returns an error if the file can no longer be
// read.
func reading(path string, data []byte, f func()) error {
	if err := mapped.Read(func(addr uintptr) bool { return mapped.Holds(data, addr) }, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// openWeights maps a safetensors file and finds the tensors in it.
func openWeights(path string) (*weights, error) {
	data, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	var w *weights
	if gone := reading(path, data, func() { w, err = findTensors(data) }); gone != nil {
		return nil, errors.Join(gone, unmap())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), unmap())
	}
	w.data, w.path, w.close = data, path, unmap
	return w, nil
}

type tensor struct {
	Type  string   `json:"dtype"`
	Shape []int64  `json:"shape"`
	At    [2]int64 `json:"data_offsets"`
}

func findTensors(data []byte) (*weights, error) {
	if len(data) < 8 {
		return nil, errors.New("the file is too short")
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader || n > uint64(len(data)-8) {
		return nil, errors.New("the file does not begin as safetensors files do")
	}
	head, data := data[8:8+n], data[8+n:]
	var all map[string]tensor
	if err := json.Unmarshal(head, &all); err != nil {
		return nil, errors.New("the header is not the JSON of a safetensors file")
	}
	f := &finder{all: all, data: data}
	w := &weights{
		words:  f.get("embeddings.word_embeddings.weight", vocabulary, Dimensions),
		places: f.get("embeddings.position_embeddings.weight", positions, Dimensions),
		kinds:  f.get("embeddings.token_type_embeddings.weight", 2, Dimensions),
		first:  f.scale("embeddings.LayerNorm"),
	}
	for i := range w.layers {
		at := "encoder.layer." + strconv.Itoa(i) + "."
		w.layers[i] = layer{
			query:          f.linear(at+"attention.self.query", Dimensions, Dimensions),
			key:            f.linear(at+"attention.self.key", Dimensions, Dimensions),
			value:          f.linear(at+"attention.self.value", Dimensions, Dimensions),
			attended:       f.linear(at+"attention.output.dense", Dimensions, Dimensions),
			afterAttention: f.scale(at + "attention.output.LayerNorm"),
			up:             f.linear(at+"intermediate.dense", inner, Dimensions),
			down:           f.linear(at+"output.dense", Dimensions, inner),
			afterFeed:      f.scale(at + "output.LayerNorm"),
		}
	}
	return w, f.err
}

type finder struct {
	all  map[string]tensor
	data []byte
	err  error // the first
}

func (f *finder) linear(name string, out, in int64) linear {
	w, b := f.get(name+".weight", out, in), f.get(name+".bias", out)
	if f.err != nil {
		return linear{}
	}
	return linear{panelsOf(w, int(out), int(in)), b}
}

func (f *finder) scale(name string) scale {
	return scale{f.get(name+".weight", Dimensions), f.get(name+".bias", Dimensions)}
}

func (f *finder) get(name string, shape ...int64) []float32 {
	if f.err != nil {
		return nil
	}
	t, ok := f.all[name]
	size := int64(1)
	same := len(shape) == len(t.Shape)
	for i, n := range shape {
		size *= n
		same = same && t.Shape[i] == n
	}
	switch {
	case !ok:
		f.err = fmt.Errorf("there is no tensor %s", name)
	case t.Type != "F32" || !same:
		f.err = fmt.Errorf("the tensor %s is %s %v, expected is F32 %v", name, t.Type, t.Shape, shape)
	case t.At[0] < 0 || t.At[1] > int64(len(f.data)) || t.At[1]-t.At[0] != 4*size:
		f.err = fmt.Errorf("the tensor %s does not lie within the file", name)
	default:
		return floats(f.data[t.At[0]:t.At[1]])
	}
	return nil
}

// floats reads little-endian numbers, without a copy on little-endian machines.
func floats(b []byte) []float32 {
	one := uint16(1)
	little := *(*byte)(unsafe.Pointer(&one)) == 1
	if p := unsafe.Pointer(unsafe.SliceData(b)); little && uintptr(p)%4 == 0 {
		return unsafe.Slice((*float32)(p), len(b)/4)
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func readWhole(path string) ([]byte, func() error, error) {
	b, err := os.ReadFile(path)
	return b, func() error { return nil }, err
}
