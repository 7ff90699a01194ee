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
	r, _ := s.requests.Get().(*request)
	if r == nil {
		r = &request{done: make(chan error, 1)}
	}
	r.ctx = ctx
	r.plain = true
	r.steps = r.one[:0]
	r.state.Store(waiting)
	for _, c := range changes {
		st, err := s.prepare(c)
		if err != nil {
			s.release(r)
			return err
		}
		r.plain = r.plain && st.act == nil
		r.steps = append(r.steps, st)
	}
	s.inflight.Add(1)
	defer s.inflight.Add(-1)
	if err := s.queue.put(r); err != nil {
		s.release(r)
		return err
	}
	if cancel := ctx.Done(); cancel != nil {
		select {
		case err := <-r.done:
			s.release(r)
			return err
		case <-cancel:
			if r.state.CompareAndSwap(waiting, abandoned) {
				return ctx.Err() // the queue still has it, so it is not reused
			}
		}
	}
	err := <-r.done
	s.release(r)
	return err
}

func (s *Store) release(r *request) {
	clear(r.one[:])
	r.steps = nil
	r.ctx = nil
	s.requests.Put(r)
}
