package toolkeep

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"
)

// Committed is a change with its feed position.
type Committed struct {
	Seq    int64
	At     time.Time
	Change Change
}

// Watcher delivers the feed: what every node must know. Versions, lifecycles, keys and
// documents are in it; calls and events are in the Journal.
type Watcher interface {
	// Watch yields every change of the feed committed after seq, in order and none left
	// out, starting with past ones, until ctx ends or the consumer stops. An error is
	// yielded once, as the last element. Consumers must not modify the changes.
	Watch(ctx context.Context, after int64) iter.Seq2[Committed, error]
	// Head returns the sequence number of the newest committed change of the feed.
	Head(ctx context.Context) (int64, error)
}

// Entry is an entry of the journal: a call that ended, or an event.
type Entry struct {
	Writer int64 // who wrote it
	Seq    int64 // its number among the writer's entries: they increase, with gaps
	At     time.Time
	Call   *Invocation // nil for an event; without output and what is sealed
	Event  *Event      // nil for a call
}

// JournalPosition is how far a reader of the journal has come: the number of the newest
// entry read, by writer. A writer that is missing is at 0.
type JournalPosition map[int64]int64

// Journal delivers what happened in calls: each call once, when it ended, and every appended
// event, as it was then. An answer that expires later is not another end. Entries have an order for
// each writer, which is one run of one process, and none across writers: so no commit of a
// call waits for another node's, and no node reads what others wrote unless it asks.
type Journal interface {
	// JournalWriter returns the writer that this process is.
	JournalWriter() int64
	// WatchJournal yields this process's own entries after seq, in order, as they are
	// committed, until ctx ends or the consumer stops. An error is yielded once, as the
	// last element. Consumers must not modify the entries.
	WatchJournal(ctx context.Context, seq int64) iter.Seq2[Entry, error]
	// ReadJournal returns entries of all writers after a position, each writer's in order,
	// limit at most (1 to 1,000), and the position after them. It has read everything that
	// was committed before it began if it returns fewer than limit.
	ReadJournal(ctx context.Context, after JournalPosition, limit int) ([]Entry, JournalPosition, error)
}

// followPause is the pause before a broken feed is read again.
const followPause = time.Second

// Follow passes every change after a feed position to each, until ctx ends. A feed that
// breaks is reported to broken and resumed a second later where it was.
func Follow(ctx context.Context, w Watcher, after int64, each func(Committed), broken func(error)) {
	for ctx.Err() == nil {
		for c, err := range w.Watch(ctx, after) {
			if err != nil {
				if ctx.Err() == nil {
					broken(err)
				}
				break
			}
			after = c.Seq
			each(c)
		}
		select {
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
}

// FeedPosition is how far a consumer of the feed has come. The feed alone may change what
// a consumer shows: a change that it applied early, when it committed it itself, would be
// overtaken by an older change of the same thing that the feed brings later. A consumer
// that must show its own changes at once commits them and then waits with Await.
// The zero value is at the start of the feed; it is safe for concurrent use.
type FeedPosition struct {
	mu    sync.Mutex
	seq   int64
	moved chan struct{} // closed and replaced when seq moves
	last  *headRead     // the newest reading of the head
	next  *headRead     // last, until it begins: it will see everything that is committed now
}

// headRead is a reading of the feed's head that all share who came before it began.
type headRead struct {
	done chan struct{}
	head int64
	err  error
}

// maxFeedWait is how long Await waits for the feed.
const maxFeedWait = 5 * time.Second

// Reach records that everything up to seq was applied.
func (f *FeedPosition) Reach(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq <= f.seq {
		return
	}
	f.seq = seq
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// Await waits until everything that is committed now was applied: 5 s at most, less if
// ctx ends. Of its callers one at a time reads the head, for all that wait. The error says
// that it is not applied yet, or why the head cannot be read.
func (f *FeedPosition) Await(ctx context.Context, w interface {
	Head(ctx context.Context) (int64, error)
}) error {
	ctx, cancel := context.WithTimeout(ctx, maxFeedWait)
	defer cancel()
	head, err := f.head(ctx, w.Head)
	if err != nil {
		return err
	}
	return f.AwaitApplied(ctx, head)
}

// Applied returns the position up to which everything was applied.
func (f *FeedPosition) Applied() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq
}

// AwaitApplied waits until everything up to seq was applied, or ctx ends.
func (f *FeedPosition) AwaitApplied(ctx context.Context, seq int64) error {
	for {
		f.mu.Lock()
		if f.seq >= seq {
			f.mu.Unlock()
			return nil
		}
		if f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved := f.moved
		f.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("the feed has not come to change %d yet: %w", seq, ctx.Err())
		}
	}
}

// head returns the feed's head as it is now or later.
func (f *FeedPosition) head(ctx context.Context, read func(context.Context) (int64, error)) (int64, error) {
	f.mu.Lock()
	r := f.next
	if r == nil {
		r = &headRead{done: make(chan struct{})}
		go f.readHead(context.WithoutCancel(ctx), r, f.last, read) // also for those that stay longer than this caller
		f.last, f.next = r, r
	}
	f.mu.Unlock()
	select {
	case <-r.done:
		return r.head, r.err
	case <-ctx.Done():
		return 0, fmt.Errorf("the head of the feed cannot be read: %w", ctx.Err())
	}
}

func (f *FeedPosition) readHead(ctx context.Context, r, before *headRead, read func(context.Context) (int64, error)) {
	if before != nil {
		<-before.done
	}
	f.mu.Lock()
	f.next = nil
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, maxFeedWait)
	defer cancel()
	r.head, r.err = read(ctx)
	close(r.done)
}
