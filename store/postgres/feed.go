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

// Watch yields every change committed after seq, in order and without gaps. Changes of
// calls older than FeedKeep may be gone, as may events and item changes older than
// EventKeep; changes of the catalogue and of keys are complete. Claimed and moved calls
// have no output or sealed arguments. It ends without an error when ctx ends, with
// ErrClosed when the store closes, and with the reason if a row cannot be read. While
// the database is unreachable it waits, see Health.
func (s *Store) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		err := s.ring.Watch(ctx, max(after, 0), s.readPatiently, func(c toolkeep.Committed) bool { return yield(c, nil) })
		if err != nil && ctx.Err() == nil {
			yield(toolkeep.Committed{}, err)
		}
	}
}

// readPatiently reads the feed and retries while the database is unreachable.
func (s *Store) readPatiently(ctx context.Context, seq, upTo int64) ([]toolkeep.Committed, error) {
	for {
		batch, _, err := s.readFeed(ctx, seq, upTo)
		if err == nil || isDamage(err) || errors.Is(err, toolkeep.ErrClosed) || ctx.Err() != nil {
			return batch, err
		}
		select {
		case <-ctx.Done():
		case <-s.life.Done():
		case <-time.After(watchAgain):
		}
	}
}

// readFeed reads rows after seq, up to and including upTo.
func (s *Store) readFeed(ctx context.Context, seq, upTo int64) (batch []toolkeep.Committed, cost []int32, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			rows, err := conn.Query(ctx, sqlReadFeed, seq, upTo, flow.WatchRows)
			if err != nil {
				return err
			}
			stored, err := pgx.CollectRows(rows, scanRow)
			if err != nil {
				return err
			}
			batch, cost, err = decode(ctx, conn, stored)
			return err
		})
	})
	return batch, cost, err
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
		found, err := conn.Query(ctx, `SELECT `+versionColumns+` FROM versions WHERE tenant = $1 AND id = $2 AND version = $3`,
			text(tenant), text(id), text(version))
		if err != nil {
			failed = err
			return toolkeep.Version{}, err
		}
		v, err := pgx.CollectExactlyOneRow(found, scanVersion)
		if code(err) != "" || ctx.Err() != nil || conn.Conn().IsClosed() {
			failed = err
		}
		return v, err
	}
	batch, cost := make([]toolkeep.Committed, len(rows)), make([]int32, len(rows))
	for i, r := range rows {
		var err error
		if batch[i], err = record.Decode(r, published); err != nil {
			if failed != nil {
				return nil, nil, failed
			}
			return nil, nil, damage{err}
		}
		cost[i] = int32(len(r.Data) + flow.RowCost)
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
		_, head, _ := s.ring.Bounds()
		batch, cost, err := s.readFeed(s.life, head, 1<<62)
		if err != nil {
			return err
		}
		s.publish(head, batch, cost)
		if len(batch) < flow.WatchRows {
			return nil
		}
	}
}

// publish adds the changes read after head to the ring. Removed rows leave gaps, after
// which the ring starts over.
func (s *Store) publish(head int64, batch []toolkeep.Committed, cost []int32) {
	for from := 0; from < len(batch); {
		to := from + 1
		for to < len(batch) && batch[to].Seq == batch[to-1].Seq+1 {
			to++
		}
		if before := batch[from].Seq - 1; before > head {
			s.ring.Skip(before)
		}
		s.ring.Publish(batch[from:to], cost[from:to])
		head = batch[to-1].Seq
		from = to
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
	conn, err := pgx.ConnectConfig(s.life, s.conf)
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
			_, head, _ := s.ring.Bounds()
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
