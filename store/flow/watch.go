package flow

import (
	"context"

	"github.com/toolkeep/toolkeep"
)

// WatchRows is how many rows a watcher reads at a time.
const WatchRows = 256

// Read returns elements from the database after seq, up to and including upTo, and how far
// it has read: upTo if there are no more.
type Read[T any] func(ctx context.Context, seq, upTo int64) (list []T, read int64, err error)

// Watch yields the elements committed after seq, from the ring or, for older ones, from
// the database. It ends with ctx, when yield returns false, with ErrClosed when the
// ring closes, and with the first error of read.
func (r *Ring[T]) Watch(ctx context.Context, seq int64, read Read[T], yield func(T) bool) error {
	buf := make([]T, WatchRows)
	for ctx.Err() == nil {
		n, upTo, more, closed := r.next(seq, buf)
		batch := buf[:n]
		reached := seq
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
			if batch, reached, err = read(ctx, seq, upTo); err != nil {
				return err
			}
		}
		for i := range batch {
			if ctx.Err() != nil || !yield(batch[i]) {
				return nil
			}
			seq = max(seq, r.seq(&batch[i]))
		}
		seq = max(seq, reached)
		clear(buf)
	}
	return nil
}
