package breaker

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Config is what Breakers needs. The zero value works: each breaker is this node's alone, by the rule of Defaults.
type Config struct {
	Rule    *Rule            // of the settings; default Defaults()
	Store   Store            // where states are kept, for all nodes; nil keeps none
	Retries *Retries         // how many retries the calls of a tool may have; default 20 % of them, or 10 in 10 s
	Node    string           // this node's name, in documents and events
	Home    string           // the tenant in events of shared tools
	Most    int              // breakers that are known at once; default 50,000
	Clock   func() time.Time // default time.Now
	Log     *slog.Logger     // default none
	// Tell is given each change of state that this node has written, for those who follow Channel of the tenant; optional. It may
	// take its time: no call waits for it.
	Tell func(ctx context.Context, channel, message string) error
}

// Breakers has the breakers of all tools and upstreams. It is safe for concurrent use.
type Breakers struct {
	c        Config
	settings Rule
	retries  Retries
	start    time.Time
	seed     maphash.Seed
	shards   [shardCount]shard

	mu      sync.Mutex
	dirty   map[*Breaker]struct{} // what keep has to reconcile with the store
	wake    chan struct{}
	end     context.CancelFunc // nil before Start
	ended   bool
	keeping sync.WaitGroup
	renewal time.Duration
	news    chan news // what Tell is to be given
}

const shardCount = 64

// key names a breaker: of a tool by its id, of an upstream as the caller of Of does.
type key struct {
	tenant, name string
	tool         bool
}

// toolPrefix begins the id of a tool's breaker. Upstreams have other prefixes, such as host.
const toolPrefix = "tool:"

// ID is what people and documents call the breaker within its tenant: tool:ID, or such as host:NAME:PORT.
func (k key) ID() string {
	if k.tool {
		return toolPrefix + k.name
	}
	return k.name
}

// OfTool is the id of a tool's breaker.
func OfTool(id string) string { return toolPrefix + id }

func keyOf(tenant, id string) key {
	if name, ok := strings.CutPrefix(id, toolPrefix); ok {
		return key{tenant, name, true}
	}
	return key{tenant, id, false}
}

type shard struct {
	mu    sync.RWMutex
	of    map[key]*Breaker
	next  int   // size at which it is swept
	swept int64 // when it was; at most once a second, or each call of a tool that finds no room would sweep it
}

// New makes the breakers of a node.
func New(c Config) *Breakers {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Most <= 0 {
		c.Most = 50_000
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Breakers{c: c, settings: Defaults(), retries: Retries{Share: 20, Floor: 10}, start: c.Clock(), seed: maphash.MakeSeed(), dirty: map[*Breaker]struct{}{}, wake: make(chan struct{}, 1), renewal: testRenewal, news: make(chan news, maxNews)}
	if c.Rule != nil {
		s.settings = *c.Rule
	}
	if c.Retries != nil {
		s.retries = *c.Retries
	}
	for i := range s.shards {
		s.shards[i].of, s.shards[i].next = map[key]*Breaker{}, 64
	}
	return s
}

// now is the monotonic time in nanoseconds.
func (s *Breakers) now() int64 { return int64(s.c.Clock().Sub(s.start)) }

func (s *Breakers) shardOf(k key) *shard { return &s.shards[maphash.String(s.seed, k.name)%shardCount] }

// known returns a breaker, nil if there is none.
func (s *Breakers) known(k key) *Breaker {
	sh := s.shardOf(k)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.of[k]
}

// find returns a breaker, which it makes if need be; nil where too many are in use.
func (s *Breakers) find(k key) *Breaker {
	if b := s.known(k); b != nil {
		return b
	}
	return s.add(k, s.c.Most)
}

// kept returns the breaker of a document, which it makes if need be, also beyond Config.Most: what an operator or another node
// decided holds here too, and there are no more documents than breakers that were known or forced.
func (s *Breakers) kept(k key) *Breaker {
	if b := s.known(k); b != nil {
		return b
	}
	return s.add(k, math.MaxInt)
}

// ruled is find of a breaker that has this rule from now on.
func (s *Breakers) ruled(k key, rule *Rule) *Breaker {
	b := s.find(k)
	switch {
	case b == nil:
	case *b.rule.Load() != *rule:
		b.follow(*rule, s.now())
	case b.others.Load() != 0:
		b.others.Store(0)
	}
	return b
}

// settled is how many calls in a row, of versions with another form of window, change that of a breaker that has counted calls.
// Where versions are called in turn one form stays, so that something is counted.
const settled = 20

// follow takes another rule, of another version of the tool that is called. A window of another form takes over at once where
// nothing is counted, else after settled calls; failures in a row go on.
func (b *Breaker) follow(rule Rule, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.rule.Load()
	b.window.pass(was, now)
	switch {
	case was.Count == rule.Count && was.Window == rule.Window:
		b.others.Store(0)
	case b.window.sum.calls == 0 || b.others.Add(1) >= settled:
		b.others.Store(0)
		b.window = window{row: b.window.row}
	default:
		rule.Count, rule.Window = was.Count, was.Window
		rule = rule.bounded()
	}
	b.rule.Store(&rule)
}

// add makes a breaker, nil where most are in use.
func (s *Breakers) add(k key, most int) *Breaker {
	sh := s.shardOf(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if b := sh.of[k]; b != nil {
		return b
	}
	most = max(1, most/shardCount)
	if now := s.now(); len(sh.of) >= min(sh.next, most) && now-sh.swept >= int64(time.Second) {
		sh.swept = now
		for k, b := range sh.of {
			if b.idle(now) {
				delete(sh.of, k)
			}
		}
		sh.next = max(64, 2*len(sh.of))
	}
	if len(sh.of) >= most {
		return nil
	}
	b := &Breaker{key: k, io: make(chan struct{}, 1), state: Closed, last: s.now()}
	b.rule.Store(&s.settings)
	b.passing.Store(true)
	sh.of[k] = b
	return b
}

// Guard is the breakers of a call: that of its tool, and that of its upstream. The zero Guard lets everything through.
type Guard struct {
	s          *Breakers
	tool, host *Breaker
}

// maxUpstream bounds the name of an upstream in bytes; one that is longer has no breaker.
const maxUpstream = 256

// Of returns the breakers of a tool's call. upstream names what answers its calls, such as host:NAME:PORT; "", and what begins
// with "tool:", is the tool itself. A nil Breakers has none.
func (s *Breakers) Of(t *toolkeep.Tool, upstream string) Guard {
	if s == nil {
		return Guard{}
	}
	g := Guard{s: s}
	if t.Manifest.Breaker == nil {
		g.tool = s.ruled(key{t.Tenant, t.ID, true}, &s.settings)
	} else {
		rule := s.settings.With(t.Manifest.Breaker)
		g.tool = s.ruled(key{t.Tenant, t.ID, true}, &rule)
	}
	if upstream != "" && len(upstream) <= maxUpstream && !strings.HasPrefix(upstream, toolPrefix) {
		g.host = s.find(key{t.Tenant, upstream, false})
	}
	return g
}

// Look refuses what Take would refuse at this moment, and takes no test call. E3903 with details breaker, state and
// reason, and RetryAfter.
func (g Guard) Look() error { return g.look(true) }

// Peek returns what Look would, and counts no refusal.
func (g Guard) Peek() error { return g.look(false) }

func (g Guard) look(counts bool) error {
	for _, b := range [...]*Breaker{g.tool, g.host} {
		if b == nil || b.passing.Load() {
			continue
		}
		if err := g.s.look(b, counts); err != nil {
			return err
		}
	}
	return nil
}

func (s *Breakers) look(b *Breaker, counts bool) error {
	now := s.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	refusal, wait, _ := b.look(now)
	if refusal == "" {
		return nil
	}
	if counts {
		b.refuses()
	}
	return b.refusal(refusal, wait)
}

// Attempt is an attempt that went through. Its Done must be called once.
type Attempt struct {
	s          *Breakers
	tool, host Pass
}

// Take lets an attempt through, or refuses it: E3903 as Look. One that is to be a test call asks the store first, within
// ctx and 2 s.
func (g Guard) Take(ctx context.Context) (a Attempt, err error) {
	if g.s == nil {
		return a, nil
	}
	a.s = g.s
	began := g.s.now()
	if a.tool, err = g.s.take(ctx, g.tool, began); err != nil {
		return a, err
	}
	if a.host, err = g.s.take(ctx, g.host, began); err != nil {
		g.s.done(&a.tool, Ignored, began)
	}
	if a.tool.test || a.host.test { // the store may have been asked
		a.tool.began = g.s.now()
		a.host.began = a.tool.began
	}
	return a, err
}

// Without has d of the attempt's time not count as slow: what it waited for was not its tool. It is called before Done.
func (a *Attempt) Without(d time.Duration) {
	a.tool.began += int64(d)
	a.host.began += int64(d)
}

// Outlasted says that the attempt was ended because another one of its call answered first: its tool would have taken longer
// still. It is called before Done.
func (a *Attempt) Outlasted() { a.tool.outlasted = true }

// With says the code of the error that the attempt ended with: a rule may ignore it. It is called before Done.
func (a *Attempt) With(c toolkeep.Code) { a.tool.code, a.host.code = c, c }

// Done tells of the attempt's end, for its tool and its upstream.
func (a *Attempt) Done(tool, host Outcome) {
	if a.s == nil {
		return
	}
	now := a.s.now()
	a.s.done(&a.tool, tool, now)
	a.s.done(&a.host, host, now)
}

func (s *Breakers) take(ctx context.Context, b *Breaker, now int64) (Pass, error) {
	if b == nil {
		return Pass{}, nil
	}
	p := Pass{b: b, epoch: b.epoch.Load(), began: now}
	if b.passing.Load() {
		return p, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	refusal, wait, tests := b.look(now)
	if refusal == "" && tests && !b.mine {
		refusal, wait = s.claim(ctx, b)
		if refusal == "" {
			if refusal, wait, tests = b.look(now); tests && !b.mine {
				refusal, wait = refusedTesting, time.Second
			}
		}
	}
	if refusal != "" {
		b.refuses()
		return Pass{}, b.refusal(refusal, wait)
	}
	p.epoch, p.test = b.epoch.Load(), tests
	if tests {
		b.take()
	}
	return p, nil
}

func (s *Breakers) done(p *Pass, o Outcome, now int64) {
	b := p.b
	if b == nil {
		return
	}
	if o == Failed && b.rule.Load().Ignore.has(p.code) {
		o = Ignored
	}
	b.mu.Lock()
	if o == Succeeded || p.outlasted {
		b.usual.add(now - p.began)
	}
	tell := b.done(p, o, now, s.c.Clock)
	if tell && s.c.Store == nil { // nothing to wait for
		if b.intent == closes {
			b.closing()
		}
		b.intent = none
	}
	b.mu.Unlock()
	if tell && s.c.Store != nil {
		s.mark(b)
	}
}

// Failed counts what shows that a tool does not work and was no call, such as a probe of its health, as a call that failed with
// the code and took so long: not at all where the breaker's rule ignores the code. Only a closed breaker counts it: it opens one, and
// decides about no test call. A nil Breakers counts nothing.
func (s *Breakers) Failed(t *toolkeep.Tool, code toolkeep.Code, took time.Duration) {
	if s == nil {
		return
	}
	b := s.known(key{t.Tenant, t.ID, true}) // with the rule of the version that was called last
	if b == nil {
		b = s.Of(t, "").tool
	}
	if b != nil && b.passing.Load() {
		now := s.now()
		s.done(&Pass{b: b, epoch: b.epoch.Load(), began: now - int64(took), code: code}, Failed, now)
	}
}

// Info is what people see of a breaker.
type Info struct {
	ID, Tenant string
	Tool       bool
	State      State
	Record     Record        // of the state, zero while it is closed
	For        time.Duration // how long it has had the state, 0 while it is closed
	// Calls, Failures, Slow and InARow are those of this node, in the window.
	Calls, Failures, Slow, InARow int
	LatencyMS                     float64   // of these calls, on average
	Last                          time.Time // when one of them ended last, zero without any
	Refused                       int64     // calls, by this node since its start
	Needs                         int       // test calls that must succeed
	// Moves, and the test calls that failed and succeeded, are those of this node since it knows the breaker. Moves are from
	// and to States.
	Moves                    [len(States)][len(States)]int64
	TestsFailed, TestsPassed int64
	Rule                     Rule
}

func (s *Breakers) info(b *Breaker) Info {
	now := s.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rule.Load()
	b.window.pass(r, now)
	w := b.window.sum
	var since time.Duration
	var last time.Time
	if w.calls > 0 {
		last = s.start.Add(time.Duration(b.last))
	}
	if !b.record.Since.IsZero() {
		since = max(0, s.c.Clock().Sub(b.record.Since))
	}
	return Info{For: since, Moves: b.moves, TestsFailed: b.tests[0], TestsPassed: b.tests[1], ID: b.key.ID(), Tenant: b.key.tenant, Tool: b.key.tool, State: b.state, Record: b.record, Calls: int(w.calls), Failures: int(w.failures),
		Slow: int(w.slow), InARow: b.window.row, LatencyMS: b.window.average(), Last: last, Refused: b.refused.Load(), Needs: needs(r), Rule: *r}
}

// List returns the breakers that this node knows of a tenant, by id: those that are not closed, and those whose tools were
// called here lately.
func (s *Breakers) List(tenant string) []Info {
	return s.list(func(b *Breaker) bool { return b.key.tenant == tenant })
}

// Changed returns those of all tenants that have had another state than closed.
func (s *Breakers) Changed() []Info {
	return s.list(func(b *Breaker) bool { return b.epoch.Load() > 0 })
}

func (s *Breakers) list(is func(*Breaker) bool) []Info {
	found := s.which(is)
	out := make([]Info, len(found))
	for i, b := range found {
		out[i] = s.info(b)
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ID, b.ID)) })
	return out
}

// which returns the breakers that are so.
func (s *Breakers) which(is func(*Breaker) bool) (found []*Breaker) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		for _, b := range sh.of {
			if is(b) {
				found = append(found, b)
			}
		}
		sh.mu.RUnlock()
	}
	return found
}

// Get returns the breaker of an id; ok is false if this node does not know it.
func (s *Breakers) Get(tenant, id string) (info Info, ok bool) {
	b := s.known(keyOf(tenant, id))
	if b == nil {
		return Info{}, false
	}
	return s.info(b), true
}
