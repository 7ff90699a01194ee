package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

const (
	ringRows  = 8192
	ringBytes = 16 << 20
	watchRows = 256 // rows that a watcher takes at a time
	rowCost   = 256 // bytes that a row of the ring costs beside its data, about
)

// ring holds the newest committed changes for watchers that keep up. Sequence
// numbers inside are consecutive. A watcher copies a few rows under the lock
// and lets go of it before it hands them on, so none holds up the writer.
type ring struct {
	mu     sync.Mutex
	rows   []toolkeep.Committed // circular
	size   []int32
	first  int64 // sequence number of the oldest row, head+1 if there is none
	head   int64
	bytes  int64
	more   chan struct{} // closed at the next change; nil while nobody waits
	closed bool
}

func (r *ring) start(head int64) {
	r.rows = make([]toolkeep.Committed, ringRows)
	r.size = make([]int32, ringRows)
	r.first, r.head = head+1, head
}

// publish adds committed changes. cost[i] is about how many bytes changes[i] holds.
func (r *ring) publish(changes []toolkeep.Committed, cost []int32) {
	r.mu.Lock()
	for i := range changes {
		if r.head-r.first+1 == ringRows {
			r.drop()
		}
		r.head++
		slot := r.head % ringRows
		r.rows[slot], r.size[slot] = changes[i], cost[i]
		r.bytes += int64(cost[i])
	}
	for r.bytes > ringBytes && r.first < r.head {
		r.drop()
	}
	more := r.more
	r.more = nil
	r.mu.Unlock()
	if more != nil {
		close(more)
	}
}

func (r *ring) drop() {
	slot := r.first % ringRows
	r.bytes -= int64(r.size[slot])
	r.rows[slot] = toolkeep.Committed{}
	r.first++
}

func (r *ring) close() {
	r.mu.Lock()
	r.closed = true
	more := r.more
	r.more = nil
	r.mu.Unlock()
	if more != nil {
		close(more)
	}
}

// next copies rows after seq to dst. Where the ring no longer has the next one,
// upTo says up to where the database has to be read. Where there is nothing
// new, more is closed when there is.
func (r *ring) next(seq int64, dst []toolkeep.Committed) (n int, upTo int64, more <-chan struct{}, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case seq >= r.head:
		if r.closed {
			return 0, 0, nil, true
		}
		if r.more == nil {
			r.more = make(chan struct{})
		}
		return 0, 0, r.more, false
	case seq+1 < r.first:
		return 0, r.first - 1, nil, false
	}
	for n < len(dst) && seq < r.head {
		seq++
		dst[n] = r.rows[seq%ringRows]
		n++
	}
	return n, 0, nil, false
}

// Head is the sequence number of the newest committed change.
func (s *Store) Head(context.Context) (int64, error) {
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	if s.ring.closed {
		return 0, toolkeep.ErrClosed
	}
	return s.ring.head, nil
}

// Watch yields every change committed after seq, in order and without gaps.
// Changes of calls older than FeedKeep may be gone; changes of the catalogue and
// of keys are all there. Claimed and moved calls come without output and sealed
// arguments. It ends silently with ctx, with ErrClosed when the store closes,
// and with the reason where the feed cannot be read.
func (s *Store) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		err := s.watch(ctx, max(after, 0), func(c toolkeep.Committed) bool { return yield(c, nil) })
		if err != nil && ctx.Err() == nil {
			yield(toolkeep.Committed{}, err)
		}
	}
}

func (s *Store) watch(ctx context.Context, seq int64, yield func(toolkeep.Committed) bool) error {
	buf := make([]toolkeep.Committed, watchRows)
	for ctx.Err() == nil {
		n, upTo, more, closed := s.ring.next(seq, buf)
		batch := buf[:n]
		switch {
		case closed:
			return toolkeep.ErrClosed
		case more != nil:
			select {
			case <-ctx.Done():
			case <-more:
			}
			continue
		case n == 0:
			var err error
			if batch, err = s.readFeed(ctx, seq, upTo); err != nil {
				return s.orClosed(err)
			}
			if len(batch) < watchRows {
				seq = upTo // nothing else is left up to there
			}
		}
		for i := range batch {
			if ctx.Err() != nil || !yield(batch[i]) {
				return nil
			}
			seq = max(seq, batch[i].Seq)
		}
		clear(buf)
	}
	return nil
}

// readFeed reads rows from the database: after seq, up to and with upTo.
func (s *Store) readFeed(ctx context.Context, seq, upTo int64) ([]toolkeep.Committed, error) {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	rows, err := feedRows(ctx, tx, `SELECT seq, at, kind, tenant, ref, data FROM feed
		WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?`, seq, upTo, watchRows)
	if err != nil {
		return nil, err
	}
	batch := make([]toolkeep.Committed, len(rows))
	for i, r := range rows {
		if batch[i], err = record.Decode(r, published(ctx, tx)); err != nil {
			return nil, stored(err)
		}
	}
	return batch, nil
}

func feedRows(ctx context.Context, q querier, query string, args ...any) ([]record.Row, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []record.Row
	for rows.Next() {
		var r record.Row
		if err := rows.Scan(&r.Seq, &r.At, &r.Kind, &r.Tenant, &r.Ref, &r.Data); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// querier is what a *sql.DB and a *sql.Tx have in common here.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// published finds the tool of a version, which its feed row only names.
func published(ctx context.Context, q querier) record.Versions {
	return func(tenant, id, version string) (toolkeep.Version, error) {
		return scanVersion(q.QueryRowContext(ctx, `SELECT tenant, id, version, digest, life, raw, manifest
			FROM versions WHERE tenant = ? AND id = ? AND version = ?`, tenant, id, version))
	}
}

// feedHead is the newest position, also where its row has been removed since.
func feedHead(ctx context.Context, q querier) (head int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT max(
		coalesce((SELECT max(seq) FROM feed), 0),
		coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'feed'), 0))`).Scan(&head)
	if err != nil {
		err = fmt.Errorf("sqlite: read the head of the feed: %w", err)
	}
	return head, err
}

// stored says which store an error of a record comes from.
func stored(err error) error {
	if err != nil {
		err = fmt.Errorf("sqlite: %w", err)
	}
	return err
}
