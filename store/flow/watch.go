package flow

import (
	"context"

	"github.com/toolkeep/toolkeep"
)

// WatchRows is how many rows a watcher reads at a time.
const WatchRows = 256

// Read returns up to WatchRows changes from the database after seq, up to and including
// upTo; fewer than WatchRows means that there are no more.
type Read func(ctx context.Context, seq, upTo int64) ([]toolkeep.Committed, error)

// Watch yields the changes committed after seq, from the ring or, for older ones, from
// the database. It ends with ctx, when yield returns false, with ErrClosed when the
// ring closes, and with the first error of read.
func (r *Ring) Watch(ctx context.Context, seq int64, read Read, yield func(toolkeep.Committed) bool) error {
	buf := make([]toolkeep.Committed, WatchRows)
	for ctx.Err() == nil {
		n, upTo, more, closed := r.Next(seq, buf)
		batch := buf[:n]
		switch {
		case closed:
			return toolkeep.ErrClosed
		case more != nil:
			select {
			case <-ctx.Done():
			case <-more:
			}
			continue
		case n == 0:
			var err error
			if batch, err = read(ctx, seq, upTo); err != nil {
				return err
			}
			if len(batch) < WatchRows {
				seq = upTo // there is no more up to upTo
			}
		}
		for i := range batch {
			if ctx.Err() != nil || !yield(batch[i]) {
				return nil
			}
			seq = max(seq, batch[i].Seq)
		}
		clear(buf)
	}
	return nil
}
