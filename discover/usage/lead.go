package usage

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Work is what one node does for all: it reads what the others wrote, and writes checkpoints.
const Work = "usage.journal"

const (
	readEvery = time.Second // how often the leader reads the journal
	readMost  = 500         // entries at once
	foldMost  = 20          // entries at once, about 0.1 ms in which the state cannot be read
	// restAfterWork bounds what checkpoints cost, to write and to take: after each, this many times
	// its duration passes before the next.
	restAfterWork = 100
	sharedEvery   = time.Minute // how often others get a checkpoint, at most
	retryAfter    = 5 * time.Second
)

// lock waits for the token of reading, or for the end of ctx.
func (u *Usage) lock(ctx context.Context) error {
	select {
	case u.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (u *Usage) unlock() { <-u.reading }

// foldOwn folds the entries of this process as they are committed, until ctx ends.
func (u *Usage) foldOwn(ctx context.Context) {
	own := u.c.Store.JournalWriter()
	u.mu.RLock()
	earlier := u.state.position[own] > 0
	u.mu.RUnlock()
	if earlier { // also of an earlier run: it is read once, as the leader does
		_ = u.catchUp(ctx)
	}
	for ctx.Err() == nil {
		u.mu.RLock()
		after := u.state.position[own]
		u.mu.RUnlock()
		broken := errors.New("it ended")
		for e, err := range u.c.Store.WatchJournal(ctx, after) {
			if err != nil {
				broken = err
				break
			}
			u.fold(e)
		}
		if ctx.Err() == nil {
			u.c.Log.Warn("the journal of this process broke; it is read again", "error", broken, "after", after)
			toolkeep.Sleep(ctx, retryAfter)
		}
	}
}

// fold adds entries to the state.
func (u *Usage) fold(entries ...toolkeep.Entry) {
	u.folding.Lock()
	defer u.folding.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range entries {
		u.state.fold(&entries[i])
	}
}

// catchUp folds all that is committed now, of all writers.
func (u *Usage) catchUp(ctx context.Context) error {
	if err := u.lock(ctx); err != nil {
		return err
	}
	defer u.unlock()
	for {
		u.mu.RLock()
		after := maps.Clone(u.state.position)
		u.mu.RUnlock()
		now := u.c.Clock()
		entries, next, err := u.c.Store.ReadJournal(ctx, after, readMost)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(entries, foldMost) {
			u.fold(some...)
		}
		u.mu.Lock()
		reach(u.state.position, next)
		if len(entries) < readMost {
			u.state.asOf = now
		}
		u.mu.Unlock()
		if len(entries) < readMost {
			return nil
		}
	}
}

func reach(p, to toolkeep.JournalPosition) {
	for writer, seq := range to {
		p[writer] = max(p[writer], seq)
	}
}

// covers reports whether all that is before other is before p.
func covers(p, other toolkeep.JournalPosition) bool {
	for writer, seq := range other {
		if p[writer] < seq {
			return false
		}
	}
	return true
}

// foldAgain folds what is before a position and not in the state.
func (s *state) foldAgain(ctx context.Context, j toolkeep.Journal, upTo toolkeep.JournalPosition) error {
	after := toolkeep.JournalPosition{}
	for writer := range s.position {
		after[writer] = math.MaxInt64 // nothing
	}
	for writer, seq := range upTo {
		if after[writer] = math.MaxInt64; s.position[writer] < seq {
			after[writer] = s.position[writer]
		}
	}
	for !covers(s.position, upTo) {
		entries, next, err := j.ReadJournal(ctx, after, readMost)
		if err != nil {
			return err
		}
		for i := range entries {
			if _, wanted := upTo[entries[i].Writer]; wanted {
				s.fold(&entries[i])
			}
		}
		if reach(after, next); len(entries) < readMost {
			break // a position may be after the last entry
		}
	}
	for writer, seq := range upTo {
		s.position[writer] = max(s.position[writer], seq)
	}
	return nil
}

// takeNewer takes other nodes' checkpoints, until ctx ends.
func (u *Usage) takeNewer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.newer:
		}
		start := time.Now()
		if err := u.take(ctx); err != nil && ctx.Err() == nil {
			u.c.Log.Warn("a checkpoint of tool usage could not be taken; it is tried again", "error", err)
			select {
			case u.newer <- struct{}{}:
			default:
			}
			toolkeep.Sleep(ctx, retryAfter)
		}
		toolkeep.Sleep(ctx, restAfterWork*time.Since(start))
	}
}

// lead reads what all nodes write, writes checkpoints and trains weights, until ctx ends. Two nodes
// may do so at the same time: of their checkpoints one is refused.
func (u *Usage) lead(ctx context.Context) {
	begun, rest := time.Now(), time.Time{}
	train := begun.Add(firstAfter)
	for ctx.Err() == nil {
		err := u.catchUp(ctx)
		if err == nil && time.Now().After(rest) && u.due(time.Since(begun)) {
			start := time.Now()
			if err = u.Checkpoint(ctx); lostRace(err) {
				err = u.take(ctx)
			}
			rest = time.Now().Add(restAfterWork * time.Since(start))
		}
		if err == nil && !time.Now().Before(train) && u.c.Learning != LearnOff {
			train = time.Now().Add(u.c.Every)
			err = u.retrain(ctx)
		}
		pause := readEvery
		if err != nil && ctx.Err() == nil {
			u.c.Log.Warn("the leader's work on tool usage failed; it is tried again", "error", err, "after", retryAfter)
			pause = retryAfter
		}
		toolkeep.Sleep(ctx, pause)
	}
}

// due reports whether a checkpoint is due in a process that has led for some time.
func (u *Usage) due(led time.Duration) bool {
	shared := u.c.Shared()
	u.mu.RLock()
	defer u.mu.RUnlock()
	age := u.c.Clock().Sub(u.head.UpdatedAt)
	if u.state.unsaved && shared {
		return age >= min(sharedEvery, u.c.Every)
	}
	return led >= firstAfter && age >= u.c.Every
}

// retrain learns the weights of tenants whose are outdated.
func (u *Usage) retrain(ctx context.Context) (all error) {
	for _, name := range u.toTrain(u.c.Clock()) {
		if _, err := u.Train(ctx, name); !lostRace(err) {
			all = errors.Join(all, err)
		}
	}
	return all
}
