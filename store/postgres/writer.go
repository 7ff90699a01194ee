package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
	"github.com/toolkeep/toolkeep/store/record"
)

// request is one Apply on its way to the writer.
type request = flow.Request[step]

const (
	retryFirst = 10 * time.Millisecond // pause before retrying a group, doubling
	retryMost  = 500 * time.Millisecond
	// probeEvery is how often a failed writer checks whether it can write again.
	probeEvery = time.Second
	// idlePing is how long a connection may be idle and still be used without a ping.
	idlePing = time.Second
)

// writer owns the write side. All its fields belong to its goroutine.
type writer struct {
	s      *Store
	name   string
	conn   *pgx.Conn
	used   time.Time // when conn was last known to work
	number int64     // of the next transaction
	entry  int64     // of the newest committed entry of the journal
	// doubt is the number of a transaction whose COMMIT got no response, 0 for none.
	doubt int64
	chain record.Chain
	// unsure is the number of the transaction that decides whether the last steps of chain stay; 0 for none.
	unsure int64

	reqs      []*request
	committed []toolkeep.Committed
	entries   []toolkeep.Entry
	cost      []int32
}

// run commits groups until the queue is closed and empty.
func (w *writer) run() {
	defer close(w.s.writerDone)
	defer w.close()
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for {
		if w.s.queue.Len() == 0 {
			select {
			case <-w.s.queue.Wake():
				if w.s.queue.Over() {
					return
				}
			case <-probe.C:
				w.probe()
			}
			continue
		}
		w.s.queue.Gather(w.s.gatherDelay())
		w.reqs = w.s.queue.Take(w.reqs[:0])
		if len(w.reqs) != 0 {
			w.commit()
			w.s.queue.Answered()
		}
		clear(w.reqs)
	}
}

// maxGatherNodes bounds gatherDelay.
const maxGatherNodes = 8

// gatherDelay is how long the writer waits for a group. Nodes that share a load each get a part of
// it: with a longer wait their groups are as large as those of one node, and the database has as
// few of them.
func (s *Store) gatherDelay() time.Duration {
	return s.cfg.GroupDelay * time.Duration(min(max(s.sharing.Load(), 1), maxGatherNodes))
}

// probe checks whether the store can write again after a failure.
func (w *writer) probe() {
	if w.s.failure.Load() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.s.cfg.timeout)
	defer cancel()
	w.drop()
	_, err := w.connect(ctx)
	w.s.note(err)
}

// commit executes the taken requests in one transaction and answers them.
func (w *writer) commit() {
	if err := w.s.unreachable(); err != nil { // whatever was queued before that was known
		for _, r := range w.reqs {
			r.Answer(err)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.s.cfg.timeout)
	defer cancel()
	w.doubt = 0 // no caller waits for the outcome any more
	g := &group{w: w, at: w.s.cfg.Clock(), reqs: w.reqs, errs: make([]error, len(w.reqs))}
	err := w.attempts(ctx, g)
	w.s.note(err)
	if err != nil && w.doubt != 0 { // whatever becomes of them, the numbers are used
		w.entry = g.last
		w.s.entries.Skip(g.last)
		err = fmt.Errorf("%w: %w", err, toolkeep.ErrInDoubt)
	}
	if err == nil {
		w.publish(g)
	}
	for i, r := range w.reqs {
		if g.errs[i] == nil {
			g.errs[i] = err
		}
		r.Answer(g.errs[i])
	}
}

// attempts retries the group until it is committed or fails for a reason other than the
// connection or another transaction.
func (w *writer) attempts(ctx context.Context, g *group) error {
	pause, dropped := retryFirst, false
	for {
		err := w.attempt(ctx, g)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return w.tooLate(err)
		case (isOwn(err) || errors.Is(err, errChain)) && !g.careful:
			g.careful = true // find out which request is at fault
			continue
		case !dropped && w.s.dropped(err):
			dropped = true
			continue
		case !isPassing(err):
			return fmt.Errorf("postgres: %w", err)
		}
		w.s.retries.Add(1)
		select {
		case <-ctx.Done():
			return w.tooLate(err)
		case <-time.After(pause):
			pause = min(2*pause, retryMost)
		}
	}
}

func (w *writer) tooLate(err error) error {
	return fmt.Errorf("postgres: could not commit within %s: %w", w.s.cfg.timeout, err)
}

// attempt executes the group once, on a working connection. If an earlier attempt turns
// out to be committed, it is done.
func (w *writer) attempt(ctx context.Context, g *group) error {
	if w.conn == nil || w.conn.IsClosed() || (time.Since(w.used) > idlePing && w.conn.Ping(ctx) != nil) {
		w.drop()
		committed, err := w.connect(ctx)
		if err != nil {
			return err
		}
		doubt := w.doubt
		w.doubt = 0 // if it is not committed by now, it never will be
		if doubt != 0 && doubt == committed {
			w.entry = g.last
			return nil
		}
	}
	g.reset()
	err := g.run(ctx)
	if err == nil {
		if g.sent { // otherwise there was nothing to commit and the numbers are still unused
			w.number++
			w.entry = g.last
			w.chain.Commit()
		}
		w.used = time.Now()
		w.doubt = 0
		return nil
	}
	if !errors.Is(err, errChain) && (isLost(err) || code(err) == divisionByZero) {
		if g.sent {
			w.doubt, w.unsure = w.number, w.number
		}
		w.drop()
		return err
	}
	w.used = time.Now()
	return err
}

// connect opens the writer's connection and claims its row of writers. It waits for an
// open transaction of the previous connection, returns the number of the last committed
// one, and skips a number: anything the old connection may still deliver to the server
// fails. See doc.go.
func (w *writer) connect(ctx context.Context) (committed int64, err error) {
	conn, err := pgx.ConnectConfig(ctx, w.s.conf)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	w.conn, w.used = conn, time.Now()
	var burnt, seen int64
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO writers (id, name, number, committed_number) VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING`,
			w.s.journal, text(w.name)) // an operator may have removed it
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `UPDATE writers SET number = number + 1, at = now() WHERE name = $1 RETURNING number, committed_number,
			(SELECT seq FROM feed_head)`, text(w.name)).Scan(&burnt, &committed, &seen)
	})
	if err != nil {
		w.drop()
		return 0, fmt.Errorf("take the writer's place: %w", err)
	}
	w.number = burnt + 1
	w.settleChain(committed)
	w.s.saw(seen)
	return committed, nil
}

// settleChain decides on the last steps of the chain, once it is known which transaction was committed last.
func (w *writer) settleChain(committed int64) {
	if w.unsure != 0 && w.unsure == committed {
		w.chain.Commit()
	}
	w.unsure = 0
}

// drop closes the connection without notifying a server that may be gone.
func (w *writer) drop() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.conn.Close(ctx) // unusable anyway, whatever the error
	w.conn = nil
}

// close closes the connection. The writer's row stays: who reads the journal finds its writers there.
func (w *writer) close() {
	if w.conn == nil || w.conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	if err := w.conn.Close(ctx); err != nil {
		w.s.cfg.Log.Warn("the writer's connection did not close cleanly", "error", err)
	}
}

// publish passes a committed group to this node's watchers.
func (w *writer) publish(g *group) {
	w.s.groups.Add(1)
	w.s.rows.Add(int64(len(g.rows) + len(g.entries)))
	w.entries, w.cost = w.entries[:0], w.cost[:0]
	for _, e := range g.entries {
		w.entries, w.cost = append(w.entries, e.Entry), append(w.cost, e.cost)
	}
	head, _ := w.s.entries.Head() // there is nothing between: this is the only writer
	w.s.entries.Publish(head, w.entries, w.cost)
	clear(w.entries)
	w.s.saw(g.seen)
	if len(g.rows) == 0 {
		return
	}
	w.committed, w.cost = w.committed[:0], w.cost[:0]
	first := g.head - int64(len(g.rows)) + 1
	if g.head != 0 { // otherwise the response was lost: the follower reads it
		for i, r := range g.rows {
			w.committed = append(w.committed, toolkeep.Committed{Seq: first + int64(i), At: g.stamp, Change: r.Change})
			w.cost = append(w.cost, int32(len(r.Data)+flow.RowCost))
		}
	}
	if g.head == 0 || !w.s.ring.Publish(first-1, w.committed, w.cost) {
		w.s.lookAtFeed()
	}
	clear(w.committed)
}

// note records whether the last transaction could be committed, and whether the
// database was reachable.
func (s *Store) note(err error) {
	defer s.away.Store(isLost(err))
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
