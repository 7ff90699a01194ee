package rpc

import (
	"context"
	"errors"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

// unary wraps every RPC with one answer.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (res any, err error) {
	arrived(ctx, req)
	ctx, release := s.underway(ctx)
	defer release()
	id := s.gate.RequestID(headersOf(ctx))
	_ = grpc.SetHeader(ctx, metadata.MD{"x-request-id": {id}}) // fails only if the answer has begun
	defer func() {
		if v := recover(); v != nil {
			res, err = nil, s.panicked(ctx, id, info.FullMethod, v)
		}
		if err != nil {
			err = s.fail(ctx, id, info.FullMethod, err)
		}
	}()
	return next(ctx, req)
}

// stream wraps every RPC that answers with a stream.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx, release := s.underway(ss.Context())
	defer release()
	id := s.gate.RequestID(headersOf(ctx))
	_ = ss.SetHeader(metadata.MD{"x-request-id": {id}})
	defer func() {
		if v := recover(); v != nil {
			err = s.panicked(ctx, id, info.FullMethod, v)
		}
		if err != nil {
			err = s.fail(ctx, id, info.FullMethod, err)
		}
	}()
	return next(srv, &boundStream{ServerStream: ss, ctx: ctx})
}

// underway ties a request to the server's shutdown.
func (s *Server) underway(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.requests, cancel)
	return ctx, func() { stop(); cancel() }
}

// carried is a panic of another goroutine with its original stack.
type carried struct {
	value any
	stack []byte
}

func (s *Server) panicked(ctx context.Context, id, method string, v any) error {
	c, ok := v.(carried)
	if !ok {
		c = carried{v, debug.Stack()}
	}
	return gate.Panicked(ctx, s.log, c.value, c.stack, "request_id", id, "method", method)
}

// fail converts an error into a status, and logs it if the fault is ours.
func (s *Server) fail(ctx context.Context, id, method string, err error) error {
	var ours *toolkeep.Error
	if !errors.As(err, &ours) {
		if st, ok := status.FromError(err); ok {
			return st.Err()
		}
		if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			return status.FromContextError(err).Err()
		}
	}
	e := gate.Shown(err)
	if e.Code.Info().HTTP >= 500 {
		s.failed.ErrorContext(ctx, "a request failed", "request_id", id, "method", method, "code", e.Code,
			"invocation_id", e.InvocationID, "error", err, "cause", errors.Unwrap(e))
	}
	return refusal(e).Err()
}
