package usage

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// FeedStore is a store whose feed has calls and events, too.
type FeedStore interface {
	toolkeep.Applier
	toolkeep.Watcher
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// FromFeed returns the store with its feed as a journal of one writer, unless it has a journal.
func FromFeed(s FeedStore) Store {
	if s, ok := s.(Store); ok {
		return s
	}
	return fromFeed{s}
}

type fromFeed struct{ FeedStore }

func (fromFeed) JournalWriter() int64 { return 0 }

func (f fromFeed) WatchJournal(ctx context.Context, seq int64) iter.Seq2[toolkeep.Entry, error] {
	return func(yield func(toolkeep.Entry, error) bool) {
		for c, err := range f.Watch(ctx, seq) {
			if e, ok := entryIn(c); (ok || err != nil) && !yield(e, err) {
				return
			}
		}
	}
}

// ReadJournal stops where nothing comes for half a second: the newest changes may have been trimmed.
func (f fromFeed) ReadJournal(ctx context.Context, after toolkeep.JournalPosition, limit int) (out []toolkeep.Entry, next toolkeep.JournalPosition, err error) {
	const silence = time.Second / 2
	head, err := f.Head(ctx)
	next = maps.Clone(after)
	if err != nil || head <= after[0] {
		return nil, next, err
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(silence, cancel)
	defer timer.Stop()
	for c, err := range f.Watch(wait, after[0]) {
		if err != nil {
			return nil, nil, err
		}
		timer.Reset(silence)
		next[0] = c.Seq
		if e, ok := entryIn(c); ok {
			out = append(out, e)
		}
		if c.Seq >= head || len(out) == limit {
			return out, next, nil
		}
	}
	next[0] = head
	return out, next, ctx.Err()
}

// entryIn returns the entry that a change is: a call that ended, once, or an event.
func entryIn(c toolkeep.Committed) (toolkeep.Entry, bool) {
	e := toolkeep.Entry{Seq: c.Seq, At: c.At}
	switch ch := c.Change.(type) {
	case toolkeep.RecordCall:
		e.Call = ch.Invocation
	case toolkeep.MoveCall:
		// When an answer expires, its call ended earlier.
		if ch.Invocation != nil && ch.Invocation.State.Ended() && !slices.ContainsFunc(ch.From, toolkeep.CallState.Ended) {
			e.Call = ch.Invocation
		}
	case toolkeep.AppendEvent:
		e.Event = &ch.Event
	}
	return e, e.Call != nil || e.Event != nil
}
