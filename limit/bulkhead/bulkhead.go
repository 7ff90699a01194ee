package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Config sets the bulkheads of one process. 0 is the default; a negative number of attempts at once means no limit.
type Config struct {
	Total  int // attempts at once of all tools; default 1,000
	HTTP   int // of http tools; default 300
	SQL    int // of sql tools; default 50
	GRPC   int // of grpc tools; default 200
	MCP    int // of mcp tools; default 300
	Costly int // of costly tools; default 10
	// CostlyUSD is from which cost.estimated_usd of its manifest on a tool is costly; 0: none is.
	CostlyUSD float64
	// Queue is how many attempts wait for a place of one bulkhead at most, default 100; those of one agent may be a quarter
	// of it. A negative number has none wait.
	Queue int
	Wait  time.Duration // longest wait for a place; default 60 s
}

// Names of the bulkheads, in details.bulkhead, metrics and explanations.
var Names = [...]string{"total", "http", "sql", "grpc", "mcp", "costly"}

const (
	total = iota
	byHTTP
	bySQL
	byGRPC
	byMCP
	costly
	bulkheads
)

// kinds are the bulkheads of executors.
var kinds = map[string]int{"http": byHTTP, "sql": bySQL, "grpc": byGRPC, "mcp": byMCP}

// settings are where a refusal sends an operator, and what is limited there.
var settings = [bulkheads]struct{ key, what string }{
	{"limits.concurrent", "calls"}, {"limits.http_concurrent", "calls of http tools"}, {"limits.sql_concurrent", "calls of sql tools"},
	{"limits.grpc_concurrent", "calls of grpc tools"}, {"limits.mcp_concurrent", "calls of mcp tools"}, {"limits.costly_concurrent", "calls of costly tools"},
}

// Values of details.limit_type of a refusal.
const (
	TypeTotal    = "total"
	TypeExecutor = "executor"
	TypeCostly   = "costly"
)

// Values of details.reason of a refusal.
const (
	QueueFull  = "QUEUE_FULL"  // as many wait as may
	AgentShare = "AGENT_SHARE" // as many of this agent wait as may
	TooLate    = "TOO_LATE"    // by the pace of the queue its place would come too late
	NoPlace    = "NO_PLACE"    // it waited as long as it may
)

// set is some of the bulkheads, a bit for each.
type set uint8

// Bulkheads has the places of one process. It is safe for concurrent use.
type Bulkheads struct {
	costlyUSD float64
	most      int // that wait for one bulkhead
	share     int // of them of one agent
	wait      time.Duration
	limited   set
	start     time.Time
	gates     [bulkheads]gate

	// waiting is the number of attempts in queue. While it is not 0 places are taken under mu alone.
	waiting atomic.Int32
	mu      sync.Mutex
	queue   []*waiter // by priority, then by arrival; each needs a place of a bulkhead that is full
	agents  map[share]int
}

// gate is one bulkhead.
type gate struct {
	limit   int32
	used    atomic.Int32
	waiting atomic.Int32 // for this one
	refused atomic.Int64
	held    atomic.Int64 // nanoseconds that a place is held for, as a rule
	_       [96]byte     // no two in one line of the processor's cache
}

// share is what an agent has of a bulkhead's queue.
type share struct {
	gate            int
	tenant, subject string
}

type waiter struct {
	set    set
	rank   int
	share  share         // of the bulkhead that was full when it came
	served chan struct{} // closed when it has its places
	has    bool
}

// New makes the bulkheads, all of them empty.
func New(c Config) *Bulkheads {
	b := &Bulkheads{costlyUSD: c.CostlyUSD, most: or(c.Queue, 100), wait: c.Wait, start: time.Now(), agents: map[share]int{}}
	b.share = max(1, b.most/4)
	if b.wait <= 0 {
		b.wait = time.Minute
	}
	for i, limit := range [bulkheads]int{or(c.Total, 1000), or(c.HTTP, 300), or(c.SQL, 50), or(c.GRPC, 200), or(c.MCP, 300), or(c.Costly, 10)} {
		if limit > 0 {
			b.gates[i].limit = int32(min(limit, 1<<30)) //nolint:gosec // it fits
			b.limited |= 1 << i
		}
	}
	return b
}

func or(v, def int) int {
	if v == 0 {
		return def
	}
	return max(v, 0)
}

// Call is what asks for a place.
type Call struct {
	Tool            *toolkeep.Tool
	Tenant, Subject string // the agent
	Priority        toolkeep.Priority
	Usual           time.Duration // how long its tool takes as a rule, 0 if that is not known
	Most            time.Duration // longest wait for a place, if it is shorter than Config.Wait; 0 is that one
}

func (c *Call) rank() int {
	switch c.Priority {
	case toolkeep.High:
		return 0
	case toolkeep.Low:
		return 2
	}
	return 1
}

// of returns the bulkheads of a tool, but for those that have no limit.
func (b *Bulkheads) of(t *toolkeep.Tool) set {
	s := set(1 << total)
	if i, ok := kinds[t.Manifest.Execution.Kind]; ok {
		s |= 1 << i
	}
	if c := t.Manifest.Cost; c != nil && b.costlyUSD > 0 && c.EstimatedUSD >= b.costlyUSD {
		s |= 1 << costly
	}
	return s & b.limited
}

// Take gives an attempt a place in each bulkhead of its tool, and waits for them if it must: until the context's deadline
// (toolkeep.Deadline) less what the tool takes as a rule, at most. h, which must be new, holds them until its Release. above is what
// the call that this one is below holds, nil without one: the places that it has serve both.
//
// The error is ctx's cause if that was cancelled. Else it is E3910 where the deadline would pass before the call had its place
// and its tool answered, and E3802 otherwise, with RetryAfter and details limit_type, bulkhead, limit_concurrent and reason. A nil Bulkheads gives places to all.
func (b *Bulkheads) Take(ctx context.Context, h, above *Hold, c Call) error {
	if b == nil {
		return nil
	}
	s := b.needs(above, c.Tool)
	if !b.tryNow(s) {
		if err := b.await(ctx, s, &c); err != nil {
			return err
		}
	}
	h.got(b, s, above)
	return nil
}

// Try is Take where that would not wait; else it reports false and does nothing.
func (b *Bulkheads) Try(h, above *Hold, t *toolkeep.Tool) bool {
	if b == nil {
		return true
	}
	s := b.needs(above, t)
	if !b.tryNow(s) {
		return false
	}
	h.got(b, s, above)
	return true
}

// needs are the bulkheads of a tool but for those in which the call above has places.
func (b *Bulkheads) needs(above *Hold, t *toolkeep.Tool) set {
	s := b.of(t)
	if above != nil {
		s &^= above.covers
	}
	return s
}

// tryNow takes places unless others wait.
func (b *Bulkheads) tryNow(s set) bool {
	if s == 0 {
		return true
	}
	if b.waiting.Load() > 0 {
		return false
	}
	if b.try(s) < 0 {
		return true
	}
	b.wake()
	return false
}

// Peek returns what Take would meet at this moment: the name of a bulkhead for whose place the call would wait, "" for none, or
// E3802 or E3910.
func (b *Bulkheads) Peek(ctx context.Context, above *Hold, c Call) (waits string, err error) {
	i, e := b.peek(ctx, above, &c)
	switch {
	case e != nil:
		return "", e
	case i >= 0:
		waits = Names[i]
	}
	return waits, nil
}

// Look refuses what Take would because the deadline comes too soon (E3910), and nothing else: for a call whose attempt another
// one may make, with a later deadline.
func (b *Bulkheads) Look(ctx context.Context, above *Hold, c Call) error {
	if i, e := b.peek(ctx, above, &c); e != nil && e.Code == toolkeep.DeadlineUnreachable {
		b.gates[i].refused.Add(1)
		return e
	}
	return nil
}

// peek returns the first bulkhead that is full, -1 for none, and why the call must not wait for it.
func (b *Bulkheads) peek(ctx context.Context, above *Hold, c *Call) (int, *toolkeep.Error) {
	if b == nil {
		return -1, nil
	}
	s := b.needs(above, c.Tool)
	for i := range b.gates {
		if s&(1<<i) == 0 || !b.gates[i].full() {
			continue
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		_, e := b.place(i, c, b.until(ctx, c))
		return i, e
	}
	return -1, nil
}

func (g *gate) full() bool { return g.used.Load() >= g.limit }

// wait is how long one waits for a place who has so many others before it: one of the places becomes free in each part of the time
// that one is held for.
func (g *gate) wait(ahead int) time.Duration {
	return time.Duration(float64(g.held.Load()) / float64(g.limit) * float64(ahead+1))
}

// take takes a place, if there is one.
func (g *gate) take() bool {
	for {
		used := g.used.Load()
		if used >= g.limit {
			return false
		}
		if g.used.CompareAndSwap(used, used+1) {
			return true
		}
	}
}

// try takes a place of each in s, or none. It returns one that is full, -1 if it took them.
func (b *Bulkheads) try(s set) int {
	for i := range b.gates {
		if s&(1<<i) != 0 && !b.gates[i].take() {
			b.put(s & (1<<i - 1))
			return i
		}
	}
	return -1
}

// put gives places back, without a look at who waits: try may have had one for a moment, so wake follows.
func (b *Bulkheads) put(s set) {
	for i := range b.gates {
		if s&(1<<i) != 0 {
			b.gates[i].used.Add(-1)
		}
	}
}

// wake serves those who wait, after places were given back.
func (b *Bulkheads) wake() {
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.serve()
	}
}

// serve gives places to those of the queue that can have all of theirs, in its order. mu is held.
func (b *Bulkheads) serve() {
	var full set
	b.queue = slices.DeleteFunc(b.queue, func(w *waiter) bool {
		if w.set&full != 0 {
			return false
		}
		if i := b.try(w.set); i >= 0 {
			full |= 1 << i
			return false
		}
		b.leaves(w)
		w.has = true
		close(w.served)
		return true
	})
}

// leaves counts a waiter that is no longer one. mu is held.
func (b *Bulkheads) leaves(w *waiter) {
	b.waiting.Add(-1)
	b.gates[w.share.gate].waiting.Add(-1)
	if b.agents[w.share]--; b.agents[w.share] == 0 {
		delete(b.agents, w.share)
	}
}

// latest is when a call must have its place, and whether by its deadline.
type latest struct {
	at       time.Time
	deadline bool
}

func (b *Bulkheads) until(ctx context.Context, c *Call) latest {
	l := latest{at: time.Now().Add(c.most(b.wait))}
	if end, ok := toolkeep.Deadline(ctx); ok && end.Add(-c.Usual).Before(l.at) {
		return latest{end.Add(-c.Usual), true}
	}
	return l
}

// most is how long it may wait where others may wait so long.
func (c *Call) most(others time.Duration) time.Duration {
	if c.Most > 0 {
		return min(c.Most, others)
	}
	return others
}

// place returns where in the queue a call belongs that waits for gate i, or why it must not wait. mu is held.
func (b *Bulkheads) place(i int, c *Call, l latest) (int, *toolkeep.Error) {
	g, rank := &b.gates[i], c.rank()
	at, ahead := 0, 0
	for at < len(b.queue) && b.queue[at].rank <= rank {
		if b.queue[at].share.gate == i {
			ahead++
		}
		at++
	}
	wait := g.wait(ahead)
	waiting := int(g.waiting.Load())
	left := max(time.Until(l.at), 0)
	switch {
	case waiting >= b.most:
		return 0, b.refuse(i, QueueFull, g.wait(waiting), fmt.Sprintf("%d more wait for them (limits.queue)", waiting))
	case b.agents[share{i, c.Tenant, c.Subject}] >= b.share:
		return 0, b.refuse(i, AgentShare, wait, fmt.Sprintf("%d more of this agent wait for them, its part of the queue (limits.queue)", b.share))
	case wait > left && l.deadline:
		e := b.refuse(i, TooLate, wait, fmt.Sprintf("this one would wait for about %s and has %s left, less the %s that the tool usually takes",
			wait.Round(time.Millisecond), (left+c.Usual).Round(time.Millisecond), c.Usual.Round(time.Millisecond)))
		e.Code = toolkeep.DeadlineUnreachable
		return 0, e
	case wait > left:
		return 0, b.refuse(i, TooLate, wait, fmt.Sprintf("this one would wait for about %s, longer than the %s that it may (limits.queue_wait, 1 s for an asynchronous call)", wait.Round(time.Millisecond), c.most(b.wait)))
	}
	return at, nil
}

func (b *Bulkheads) refuse(i int, reason string, wait time.Duration, why string) *toolkeep.Error {
	kind := TypeExecutor
	switch i {
	case total:
		kind = TypeTotal
	case costly:
		kind = TypeCostly
	}
	limit := int(b.gates[i].limit)
	e := toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "this node has %d %s running, as many as %s allows, and %s; nothing was sent, so try again",
		limit, settings[i].what, settings[i].key, why).
		With("limit_type", kind).With("bulkhead", Names[i]).With("limit_concurrent", limit).With("reason", reason).After(min(max(wait, time.Second), time.Minute))
	e.NothingSent = true
	return e
}

// await takes places under the lock, or waits for them.
func (b *Bulkheads) await(ctx context.Context, s set, c *Call) error {
	l := b.until(ctx, c)
	w, i, err := b.enter(s, c, l)
	if w == nil {
		return err
	}
	timer := time.NewTimer(time.Until(l.at))
	defer timer.Stop()
	select {
	case <-w.served:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.has {
		return nil
	}
	b.queue = slices.DeleteFunc(b.queue, func(other *waiter) bool { return other == w })
	b.leaves(w)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	b.gates[i].refused.Add(1)
	return b.refuse(i, NoPlace, b.gates[i].wait(int(b.gates[i].waiting.Load())), "no place was free for this one until its deadline, less the time of the tool, or within limits.queue_wait (1 s for an asynchronous call)")
}

// enter returns the waiter that a call has become, which waits for gate i; nil if it got its places, or may not wait.
func (b *Bulkheads) enter(s set, c *Call, l latest) (w *waiter, i int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting.Add(1) // before try: who gives a place back afterwards serves this one
	b.serve()
	if i = b.try(s); i < 0 {
		b.waiting.Add(-1)
		return nil, i, nil
	}
	at, refused := b.place(i, c, l)
	if refused != nil {
		b.waiting.Add(-1)
		b.gates[i].refused.Add(1)
		return nil, i, refused
	}
	w = &waiter{set: s, rank: c.rank(), share: share{i, c.Tenant, c.Subject}, served: make(chan struct{})}
	b.queue = slices.Insert(b.queue, at, w)
	b.gates[i].waiting.Add(1)
	b.agents[w.share]++
	b.serve() // a place may have become free since
	return w, i, nil
}

// Stat is what a bulkhead that has a limit does.
type Stat struct {
	Name           string
	Limit          int
	InUse, Waiting int
	Refused        int64 // attempts, since the start
}

// Stats returns those that have a limit.
func (b *Bulkheads) Stats() []Stat {
	var all []Stat
	for i := range b.gates {
		if g := &b.gates[i]; b.limited&(1<<i) != 0 {
			all = append(all, Stat{Names[i], int(g.limit), int(g.used.Load()), int(g.waiting.Load()), g.refused.Load()})
		}
	}
	return all
}
