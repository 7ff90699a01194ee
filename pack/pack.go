package pack

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unique"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"
	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
)

const (
	// minPart is the size in bytes from which a definition is a part of its own: a reference to it takes 34 bytes in the
	// store, and a small definition compresses better within the text around it.
	minPart = 256
	// maxUnpacked bounds the bytes that one compressed piece from a store may have.
	maxUnpacked = 16 << 20
)

// Digest is the SHA-256 of a part.
type Digest [sha256.Size]byte

// Manifest is a packed manifest. It is immutable and safe for concurrent use.
type Manifest struct {
	text  []byte // zstd of the manifest without its parts
	parts []place
	words []byte // zstd of the Words
	size  uint32 // of the manifest in bytes
}

// place is a part and where it belongs in the text.
type place struct {
	at   uint32
	part unique.Handle[Part]
}

// Part is a definition that manifests of one tenant share. Equal parts are in memory once, while a manifest has them.
type Part struct {
	Tenant string
	Digest Digest
	Data   string // zstd
}

// dictionary has what manifests have in common: their pieces are small, and compress to about half with it. Stored pieces
// name it, so that its bytes never change; a better one is another file with a number of its own, which is read too.
//
//go:embed dictionary_1.txt
var dictionary []byte

const dictionaryNumber = 1

// coder compresses and decompresses. Its pieces are small, so that one encoder for all costs little.
var coder = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20),
		zstd.WithEncoderDictRaw(dictionaryNumber, dictionary))
	if err != nil {
		panic(err) // impossible: the options are constant
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxUnpacked),
		zstd.WithDecoderDictRaw(dictionaryNumber, dictionary))
	if err != nil {
		panic(err)
	}
	return e, d
})

func compress(b []byte) []byte {
	e, _ := coder()
	return bytes.Clone(e.EncodeAll(b, nil)) // without spare room
}

func decompress(b []byte) ([]byte, error) {
	_, d := coder()
	return d.DecodeAll(b, nil)
}

// New packs a whole tool's manifest. It fails if Raw is not a JSON object.
func New(t *toolkeep.Tool) (*Manifest, error) {
	words, err := wordsOf(t.Raw)
	if err != nil {
		return nil, err
	}
	found, err := definitions(t.Raw)
	if err != nil {
		return nil, fmt.Errorf("pack the manifest of %s: %w", t.Ref(), err)
	}
	m := &Manifest{words: compress(words), size: uint32(len(t.Raw))}
	text, done := make([]byte, 0, len(t.Raw)), 0
	for _, span := range found {
		text = append(text, t.Raw[done:span.from]...)
		def := t.Raw[span.from:span.to]
		m.parts = append(m.parts, place{uint32(len(text)), partOf(t.Tenant, def)})
		done = span.to
	}
	m.text = compress(append(text, t.Raw[done:]...))
	return m, nil
}

// recent are the parts that were packed last, at most 4 MB of them: the operations of one document follow one another
// and share most, so that each is compressed once.
var recent = sync.OnceValue(func() *otter.Cache[partKey, unique.Handle[Part]] {
	return otter.Must(&otter.Options[partKey, unique.Handle[Part]]{MaximumWeight: 4 << 20,
		Weigher: func(_ partKey, p unique.Handle[Part]) uint32 { return uint32(len(p.Value().Data) + 200) }})
})

type partKey struct {
	tenant string
	digest Digest
}

func partOf(tenant string, def []byte) unique.Handle[Part] {
	k := partKey{tenant, sha256.Sum256(def)}
	if p, ok := recent().GetIfPresent(k); ok {
		return p
	}
	p := unique.Make(Part{tenant, k.digest, string(compress(def))})
	recent().Set(k, p)
	return p
}

// Of returns a tool's packed manifest, and packs a whole tool's.
func Of(t *toolkeep.Tool) (*Manifest, error) {
	if p, ok := t.Packed.(interface{ Packed() *Manifest }); ok {
		return p.Packed(), nil
	}
	return New(t)
}

// Packed returns m.
func (m *Manifest) Packed() *Manifest { return m }

// Size returns the bytes of the whole manifest.
func (m *Manifest) Size() int { return int(m.size) }

// Raw unpacks the manifest: Tool.Raw to the byte.
func (m *Manifest) Raw() ([]byte, error) {
	text, err := decompress(m.text)
	if err != nil {
		return nil, fmt.Errorf("unpack a manifest: %w", err)
	}
	raw, done := make([]byte, 0, m.size), uint32(0)
	for _, p := range m.parts {
		def, err := decompress([]byte(p.part.Value().Data))
		if err != nil {
			return nil, fmt.Errorf("unpack a manifest's part: %w", err)
		}
		if p.at < done || int(p.at) > len(text) {
			return nil, errDamaged
		}
		raw = append(append(raw, text[done:p.at]...), def...)
		done = p.at
	}
	if raw = append(raw, text[done:]...); len(raw) != int(m.size) {
		return nil, errDamaged
	}
	return raw, nil
}

var errDamaged = errors.New("the packed manifest is damaged")

// Stored is a packed manifest as a store keeps it: Text refers to Parts by their digests.
type Stored struct {
	Text, Words []byte
	Parts       []Part
}

// Stored returns what Read reads.
func (m *Manifest) Stored() Stored {
	s := Stored{Words: m.words, Text: binary.AppendUvarint(nil, uint64(m.size))}
	s.Text = binary.AppendUvarint(s.Text, uint64(len(m.parts)))
	for _, p := range m.parts {
		part := p.part.Value()
		s.Parts = append(s.Parts, part)
		s.Text = append(binary.AppendUvarint(s.Text, uint64(p.at)), part.Digest[:]...)
	}
	s.Text = append(s.Text, m.text...)
	return s
}

// Read reads a stored manifest of a tenant. part returns the data of a part. Text and words are kept.
func Read(tenant string, text, words []byte, part func(Digest) ([]byte, error)) (*Manifest, error) {
	whole := text
	uvarint := func() uint32 {
		v, n := binary.Uvarint(text)
		if n <= 0 || v > maxUnpacked {
			text = nil
			return 0
		}
		text = text[n:]
		return uint32(v)
	}
	m := &Manifest{words: words, size: uvarint()}
	n := uvarint()
	if int(n) > len(whole)/sha256.Size {
		return nil, errDamaged
	}
	if n > 0 {
		m.parts = make([]place, n)
	}
	for i := range m.parts {
		m.parts[i].at = uvarint()
		if len(text) < sha256.Size {
			return nil, errDamaged
		}
		digest := Digest(text[:sha256.Size])
		text = text[sha256.Size:]
		data, err := part(digest)
		if err != nil {
			return nil, err
		}
		m.parts[i].part = unique.Make(Part{tenant, digest, string(data)})
	}
	if len(text) == 0 {
		return nil, errDamaged
	}
	if m.text = text; n > 0 {
		m.text = bytes.Clone(text) // without the digests
	}
	return m, nil
}

type span struct{ from, to int }

// definitions finds the values below $defs of both schemas that are parts, in order. raw is in RFC 8785 form.
func definitions(raw []byte) (found []span, err error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	err = members(dec, func(name string) error {
		if name != "parameters_schema" && name != "result_schema" || dec.PeekKind() != '{' {
			return dec.SkipValue()
		}
		return members(dec, func(name string) error {
			if name != "$defs" || dec.PeekKind() != '{' {
				return dec.SkipValue()
			}
			return members(dec, func(string) error {
				v, err := dec.ReadValue()
				if to := int(dec.InputOffset()); err == nil && len(v) >= minPart {
					found = append(found, span{to - len(v), to})
				}
				return err
			})
		})
	})
	return found, err
}

// members reads an object and calls each before each member's value, which it must read.
func members(dec *jsontext.Decoder, each func(name string) error) error {
	open, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if open.Kind() != '{' {
		return errors.New("it is not an object")
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err == nil {
			err = each(name.String())
		}
		if err != nil {
			return err
		}
	}
	_, err = dec.ReadToken()
	return err
}
