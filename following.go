package toolkeep

import (
	"context"
	"log/slog"
	"sync"
)

// Following runs what consumes the feed of a process, from NewFollowing to Stop.
type Following struct {
	feed Watcher
	log  func(component string) *slog.Logger
	run  context.Context
	end  context.CancelFunc
	done sync.WaitGroup
}

// NewFollowing returns a Following of a store's feed.
func NewFollowing(feed Watcher, log func(component string) *slog.Logger) *Following {
	f := &Following{feed: feed, log: log}
	f.run, f.end = context.WithCancel(context.Background())
	return f
}

// Context ends with Stop.
func (f *Following) Context() context.Context { return f.run }

// Stop ends what runs and waits for it.
func (f *Following) Stop() {
	f.end()
	f.done.Wait()
}

// Go runs work until Stop, which ends its context.
func (f *Following) Go(work func(ctx context.Context)) {
	f.done.Go(func() { work(f.run) })
}

// Follow passes the feed after a position to each. what names the consumer in the log of a
// component. When the feed breaks, broken is called and the feed is read again from there.
func (f *Following) Follow(component, what string, after int64, each func(Committed), broken func()) {
	f.Go(func(ctx context.Context) {
		Follow(ctx, f.feed, after, each, func(err error) {
			f.log(component).Warn("the feed of "+what+" broke; it is read again", "error", err)
			broken()
		})
	})
}

// FeedPart is a part that reads the store when it starts and follows the feed from there.
type FeedPart interface {
	Start(ctx context.Context) (after int64, err error)
	Follow(c Committed)
}

// Start starts a part and has it follow the feed.
func (f *Following) Start(ctx context.Context, component, what string, p FeedPart) error {
	after, err := p.Start(ctx)
	if err == nil {
		f.Follow(component, what, after, p.Follow, func() {})
	}
	return err
}
