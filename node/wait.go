package node

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep/store/postgres"
)

const (
	waitFirst = 250 * time.Millisecond // before PostgreSQL is tried again, doubling
	waitMost  = 5 * time.Second
)

// openPostgres opens the store and waits, until ctx ends, for a server that does
// not answer yet: nodes and database may start in any order. What waiting does not
// mend, such as a wrong password, is an error at once.
func (n *Node) openPostgres(ctx context.Context, c postgres.Config) (*postgres.Store, error) {
	pause, began := waitFirst, time.Now()
	for {
		s, err := postgres.Open(ctx, c)
		switch {
		case err == nil:
			if pause > waitFirst {
				n.logger("store").Info("PostgreSQL answers", "waited", time.Since(began))
			}
			return s, nil
		case ctx.Err() != nil || !postgres.Unreachable(err):
			return nil, err
		}
		n.logger("store").Warn("PostgreSQL cannot be reached; the start waits for it", "again_in", pause, "error", err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		pause = min(2*pause, waitMost)
	}
}
