package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

const (
	// tendRows is how many rows one transaction removes: calls wait for it, some 20 ms. Fewer would write more in all, for
	// the rows of one page of an index lie far apart in time.
	tendRows = 1000
	// tendPause is the part of the time that a transaction took for which none follows, so that most calls meet none.
	tendPause = 3
)

// tendLoop removes rows past their retention.
func (s *Store) tendLoop() {
	defer s.background.Done()
	t := time.NewTicker(tendEvery)
	defer t.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			if err := s.tend(ctx); err != nil && !s.closed() {
				s.cfg.Log.Error("old records could not be removed", "error", err)
			}
		}
	}
}

// tend makes one retention pass. Each transaction is small, and the writer commits
// groups in between.
func (s *Store) tend(ctx context.Context) error {
	now := s.cfg.Clock()
	archived, err := s.archived(ctx)
	if err != nil {
		return err
	}
	holds, err := s.holds(ctx)
	if err == nil {
		err = s.trimAgain(ctx, holds)
	}
	if err != nil {
		return err // nothing goes while it is not known what is held
	}
	calls, err := s.dropsCalls(ctx, now, archived)
	return errors.Join(
		err,
		s.trimJournal(ctx, archived, "calls", now.Add(-s.cfg.FeedKeep), nil, shortenCalls, removeUnchained),
		s.trimJournal(ctx, archived, "short calls", now.Add(-max(s.cfg.FeedKeep, s.cfg.InvocationKeep)), &holds, remove("journal", 0, record.LastCallKind)),
		s.trimJournal(ctx, archived, "events", now.Add(-s.cfg.EventKeep), &holds, remove("journal", record.KindEvent, record.KindEvent)),
		s.trim(ctx, "feed", "items", now.Add(-s.cfg.EventKeep), math.MaxInt64, nil, remove("feed", record.KindEvent, record.KindEvent)),
		s.dropInvocations(ctx, calls, holds),
		s.forgetDocument(ctx, now.Add(-s.cfg.EventKeep)),
		s.forgetNonces(ctx, now),
		s.do(ctx, func(ctx context.Context, w *writer) error { return w.saveMark(ctx) }),
	)
}

// Statements of trim, for the rows after ?1 up to and including ?2.
const (
	// shortenCalls leaves of an entry what its chain needs, if the table of calls has its data, also under
	// an id that is taken. Otherwise it stays whole.
	shortenCalls = `UPDATE journal SET kind = 9, data = x'' WHERE seq > ?1 AND seq <= ?2 AND kind IN (1, 8) AND hash IS NOT NULL
		AND EXISTS (SELECT 1 FROM invocations AS i WHERE i.tenant = journal.tenant AND i.id = journal.ref AND coalesce(i.ended, i.data) = journal.data)`
	// removeUnchained removes entries of before the chain.
	removeUnchained = `DELETE FROM journal WHERE seq > ?1 AND seq <= ?2 AND kind BETWEEN 0 AND 9 AND hash IS NULL`
)

// remove removes rows of some kinds.
func remove(table string, low, high int64) string {
	return fmt.Sprintf(`DELETE FROM %s WHERE seq > ?1 AND seq <= ?2 AND kind BETWEEN %d AND %d`, table, low, high)
}

// archived returns the number up to which the journal is in the archive; all numbers where there is none.
func (s *Store) archived(ctx context.Context) (int64, error) {
	if s.cfg.ArchiveWait == 0 {
		return math.MaxInt64, nil
	}
	head, closed := s.entries.Head()
	if closed {
		return 0, toolkeep.ErrClosed
	}
	// The runs that have entries after the archive's cursor: the first of them bounds what is archived.
	var upTo int64
	err := s.read.QueryRowContext(ctx, `SELECT coalesce(min(done), ?1) FROM (
			SELECT max(coalesce(c.seq, 0), r.first - 1) AS done, coalesce(lead(r.first) OVER (ORDER BY r.id) - 1, ?1) AS newest
			FROM runs AS r LEFT JOIN cursors AS c ON c.reader = ?2 AND c.writer = r.id
		) WHERE done < newest`, head, toolkeep.ArchiveReader).Scan(&upTo)
	return upTo, err
}

// dropsCalls returns the time of before which ended calls go. While an entry waits for the archive whose content only the
// table of calls may have, they stay longer.
func (s *Store) dropsCalls(ctx context.Context, now time.Time, archived int64) (time.Time, error) {
	cutoff := now.Add(-s.cfg.InvocationKeep)
	if s.cfg.ArchiveWait == 0 {
		return cutoff, nil
	}
	var waits bool
	err := s.read.QueryRowContext(ctx, `SELECT coalesce((SELECT at < ? FROM journal WHERE seq > ? AND hash IS NOT NULL ORDER BY seq LIMIT 1), false)`,
		record.Micros(now.Add(-s.cfg.FeedKeep)), archived).Scan(&waits)
	if waits || err != nil {
		cutoff = cutoff.Add(-s.cfg.ArchiveWait)
	}
	return cutoff, err
}

// trimJournal is trim for the journal: rows that are not archived stay ArchiveWait longer.
func (s *Store) trimJournal(ctx context.Context, archived int64, name string, cutoff time.Time, holds *held, texts ...string) error {
	err := s.trim(ctx, "journal", name, cutoff, archived, holds, texts...)
	if err == nil && s.cfg.ArchiveWait > 0 {
		err = s.trim(ctx, "journal", name, cutoff.Add(-s.cfg.ArchiveWait), math.MaxInt64, holds, texts...)
	}
	return err
}

// trim runs statements on rows older than cutoff of the feed or the journal that are not held, up to the number upTo, from where
// the last pass stopped. holds is nil where none matters. The newest feedKeepRows and rows not indexed yet stay.
func (s *Store) trim(ctx context.Context, table, name string, cutoff time.Time, upTo int64, holds *held, texts ...string) error {
	name = "trimmed " + name
	var from int64
	err := s.read.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM marks WHERE name = ?`, name).Scan(&from)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		limit, closed := s.ring.Head()
		if table == "journal" {
			limit, closed = s.entries.Head()
		}
		if closed {
			return toolkeep.ErrClosed
		}
		limit -= s.cfg.feedKeepRows
		if table == "journal" {
			limit = min(limit, s.indexed.Load(), upTo)
		}
		// The last of the next rows that are all old enough.
		var last int64
		err = s.read.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM (
				SELECT seq, max(at) OVER (ORDER BY seq) AS newest FROM (
					SELECT seq, at FROM `+table+` WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?
				)
			) WHERE newest < ?`, from, limit, tendRows, record.Micros(cutoff)).Scan(&last)
		if err != nil || last == 0 {
			return err
		}
		if holds != nil {
			if same, err := s.standAs(ctx, *holds); !same || err != nil {
				return err
			}
		}
		var list []statement
		for _, text := range texts {
			args := []any{from, last}
			if holds != nil && holds.any {
				text, args = text+notHeldEntry, append(args, holds.micros)
			}
			list = append(list, statement{text, args})
		}
		err = s.maintain(ctx, append(list, statement{`INSERT INTO marks (name, seq) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq`,
			[]any{name, last}})...)
		if err != nil {
			return err
		}
		from = last
	}
	return ctx.Err()
}

// dropInvocations removes ended calls created before cutoff that are not held. Rows are roughly in order
// of creation, so it stops at the first batch without an old one.
func (s *Store) dropInvocations(ctx context.Context, cutoff time.Time, holds held) error {
	for from := int64(0); ctx.Err() == nil; {
		var last, old int64
		err := s.read.QueryRowContext(ctx, `SELECT coalesce(max(rowid), 0), coalesce(sum(created < ?), 0) FROM (
			SELECT rowid, created FROM invocations WHERE rowid > ? ORDER BY rowid LIMIT ?)`,
			record.Nanos(cutoff), from, tendRows).Scan(&last, &old)
		if err != nil || old == 0 {
			return err
		}
		if same, err := s.standAs(ctx, holds); !same || err != nil {
			return err
		}
		text, args := `DELETE FROM invocations WHERE rowid > ? AND rowid <= ? AND created < ? AND`+ended, []any{from, last, record.Nanos(cutoff)}
		if holds.any {
			text, args = text+notHeldCall, append(args, holds.nanos)
		}
		err = s.maintain(ctx, statement{text, args})
		if err != nil {
			return err
		}
		from = last
	}
	return ctx.Err()
}

// forgetNonces removes nonces that need not be kept.
func (s *Store) forgetNonces(ctx context.Context, now time.Time) error {
	cutoff := record.Micros(now.Add(-toolkeep.NonceKeep))
	var over int64 // the newest of those that are too many
	err := s.read.QueryRowContext(ctx, `SELECT coalesce((SELECT at FROM nonces ORDER BY at DESC LIMIT 1 OFFSET ?), 0)`, toolkeep.MaxNonces).Scan(&over)
	cutoff = max(cutoff, min(over+1, record.Micros(now.Add(-toolkeep.NonceHold))))
	for more := true; more && err == nil; {
		if err = s.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM nonces WHERE at < ?)`, cutoff).Scan(&more); err == nil && more {
			err = s.maintain(ctx, statement{`DELETE FROM nonces WHERE nonce IN (SELECT nonce FROM nonces WHERE at < ? ORDER BY at LIMIT ?)`, []any{cutoff, tendRows}})
		}
	}
	return err
}

type statement struct {
	text string
	args []any
}

// maintain runs statements in one transaction of the writer, between groups, and leaves the writer to calls for a while.
func (s *Store) maintain(ctx context.Context, list ...statement) error {
	var took time.Duration
	err := s.do(ctx, func(ctx context.Context, w *writer) error {
		defer func(began time.Time) { took = time.Since(began) }(time.Now())
		tx, end, err := w.begin(ctx)
		if err != nil {
			return err
		}
		defer end()
		for _, st := range list {
			if _, err := tx.ExecContext(ctx, st.text, st.args...); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
	if err == nil {
		toolkeep.Sleep(ctx, took/tendPause)
	}
	return err
}

// Health reports whether the store can read and whether its last transaction was
// committed. It writes nothing.
func (s *Store) Health(ctx context.Context) error {
	if s.closed() {
		return toolkeep.ErrClosed
	}
	if err := s.failure.Load(); err != nil {
		return *err
	}
	_, err := newest(ctx, s.read, "feed")
	return s.orClosed(err)
}

// Stats holds numbers for metrics.
type Stats struct {
	WALBytes int64 // last measured size of the write-ahead log
	Head     int64 // newest position of the feed
	IndexLag int64 // calls not in the table of calls yet: recorded ones, and those that began in the last 50 ms
	Groups   int64 // transactions committed since Open
	Rows     int64 // rows of feed and journal committed since Open
}

// Stats returns the store's numbers. It never blocks on the database.
func (s *Store) Stats() Stats {
	head, _ := s.ring.Head()
	return Stats{
		WALBytes: s.wal.bytes.Load(), Head: head, IndexLag: s.lag.Load(),
		Groups: s.groups.Load(), Rows: s.rows.Load(),
	}
}
