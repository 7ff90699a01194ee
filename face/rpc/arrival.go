package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

var errSlow = errors.New("the message did not arrive in time")

// arrivalKey holds the arrival of a request's first message in its context.
type arrivalKey struct{}

type arrival struct {
	timer  *time.Timer
	digest [sha256.Size]byte // of the first message, as it came
	known  bool
}

// await bounds the wait for a request's first message. The library has no limit of its own: a
// client that opens calls and never sends their messages would hold a goroutine for each.
// A request with a signature has the messages hashed until it ends.
func (s *Server) await(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	if gate.Metadata(info.Header).Signed() {
		s.signed.Add(1)
		context.AfterFunc(ctx, func() { s.signed.Add(-1) })
	}
	a := &arrival{timer: time.AfterFunc(s.limits.BodyTimeout, func() { cancel(errSlow) })}
	return context.WithValue(ctx, arrivalKey{}, a), nil
}

// arrived records that a message is there.
func arrived(ctx context.Context, msg any) {
	sum, ok := takeDigest(msg)
	if a, is := ctx.Value(arrivalKey{}).(*arrival); is {
		a.timer.Stop()
		if ok && !a.known {
			a.digest, a.known = sum, true
		}
	}
}

// digest returns the SHA-256 of a request's first message, as it came. E3999.
func digest(ctx context.Context) ([sha256.Size]byte, error) {
	if a, ok := ctx.Value(arrivalKey{}).(*arrival); ok && a.known {
		return a.digest, nil
	}
	return [sha256.Size]byte{}, toolkeep.NewError(toolkeep.InternalError, "the message of the request is not known")
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
	arrived(b.ctx, m)
	return err
}
