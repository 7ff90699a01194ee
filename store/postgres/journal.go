package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
	"github.com/toolkeep/toolkeep/store/record"
)

const (
	// feedWriter stands for programs before the journal, which left what happened in calls
	// in the feed; its entries have the feed's numbers.
	feedWriter = 0
	// maxEntries is the most that ReadJournal returns.
	maxEntries = 1000

	sqlNewWriter = `INSERT INTO writers (name, number, committed_number) VALUES ($1, 0, 0) RETURNING id`
	// Writers with entries after a position, and their newest: nothing is looked for in the partitions.
	sqlBehind = `SELECT w.id, coalesce(p.seq, 0), w.entry FROM writers AS w
		LEFT JOIN unnest($1::bigint[], $2::bigint[]) AS p (id, seq) ON p.id = w.id
		WHERE w.entry > coalesce(p.seq, 0) ORDER BY w.id`
	sqlReadCalls = `SELECT entry, tenant, id, coalesce(ended, data) FROM invocations
		WHERE writer = $1 AND entry > $2 AND entry <= $3 AND entry IS NOT NULL ORDER BY entry LIMIT $4`
	sqlReadEvents = `SELECT entry, at, tenant, id, data FROM events
		WHERE writer = $1 AND entry > $2 AND entry <= $3 ORDER BY entry LIMIT $4`
)

var _ toolkeep.Journal = (*Store)(nil)

// newWriter makes the row of this process's writer and returns its number.
func (s *Store) newWriter(ctx context.Context, name string) (id int64, err error) {
	err = s.read(ctx, func(ctx context.Context) error { return s.pool.QueryRow(ctx, sqlNewWriter, text(name)).Scan(&id) })
	return id, err
}

// JournalWriter returns the number of this process's writer, from 1.
func (s *Store) JournalWriter() int64 { return s.journal }

// WatchJournal yields the entries that this process committed after seq, in order. It ends
// as Watch does.
func (s *Store) WatchJournal(ctx context.Context, seq int64) iter.Seq2[toolkeep.Entry, error] {
	return watch(ctx, &s.entries, seq, func(ctx context.Context, seq, upTo int64) (list []toolkeep.Entry, read int64, err error) {
		err = s.patiently(ctx, func() error {
			list, read, err = s.readEntries(ctx, s.journal, seq, upTo, flow.WatchRows)
			return err
		})
		return list, read, err
	})
}

// ReadJournal returns entries of all nodes after a position; see toolkeep.Journal. The time of a
// call's entry is that of its end.
func (s *Store) ReadJournal(ctx context.Context, after toolkeep.JournalPosition, limit int) (list []toolkeep.Entry, next toolkeep.JournalPosition, err error) {
	if limit < 1 || limit > maxEntries {
		return nil, nil, errors.New("postgres: the journal is read in parts of 1 to 1,000 entries")
	}
	type stretch struct{ writer, from, to int64 }
	var behind []stretch
	err = s.read(ctx, func(ctx context.Context) error {
		var head int64
		if err := s.pool.QueryRow(ctx, sqlReadHead).Scan(&head); err != nil {
			return err
		}
		ids, seqs := make([]int64, 0, len(after)), make([]int64, 0, len(after))
		for id, seq := range after {
			ids, seqs = append(ids, id), append(seqs, seq)
		}
		rows, err := s.pool.Query(ctx, sqlBehind, ids, seqs)
		if err != nil {
			return err
		}
		behind, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (b stretch, err error) {
			err = row.Scan(&b.writer, &b.from, &b.to)
			return b, err
		})
		if from := after[feedWriter]; from < head {
			behind = append([]stretch{{feedWriter, from, head}}, behind...)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	next = make(toolkeep.JournalPosition, len(after)+len(behind))
	for id, seq := range after {
		next[id] = seq
	}
	for _, b := range behind {
		for more := true; more && len(list) < limit; {
			part, read, err := s.readEntries(ctx, b.writer, b.from, b.to, limit-len(list))
			if err != nil {
				return nil, nil, err
			}
			more = read < b.to
			next[b.writer] = read
			list, b.from = append(list, part...), read
		}
	}
	return list, next, nil
}

// readEntries reads entries of a writer after seq, up to and including upTo, and how far it came.
func (s *Store) readEntries(ctx context.Context, writer, seq, upTo int64, limit int) (list []toolkeep.Entry, read int64, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		list, read = nil, upTo
		// Calls and events as they are at one moment: between two, both may be written.
		return pgx.BeginTxFunc(ctx, s.pool, oneMoment(), func(conn pgx.Tx) error {
			if writer == feedWriter {
				list, read, err = feedEntries(ctx, conn, seq, upTo, limit)
				return err
			}
			calls, err := entriesOf(ctx, conn, sqlReadCalls, writer, seq, upTo, limit, scanCallEntry)
			if err != nil {
				return err
			}
			events, err := entriesOf(ctx, conn, sqlReadEvents, writer, seq, upTo, limit, scanEventEntry)
			if err != nil {
				return err
			}
			list = append(calls, events...)
			slices.SortFunc(list, func(a, b toolkeep.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
			if len(list) >= limit { // beyond there may be entries that were not read
				list = list[:limit]
				read = list[limit-1].Seq
			}
			for i := range list {
				list[i].Writer = writer
			}
			return nil
		})
	})
	return list, read, err
}

func entriesOf(ctx context.Context, conn querier, query string, writer, seq, upTo int64, limit int,
	scan pgx.RowToFunc[toolkeep.Entry]) ([]toolkeep.Entry, error) {
	rows, err := conn.Query(ctx, query, writer, seq, upTo, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

func scanCallEntry(row pgx.CollectableRow) (e toolkeep.Entry, err error) {
	r := record.Row{Kind: record.KindEnded}
	if err = row.Scan(&r.Seq, &r.Tenant, &r.Ref, &r.Data); err != nil {
		return e, err
	}
	r.Tenant, r.Ref = plainText(r.Tenant), plainText(r.Ref)
	if e, _, err = record.DecodeEntry(r, 0); err != nil {
		return e, damage{err}
	}
	if e.At = e.Call.EndedAt; e.At.IsZero() {
		e.At = e.Call.CreatedAt
	}
	return e, nil
}

func scanEventEntry(row pgx.CollectableRow) (e toolkeep.Entry, err error) {
	r := record.Row{Kind: record.KindEvent}
	if err = row.Scan(&r.Seq, &r.At, &r.Tenant, &r.Ref, &r.Data); err != nil {
		return e, err
	}
	r.Tenant, r.Ref = plainText(r.Tenant), plainText(r.Ref)
	e, ok, err := record.DecodeEntry(r, 0)
	if err == nil && !ok {
		err = fmt.Errorf("row %d of events is none", r.Seq)
	}
	if err != nil {
		return e, damage{err}
	}
	return e, nil
}

// feedEntries reads what programs before the journal left in the feed.
func feedEntries(ctx context.Context, conn querier, seq, upTo int64, limit int) (list []toolkeep.Entry, read int64, err error) {
	stored, read, err := feedRows(ctx, conn, seq, upTo, limit)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range stored {
		e, ok, err := record.DecodeEntry(r, feedWriter)
		if err != nil {
			return nil, 0, damage{err}
		}
		if ok {
			list = append(list, e)
		}
	}
	return list, read, nil
}
