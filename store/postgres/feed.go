package postgres

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
	"github.com/toolkeep/toolkeep/store/record"
)

const (
	sqlReadHead = `SELECT seq FROM feed_head`
	sqlReadFeed = `SELECT seq, at, kind, tenant, ref, data FROM feed WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3`

	// listenPing is how often an idle listening connection is checked.
	listenPing = 10 * time.Second
	// listenAgain is the pause before reconnecting a lost listener.
	listenAgain = time.Second
	// watchAgain is a watcher's pause after a failed read.
	watchAgain = 500 * time.Millisecond
)

// Head returns the sequence number of the newest committed change of all nodes.
func (s *Store) Head(ctx context.Context) (head int64, err error) {
	err = s.read(ctx, func(ctx context.Context) error { return s.pool.QueryRow(ctx, sqlReadHead).Scan(&head) })
	return head, err
}

// SeenHead returns the newest position of the feed that is known here: of what was read, and of
// what this node's commits saw. It asks nothing of the database.
func (s *Store) SeenHead() int64 {
	head, _ := s.ring.Head()
	return max(head, s.seen.Load())
}

// saw records a position of the feed that a commit saw, and lets the follower read up to it.
func (s *Store) saw(seq int64) {
	for {
		known := s.seen.Load()
		if seq <= known {
			return
		}
		if s.seen.CompareAndSwap(known, seq) {
			break
		}
	}
	if head, _ := s.ring.Head(); seq > head {
		s.lookAtFeed()
	}
}

// Watch yields every change of the feed committed after seq, in order. Changes of items
// older than EventKeep may be gone; changes of the catalogue and of keys are complete. It
// ends without an error when ctx ends, with ErrClosed when the store closes, and with the
// reason if a row cannot be read. While the database is unreachable it waits, see Health.
func (s *Store) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return watch(ctx, &s.ring, after, func(ctx context.Context, seq, upTo int64) (batch []toolkeep.Committed, read int64, err error) {
		err = s.patiently(ctx, func() error { batch, _, read, err = s.readFeed(ctx, seq, upTo); return err })
		return batch, read, err
	})
}

// watch yields the elements of a ring after seq, and those that left it from the database.
func watch[T any](ctx context.Context, ring *flow.Ring[T], seq int64, read flow.Read[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := ring.Watch(ctx, max(seq, 0), read, func(c T) bool { return yield(c, nil) })
		if err != nil && ctx.Err() == nil {
			var none T
			yield(none, err)
		}
	}
}

// patiently reads again while the database is unreachable.
func (s *Store) patiently(ctx context.Context, read func() error) error {
	for {
		err := read()
		if err == nil || isDamage(err) || errors.Is(err, toolkeep.ErrClosed) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-s.life.Done():
		case <-time.After(watchAgain):
		}
	}
}

// readFeed reads changes after seq, up to and including upTo, and how far it came.
func (s *Store) readFeed(ctx context.Context, seq, upTo int64) (batch []toolkeep.Committed, cost []int32, read int64, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			var stored []record.Row
			stored, read, err = feedRows(ctx, conn, seq, upTo, flow.WatchRows)
			if err != nil {
				return err
			}
			batch, cost, err = decode(ctx, conn, stored)
			return err
		})
	})
	return batch, cost, read, err
}

// feedRows reads rows of the feed after seq, up to and including upTo, and how far it came.
func feedRows(ctx context.Context, conn querier, seq, upTo int64, limit int) (stored []record.Row, read int64, err error) {
	rows, err := conn.Query(ctx, sqlReadFeed, seq, upTo, limit)
	if err != nil {
		return nil, 0, err
	}
	stored, err = pgx.CollectRows(rows, scanRow)
	if len(stored) == limit {
		upTo = stored[limit-1].Seq
	}
	return stored, upTo, err
}

func scanRow(row pgx.CollectableRow) (r record.Row, err error) {
	err = row.Scan(&r.Seq, &r.At, &r.Kind, &r.Tenant, &r.Ref, &r.Data)
	r.Tenant, r.Ref = plainText(r.Tenant), plainText(r.Ref)
	return r, err
}

// decode decodes rows. The tool of a published version is in its own table and never
// removed.
func decode(ctx context.Context, conn *pgxpool.Conn, rows []record.Row) ([]toolkeep.Committed, []int32, error) {
	var failed error
	published := func(tenant, id, version string) (toolkeep.Version, error) {
		v, err := versionOf(ctx, conn, tenant, id, version)
		if code(err) != "" || ctx.Err() != nil || conn.Conn().IsClosed() {
			failed = err
		}
		return v, err
	}
	batch, cost := make([]toolkeep.Committed, 0, len(rows)), make([]int32, 0, len(rows))
	for _, r := range rows {
		c, err := record.Decode(r, published)
		if err != nil {
			if failed != nil {
				return nil, nil, failed
			}
			return nil, nil, damage{err}
		}
		if c.Change != nil {
			batch, cost = append(batch, c), append(cost, int32(len(r.Data)+flow.RowCost))
		}
	}
	return batch, cost, nil
}

// lookAtFeed makes the follower read the feed. It never blocks.
func (s *Store) lookAtFeed() {
	select {
	case s.behind <- struct{}{}:
	default:
	}
}

// follow passes other nodes' commits to the watchers of this node.
func (s *Store) follow() {
	poll := time.NewTicker(s.cfg.pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-s.behind:
		case <-poll.C:
		}
		s.noteRead(s.followOnce())
	}
}

// followOnce reads all new changes.
func (s *Store) followOnce() error {
	for {
		head, _ := s.ring.Head()
		now, err := s.Head(s.life)
		if err != nil || now <= head {
			return err
		}
		batch, cost, read, err := s.readFeed(s.life, head, now)
		if err != nil {
			return err
		}
		s.ring.Publish(head, batch, cost)
		if len(batch) == 0 { // rows that are no changes, or were removed
			s.ring.Skip(read)
		}
	}
}

// noteRead records whether the feed can be read, for Health.
func (s *Store) noteRead(err error) {
	switch {
	case s.closed():
	case err == nil:
		if s.unread.Swap(nil) != nil {
			s.cfg.Log.Info("the feed can be followed again")
		}
	default:
		if s.unread.Load() == nil {
			s.unreadSince.Store(time.Now().UnixNano())
			s.cfg.Log.Error("the feed cannot be followed", "error", err)
		}
		s.unread.Store(&err)
	}
}

// listen wakes the follower when another node has committed.
func (s *Store) listen() {
	for s.life.Err() == nil {
		err := s.listenOnce()
		if s.life.Err() != nil {
			return
		}
		s.cfg.Log.Warn("notifications do not arrive; the feed is polled", "every", s.cfg.pollInterval, "error", err)
		select {
		case <-s.life.Done():
		case <-time.After(listenAgain):
		}
	}
}

// listenOnce listens until the connection is lost.
func (s *Store) listenOnce() error {
	conn, err := pgx.ConnectConfig(s.life, s.listenTo)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), pingTimeout)
		defer cancel()
		_ = conn.Close(ctx) // nothing to lose on it
	}()
	begin, cancel := context.WithTimeout(s.life, connectTimeout)
	_, err = conn.Exec(begin, "LISTEN "+channel)
	cancel()
	if err != nil {
		return err
	}
	s.lookAtFeed() // for earlier notifications
	for {
		wait, cancel := context.WithTimeout(s.life, listenPing)
		note, err := conn.WaitForNotification(wait)
		quiet := wait.Err() != nil
		cancel()
		switch {
		case s.life.Err() != nil:
			return s.life.Err()
		case err == nil:
			head, _ := s.ring.Head()
			if n, err := strconv.ParseInt(note.Payload, 10, 64); err != nil || n > head {
				s.lookAtFeed()
			}
		case !quiet:
			return err
		default:
			ping, cancel := context.WithTimeout(s.life, pingTimeout)
			err := conn.Ping(ping)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}
