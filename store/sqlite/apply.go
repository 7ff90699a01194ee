package sqlite

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Apply commits all changes or none.
//
// Invocations are copied, so the caller may modify and move its own again after Apply
// has returned. The contents of slices and maps in a change are not copied: watchers
// get them, and the caller must not write to them any more.
//
// Outcomes are those of package toolkeep (ErrNotFound, ErrVersionExists, ErrIDTaken,
// ErrKeyTaken, ErrStale, ErrClosed), the error of Config.Enqueue, and SQLite's error if
// it could not commit.
func (s *Store) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	return s.apply(ctx, false, changes)
}

// ApplyWithin is Apply for a caller that waits only until ctx ends; see
// toolkeep.BoundedApplier.
func (s *Store) ApplyWithin(ctx context.Context, changes ...toolkeep.Change) error {
	return s.apply(ctx, true, changes)
}

// QueueWait implements toolkeep.QueueWaiter.
func (s *Store) QueueWait() (wait, paced time.Duration) { return s.queue.Wait() }

func (s *Store) apply(ctx context.Context, leave bool, changes []toolkeep.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := s.queue.Request(ctx)
	r.Leave = leave
	for _, c := range changes {
		st, err := s.prepare(c)
		if err != nil {
			s.queue.Release(r)
			return err
		}
		r.Plain = r.Plain && st.act == nil
		r.Steps = append(r.Steps, st)
	}
	return s.queue.Do(r)
}
