package sqlite

import (
	"context"

	"github.com/toolkeep/toolkeep"
)

// Apply commits all changes or none.
//
// Invocations are copied, so the caller may change its own and move it again
// after Apply returned. What slices and maps inside of a change point to is not
// copied: watchers get it, and the caller must not write to it any more.
//
// Outcomes are those of package toolkeep (ErrNotFound, ErrVersionExists,
// ErrIDTaken, ErrKeyTaken, ErrStale, ErrClosed), the error of Config.Enqueue,
// and what SQLite says when it could not commit.
func (s *Store) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := s.queue.Request(ctx)
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
