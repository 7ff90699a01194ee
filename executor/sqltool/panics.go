package sqltool

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// recovering is a session that turns a panic of its driver into an error. A server can
// send packets that a driver does not expect, and a panic would leak the session's
// place in the pool. The connection is not used again.
type recovering struct {
	session
	broken atomic.Bool
}

// recover is deferred around driver calls.
func (s *recovering) recover(err *error) {
	if p := recover(); p != nil {
		s.broken.Store(true)
		*err = driverBroke(p)
	}
}

func driverBroke(p any) error { return fmt.Errorf("the driver panicked over what it read: %v", p) }

func (s *recovering) begin(ctx context.Context, b *binding, limit time.Duration) (err error) {
	defer s.recover(&err)
	return s.session.begin(ctx, b, limit)
}

func (s *recovering) run(ctx context.Context, r *round) (err error) {
	defer s.recover(&err)
	return s.session.run(ctx, r)
}

func (s *recovering) end(ctx context.Context, commit bool) (err error) {
	defer s.recover(&err)
	return s.session.end(ctx, commit)
}

func (s *recovering) usable() bool { return !s.broken.Load() && s.session.usable() }

// dialRecovering dials a session that recovers from driver panics.
func dialRecovering(dial func() (session, error)) (s session, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, driverBroke(p)
		}
	}()
	inner, err := dial()
	if err != nil {
		return nil, err
	}
	return &recovering{session: inner}, nil
}
