package invoke

import (
	"context"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	// marksEvery is how often a node asks for what other nodes change in calls.
	marksEvery = 250 * time.Millisecond
	// marksBatch is how many calls one question is about.
	marksBatch = 1000
)

// followMarks asks, while there is something to ask, for changes of watched calls that other
// nodes run, and for requests to cancel the calls that this node runs.
func (p *Pipeline) followMarks(ctx context.Context) {
	failed := false
	for {
		pause := marksEvery
		if failed {
			pause = probeEvery
		}
		if !toolkeep.Sleep(ctx, pause) {
			return
		}
		watched, runs := p.watchedElsewhere(), p.running.any()
		if len(watched) == 0 && !runs {
			select {
			case <-p.interest:
				continue // most calls have ended by the time that it would ask
			case <-ctx.Done():
				return
			}
		}
		if p.away.Load() { // it was logged, and something else looks for its return
			continue
		}
		err := p.askMarks(ctx, watched, runs)
		if err != nil && !failed && ctx.Err() == nil {
			p.Log.Warn("what other nodes change in calls cannot be read; it is asked for again", "error", err)
		}
		failed = err != nil
	}
}

// watchedElsewhere returns the watched calls that this node does not run.
func (p *Pipeline) watchedElsewhere() []toolkeep.CallRef {
	return slices.DeleteFunc(p.watchers.watched(), p.running.has)
}

func (p *Pipeline) askMarks(ctx context.Context, watched []toolkeep.CallRef, runs bool) error {
	ctx, cancel := context.WithTimeout(ctx, rowTimeout)
	defer cancel()
	for some := range slices.Chunk(watched, marksBatch) {
		marks, err := p.Marks.Marks(ctx, some)
		if err != nil {
			return err
		}
		for _, ref := range some {
			p.watchers.compare(ref, marks[ref]) // a call that is gone has changed, too
		}
	}
	if !runs {
		return nil
	}
	asked, err := p.Marks.CancelRequested(ctx, p.Node)
	for _, ref := range asked {
		if p.running.cancel(ref, causeCancelled) {
			p.watchers.notify(ref)
		}
	}
	return err
}
