package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// pendingRow is a call of the journal, or one that was claimed, that is not in the table invocations yet.
type pendingRow struct {
	callState
	claimed bool      // and not recorded when it had ended
	since   time.Time // when it was claimed, zero for one of an earlier process
	seq     int64     // of its entry in the journal; of one that was claimed, the newest entry before it
	notes   int64     // rows of the table claims up to here are not of this call nor of those after it
	nr      int64     // its place among all rows that were ever pending
	shown   callState // what readers see, without a call until that is committed; guarded by recent.mu
}

// callState is what is indexed of a call.
type callState struct {
	call *toolkeep.Invocation
	data []byte
	key  string // the idempotency key that it holds
}

// young reports whether a call runs that may end before it is worth a row in the table.
func (r *pendingRow) young(now time.Time) bool {
	return !r.call.State.Ended() && now.Sub(r.since) < claimDelay
}

// recent finds the pending rows, for the writer and for readers. Only the writer changes it, so only
// its changes and the readers take the lock, a leaf.
type recent struct {
	mu   sync.Mutex
	ids  map[toolkeep.CallRef]*pendingRow
	keys map[heldKey]*pendingRow
}

type heldKey struct{ tenant, subject, key string }

func (s *callState) held() heldKey { return heldKey{s.call.Tenant, s.call.Subject, s.key} }

func (w *writer) addPending(r *pendingRow) {
	r.nr = w.firstPending + int64(len(w.pending))
	w.pending = append(w.pending, r)
	c := &w.s.recent
	c.mu.Lock()
	defer c.mu.Unlock()
	if ref := r.call.Ref(); c.ids[ref] == nil { // else it is recorded under an id that is taken
		c.ids[ref] = r
	}
	if r.key != "" {
		c.keys[r.held()] = r
	}
}

// show lets readers see what a group has committed.
func (w *writer) show(g *group) {
	c := &w.s.recent
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range w.pending[len(w.pending)-g.added:] {
		r.shown = r.callState
	}
	for _, e := range g.ended {
		if e.was.key != e.row.key {
			delete(c.keys, e.was.held())
		}
		e.row.shown = e.row.callState
	}
}

// seen returns the call of a pending claim as it is committed, nil without one. A recorded call has to be
// indexed first, since the table may have its id.
func (c *recent) seen(find func() *pendingRow) (v *toolkeep.Invocation, index bool, err error) {
	c.mu.Lock()
	r := find()
	if r == nil || r.shown.call == nil || !r.claimed {
		c.mu.Unlock()
		return nil, r != nil, nil
	}
	s := r.shown
	c.mu.Unlock()
	if v, err = record.DecodeCall(s.call.Tenant, s.call.ID, s.data); err != nil {
		return nil, false, fmt.Errorf("%w: call %s", err, s.call.ID)
	}
	if len(s.call.Output) != 0 {
		v.Output = bytes.Clone(s.call.Output)
	}
	return v, false, nil
}

func (w *writer) isPending(ref toolkeep.CallRef) bool { return w.s.recent.ids[ref] != nil }

// isIndexed reports whether the transaction has indexed a pending row.
func (g *group) isIndexed(r *pendingRow) bool { return r.nr < g.w.firstPending+int64(g.indexed) }

// cutPending removes the last rows, which belong to a failed Apply.
func (w *writer) cutPending(keep int) {
	w.unname(w.pending[keep:])
	clear(w.pending[keep:])
	w.pending = w.pending[:keep]
}

// dropPending removes the first n rows, which are indexed.
func (w *writer) dropPending(n int) {
	w.unname(w.pending[:n])
	rest := copy(w.pending, w.pending[n:])
	clear(w.pending[rest:])
	w.pending = w.pending[:rest]
	w.firstPending += int64(n)
}

func (w *writer) unname(rows []*pendingRow) {
	c := &w.s.recent
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rows {
		if ref := r.call.Ref(); c.ids[ref] == r {
			delete(c.ids, ref)
		}
		if r.key != "" {
			delete(c.keys, r.held())
		}
	}
}

// ready returns how many rows, from the first on, are to be indexed.
func (w *writer) ready() int {
	now := time.Now()
	n := 0
	for n < min(len(w.pending), indexRows) && !w.pending[n].young(now) {
		n++
	}
	return n
}

// indexSome indexes a batch and schedules the next. After a failure it keeps retrying,
// so that Health recovers even without another Apply.
func (w *writer) indexSome() {
	err := w.index(context.Background(), w.ready())
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

// index copies the first pending rows, n at most, in its own transaction.
func (w *writer) index(ctx context.Context, n int) error {
	if n = min(len(w.pending), n); n == 0 {
		return nil
	}
	tx, end, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	g := &group{w: w, tx: tx, dropped: w.dropped}
	if err := g.indexUpTo(n); err != nil {
		return fmt.Errorf("sqlite: index calls: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlite: commit the index of calls: %w", err)
	}
	w.dropPending(n)
	w.mark, w.dropped = g.mark, g.dropped
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
			r := batch[i]
			v := r.call
			args = append(args, v.Tenant, v.ID, v.Subject, v.ToolID, v.Session, v.Parent, string(v.State),
				record.Nanos(v.CreatedAt), r.data)
			if r.claimed {
				args = append(args, r.key, v.LeaseOwner, record.Nanos(v.LeaseUntil), blobColumn(v.Output))
			} else { // its output is in data
				args = append(args, "", "", 0, nil)
			}
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
	if _, err := g.exec(sqlMark, g.mark); err != nil {
		return err
	}
	notes := g.w.notes // that no call needs any more
	if n < len(g.w.pending) {
		notes = g.w.pending[n].notes
	}
	if notes <= g.dropped {
		return nil
	}
	g.dropped = notes
	_, err := g.exec(sqlDropNotes, notes)
	return err
}

const entriesAfter = `SELECT seq, at, kind, tenant, ref, data FROM journal WHERE seq > ? AND kind = ? ORDER BY seq LIMIT ?`

func decodeEntry(r record.Row) (*toolkeep.Invocation, error) {
	v, err := record.DecodeCall(r.Tenant, r.Ref, r.Data)
	if err != nil {
		return nil, fmt.Errorf("journal position %d: %w", r.Seq, err)
	}
	return v, nil
}

// recoverIndex indexes what the last process recorded but did not index.
func (w *writer) recoverIndex(ctx context.Context) error {
	err := w.s.write.QueryRowContext(ctx, `SELECT seq FROM marks WHERE name = 'indexed'`).Scan(&w.mark)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := w.recoverClaims(ctx); err != nil {
		return err
	}
	for after := w.mark; ; {
		rows, err := feedRows(ctx, w.s.write, entriesAfter, after, record.KindRecord, indexRows)
		if err != nil {
			return err
		}
		for _, r := range rows {
			v, err := decodeEntry(r)
			if err != nil {
				return err
			}
			w.addPending(&pendingRow{callState: callState{call: v, data: r.Data}, seq: r.Seq, notes: w.notes})
			after = r.Seq
		}
		if err := w.index(ctx, indexRows); err != nil {
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
			if err := w.index(ctx, indexRows); err != nil {
				return err
			}
		}
		return nil
	})
}
