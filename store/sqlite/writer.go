package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
	"github.com/toolkeep/toolkeep/store/record"
)

const (
	indexRows  = 256                   // rows indexed in one transaction
	indexSoon  = 128                   // pending rows that are indexed without further delay
	indexDelay = 50 * time.Millisecond // how long fewer rows wait
	claimDelay = 5 * indexDelay        // how long a running call waits for its end, and those after it with it
	indexRetry = time.Second           // pause after failed indexing
	maxPending = 8192                  // pending rows above which Apply waits for the index
)

// writer owns the write side. All its fields belong to its goroutine.
type writer struct {
	s     *Store
	stmts [statementCount]*sql.Stmt
	head  int64 // newest committed number of the feed
	entry int64 // newest committed number of the journal
	chain record.Chain

	// pending holds committed calls that are not indexed yet, in order; Store.recent finds them.
	pending      []*pendingRow
	firstPending int64 // nr of the first
	mark         int64 // the index's progress as stored in the database
	notes        int64 // newest number of the table claims
	dropped      int64 // the newest that was removed

	reqs  []*request
	tick  *time.Timer // set while rows wait for the index
	ticks bool

	args      []any
	committed []toolkeep.Committed
	entries   []toolkeep.Entry
	cost      []int32
}

// request is one Apply on its way to the writer.
type request = flow.Request[step]

// op is work that the writer does between groups.
type op struct {
	do   func(context.Context, *writer) error
	done chan error
}

func newWriter(ctx context.Context, s *Store, head, entry int64) (*writer, error) {
	w := &writer{s: s, head: head, entry: entry}
	s.recent.ids, s.recent.keys = make(map[toolkeep.CallRef]*pendingRow), make(map[heldKey]*pendingRow)
	for i, text := range statements() {
		st, err := s.write.PrepareContext(ctx, text)
		if err != nil {
			return nil, fmt.Errorf("sqlite: prepare %q: %w", text, err)
		}
		w.stmts[i] = st
	}
	w.tick = stoppedTimer()
	return w, nil
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// run commits groups until the queue is closed and empty.
func (w *writer) run() {
	defer close(w.s.writerDone)
	defer w.close()
	for {
		if w.s.queue.Len() == 0 {
			if w.idle() {
				return
			}
			continue
		}
		w.s.queue.Gather(w.s.cfg.GroupDelay)
		w.reqs = w.s.queue.Take(w.reqs[:0])
		if len(w.reqs) != 0 {
			w.commit()
			w.s.queue.Answered()
		}
		clear(w.reqs)
		select {
		case o := <-w.s.ops:
			w.serve(o)
		default:
		}
		if len(w.pending) >= indexSoon && w.ready() >= indexSoon {
			w.indexSome()
		}
	}
}

// idle waits for something to do. It returns true when the store is closed.
func (w *writer) idle() bool {
	select {
	case <-w.s.queue.Wake():
		return w.s.queue.Over()
	case o := <-w.s.ops:
		w.serve(o)
	case <-w.tick.C:
		w.ticks = false
		w.indexSome()
	}
	return false
}

func (w *writer) serve(o *op) { o.done <- o.do(context.Background(), w) }

// do runs f on the writer between groups and waits for it.
func (s *Store) do(ctx context.Context, f func(context.Context, *writer) error) error {
	o := &op{do: f, done: make(chan error, 1)}
	select {
	case s.ops <- o:
	case <-s.writerDone:
		return toolkeep.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *writer) close() {
	for len(w.pending) != 0 {
		if err := w.index(context.Background(), indexRows); err != nil {
			w.s.cfg.Log.Error("the index of calls is behind; it catches up at the next start", "error", err)
			break
		}
	}
	if err := w.saveMark(context.Background()); err != nil {
		w.s.cfg.Log.Warn("the next start will look for calls to index", "error", err)
	}
	for _, st := range w.stmts {
		st.Close()
	}
}

// begin takes the write connection, possibly waiting for the queue, and starts a
// transaction. end returns the connection.
func (w *writer) begin(ctx context.Context) (tx *sql.Tx, end func(), err error) {
	limited, cancel := context.WithTimeout(ctx, w.s.cfg.busyTimeout)
	conn, err := w.s.write.Conn(limited)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, nil, fmt.Errorf("sqlite: another held the write connection for more than %s", w.s.cfg.busyTimeout)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("sqlite: take the write connection: %w", err)
	}
	if tx, err = conn.BeginTx(ctx, nil); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("sqlite: begin: %w", err), conn.Close())
	}
	return tx, func() {
		tx.Rollback() // no effect after a commit
		conn.Close()
	}, nil
}

// commit executes the taken requests in one transaction and answers them.
func (w *writer) commit() {
	g := &group{w: w, at: w.s.cfg.Clock(), dropped: w.dropped}
	errs := make([]error, len(w.reqs))
	err := w.makeIndexRoom()
	if err == nil {
		err = g.run(w.reqs, errs)
	}
	w.s.note(err)
	if err == nil {
		w.publish(g)
	} else {
		w.forget(g)
	}
	for i, r := range w.reqs {
		if errs[i] == nil {
			errs[i] = err
		}
		r.Answer(errs[i])
	}
	w.armTick()
}

// makeIndexRoom keeps the pending rows bounded.
func (w *writer) makeIndexRoom() error {
	for len(w.pending) >= maxPending {
		if err := w.index(context.Background(), indexRows); err != nil {
			return fmt.Errorf("sqlite: the index of calls cannot follow: %w", err)
		}
	}
	return nil
}

// publish makes a committed group visible: heads, pending rows, watchers.
func (w *writer) publish(g *group) {
	w.publishFeed(g)
	w.entries, w.cost = w.entries[:0], w.cost[:0]
	for i := range g.entries {
		e := g.entries[i].Entry
		e.Writer, e.Seq, e.At = onlyWriter, w.entry+int64(i)+1, g.stamp
		w.entries = append(w.entries, e)
		w.cost = append(w.cost, int32(len(g.entries[i].Data)+flow.RowCost))
	}
	before := w.entry
	w.entry += int64(len(g.entries))
	w.chain.Commit()
	w.show(g)
	w.dropPending(g.indexed)
	w.s.lag.Store(int64(len(w.pending)))
	if n := len(w.pending); n != 0 {
		w.s.recorded.Store(w.pending[n-1].seq)
	}
	if g.indexed != 0 {
		w.mark, w.dropped = g.mark, g.dropped
	}
	w.noteIndexed()
	w.s.entries.Publish(before, w.entries, w.cost)
	clear(w.entries)
	w.s.groups.Add(1)
	w.s.rows.Add(int64(len(g.rows) + len(g.entries)))
}

func (w *writer) publishFeed(g *group) {
	w.committed, w.cost = w.committed[:0], w.cost[:0]
	for i := range g.rows {
		r := &g.rows[i]
		w.committed = append(w.committed, toolkeep.Committed{Seq: w.head + int64(i) + 1, At: g.stamp, Change: r.Change})
		w.cost = append(w.cost, int32(len(r.Data)+flow.RowCost))
	}
	w.s.ring.Publish(w.head, w.committed, w.cost)
	w.head += int64(len(g.rows))
	clear(w.committed)
}

// forget undoes the in-memory effects of a failed group.
func (w *writer) forget(g *group) {
	for _, e := range g.ended {
		e.row.callState = e.was
	}
	w.cutPending(len(w.pending) - g.added)
	w.chain.Undo(0)
}

// armTick schedules the writer to index the pending rows.
func (w *writer) armTick() {
	delay := indexDelay
	switch {
	case w.ticks:
		return
	case w.s.failure.Load() != nil:
		delay = indexRetry
	case len(w.pending) == 0:
		return
	}
	w.ticks = true
	w.tick.Reset(delay)
}

// note records whether the last transaction could be committed, for Health.
func (s *Store) note(err error) {
	if err == nil {
		if s.failure.Load() != nil {
			s.failure.Store(nil)
			s.cfg.Log.Info("the store commits again")
		}
		return
	}
	if s.failure.Swap(&err) == nil {
		s.cfg.Log.Error("the store could not commit", "error", err)
	}
}

// isDriver reports whether an error is SQLite's, rather than the store's or the
// queue's.
func isDriver(err error) bool {
	var e *driver.Error
	return errors.As(err, &e)
}

func isConstraint(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == codes.SQLITE_CONSTRAINT
}
