package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// step is one prepared change: its encoded row and its other effects.
type step struct {
	record.Encoded
	// act changes tables and reports whether there is a row to write. nil: only the
	// row is written.
	act func(g *group, st *step) (changed bool, err error)
	// foreign means that act runs foreign code, which may write and then fail.
	foreign bool
}

// prepare checks and encodes a change in the caller of Apply, so that the writer has
// little to do.
func (s *Store) prepare(c toolkeep.Change) (step, error) {
	e, err := record.Encode(c, s.cfg.Clock)
	if err != nil {
		return step{}, fmt.Errorf("sqlite: %w", err)
	}
	st := step{Encoded: e}
	switch c := e.Change.(type) {
	case toolkeep.RecordCall, toolkeep.AppendEvent:
	case toolkeep.ClaimCall:
		st.act = func(g *group, _ *step) (bool, error) { return true, g.claim(e.Call, e.CallData) }
	case toolkeep.MoveCall:
		m := newMove(c, e.Call)
		st.act = func(g *group, _ *step) (bool, error) { return true, g.move(m, e.CallData) }
	case toolkeep.RenewLeases:
		st.act = func(g *group, _ *step) (bool, error) { return false, g.renew(c) }
	case toolkeep.RequestCancel:
		st.act = func(g *group, _ *step) (bool, error) {
			return g.touch(c.Call, sqlCancel, c.By, c.Why, c.Call.Tenant, c.Call.ID)
		}
	case toolkeep.ReportProgress:
		st.act = func(g *group, _ *step) (bool, error) {
			return g.touch(c.Call, sqlProgress, record.AppendProgress(nil, c.Progress), c.Call.Tenant, c.Call.ID)
		}
	case toolkeep.MarkFetched:
		st.act = func(g *group, _ *step) (bool, error) {
			return g.touch(c.Call, sqlFetched, record.Nanos(c.At), c.Call.Tenant, c.Call.ID)
		}
	case toolkeep.ClaimNonce:
		st.act = func(g *group, _ *step) (bool, error) {
			n, err := g.exec(sqlNonce, c.Nonce[:], record.Micros(c.At))
			if err == nil && n == 0 {
				err = toolkeep.ErrNonceTaken
			}
			return false, err
		}
	case toolkeep.MoveCursor:
		st.act = func(g *group, _ *step) (bool, error) { return false, g.moveCursor(c) }
	case toolkeep.Enqueue:
		if s.cfg.Enqueue == nil {
			return step{}, errors.New("sqlite: the store was opened without a queue")
		}
		st.foreign = true
		st.act = func(g *group, _ *step) (bool, error) {
			return false, g.enqueue(context.WithoutCancel(g.current.Ctx), c)
		}
	default:
		return s.prepareCatalogue(st, e)
	}
	return st, nil
}
