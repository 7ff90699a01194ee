package limit

import (
	"context"
	"slices"
	"sync"

	"github.com/toolkeep/toolkeep"
)

// stage is where a call is with its slots.
type stage int

const (
	running  stage = iota // it holds them
	paused                // it gave them back while it waits for its caller's answer
	waiting               // the answer came, and it is to get them again
	released              // it has ended
)

// counts are the calls of an agent or a tool by their stage. Only the running ones use a slot.
type counts [released]int32

// pinned reports whether a call refers to the bucket.
func (c *counts) pinned() bool { return *c != counts{} }

func (c *counts) move(from, to stage) {
	c[from]--
	if to != released {
		c[to]++
	}
}

// Slots are what a call holds while it runs: one slot of its agent and one of its tool,
// each where there is a limit. The parent's slot of the agent counts for a child call.
//
// A call that waits for its caller's answer gives them back with Pause. When the answer
// is there, Resume and then Await take them again. A tool never has more running calls
// than the node's share of its max_concurrent; with a Counter that answers, all nodes have no more than all of it. The exception
// is a call whose context ends in Await: it has no slot, at least none in the Counter, and only
// ends, which its executor and its record may take a moment for. The slot
// of the agent is taken again over the limit if it must be.
type Slots struct {
	// Left is the rate of the call with the fewest calls left, after this one, but for rates that all tenants share.
	Left toolkeep.RateLeft

	limits            *Limits
	above             *Slots // of the parent call
	agentKey, toolKey key
	agent             *entry // nil without a slot of an agent
	tool              *entry // nil without a slot of a tool
	most              int    // calls of the tool at once, on all nodes

	mu    sync.Mutex // locked before the shards of the buckets
	stage stage
	// hold is what the call has in the Counter, or lacks there for now; nil without one.
	hold   *hold
	shared *shared
	lacks  bool
}

// holds notes a slot that the call takes; the shard of e is locked.
func (s *Slots) holds(b *bounded, e *entry) {
	if e.counts[running]++; b.kind == TypeAgent {
		s.agent, s.agentKey = e, b.key
		return
	}
	s.tool, s.toolKey, s.most = e, b.key, b.spec.MaxConcurrent
}

// Release gives the slots back when the call ends. Whatever is called after it has no effect.
func (s *Slots) Release() { s.move(released, running, paused, waiting) }

// Pause gives the slots back while the call waits for its caller's answer.
func (s *Slots) Pause() { s.move(paused, running, waiting) }

// Resume ends a pause. Until Await gets the tool's slot, a new call of the tool does not get it either.
func (s *Slots) Resume() { s.move(waiting, paused) }

// Await returns when the call and those above it, as far as Resume ended their pauses,
// have their slots again, or when ctx or the call ends. It takes all of these slots at once and holds
// none of them while it waits, so no two calls wait for each other's; of the calls of this node that
// wait for the same slots, the first is served first.
//
// With a Counter it then asks that for the same slots every 50 ms, again for all or none. Meanwhile it
// has those of this node, and new calls of any node can get the Counter's before it.
func (s *Slots) Await(ctx context.Context) {
	if !s.awaits() {
		s.resume(ctx)
		return
	}
	w := &waiter{slots: s, served: make(chan struct{})}
	q := &s.limits.waiters
	q.mu.Lock()
	q.list = append(q.list, w)
	q.mu.Unlock()
	q.serve()
	select {
	case <-w.served:
		s.resume(ctx)
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		q.list = slices.DeleteFunc(q.list, func(other *waiter) bool { return other == w })
	}
}

// awaits reports whether the call or one above it is to get its slots again.
func (s *Slots) awaits() bool {
	for c := s; c != nil; c = c.above {
		c.mu.Lock()
		at := c.stage
		c.mu.Unlock()
		switch at {
		case waiting:
			return true
		case released:
			return false
		}
	}
	return false
}

// move moves the slots to a stage if they are at one of from, and serves those who wait
// if that may let one of them go on.
func (s *Slots) move(to stage, from ...stage) {
	s.mu.Lock()
	serve := slices.Contains(from, s.stage) && s.set(to)
	s.mu.Unlock()
	if serve {
		s.limits.waiters.serve()
	}
}

// set counts the call at a stage and reports whether another call may go on by it. s.mu is held.
func (s *Slots) set(to stage) (serve bool) {
	was := s.stage
	s.stage = to
	if s.hold != nil && to != running && was == running {
		s.lacks = true
		s.shared.drops(s.hold)
	}
	if s.agent != nil {
		shard := s.limits.agents.lock(s.agentKey)
		s.agent.move(was, to)
		shard.mu.Unlock()
	}
	if s.tool != nil {
		shard := s.limits.tools.lock(s.toolKey)
		s.tool.move(was, to)
		serve = was == running && s.tool.counts[waiting] > 0
		shard.mu.Unlock()
	}
	return serve || was == waiting // a waiter need not wait for these slots any longer
}

// free reports whether the tool has a slot for a call that waits. It stays so while
// waiters.mu is held, because new calls leave it to those who wait.
func (s *Slots) free() bool {
	if s.tool == nil {
		return true
	}
	shard := s.limits.tools.lock(s.toolKey)
	defer shard.mu.Unlock()
	return int(s.tool.counts[running]) < s.limits.present().of(s.most)
}

// take takes the slots of the call and of those above it that wait for theirs: all or
// none. No two of them have the same tool. waiters.mu is held.
func (s *Slots) take() bool {
	var all []*Slots
	for c := s; c != nil; c = c.above {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stage == released {
			break
		}
		if c.stage == waiting {
			if !c.free() {
				return false
			}
			all = append(all, c)
		}
	}
	for _, c := range all {
		c.set(running)
	}
	return true
}

// waiters are the calls in Await, the oldest first.
type waiters struct {
	mu   sync.Mutex // locked before the Slots
	list []*waiter
}

type waiter struct {
	slots  *Slots
	served chan struct{}
}

// serve lets those go on whose slots are free.
func (q *waiters) serve() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = slices.DeleteFunc(q.list, func(w *waiter) bool {
		if !w.slots.take() {
			return false
		}
		close(w.served)
		return true
	})
}
