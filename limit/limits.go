package limit

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Config sets the limits. 0 is the default; a negative number means no limit.
type Config struct {
	PerAgentRPM    int // requests a minute per agent; default 100
	PerToolRPM     int // calls a minute per agent and tool; default 10
	PerTenantRPM   int // requests a minute of all agents of a tenant; default no limit
	PerUpstreamRPM int // calls a minute that one upstream of a tenant answers; default no limit
	// Upstreams are those with another number, by the name that Take gets; negative is no limit.
	Upstreams  map[string]int
	GlobalRPM  int // requests a minute in total; default 10,000
	ConsoleRPM int // requests a minute of one subject's browsers, in place of PerAgentRPM; default 600
	Concurrent int // concurrent calls per agent; default 4
	// Algorithm is how requests of an agent, and its calls of one tool, are counted: token_bucket (the default),
	// leaky_bucket, fixed_window or sliding_window. The other limits are token buckets, but for those of manifests.
	Algorithm string
	// Burst is how many calls at once the buckets of an agent, of an agent on one tool, of an upstream, and of a tool whose token
	// bucket names no burst admit, but no more than those of a minute; 0 is those of a minute, with leaky_bucket 1. What
	// all agents of a tenant or of the server send at once is not bounded by it: one agent's burst would refuse the others.
	Burst int
	// most bounds the agents, the pairs of agent and tool, the tools, the tenants and the upstreams that are
	// tracked, each; default 100,000. Above it the one that is free soonest is dropped; a new one
	// is refused (E3801) only if calls that have not ended refer to all of them.
	most  int
	Clock func() time.Time // default time.Now
}

// Values of details.limit_type, also labels of tool_rate_limit_exceeded_total.
const (
	TypeAgent     = "agent"
	TypeAgentTool = "agent_tool"
	TypeTool      = "tool"
	TypeTenant    = "tenant"
	TypeUpstream  = "upstream" // in the metric upstream_limit: its upstream is the one that answers 429
	TypeGlobal    = "global"
	TypeConsole   = "console" // of what a subject's browsers read
)

// slotWait is the RetryAfter of E3802: the end of a running call is not known.
const slotWait = time.Second

// Limits holds all that is counted. An agent is a tenant and a subject; versions of a
// tool with the same rate_limit are counted together, and so are the tools of a tenant with one upstream.
type Limits struct {
	agent, pair, tenant, anyUpstream, global, console toolkeep.RateLimitSpec // on all nodes; zero is no limit
	named                                             map[string]int         // upstreams with a limit of their own
	concurrent, burst                                 int

	whole  *shares                // undivided
	shares atomic.Pointer[shares] // as divided among the nodes
	shared atomic.Pointer[shared] // nil without a Counter

	hash hasher
	// They are locked in this order, one shard of each.
	agents, pairs, tools, upstreams, tenants *table
	globalAt                                 atomic.Int64 // of the server's bucket: every request takes of it, so it has no lock

	waiters waiters

	clock func() time.Time
	start time.Time
}

// New returns the Limits of a node alone, until SetNodes.
func New(c Config) *Limits {
	l := &Limits{hash: newHasher(), clock: c.Clock, whole: &shares{nodes: 1}}
	l.shares.Store(l.whole)
	l.burst = min(max(c.Burst, 0), maxCount)
	or := func(v, def int) int {
		if v == 0 {
			v = def
		}
		return min(max(v, 0), maxCount)
	}
	l.concurrent = or(c.Concurrent, 4)
	l.agent = l.withBurst(toolkeep.RateLimitSpec{Algorithm: c.Algorithm, PerMinute: or(c.PerAgentRPM, 100)})
	l.pair = l.withBurst(toolkeep.RateLimitSpec{Algorithm: c.Algorithm, PerMinute: or(c.PerToolRPM, 10)})
	l.console.PerMinute = or(c.ConsoleRPM, 600)
	l.named = c.Upstreams
	l.anyUpstream = l.withBurst(toolkeep.RateLimitSpec{PerMinute: or(c.PerUpstreamRPM, 0)})
	l.tenant.PerMinute, l.global.PerMinute = or(c.PerTenantRPM, 0), or(c.GlobalRPM, 10_000)
	size := c.most
	if size <= 0 {
		size = 100_000
	}
	for _, t := range []**table{&l.agents, &l.pairs, &l.tools, &l.upstreams, &l.tenants} {
		*t = newTable(size)
	}
	if l.clock == nil {
		l.clock = time.Now
	}
	l.start = l.clock()
	return l
}

// withBurst gives the default burst to a bucket of which Config.Burst says that it has one.
func (l *Limits) withBurst(s toolkeep.RateLimitSpec) toolkeep.RateLimitSpec {
	if s.Burst == 0 && !windowed(s.Algorithm) {
		s.Burst = min(l.burst, s.PerMinute)
	}
	return s
}

// now is the time in nanoseconds on the monotonic clock. It starts at two minutes, so
// that the zero state of every meter is in a past window.
func (l *Limits) now() int64 { return int64(l.clock().Sub(l.start)) + 2*minute }

// bounded is one of what a request or a call takes of: a rate, slots or both.
type bounded struct {
	kind string
	spec toolkeep.RateLimitSpec // on all nodes; PerMinute 0 is no rate, MaxConcurrent 0 no slots
	in   *table                 // nil: the server's
	key  key
	of   [3]string // what the key is made of; the first is the tenant, "" for all
}

// tells reports whether an agent is told what is left. Of what all tenants take of, the server's rate and those of a tool of all
// tenants, it is not: it would read there how much the others send.
func (b *bounded) tells() bool { return b.of[0] != "" }

// most is how many a call takes of.
const most = 4

func (l *Limits) bound(kind string, spec toolkeep.RateLimitSpec, in *table, x, y, z string) bounded {
	return bounded{kind, spec, in, l.hash.key(x, y, z), [3]string{x, y, z}}
}

// upstream returns the limit of an upstream.
func (l *Limits) upstream(name string) toolkeep.RateLimitSpec {
	if name == "" || strings.HasPrefix(name, "tool:") {
		return toolkeep.RateLimitSpec{}
	}
	if n, own := l.named[name]; own {
		return l.withBurst(toolkeep.RateLimitSpec{PerMinute: max(n, 0)})
	}
	return l.anyUpstream
}

// ofRequest appends what a request takes of.
func (l *Limits) ofRequest(to []bounded, p *toolkeep.Principal, console bool) []bounded {
	switch {
	case console:
		if l.console.PerMinute > 0 {
			to = append(to, l.bound(TypeConsole, l.console, l.agents, p.Tenant, p.Subject, TypeConsole))
		}
	case l.agent.PerMinute > 0:
		to = append(to, l.bound(TypeAgent, l.agent, l.agents, p.Tenant, p.Subject, ""))
	}
	if l.tenant.PerMinute > 0 {
		to = append(to, l.bound(TypeTenant, l.tenant, l.tenants, p.Tenant, "", ""))
	}
	if l.global.PerMinute > 0 {
		to = append(to, bounded{kind: TypeGlobal, spec: l.global})
	}
	return to
}

// ofCall appends what a call takes of, beside its request.
func (l *Limits) ofCall(to []bounded, p *toolkeep.Principal, t *toolkeep.Tool, upstream string, child bool) []bounded {
	if l.concurrent > 0 && !child {
		to = append(to, l.bound(TypeAgent, toolkeep.RateLimitSpec{MaxConcurrent: l.concurrent}, l.agents, p.Tenant, p.Subject, ""))
	}
	if l.pair.PerMinute > 0 {
		to = append(to, l.bound(TypeAgentTool, l.pair, l.pairs, p.Tenant, p.Subject, t.ID))
	}
	if s := t.Manifest.RateLimit; s != nil && (s.PerMinute > 0 || s.MaxConcurrent > 0) {
		spec := *s
		if spec.Algorithm != leakyBucket {
			spec = l.withBurst(spec)
		}
		b := l.bound(TypeTool, spec, l.tools, t.Tenant, t.ID, spec.Algorithm)
		// Versions with the same limit are counted together, one with another limit by itself.
		b.key = b.key.with(spec.PerMinute).with(spec.Burst).with(spec.MaxConcurrent)
		to = append(to, b)
	}
	if spec := l.upstream(upstream); spec.PerMinute > 0 {
		to = append(to, l.bound(TypeUpstream, spec, l.upstreams, t.Tenant, upstream, ""))
	}
	return to
}

// TakeRequest takes one request of the agent's, the tenant's and the global rate, or of
// none. It returns the agent's or the tenant's, whichever has the fewest requests left. E3801 with the exact RetryAfter and details.limit_type agent, tenant or global.
//
// With a Counter it asks that once, within ctx and 50 ms.
func (l *Limits) TakeRequest(ctx context.Context, p *toolkeep.Principal) (toolkeep.RateLeft, error) {
	return l.takeRequest(ctx, p, false)
}

// TakeConsole is TakeRequest for what a browser's session reads: in place of the agent's rate it takes of the console's, so that
// who watches tools does not use up what the tools' calls take of. details.limit_type is console, tenant or global.
func (l *Limits) TakeConsole(ctx context.Context, p *toolkeep.Principal) (toolkeep.RateLeft, error) {
	return l.takeRequest(ctx, p, true)
}

func (l *Limits) takeRequest(ctx context.Context, p *toolkeep.Principal, console bool) (toolkeep.RateLeft, error) {
	var room [most]bounded
	all := l.ofRequest(room[:0], p, console)
	if c := l.counter(); c != nil {
		if left, ok, err := c.take(ctx, l, all, nil, false); ok {
			return left, err
		}
	}
	return l.take(l.shares.Load(), all, nil, false, true)
}

// Take takes one call of the rate of the agent on this tool, of the tool and of its upstream, and a
// concurrency slot of the agent and of the tool: all of them or none. upstream names what answers the tool's calls, as for its
// breaker; "", and what begins with "tool:", is none. With above, the slots of its parent, it is a child call and leaves out
// the agent's slot, which the root call holds.
//
// Release the slots when the call ends. Errors: E3801 with the exact RetryAfter and
// details.limit_type agent_tool, tool or upstream; E3802 with details.limit_type agent or tool.
//
// With a Counter it asks that, within ctx and 50 ms; a second time, with 50 ms of its own, if a slot is refused
// while this node gives slots back.
func (l *Limits) Take(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, upstream string, above *Slots) (_ *Slots, err error) {
	var room [most]bounded
	all := l.ofCall(room[:0], p, t, upstream, above != nil)
	own := &Slots{limits: l, above: above}
	if c := l.counter(); c != nil {
		if _, err := l.take(l.whole, all, own, false, false); err != nil {
			return nil, ofTool(err, t)
		}
		var ok bool
		if own.Left, ok, err = c.take(ctx, l, all, own, false); ok && err == nil {
			return own, nil
		}
		if own.Release(); ok {
			return nil, ofTool(err, t)
		}
		own = &Slots{limits: l, above: above}
	}
	if own.Left, err = l.take(l.shares.Load(), all, own, false, true); err != nil {
		return nil, ofTool(err, t)
	}
	return own, nil
}

// Peek returns what Take would, without taking anything.
func (l *Limits) Peek(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, upstream string, child bool) error {
	var room [most]bounded
	all := l.ofCall(room[:0], p, t, upstream, child)
	if c := l.counter(); c != nil {
		if _, ok, err := c.take(ctx, l, all, nil, true); ok {
			return ofTool(err, t)
		}
	}
	_, err := l.take(l.shares.Load(), all, nil, true, true)
	return ofTool(err, t)
}

// ofTool names the tool in a refusal by one of its limits.
func ofTool(err error, t *toolkeep.Tool) error {
	if e := toolkeep.AsError(err); e != nil && e.Details["limit_type"] != TypeAgent {
		return e.With("tool_id", t.ID)
	}
	return err
}

// take takes of all or of none: with rates the rates and slots, else the slots alone. own gets the slots; dry changes nothing. It
// returns the rate with the fewest calls left, of those that are told.
func (l *Limits) take(sh *shares, all []bounded, own *Slots, dry, rates bool) (toolkeep.RateLeft, error) {
	least, no := l.admit(sh, all, own, dry, rates)
	switch { // without a lock, for which others wait
	case no.by == nil:
		return least, nil
	case no.wait > 0:
		return least, sh.rateError(no.by, no.wait, no.reset)
	case no.busy:
		return least, sh.slotError(no.by.kind, no.by.spec.MaxConcurrent)
	}
	return least, tooMany(no.by.kind)
}

// denial is what does not admit a call, by nil if all do: a rate for the time of wait, slots that are busy, or a table without room.
type denial struct {
	by          *bounded
	wait, reset time.Duration
	busy        bool
}

// admit locks and checks one after the other, and changes them only after each has admitted the call. It leaves at the first rate that
// does not, so that an agent over its own limit meets no lock of its tenant.
func (l *Limits) admit(sh *shares, all []bounded, own *Slots, dry, rates bool) (least toolkeep.RateLeft, no denial) {
	now := l.now()
	var mine [most]toolkeep.RateLimitSpec // this node's share
	var entries [most]*entry
	var locked [most]*shard
	defer func() {
		for _, s := range locked {
			if s != nil {
				s.mu.Unlock()
			}
		}
	}()
	for i := range all {
		b, ok := &all[i], true
		if !rates && b.spec.MaxConcurrent == 0 {
			continue
		}
		mine[i] = sh.spec(&b.spec)
		if b.in == nil { // the last one of a request
			if wait, reset := l.takeGlobal(&mine[i], now); wait > 0 {
				return least, denial{by: b, wait: wait, reset: reset}
			}
			continue
		}
		if locked[i], entries[i], ok = b.in.open(b.key, !dry, now); !ok {
			return least, denial{by: b}
		}
		e := entries[i]
		if e == nil {
			continue
		}
		if rates {
			if w := e.wait(&mine[i], now); w > 0 {
				return least, denial{by: b, wait: w, reset: e.reset(now)}
			}
		}
		if b.spec.MaxConcurrent > 0 {
			busy := e.counts[running]
			if b.kind == TypeTool {
				busy += e.counts[waiting]
			}
			if int(busy) >= mine[i].MaxConcurrent && no.by == nil { // a rate that refuses too knows its time
				no = denial{by: b, busy: true}
			}
		}
	}
	if dry || no.by != nil {
		return least, no
	}
	for i := range all {
		b, e := &all[i], entries[i]
		if n := mine[i].PerMinute; e != nil && rates && n > 0 {
			left := toolkeep.RateLeft{Kind: b.kind, PerMinute: n, Left: e.add(&mine[i], now), Reset: e.reset(now)}
			if b.tells() {
				least = least.Least(left)
			}
		}
		if b.spec.MaxConcurrent > 0 {
			own.holds(b, e)
		}
	}
	return least, no
}

// takeGlobal takes one request of the server's bucket; wait is the time until it admits one, 0 if it did.
func (l *Limits) takeGlobal(mine *toolkeep.RateLimitSpec, now int64) (wait, reset time.Duration) {
	for r := rateOf(mine); ; {
		at := l.globalAt.Load()
		if wait = r.wait(at, now); wait > 0 {
			return wait, time.Duration(at - now)
		}
		if l.globalAt.CompareAndSwap(at, r.next(at, now)) {
			return 0, 0
		}
	}
}

var whose = map[string]string{TypeAgent: "this agent", TypeAgentTool: "this agent on this tool", TypeTool: "this tool", TypeTenant: "this tenant",
	TypeUpstream: "the upstream of this tool", TypeConsole: "the browsers of this subject", TypeGlobal: "the whole server"}

func (s *shares) rateError(b *bounded, wait, reset time.Duration) *toolkeep.Error {
	who, perMinute, again := whose[b.kind], b.spec.PerMinute, wait.Round(time.Millisecond)
	left := toolkeep.RateLeft{Kind: b.kind, PerMinute: s.of(perMinute), Reset: reset}
	if s.nodes == 1 {
		return toolkeep.NewError(toolkeep.RateLimitExceeded,
			"the limit of %d calls a minute for %s is reached; try again in %s", perMinute, who, again).
			Over(left).With("limit_per_minute", perMinute).After(wait)
	}
	return toolkeep.NewError(toolkeep.RateLimitExceeded,
		"the limit of %d calls a minute for %s is divided among %d nodes, and this node's share of %d is reached; try again in %s",
		perMinute, who, s.nodes, s.of(perMinute), again).
		Over(left).With("limit_per_minute", perMinute).
		With("nodes", s.nodes).With("share_per_minute", s.of(perMinute)).After(wait)
}

func (s *shares) slotError(kind string, limit int) *toolkeep.Error {
	who := whose[kind]
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
