package sqlite

import (
	"context"
	"errors"
	"iter"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
	"github.com/toolkeep/toolkeep/store/record"
)

// onlyWriter is the one writer of a file's journal.
const onlyWriter = 0

// maxEntries is the most that ReadJournal returns.
const maxEntries = 1000

var _ toolkeep.Journal = (*Store)(nil)

// JournalWriter returns 0: a file has one writer, whichever process has it open.
func (s *Store) JournalWriter() int64 { return onlyWriter }

// WatchJournal yields the entries committed after seq, in order. Ended calls older than
// FeedKeep may be gone, as may events older than EventKeep. It ends as Watch does.
func (s *Store) WatchJournal(ctx context.Context, seq int64) iter.Seq2[toolkeep.Entry, error] {
	return watch(ctx, s, &s.entries, seq, func(ctx context.Context, seq, upTo int64) ([]toolkeep.Entry, int64, error) {
		return s.readEntries(ctx, seq, upTo, flow.WatchRows)
	})
}

// ReadJournal returns entries after a position; see toolkeep.Journal.
func (s *Store) ReadJournal(ctx context.Context, after toolkeep.JournalPosition, limit int) ([]toolkeep.Entry, toolkeep.JournalPosition, error) {
	if limit < 1 || limit > maxEntries {
		return nil, nil, errors.New("sqlite: the journal is read in parts of 1 to 1,000 entries")
	}
	head, closed := s.entries.Head()
	if closed {
		return nil, nil, toolkeep.ErrClosed
	}
	var list []toolkeep.Entry
	seq := after[onlyWriter]
	for seq < head && len(list) < limit {
		part, read, err := s.readEntries(ctx, seq, head, limit-len(list))
		if err != nil {
			return nil, nil, s.orClosed(err)
		}
		list, seq = append(list, part...), read
	}
	next := toolkeep.JournalPosition{onlyWriter: max(seq, after[onlyWriter])}
	return list, next, nil
}

// readEntries reads entries after seq, up to and including upTo, and how far it came.
func (s *Store) readEntries(ctx context.Context, seq, upTo int64, limit int) ([]toolkeep.Entry, int64, error) {
	rows, read, err := rowsBetween(ctx, s.read, "journal", seq, upTo, limit)
	if err != nil {
		return nil, 0, err
	}
	list := make([]toolkeep.Entry, 0, len(rows))
	for _, r := range rows {
		e, ok, err := record.DecodeEntry(r, onlyWriter)
		if err != nil {
			return nil, 0, stored(err)
		}
		if ok {
			list = append(list, e)
		}
	}
	return list, read, nil
}
