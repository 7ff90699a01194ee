package limit

import (
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
	agentRate, pairRate, globalRate rate

	agentRPM, pairRPM, globalRPM, concurrent, burst int

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

// New returns Limits.
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
	l.agentRate = newRate(l.agentRPM, min(l.burst, l.agentRPM))
	l.pairRate = newRate(l.pairRPM, min(l.burst, l.pairRPM))
	l.globalRate = newRate(l.globalRPM, 0)
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
func (l *Limits) TakeRequest(p *toolkeep.Principal) error {
	now := l.now()
	if l.agentRate.unlimited() {
		return l.takeGlobal(now)
	}
	s, a, ok := open(l.agents, l.agentKey(p), true, now)
	defer s.mu.Unlock()
	if !ok {
		return tooMany(TypeAgent)
	}
	if w := l.agentRate.wait(a.tat, now); w > 0 {
		return rateError(TypeAgent, l.agentRPM, w)
	}
	if err := l.takeGlobal(now); err != nil {
		return err
	}
	a.tat = l.agentRate.next(a.tat, now)
	return nil
}

func (l *Limits) takeGlobal(now int64) error {
	if l.globalRate.unlimited() {
		return nil
	}
	for {
		tat := l.global.Load()
		if w := l.globalRate.wait(tat, now); w > 0 {
			return rateError(TypeGlobal, l.globalRPM, w)
		}
		if l.global.CompareAndSwap(tat, l.globalRate.next(tat, now)) {
			return nil
		}
	}
}

// PeekRequest returns what TakeRequest would, without taking anything.
func (l *Limits) PeekRequest(p *toolkeep.Principal) error {
	now := l.now()
	if !l.agentRate.unlimited() {
		s, a, _ := open(l.agents, l.agentKey(p), false, now)
		defer s.mu.Unlock()
		if a != nil {
			if w := l.agentRate.wait(a.tat, now); w > 0 {
				return rateError(TypeAgent, l.agentRPM, w)
			}
		}
	}
	if !l.globalRate.unlimited() {
		if w := l.globalRate.wait(l.global.Load(), now); w > 0 {
			return rateError(TypeGlobal, l.globalRPM, w)
		}
	}
	return nil
}

// Take takes one call from the agent-and-tool bucket and the tool's bucket, and a
// concurrency slot of the agent and of the tool: all of them or none. With above, the
// slots of its parent, it is a child call and leaves out the agent's slot, which the root
// call holds.
//
// Release the slots when the call ends. Errors: E3801 with the exact RetryAfter and
// details.limit_type agent_tool or tool; E3802 with details.limit_type agent or tool.
func (l *Limits) Take(p *toolkeep.Principal, t *toolkeep.Tool, above *Slots) (*Slots, error) {
	own, err := l.walk(p, t, above != nil, true)
	if err != nil {
		return nil, err
	}
	own.above = above
	return own, nil
}

// Peek returns what Take would, without taking anything.
func (l *Limits) Peek(p *toolkeep.Principal, t *toolkeep.Tool, child bool) error {
	_, err := l.walk(p, t, child, false)
	return err
}

// walk checks every bucket of a call under its lock and changes them only after all
// have admitted it.
func (l *Limits) walk(p *toolkeep.Principal, t *toolkeep.Tool, child, take bool) (*Slots, error) {
	now := l.now()
	var a *agent
	var pr *pair
	var tl *tool
	var spec toolkeep.RateLimitSpec
	var agentKey, toolKey key

	if l.concurrent > 0 && !child {
		agentKey = l.agentKey(p)
		s, b, ok := open(l.agents, agentKey, take, now)
		defer s.mu.Unlock()
		if a = b; !ok {
			return nil, tooMany(TypeAgent)
		}
	}
	if !l.pairRate.unlimited() {
		s, b, ok := open(l.pairs, l.hash.key(p.Tenant, p.Subject, t.ID), take, now)
		defer s.mu.Unlock()
		if pr = b; !ok {
			return nil, tooMany(TypeAgentTool)
		}
		if pr != nil {
			if w := l.pairRate.wait(pr.tat, now); w > 0 {
				return nil, rateError(TypeAgentTool, l.pairRPM, w).With("tool_id", t.ID)
			}
		}
	}
	if t.Manifest.RateLimit != nil {
		spec = *t.Manifest.RateLimit
		if spec.Burst == 0 && (spec.Algorithm == tokenBucket || spec.Algorithm == "") {
			spec.Burst = min(l.burst, spec.PerMinute)
		}
		toolKey = l.toolKey(t, &spec)
		s, b, ok := open(l.tools, toolKey, take, now)
		defer s.mu.Unlock()
		if tl = b; !ok {
			return nil, tooMany(TypeTool)
		}
		if tl != nil {
			if w := tl.wait(&spec, now); w > 0 {
				return nil, rateError(TypeTool, spec.PerMinute, w).With("tool_id", t.ID)
			}
		}
	}
	if a != nil && int(a.counts[running]) >= l.concurrent {
		return nil, slotError(TypeAgent, l.concurrent)
	}
	if tl != nil && spec.MaxConcurrent > 0 && int(tl.counts[running]+tl.counts[waiting]) >= spec.MaxConcurrent {
		return nil, slotError(TypeTool, spec.MaxConcurrent).With("tool_id", t.ID)
	}
	if !take {
		return nil, nil
	}
	if pr != nil {
		pr.tat = l.pairRate.next(pr.tat, now)
	}
	if tl != nil {
		tl.add(&spec, now)
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

// toolKey returns the key of a tool's buckets. It includes the spec: versions with the
// same limit share buckets, one with another limit has its own.
func (l *Limits) toolKey(t *toolkeep.Tool, s *toolkeep.RateLimitSpec) key {
	return l.hash.key(t.Tenant, t.ID, s.Algorithm).with(s.PerMinute).with(s.Burst).with(s.MaxConcurrent)
}

// Status returns the state of the agent's request bucket for the RateLimit headers: the
// requests a minute, how many remain, and the time until the bucket is full again.
// Without a limit all are 0.
func (l *Limits) Status(p *toolkeep.Principal) (limit, remaining int, reset time.Duration) {
	if l.agentRate.unlimited() {
		return 0, 0, 0
	}
	now := l.now()
	s, a, _ := open(l.agents, l.agentKey(p), false, now)
	defer s.mu.Unlock()
	if a == nil {
		return l.agentRPM, l.agentRate.remaining(0, now), 0
	}
	return l.agentRPM, l.agentRate.remaining(a.tat, now), time.Duration(max(0, a.tat-now))
}

func rateError(kind string, perMinute int, wait time.Duration) *toolkeep.Error {
	who := "the whole server"
	switch kind {
	case TypeAgent:
		who = "this agent"
	case TypeAgentTool:
		who = "this agent on this tool"
	case TypeTool:
		who = "this tool"
	}
	return toolkeep.NewError(toolkeep.RateLimitExceeded,
		"the limit of %d calls a minute for %s is reached; try again in %s", perMinute, who, wait.Round(time.Millisecond)).
		With("limit_type", kind).With("limit_per_minute", perMinute).After(wait)
}

func slotError(kind string, limit int) *toolkeep.Error {
	who := "this agent"
	if kind == TypeTool {
		who = "this tool"
	}
	return toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded,
		"%s already has its limit of %d calls running; wait until one ends", who, limit).
		With("limit_type", kind).With("limit_concurrent", limit).After(slotWait)
}

func tooMany(kind string) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.RateLimitExceeded,
		"more callers are active than the server can count; try again shortly").
		With("limit_type", kind).After(slotWait)
}
