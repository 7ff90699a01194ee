package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// pendingRow is a call of the journal that is not in the table invocations yet.
type pendingRow struct {
	seq  int64
	call *toolkeep.Invocation
	data []byte
}

func (w *writer) addPending(r pendingRow) {
	w.pending = append(w.pending, r)
	w.ids[r.call.Ref()] = struct{}{}
}

func (w *writer) isPending(ref toolkeep.CallRef) bool {
	_, ok := w.ids[ref]
	return ok
}

// cutPending removes the last rows, which belong to a failed Apply.
func (w *writer) cutPending(keep int) {
	w.unname(w.pending[keep:])
	w.pending = w.pending[:keep]
}

// dropPending removes the first n rows, which are indexed.
func (w *writer) dropPending(n int) {
	w.unname(w.pending[:n])
	rest := copy(w.pending, w.pending[n:])
	clear(w.pending[rest:])
	w.pending = w.pending[:rest]
}

func (w *writer) unname(rows []pendingRow) {
	for i := range rows {
		delete(w.ids, rows[i].call.Ref())
		rows[i] = pendingRow{}
	}
}

// indexSome indexes a batch and schedules the next. After a failure it keeps retrying,
// so that Health recovers even without another Apply.
func (w *writer) indexSome() {
	err := w.index(context.Background())
	if err == nil && w.s.failure.Load() != nil {
		err = w.writeMark(context.Background()) // find out whether the failure is over
	}
	w.s.note(err)
	if err != nil {
		w.ticks = true
		w.tick.Reset(indexRetry)
		return
	}
	w.armTick()
}

// index copies a batch of pending rows in its own transaction.
func (w *writer) index(ctx context.Context) error {
	n := min(len(w.pending), indexRows)
	if n == 0 {
		return nil
	}
	tx, end, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	g := &group{w: w, tx: tx}
	if err := g.indexUpTo(n); err != nil {
		return fmt.Errorf("sqlite: index calls: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlite: commit the index of calls: %w", err)
	}
	w.dropPending(n)
	w.mark = g.mark
	w.s.lag.Store(int64(len(w.pending)))
	w.noteIndexed()
	return nil
}

// saveMark records that the whole journal is indexed, so that the next start
// need not look.
func (w *writer) saveMark(ctx context.Context) error {
	if len(w.pending) != 0 || w.mark == w.entry {
		return nil
	}
	return w.writeMark(ctx)
}

// writeMark stores the index's progress.
func (w *writer) writeMark(ctx context.Context) error {
	at := w.entry
	if len(w.pending) != 0 {
		at = w.pending[0].seq - 1
	}
	tx, end, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := tx.ExecContext(ctx, statements()[sqlMark], at); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	w.mark = at
	return nil
}

// noteIndexed publishes the index's progress to readers.
func (w *writer) noteIndexed() {
	if len(w.pending) == 0 {
		w.s.indexed.Store(w.entry)
		return
	}
	w.s.indexed.Store(w.pending[0].seq - 1)
}

// settle makes sure that a recorded call has its row before a change to it. This is
// rare: recorded calls have ended.
func (g *group) settle(ref toolkeep.CallRef) error {
	if !g.w.isPending(ref) {
		return nil
	}
	return g.indexUpTo(len(g.w.pending))
}

// indexUpTo indexes the first n pending rows, except those this transaction has already
// indexed.
func (g *group) indexUpTo(n int) error {
	rows := g.w.pending[g.indexed:n]
	if len(rows) == 0 {
		return nil
	}
	for done := 0; done < len(rows); {
		id, size := sqlIndex1, 1
		if len(rows)-done >= 8 {
			id, size = sqlIndex8, 8
		}
		batch := rows[done : done+size]
		args := g.w.args[:0]
		for i := range batch {
			v := batch[i].call
			args = append(args, v.Tenant, v.ID, v.Subject, v.ToolID, v.Session, v.Parent, string(v.State),
				record.Nanos(v.CreatedAt), batch[i].data)
		}
		inserted, err := g.exec(id, args...)
		clear(args)
		g.w.args = args
		if err != nil {
			return err
		}
		if inserted != int64(size) {
			g.w.s.cfg.Log.Error("recorded calls have ids that are taken; they are in the journal only",
				"calls", int64(size)-inserted, "from", batch[0].seq, "to", batch[size-1].seq)
		}
		done += size
	}
	g.indexed = n
	g.mark = rows[len(rows)-1].seq
	_, err := g.exec(sqlMark, g.mark)
	return err
}

// recoverIndex indexes what the last process recorded but did not index.
func (w *writer) recoverIndex(ctx context.Context) error {
	err := w.s.write.QueryRowContext(ctx, `SELECT seq FROM marks WHERE name = 'indexed'`).Scan(&w.mark)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	for after := w.mark; ; {
		rows, err := feedRows(ctx, w.s.write, `SELECT seq, at, kind, tenant, ref, data FROM journal
			WHERE seq > ? AND kind = ? ORDER BY seq LIMIT ?`, after, record.KindRecord, indexRows)
		if err != nil {
			return err
		}
		for _, r := range rows {
			v, err := record.DecodeCall(r.Tenant, r.Ref, r.Data)
			if err != nil {
				return fmt.Errorf("journal position %d: %w", r.Seq, err)
			}
			w.addPending(pendingRow{seq: r.Seq, call: v, data: r.Data})
			after = r.Seq
		}
		if err := w.index(ctx); err != nil {
			return err
		}
		if len(rows) < indexRows {
			w.noteIndexed()
			return nil
		}
	}
}

// catchUp waits until every call whose Apply has returned is indexed.
func (s *Store) catchUp(ctx context.Context) error {
	if s.closed() {
		return toolkeep.ErrClosed
	}
	target := s.recorded.Load()
	if s.indexed.Load() >= target {
		return nil
	}
	return s.do(ctx, func(ctx context.Context, w *writer) error {
		for s.indexed.Load() < target {
			if err := w.index(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}
