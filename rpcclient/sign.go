package rpcclient

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// signer signs each request with a secret.
type signer struct{ key []byte }

// fixed writes equal messages as equal bytes, so that what was signed is what is sent.
type fixed struct{ encoding.CodecV2 }

var inOrder = proto.MarshalOptions{Deterministic: true}

func (c fixed) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	raw, err := inOrder.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(raw)}, err
}

func (s signer) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(fixed{encoding.GetCodecV2(protocodec.Name)})),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if m, ok := req.(proto.Message); ok {
				var err error
				if ctx, err = s.sign(ctx, method, m); err != nil {
					return err
				}
			}
			return next(ctx, method, req, reply, cc, opts...)
		}),
	}
}

// sign adds the signature of a request to its metadata.
func (s signer) sign(ctx context.Context, method string, msg proto.Message) (context.Context, error) {
	if s.key == nil {
		return ctx, nil
	}
	body, err := inOrder.Marshal(msg)
	if err != nil {
		return ctx, err
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	err = signing.Sign(&signing.Request{Method: http.MethodPost, Target: method, Header: md.Get}, s.key, body, time.Now(), func(name, value string) {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	})
	return ctx, err
}

// invokeStream opens the stream of a call. Its headers are sent before its message, so the interceptor
// of streams could not sign it.
func (c *Client) invokeStream(ctx context.Context, msg *l03v1.ToolInvocationRequest) (grpc.ServerStreamingClient[l03v1.InvocationUpdate], error) {
	ctx, err := c.signer.sign(ctx, l03v1.ToolExecution_InvokeToolStream_FullMethodName, msg)
	if err != nil {
		return nil, err
	}
	return c.tools.InvokeToolStream(ctx, msg)
}
