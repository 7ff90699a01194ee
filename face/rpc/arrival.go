package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
)

var errSlow = errors.New("the message did not arrive in time")

// arrivalKey holds the timer of a request's first message in its context.
type arrivalKey struct{}

// await bounds the wait for a request's first message. The library has no limit of its own: a
// client that opens calls and never sends their messages would hold a goroutine for each.
func (s *Server) await(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(s.limits.BodyTimeout, func() { cancel(errSlow) })
	return context.WithValue(ctx, arrivalKey{}, timer), nil
}

// arrived records that the first message is there.
func arrived(ctx context.Context) {
	if t, ok := ctx.Value(arrivalKey{}).(*time.Timer); ok {
		t.Stop()
	}
}

// boundStream is a stream whose context ends when the server is interrupted; its first read marks
// the first message as arrived.
type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (b *boundStream) Context() context.Context { return b.ctx }

func (b *boundStream) RecvMsg(m any) error {
	err := b.ServerStream.RecvMsg(m)
	arrived(b.ctx)
	return err
}
