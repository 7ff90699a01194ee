package postgres

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	waitFirst = 250 * time.Millisecond // before the next attempt to reach PostgreSQL, doubling
	waitMost  = 5 * time.Second
)

// OpenWaiting is Open, but waits until ctx ends for a server that does not respond yet:
// nodes and database may start in any order. An error that waiting cannot fix, such as
// a wrong password, is returned at once.
func OpenWaiting(ctx context.Context, c Config) (*Store, error) {
	pause, began := waitFirst, time.Now()
	for {
		s, err := Open(ctx, c)
		switch {
		case err == nil:
			if pause > waitFirst {
				c.Log.Info("PostgreSQL answers", "waited", time.Since(began))
			}
			return s, nil
		case ctx.Err() != nil || !Unreachable(err):
			return nil, err
		}
		c.Log.Warn("PostgreSQL cannot be reached; the start waits for it", "again_in", pause, "error", err)
		if !toolkeep.Sleep(ctx, pause) {
			return nil, ctx.Err()
		}
		pause = min(2*pause, waitMost)
	}
}
