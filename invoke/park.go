package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit"
)

// parking gives the slots of a call back while the call waits for its caller's answer: a
// person who does not answer must not keep the agent from its other tools, or other
// agents from the tool. It implements toolkeep.PauseHook.
type parking struct {
	*limit.Slots
	ctx context.Context // the call's; an attempt's or a question's may end before it
}

// Await waits for the slots until the call ends.
func (p parking) Await() { p.Slots.Await(p.ctx) }

// parks returns attempt, the context of an attempt of the call, with pauses that park the
// call. over ends those that the attempt leaves open.
func parks(attempt, call context.Context, w *prepared) (ctx context.Context, over func()) {
	if _, ok := w.call.Caller.(toolkeep.Asker); !ok {
		return attempt, func() {}
	}
	return toolkeep.OnPause(attempt, parking{w.slots, call})
}
