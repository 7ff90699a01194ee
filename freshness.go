package toolkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// FeedFollower is a consumer of the feed.
type FeedFollower interface {
	// Applied returns the position up to which everything was applied.
	Applied() int64
	// AwaitApplied waits until everything up to seq was applied, or ctx ends.
	AwaitApplied(ctx context.Context, seq int64) error
}

const (
	// freshFor is the age up to which knowledge serves without a look at the feed.
	freshFor = 2 * time.Second
	// freshBeat is how often the feed's head is read.
	freshBeat = time.Second
	// headWait is how long a reading of the head may take.
	headWait = time.Second
)

// Freshness is how old this node's knowledge of the feed is: it is as old as the reading of the
// head that all followers have come to. Run keeps it fresh. A process that was stopped or a
// machine that slept finds it old, by the monotonic clock or by the wall clock, which goes on
// while a machine sleeps. It is safe for concurrent use.
type Freshness struct {
	head      func(context.Context) (int64, error)
	followers []FeedFollower
	limit     time.Duration
	wake      chan struct{} // capacity one: knowledge is old and a caller waits

	mu     sync.Mutex
	known  time.Time     // when the head that all followers have come to began to be read
	failed time.Time     // when the latest attempt failed; zero if it did not
	why    error         // of failed
	ended  chan struct{} // closed and replaced when an attempt ends
}

// NewFreshness returns a Freshness of the followers of a feed. limit is the age from which
// knowledge does not serve while the feed cannot be read.
func NewFreshness(w interface {
	Head(ctx context.Context) (int64, error)
}, limit time.Duration, followers ...FeedFollower) *Freshness {
	return &Freshness{head: w.Head, followers: followers, limit: max(limit, freshFor), wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// passed is the time since t, by the clock by which more has passed.
func passed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// Run reads the head about once a second, and at once when Check finds knowledge old, until ctx
// ends.
func (f *Freshness) Run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		err := f.attempt(ctx)
		f.mu.Lock()
		if f.failed, f.why = (time.Time{}), err; err == nil {
			f.known = began
		} else {
			f.failed = time.Now()
		}
		select {
		case <-f.wake: // who waits looks at this attempt, and asks for another if it must
		default:
		}
		close(f.ended)
		f.ended = make(chan struct{})
		f.mu.Unlock()
		wake := f.wake
		if err != nil {
			wake = nil // who waits is told, and the feed is not asked more often
		}
		beat := time.NewTimer(freshBeat - time.Since(began))
		select {
		case <-ctx.Done():
		case <-wake:
		case <-beat.C:
		}
		beat.Stop()
	}
}

// attempt reads the head and waits until all followers have come to it.
func (f *Freshness) attempt(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, headWait)
	head, err := f.head(limited)
	cancel()
	if err != nil {
		return fmt.Errorf("the head of the feed cannot be read: %w", err)
	}
	ctx, cancel = context.WithTimeout(ctx, maxFeedWait)
	defer cancel()
	return f.AwaitApplied(ctx, head)
}

// Check returns when knowledge is at most 2 s old; looked says that it was not and that the node
// has caught up, for which Check waits up to 5 s. While the feed cannot be read, older knowledge
// serves up to the limit, without a wait; then Check returns E3003. A nil Freshness is always fresh.
func (f *Freshness) Check(ctx context.Context) (looked bool, err error) {
	if f == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxFeedWait)
	defer cancel()
	for {
		f.mu.Lock()
		known, failed, why, ended := f.known, f.failed, f.why, f.ended
		f.mu.Unlock()
		if passed(known) <= freshFor {
			return looked, nil
		}
		looked = true
		if failed.IsZero() || passed(failed) > freshFor { // the node slept, or an attempt takes long
			select {
			case f.wake <- struct{}{}:
			default:
			}
			select {
			case <-ended:
				continue
			case <-ctx.Done():
				why = ctx.Err()
			}
		}
		if passed(known) <= f.limit {
			return looked, nil
		}
		return looked, f.tooOld(why)
	}
}

func (f *Freshness) tooOld(why error) error {
	return NewError(RegistryUnavailable,
		"this node cannot see which keys, tools and rules others have changed in the last %s (store.max_staleness), so it refuses what they may forbid; try again", f.limit).
		After(time.Second).Because(why)
}

// Health returns why knowledge does not serve, nil if it does.
func (f *Freshness) Health(context.Context) error {
	f.mu.Lock()
	known, why := f.known, f.why
	f.mu.Unlock()
	if passed(known) <= f.limit {
		return nil
	}
	return fmt.Errorf("what other nodes changed has not been seen for %s: %w", f.limit, cmp.Or(why, errBehind))
}

// errBehind is the reason while nothing failed.
var errBehind = errors.New("the feed is being read")

// Applied returns the position that all followers have come to.
func (f *Freshness) Applied() int64 {
	seq := int64(1<<63 - 1)
	for _, one := range f.followers {
		seq = min(seq, one.Applied())
	}
	return seq
}

// AwaitApplied waits until all followers have come to a position, or ctx ends.
func (f *Freshness) AwaitApplied(ctx context.Context, seq int64) error {
	for _, one := range f.followers {
		if err := one.AwaitApplied(ctx, seq); err != nil {
			return err
		}
	}
	return nil
}
