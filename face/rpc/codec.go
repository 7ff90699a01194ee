package rpc

import (
	"bytes"
	"crypto/sha256"
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// codec is the library's own, except for our messages that do not decode. The library would refuse
// those as INTERNAL, before any interceptor; here they become empty messages with a mark, so that
// the handler refuses them with a code, and a call with a record.
type codec struct {
	encoding.CodecV2
	signed *atomic.Int64 // requests under way with a signature, which asks for a digest
}

func newCodec(signed *atomic.Int64) codec { return codec{encoding.GetCodecV2(protocodec.Name), signed} }

// mark is an unknown field with the highest number, which no contract uses. A client that sends it
// gets this refusal.
var mark = protowire.AppendVarint(protowire.AppendTag(nil, protowire.MaxValidNumber, protowire.VarintType), 1)

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(proto.Message)
	if !ok || m.ProtoReflect().Descriptor().ParentFile() != l03v1.File_agentic_l03_v1_l03_proto {
		return err
	}
	r := m.ProtoReflect()
	if err != nil {
		proto.Reset(m)
		r.SetUnknown(mark)
	}
	if c.signed.Load() == 0 && len(r.GetUnknown()) == 0 { // what a client sends must not pass for a digest
		return nil
	}
	sum := sha256.New()
	for _, part := range data {
		sum.Write(part.ReadOnlyData())
	}
	unknown := r.GetUnknown()
	r.SetUnknown(protowire.AppendBytes(append(unknown[:len(unknown):len(unknown)], digestTag...), sum.Sum(nil)))
	return nil
}

// digestTag begins an unknown field that Unmarshal adds behind all others while a signed request is
// under way: the SHA-256 of the message as it came, which a request's signature covers. takeDigest takes it off again.
var digestTag = protowire.AppendTag(nil, protowire.MaxValidNumber-1, protowire.BytesType)

func takeDigest(v any) (sum [sha256.Size]byte, ok bool) {
	m, is := v.(proto.Message)
	if !is {
		return sum, false
	}
	r := m.ProtoReflect()
	unknown := r.GetUnknown()
	at := len(unknown) - len(digestTag) - 1 - sha256.Size // 1 is the length of the length
	if at < 0 || !bytes.HasPrefix(unknown[at:], digestTag) {
		return sum, false
	}
	copy(sum[:], unknown[len(unknown)-sha256.Size:])
	if unknown = unknown[:at]; at == 0 {
		unknown = nil
	}
	r.SetUnknown(unknown)
	return sum, true
}

// undecoded returns the refusal of a message that did not decode, nil for any other.
func undecoded(m proto.Message) *toolkeep.Error {
	if u := m.ProtoReflect().GetUnknown(); len(u) == 0 || !bytes.Equal(u, mark) {
		return nil
	}
	return toolkeep.NewError(toolkeep.InvalidEncoding, "the message cannot be decoded: it is not protobuf, or a text in it is not UTF-8")
}
