package limit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Config sets the limits. 0 is the default; a negative number means no limit.
type Config struct {
	PerAgentRPM int // requests a minute per agent; default 100
	PerToolRPM  int // calls a minute per agent and tool; default 10
	GlobalRPM   int // requests a minute in total; default 10,000
	Concurrent  int // concurrent calls per agent; default 4
	// Burst is how many calls at once the buckets of an agent, of an agent on one tool, and of a tool whose token
	// bucket names no burst admit, but no more than those of a minute; 0 is those of a minute.
	Burst int
	// buckets bounds the agents, the pairs of agent and tool, and the tools that are
	// tracked, each; default 100,000. Above it the fullest bucket is dropped; a new one
	// is refused (E3801) only if calls that have not ended refer to every bucket.
	buckets int
	Clock   func() time.Time // default time.Now
}

// Values of details.limit_type, also labels of tool_rate_limit_exceeded_total.
const (
	TypeAgent     = "agent"
	TypeAgentTool = "agent_tool"
	TypeTool      = "tool"
	TypeGlobal    = "global"
)

// slotWait is the RetryAfter of E3802: the end of a running call is not known.
const slotWait = time.Second

// Limits holds all buckets. An agent is a tenant and a subject; versions of a
// tool with the same rate_limit share its buckets.
type Limits struct {
	agentRPM, pairRPM, globalRPM, concurrent, burst int

	whole  *shares                // undivided
	shares atomic.Pointer[shares] // as divided among the nodes
	shared atomic.Pointer[shared] // nil without a Counter

	hash   hasher
	agents *table[agent, *agent]
	pairs  *table[pair, *pair]
	tools  *table[tool, *tool]
	global atomic.Int64 // theoretical arrival time

	waiters waiters

	clock func() time.Time
	start time.Time
}

type agent struct {
	tat int64
	counts
}

func (a *agent) freeAt() int64 { return a.tat }

type pair struct{ tat int64 }

func (p *pair) freeAt() int64 { return p.tat }
func (p *pair) pinned() bool  { return false }

type tool struct {
	meter
	counts
}

// New returns the Limits of a node alone, until SetNodes.
func New(c Config) *Limits {
	or := func(v, def int) int {
		if v == 0 {
			return def
		}
		return min(max(v, 0), maxCount)
	}
	l := &Limits{
		agentRPM:   or(c.PerAgentRPM, 100),
		pairRPM:    or(c.PerToolRPM, 10),
		globalRPM:  or(c.GlobalRPM, 10_000),
		concurrent: or(c.Concurrent, 4),
		hash:       newHasher(),
		clock:      c.Clock,
	}
	l.burst = min(max(c.Burst, 0), maxCount)
	l.whole = l.divide(0, 1)
	l.shares.Store(l.whole)
	size := c.buckets
	if size <= 0 {
		size = 100_000
	}
	l.agents = newTable[agent, *agent](size)
	l.pairs = newTable[pair, *pair](size)
	l.tools = newTable[tool, *tool](size)
	if l.clock == nil {
		l.clock = time.Now
	}
	l.start = l.clock()
	return l
}

// now is the time in nanoseconds on the monotonic clock. It starts at two minutes, so
// that the zero state of every bucket is in a past window.
func (l *Limits) now() int64 { return int64(l.clock().Sub(l.start)) + 2*minute }

func (l *Limits) agentKey(p *toolkeep.Principal) key {
	return l.hash.key(p.Tenant, p.Subject, "")
}

// TakeRequest takes one request from both the agent's and the global bucket, or from
// neither. E3801 with the exact RetryAfter and details.limit_type agent or global.
//
// With a Counter it asks that once, within ctx and 50 ms.
func (l *Limits) TakeRequest(ctx context.Context, p *toolkeep.Principal) error {
	if c := l.counter(); c != nil {
		if ok, err := c.takeRequest(ctx, l, p); ok {
			return err
		}
	}
	now, sh := l.now(), l.shares.Load()
	if sh.agentRate.unlimited() {
		return l.takeGlobal(sh, now)
	}
	s, a, ok := open(l.agents, l.agentKey(p), true, now)
	defer s.mu.Unlock()
	if !ok {
		return tooMany(TypeAgent)
	}
	if w := sh.agentRate.wait(a.tat, now); w > 0 {
		return sh.rateError(TypeAgent, l.agentRPM, w)
	}
	if err := l.takeGlobal(sh, now); err != nil {
		return err
	}
	a.tat = sh.agentRate.next(a.tat, now)
	return nil
}

func (l *Limits) takeGlobal(sh *shares, now int64) error {
	if sh.globalRate.unlimited() {
		return nil
	}
	for {
		tat := l.global.Load()
		if w := sh.globalRate.wait(tat, now); w > 0 {
			return sh.rateError(TypeGlobal, l.globalRPM, w)
		}
		if l.global.CompareAndSwap(tat, sh.globalRate.next(tat, now)) {
			return nil
		}
	}
}

// Take takes one call from the agent-and-tool bucket and the tool's bucket, and a
// concurrency slot of the agent and of the tool: all of them or none. With above, the
// slots of its parent, it is a child call and leaves out the agent's slot, which the root
// call holds.
//
// Release the slots when the call ends. Errors: E3801 with the exact RetryAfter and
// details.limit_type agent_tool or tool; E3802 with details.limit_type agent or tool.
//
// With a Counter it asks that, within ctx and 50 ms; a second time, with 50 ms of its own, if a slot is refused
// while this node gives slots back.
func (l *Limits) Take(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, above *Slots) (*Slots, error) {
	if c := l.counter(); c != nil {
		own, err := l.walk(l.whole, p, t, above != nil, true, false)
		if err != nil {
			return nil, err
		}
		own.above = above
		ok, err := c.take(ctx, l, p, t, above != nil, own)
		if ok && err == nil {
			return own, nil
		}
		if own.Release(); ok {
			return nil, err
		}
	}
	own, err := l.walk(l.shares.Load(), p, t, above != nil, true, true)
	if err != nil {
		return nil, err
	}
	own.above = above
	return own, nil
}

// Peek returns what Take would, without taking anything.
func (l *Limits) Peek(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, child bool) error {
	if c := l.counter(); c != nil {
		if ok, err := c.take(ctx, l, p, t, child, nil); ok {
			return err
		}
	}
	_, err := l.walk(l.shares.Load(), p, t, child, false, true)
	return err
}

// walk checks every bucket of a call under its lock and changes them only after all
// have admitted it. Without rates it checks and takes the slots alone.
func (l *Limits) walk(sh *shares, p *toolkeep.Principal, t *toolkeep.Tool, child, take, rates bool) (*Slots, error) {
	now := l.now()
	var a *agent
	var pr *pair
	var tl *tool
	var spec, mine toolkeep.RateLimitSpec // the manifest's, and this node's share of it
	var agentKey, toolKey key

	if l.concurrent > 0 && !child {
		agentKey = l.agentKey(p)
		s, b, ok := open(l.agents, agentKey, take, now)
		defer s.mu.Unlock()
		if a = b; !ok {
			return nil, tooMany(TypeAgent)
		}
	}
	if rates && !sh.pairRate.unlimited() {
		s, b, ok := open(l.pairs, l.hash.key(p.Tenant, p.Subject, t.ID), take, now)
		defer s.mu.Unlock()
		if pr = b; !ok {
			return nil, tooMany(TypeAgentTool)
		}
		if pr != nil {
			if w := sh.pairRate.wait(pr.tat, now); w > 0 {
				return nil, sh.rateError(TypeAgentTool, l.pairRPM, w).With("tool_id", t.ID)
			}
		}
	}
	if t.Manifest.RateLimit != nil {
		spec = l.spec(t)
		mine = spec
		mine.PerMinute, mine.Burst = sh.of(spec.PerMinute), sh.of(spec.Burst)
		toolKey = l.toolKey(t, &spec)
		s, b, ok := open(l.tools, toolKey, take, now)
		defer s.mu.Unlock()
		if tl = b; !ok {
			return nil, tooMany(TypeTool)
		}
		if tl != nil && rates {
			if w := tl.wait(&mine, now); w > 0 {
				return nil, sh.rateError(TypeTool, spec.PerMinute, w).With("tool_id", t.ID)
			}
		}
	}
	if a != nil && int(a.counts[running]) >= sh.concurrent {
		return nil, sh.slotError(TypeAgent, l.concurrent)
	}
	if tl != nil && spec.MaxConcurrent > 0 && int(tl.counts[running]+tl.counts[waiting]) >= sh.of(spec.MaxConcurrent) {
		return nil, sh.slotError(TypeTool, spec.MaxConcurrent).With("tool_id", t.ID)
	}
	if !take {
		return nil, nil
	}
	if pr != nil {
		pr.tat = sh.pairRate.next(pr.tat, now)
	}
	if tl != nil && rates {
		tl.add(&mine, now)
	}
	own := &Slots{limits: l}
	if a != nil {
		own.agent, own.agentKey = a, agentKey
		a.counts[running]++
	}
	if spec.MaxConcurrent > 0 {
		own.tool, own.toolKey, own.most = tl, toolKey, spec.MaxConcurrent
		tl.counts[running]++
	}
	return own, nil
}

// spec is a tool's own limit, with the default burst; zero without one.
func (l *Limits) spec(t *toolkeep.Tool) toolkeep.RateLimitSpec {
	if t.Manifest.RateLimit == nil {
		return toolkeep.RateLimitSpec{}
	}
	s := *t.Manifest.RateLimit
	if s.Burst == 0 && (s.Algorithm == tokenBucket || s.Algorithm == "") {
		s.Burst = min(l.burst, s.PerMinute)
	}
	return s
}

// toolKey returns the key of a tool's buckets. It includes the spec: versions with the
// same limit share buckets, one with another limit has its own.
func (l *Limits) toolKey(t *toolkeep.Tool, s *toolkeep.RateLimitSpec) key {
	return l.hash.key(t.Tenant, t.ID, s.Algorithm).with(s.PerMinute).with(s.Burst).with(s.MaxConcurrent)
}

// Status returns the state of the agent's request bucket for the RateLimit headers: this
// node's share, or all with a Counter, of the requests a minute, how many remain, and the time until the bucket is full
// again. Without a limit all are 0.
func (l *Limits) Status(p *toolkeep.Principal) (limit, remaining int, reset time.Duration) {
	sh := l.present()
	if sh.agentRate.unlimited() {
		return 0, 0, 0
	}
	now := l.now()
	s, a, _ := open(l.agents, l.agentKey(p), false, now)
	defer s.mu.Unlock()
	if a == nil {
		return sh.agentRPM, sh.agentRate.remaining(0, now), 0
	}
	return sh.agentRPM, sh.agentRate.remaining(a.tat, now), time.Duration(max(0, a.tat-now))
}

func (s *shares) rateError(kind string, perMinute int, wait time.Duration) *toolkeep.Error {
	who := "the whole server"
	switch kind {
	case TypeAgent:
		who = "this agent"
	case TypeAgentTool:
		who = "this agent on this tool"
	case TypeTool:
		who = "this tool"
	}
	again := wait.Round(time.Millisecond)
	if s.nodes == 1 {
		return toolkeep.NewError(toolkeep.RateLimitExceeded,
			"the limit of %d calls a minute for %s is reached; try again in %s", perMinute, who, again).
			With("limit_type", kind).With("limit_per_minute", perMinute).After(wait)
	}
	return toolkeep.NewError(toolkeep.RateLimitExceeded,
		"the limit of %d calls a minute for %s is divided among %d nodes, and this node's share of %d is reached; try again in %s",
		perMinute, who, s.nodes, s.of(perMinute), again).
		With("limit_type", kind).With("limit_per_minute", perMinute).
		With("nodes", s.nodes).With("share_per_minute", s.of(perMinute)).After(wait)
}

func (s *shares) slotError(kind string, limit int) *toolkeep.Error {
	who := "this agent"
	if kind == TypeTool {
		who = "this tool"
	}
	if s.nodes == 1 {
		return toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded,
			"%s already has its limit of %d calls running; wait until one ends", who, limit).
			With("limit_type", kind).With("limit_concurrent", limit).After(slotWait)
	}
	return toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded,
		"%s may have %d calls running, divided among %d nodes, and already has this node's share of %d; wait until one ends",
		who, limit, s.nodes, s.of(limit)).
		With("limit_type", kind).With("limit_concurrent", limit).
		With("nodes", s.nodes).With("share_concurrent", s.of(limit)).After(slotWait)
}

func tooMany(kind string) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.RateLimitExceeded,
		"more callers are active than the server can count; try again shortly").
		With("limit_type", kind).After(slotWait)
}
