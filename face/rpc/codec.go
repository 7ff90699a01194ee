package rpc

import (
	"bytes"

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
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

// mark is an unknown field with the highest number, which no contract uses. A client that sends it
// gets this refusal.
var mark = protowire.AppendVarint(protowire.AppendTag(nil, protowire.MaxValidNumber, protowire.VarintType), 1)

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(proto.Message)
	if err == nil || !ok || m.ProtoReflect().Descriptor().ParentFile() != l03v1.File_agentic_l03_v1_l03_proto {
		return err
	}
	proto.Reset(m)
	m.ProtoReflect().SetUnknown(mark)
	return nil
}

// undecoded returns the refusal of a message that did not decode, nil for any other.
func undecoded(m proto.Message) *toolkeep.Error {
	if u := m.ProtoReflect().GetUnknown(); len(u) == 0 || !bytes.Equal(u, mark) {
		return nil
	}
	return toolkeep.NewError(toolkeep.InvalidEncoding, "the message cannot be decoded: it is not protobuf, or a text in it is not UTF-8")
}
