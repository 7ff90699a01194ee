package archive

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
)

// Kinds of segments.
const (
	Journal     = "journal"
	Checkpoints = "checkpoints"
)

const (
	magic     = "TKARCH1\n"
	version   = 1
	maxHeader = 64 << 10
	maxRaw    = 256 << 20 // bytes of a segment's entries, of which one alone can make more than maxBytes
	maxFile   = maxRaw + maxHeader + 1<<20
	saltBytes = 32
	keyBytes  = 32
	keyInfo   = "toolkeep audit archive segment 1"
)

// Header says what a segment holds. It is not secret, and cannot be changed without the key.
type Header struct {
	Version   int       `json:"version"`
	Kind      string    `json:"kind"` // Journal or Checkpoints
	Tenant    string    `json:"tenant"`
	Day       string    `json:"day"`                  // 2026-11-30, UTC
	Writer    int64     `json:"writer"`               // 0 for checkpoints
	First     int64     `json:"first"`                // number of the first entry
	Last      int64     `json:"last"`                 // and of the last one
	FirstHash string    `json:"first_hash,omitempty"` // their hashes, hex
	LastHash  string    `json:"last_hash,omitempty"`
	Count     int       `json:"count"`
	From      time.Time `json:"from"` // the earliest time of an entry
	To        time.Time `json:"to"`   // the latest one
	Raw       int       `json:"raw"`  // bytes of the entries
	Key       string    `json:"key"`
	Salt      []byte    `json:"salt"`
	WrittenAt time.Time `json:"written_at"`
}

// Segment is an opened segment. An entry of Checkpoints has the number of the checkpoint, the body of its document
// and when that was written.
type Segment struct {
	Header
	Links []toolkeep.Link
}

// Faults of segments.
var (
	errChanged = errors.New("it is not as it was written")
	errCut     = errors.New("it was cut")
	errNoKey   = errors.New("the key that sealed it is not there")
	errVersion = errors.New("this program does not know its format")
	errPlace   = fmt.Errorf("%w: segments changed places, or one was renamed", audit.ErrMisplaced)
)

// faulty reports whether an error is a segment's fault. Others may pass, and say nothing of the segment.
func faulty(err error) bool {
	return slices.ContainsFunc([]error{errChanged, errCut, errNoKey, errVersion, errPlace}, func(f error) bool { return errors.Is(err, f) })
}

// unreadable is the error of a segment that cannot be read now.
func unreadable(n Name, err error) error {
	return toolkeep.NewError(toolkeep.RecordUnavailable, "the segment %s of the audit's archive cannot be read now; try again", n).Because(err)
}

var packer = sync.OnceValues(func() (*zstd.Encoder, error) { return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)) })

var unpacker = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRaw))
})

// dataKey derives the key of one segment.
func dataKey(key, salt []byte) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, key, salt, keyInfo, keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// encode makes the file of a segment and completes its header.
func encode(s *Segment, key dataSecret, now time.Time) ([]byte, error) {
	raw := appendLinks(nil, s.Links)
	if len(raw) > maxRaw {
		return nil, fmt.Errorf("entries of %d bytes do not fit into a segment", len(raw))
	}
	h := &s.Header
	h.Version, h.Count, h.Raw, h.Key, h.WrittenAt = version, len(s.Links), len(raw), key.id, now.UTC()
	h.Salt = make([]byte, saltBytes)
	rand.Read(h.Salt) // never fails
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	enc, err := packer()
	if err != nil {
		return nil, err
	}
	aead, err := dataKey(key.key, h.Salt)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(magic)+4+len(head)+len(raw)/2), magic...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(head)))
	out = append(out, head...)
	return append(out, aead.Seal(nil, nil, enc.EncodeAll(raw, nil), out)...), nil
}

// readHeader reads the header of a file, or of its beginning. rest is what follows on it.
func readHeader(file []byte) (h Header, rest []byte, err error) {
	const start = len(magic) + 4
	if len(file) < start {
		return h, nil, errCut
	}
	if !bytes.HasPrefix(file, []byte(magic)) {
		return h, nil, errChanged
	}
	size := int(binary.BigEndian.Uint32(file[len(magic):]))
	switch {
	case size > maxHeader:
		return h, nil, errChanged
	case len(file) < start+size:
		return h, nil, errCut
	}
	if json.Unmarshal(file[start:start+size], &h) != nil || h.Kind != Journal && h.Kind != Checkpoints {
		return h, nil, errChanged
	}
	if h.Version != version {
		return h, nil, fmt.Errorf("%w: version %d", errVersion, h.Version)
	}
	return h, file[start+size:], nil
}

// decode reads a file. find returns the archive's key of an id.
func decode(file []byte, find func(id string) (dataSecret, bool, error)) (*Segment, error) {
	h, rest, err := readHeader(file)
	if err != nil {
		return nil, err
	}
	key, ok, err := find(h.Key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w (%.16s)", errNoKey, h.Key)
	}
	aead, err := dataKey(key.key, h.Salt)
	if err != nil {
		return nil, err
	}
	packed, err := aead.Open(nil, nil, rest, file[:len(file)-len(rest)])
	if err != nil {
		return nil, fmt.Errorf("%w, or it was cut", errChanged)
	}
	dec, err := unpacker()
	if err != nil {
		return nil, err
	}
	raw, err := dec.DecodeAll(packed, nil)
	if err != nil || len(raw) != h.Raw {
		return nil, errChanged
	}
	links, err := parseLinks(raw, h.Count)
	if err != nil {
		return nil, err
	}
	for i := range links {
		links[i].Tenant, links[i].Writer = h.Tenant, h.Writer
	}
	if len(links) == 0 || links[0].Seq != h.First || links[len(links)-1].Seq != h.Last {
		return nil, errChanged
	}
	return &Segment{h, links}, nil
}

func appendLinks(b []byte, links []toolkeep.Link) []byte {
	for i := range links {
		l := &links[i]
		b = binary.AppendVarint(b, l.Seq)
		b = binary.AppendVarint(b, l.Kind)
		b = binary.AppendVarint(b, l.At)
		gone := byte(0)
		if l.Gone {
			gone = 1
		}
		b = append(b, gone)
		for _, part := range [][]byte{[]byte(l.Ref), l.Hash, l.Data} {
			b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
		}
	}
	return b
}

func parseLinks(b []byte, count int) ([]toolkeep.Link, error) {
	if count < 0 || count > len(b) {
		return nil, errChanged
	}
	links := make([]toolkeep.Link, 0, count)
	for len(b) > 0 {
		var l toolkeep.Link
		for _, n := range []*int64{&l.Seq, &l.Kind, &l.At} {
			v, size := binary.Varint(b)
			if size <= 0 {
				return nil, errChanged
			}
			*n, b = v, b[size:]
		}
		if len(b) == 0 {
			return nil, errChanged
		}
		l.Gone, b = b[0] == 1, b[1:]
		var ref []byte
		for _, part := range []*[]byte{&ref, &l.Hash, &l.Data} {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return nil, errChanged
			}
			*part, b = b[size:size+int(n)], b[size+int(n):]
		}
		l.Ref = string(ref)
		links = append(links, l)
	}
	if len(links) != count {
		return nil, errChanged
	}
	return links, nil
}
