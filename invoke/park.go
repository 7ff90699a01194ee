package invoke

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

// parking gives the slots of a call, and the places of its attempt, back while the call waits for its caller's answer: a
// person who does not answer must not keep the agent from its other tools, or other
// agents from the tool. It implements toolkeep.PauseHook.
type parking struct {
	*limit.Slots
	hold   *bulkhead.Hold
	ctx    context.Context // the call's; an attempt's or a question's may end before it
	since  time.Time       // when the pause began
	parked *atomic.Int64   // how long the attempt was, in nanoseconds
}

func (p *parking) Pause() {
	p.since = time.Now()
	p.Slots.Pause()
	p.hold.Pause()
}

func (p *parking) Resume() {
	p.parked.Add(int64(time.Since(p.since)))
	p.Slots.Resume()
	p.hold.Resume()
}

// Await waits for the slots until the call ends, and takes the places after them: a call of the tool that has its slot may wait
// for a place.
func (p *parking) Await() {
	since := time.Now()
	p.Slots.Await(p.ctx)
	p.hold.Retake()
	p.parked.Add(int64(time.Since(since)))
}

// parks returns attempt, the context of an attempt of the call, with pauses that park the
// call. over ends those that the attempt leaves open. parked counts their time.
func parks(attempt, call context.Context, w *prepared, hold *bulkhead.Hold, parked *atomic.Int64) (ctx context.Context, over func()) {
	if _, ok := w.call.Caller.(toolkeep.Asker); !ok {
		return attempt, func() {}
	}
	return toolkeep.OnPause(attempt, &parking{Slots: w.slots, hold: hold, ctx: call, parked: parked})
}
