package postgres

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
	// act changes tables and reports whether it changed something. nil: the row of a
	// recorded call or an event is all there is to write.
	act func(ctx context.Context, g *group, st *step) (changed bool, err error)
	// first returns the statement that does act's work in the normal case. If it
	// changes no row, act finds out why. nil: there is none.
	first func(g *group, st *step) (query string, args []any)
	// foreign means that act runs foreign code, which may write and then fail.
	foreign bool
	linked  bool // its entry has a hash in this attempt
}

// prepare checks and encodes a change in the caller of Apply, so that the writer has
// little to do.
func (s *Store) prepare(c toolkeep.Change) (step, error) {
	e, err := record.Encode(c, s.cfg.Clock)
	if err != nil {
		return step{}, fmt.Errorf("postgres: %w", err)
	}
	st := step{Encoded: e}
	switch c := e.Change.(type) {
	case toolkeep.RecordCall, toolkeep.AppendEvent:
	case toolkeep.ClaimCall:
		st.first = func(g *group, st *step) (string, []any) { return g.claimOf(st.Call, st.CallData) }
		st.act = func(ctx context.Context, g *group, st *step) (bool, error) {
			return true, g.claim(ctx, st.Call, st.CallData)
		}
	case toolkeep.MoveCall:
		if !c.FreeKey || e.Call.Key == "" {
			st.first = func(g *group, st *step) (string, []any) { return g.on(st.Call.Ref()).move, g.moveArgs(c, st) }
		}
		st.act = func(ctx context.Context, g *group, st *step) (bool, error) {
			return true, g.move(ctx, c, st)
		}
	case toolkeep.RenewLeases:
		st.act = func(ctx context.Context, g *group, _ *step) (bool, error) { return g.renew(ctx, c) }
	case toolkeep.RequestCancel:
		st.act = func(ctx context.Context, g *group, _ *step) (bool, error) {
			return g.touch(ctx, c.Call, g.on(c.Call).cancel, text(c.By), text(c.Why))
		}
	case toolkeep.ReportProgress:
		st.act = func(ctx context.Context, g *group, _ *step) (bool, error) {
			return g.touch(ctx, c.Call, g.on(c.Call).progress, record.AppendProgress(nil, c.Progress))
		}
	case toolkeep.MarkFetched:
		st.act = func(ctx context.Context, g *group, _ *step) (bool, error) {
			return g.touch(ctx, c.Call, g.on(c.Call).fetched, record.Nanos(c.At))
		}
	case toolkeep.ClaimNonce:
		st.act = func(ctx context.Context, g *group, _ *step) (bool, error) {
			n, err := g.exec(ctx, sqlNonce, c.Nonce[:], record.Micros(c.At))
			if err == nil && n == 0 {
				err = toolkeep.ErrNonceTaken
			}
			return err == nil, err
		}
	case toolkeep.MoveCursor:
		st.act = func(ctx context.Context, g *group, _ *step) (bool, error) { return true, g.moveCursor(ctx, c) }
	case toolkeep.Enqueue:
		if s.cfg.Enqueue == nil {
			return step{}, errors.New("postgres: the store was opened without a queue")
		}
		st.foreign = true
		st.act = func(ctx context.Context, g *group, _ *step) (bool, error) { return false, g.enqueue(ctx, c) }
	default:
		return s.prepareCatalogue(st)
	}
	return st, nil
}
