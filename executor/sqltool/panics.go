package sqltool

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// sturdy is a session that outlives its driver's panics: a server, or whoever stands
// before it, can send what a driver does not expect, and an index beyond a packet's end
// would take the call down without giving its place in the pool back. Such a
// connection is of no use any more.
type sturdy struct {
	session
	broken atomic.Bool
}

// survive is deferred around what reads from the server.
func (s *sturdy) survive(err *error) {
	if p := recover(); p != nil {
		s.broken.Store(true)
		*err = driverBroke(p)
	}
}

func driverBroke(p any) error { return fmt.Errorf("the driver broke off over what it read: %v", p) }

func (s *sturdy) begin(ctx context.Context, b *binding, limit time.Duration) (err error) {
	defer s.survive(&err)
	return s.session.begin(ctx, b, limit)
}

func (s *sturdy) run(ctx context.Context, r *round) (err error) {
	defer s.survive(&err)
	return s.session.run(ctx, r)
}

func (s *sturdy) end(ctx context.Context, commit bool) (err error) {
	defer s.survive(&err)
	return s.session.end(ctx, commit)
}

func (s *sturdy) usable() bool { return !s.broken.Load() && s.session.usable() }

// safely dials a session that is sturdy.
func safely(dial func() (session, error)) (s session, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, driverBroke(p)
		}
	}()
	inner, err := dial()
	if err != nil {
		return nil, err
	}
	return &sturdy{session: inner}, nil
}
