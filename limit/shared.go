package limit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Counter counts for all nodes in one place, by that place's clock.
type Counter interface {
	// Take first gives back q.Free. Then it checks the rates and slots of q in their order, and
	// takes all of them if each admits the call and q.Dry is not set, else none.
	Take(ctx context.Context, q *Question) (Answer, error)
	// Renew makes slots last SlotLife from now, those too that the counter has forgotten.
	Renew(ctx context.Context, held []Slot) error
	// Free gives slots back; one that is not held is ignored.
	Free(ctx context.Context, held []Slot) error
}

// SlotLife is how long a slot of a Counter is held without a renewal.
const SlotLife = 15 * time.Second

// Question is what one call asks of a Counter.
type Question struct {
	Rates []Rate
	Slots []Slot
	Free  []Slot
	Dry   bool
}

// Rate is a limit of calls a minute under a name, which holds nothing secret. Algorithm is that
// of a manifest; both buckets are given by Step and Depth, and windows by PerMinute.
type Rate struct {
	Name        string
	Algorithm   string
	PerMinute   int
	Step, Depth time.Duration
}

// Slot is one of at most Most places under a name, held under an ID. Taking it again under the
// same ID takes no other place.
type Slot struct {
	Name, ID string
	Most     int
}

// Answer of a Counter. Refused is the place of the rate, or beyond these of the slot, that
// refuses the call, -1 for none; Wait is the time until a rate admits it. Full is how long each
// bucket of Rates takes until it is full again, 0 for windows; it is empty where the call is refused.
type Answer struct {
	Refused int
	Wait    time.Duration
	Full    []time.Duration
}

const (
	sharedWait  = 50 * time.Millisecond // for an answer to a call, by default
	sharedAgain = time.Second           // until a counter that failed is asked again, by no call
	renewEvery  = 5 * time.Second
	renewWait   = 2 * time.Second
	maxFree     = 10_000 // slots to be given back that are remembered; the others end by themselves
	freeAtOnce  = 32     // slots that a call's question gives back
	freeBatch   = 500
	resumeAfter = 50 * time.Millisecond // between questions for the slot of a call that goes on
)

// shared is the Counter and what this node holds in it.
type shared struct {
	counter Counter
	wait    time.Duration
	log     *slog.Logger
	run     string // distinguishes this run in slots
	calls   atomic.Uint64
	back    func() // the counter counts again

	down    atomic.Bool
	sending chan struct{} // holds one element while a batch of slots is given back

	mu   sync.Mutex
	err  error
	held map[string]*hold
	free []Slot
	wake chan struct{}

	end  context.CancelFunc
	done sync.WaitGroup
}

// hold is what a call has in the Counter.
type hold struct {
	id    string
	slots []Slot // of the agent, then of the tool, as far as there are limits
	agent bool   // the first is the agent's
}

// UseCounter has the limits of all nodes counted by c from now on, until StopCounter. While c
// fails, or does not answer in the time of wait (0 is 50 ms), this node admits its share of each
// limit instead, and asks once a second whether c is there again.
func (l *Limits) UseCounter(c Counter, wait time.Duration, log *slog.Logger) {
	if wait <= 0 {
		wait = sharedWait
	}
	var run [9]byte
	_, _ = rand.Read(run[:]) // never fails
	ctx, end := context.WithCancel(context.Background())
	s := &shared{counter: c, wait: wait, log: log, run: base64.RawURLEncoding.EncodeToString(run[:]), held: map[string]*hold{}, wake: make(chan struct{}, 1), sending: make(chan struct{}, 1), end: end,
		back: l.waiters.serve}
	l.shared.Store(s)
	s.done.Go(func() { s.keep(ctx) })
}

// StopCounter ends what UseCounter began, and gives the slots back. It may be called twice.
func (l *Limits) StopCounter() {
	if s := l.shared.Swap(nil); s != nil {
		s.end()
		s.done.Wait()
	}
}

// Health is why the limits of all nodes are not counted together, nil while they are, and where
// that was not asked for.
func (l *Limits) Health(context.Context) error {
	s := l.shared.Load()
	if s == nil || !s.down.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// counter returns the shared counter if it is to be asked.
func (l *Limits) counter() *shared {
	if s := l.shared.Load(); s != nil && !s.down.Load() {
		return s
	}
	return nil
}

// present returns the limits by which refusals and headers are given: the whole ones while a counter
// counts for all nodes, else this node's share.
func (l *Limits) present() *shares {
	if l.counter() != nil {
		return l.whole
	}
	return l.shares.Load()
}

// ask asks for a call. ok is false if the counter has failed, and the call is to be decided here.
func (s *shared) ask(ctx context.Context, q *Question) (a Answer, ok bool) {
	wait, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	own := len(q.Slots) > 0 && !q.Dry
	busy := false
	if own {
		s.mu.Lock()
		n := min(freeAtOnce, len(s.free))
		q.Free = s.free[:n:n]
		s.free = s.free[n:]
		busy = len(s.free) > 0
		s.mu.Unlock()
		busy = busy || len(s.sending) > 0
	}
	a, err := s.counter.Take(wait, q)
	if err == nil && busy && a.Refused >= len(q.Rates) && s.settle(wait) {
		// A slot of this node may just have been given back beside this question.
		wait, cancel = context.WithTimeout(ctx, s.wait)
		defer cancel()
		q.Free = nil
		a, err = s.counter.Take(wait, q)
	}
	if err == nil {
		return a, true
	}
	if own { // it may have been done nevertheless
		s.give(q.Free...)
		s.give(q.Slots...)
	}
	if ctx.Err() == nil && !hurried(ctx, wait) {
		s.report(err)
	}
	return Answer{}, false
}

// hurried reports whether the caller's deadline comes before the counter's: a failure then says
// nothing about the counter, also if the caller's timer has not fired yet.
func hurried(caller, wait context.Context) bool {
	end, has := toolkeep.Deadline(caller)
	limit, _ := toolkeep.Deadline(wait)
	return has && !end.After(limit)
}

// settle waits until the batch that is given back now has been; false if ctx ends first.
func (s *shared) settle(ctx context.Context) bool {
	select {
	case s.sending <- struct{}{}:
		<-s.sending
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *shared) newID() string { return s.run + strconv.FormatUint(s.calls.Add(1), 36) }

// report notes the outcome of a question, and logs a change.
func (s *shared) report(err error) {
	s.mu.Lock()
	was := s.err
	if s.err = err; err != nil {
		s.err = errors.New("redis does not count the limits, and each node admits its share of them: " + err.Error())
	}
	s.down.Store(err != nil)
	s.mu.Unlock()
	switch {
	case was == nil && err != nil:
		s.log.Warn("Redis does not count the limits of all nodes; this node admits its share of them until it does", "error", err)
		s.rouse()
	case was != nil && err == nil:
		s.log.Info("Redis counts the limits of all nodes again")
		s.back() // calls may go on that wait for the share of a node
	}
}

// give has slots given back.
func (s *shared) give(slots ...Slot) {
	if len(slots) == 0 {
		return
	}
	s.mu.Lock()
	s.free = append(s.free, slots...)
	if over := len(s.free) - maxFree; over > 0 {
		s.free = append([]Slot(nil), s.free[over:]...)
	}
	s.mu.Unlock()
	s.rouse()
}

// rouse has keep look what there is to do.
func (s *shared) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// has notes that a call holds its slots.
func (s *shared) has(h *hold) {
	s.mu.Lock()
	s.held[h.id] = h
	s.mu.Unlock()
}

// drops gives the slots of a call back, if it holds them.
func (s *shared) drops(h *hold) {
	s.mu.Lock()
	_, held := s.held[h.id]
	delete(s.held, h.id)
	s.mu.Unlock()
	if held {
		s.give(h.slots...)
	}
}

// keep gives slots back, renews those that are held, and finds out when a counter that failed is
// there again.
func (s *shared) keep(ctx context.Context) {
	renewed := time.Now()
	for ctx.Err() == nil {
		wait := renewEvery - time.Since(renewed)
		if s.down.Load() {
			wait = sharedAgain
		}
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
		case <-timer.C:
			s.check(ctx)
			renewed = time.Now()
		case <-s.wake:
			if s.down.Load() { // after a time, with the renewal
				toolkeep.Sleep(ctx, sharedAgain)
				s.check(ctx)
				renewed = time.Now()
			}
			if !s.down.Load() {
				s.flush(ctx)
			}
		}
		timer.Stop()
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewWait)
	defer cancel()
	if s.down.Load() {
		return
	}
	s.mu.Lock()
	for _, h := range s.held {
		s.free = append(s.free, h.slots...)
	}
	s.mu.Unlock()
	s.flush(last)
}

// check renews what is held. A counter that failed must answer a probe before.
func (s *shared) check(ctx context.Context) {
	var err error
	down := s.down.Load()
	if down {
		err = s.probe(ctx)
	}
	if err == nil {
		err = s.renew(ctx)
	}
	if ctx.Err() == nil && (down || err != nil) {
		s.report(err)
	}
}

// probe asks a question like a call's, and waits for its answer as long as a call does.
func (s *shared) probe(ctx context.Context) error {
	q := &Question{Slots: []Slot{{Name: nameOf("probe"), ID: s.run, Most: maxCount}}}
	wait, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if _, err := s.counter.Take(wait, q); err != nil {
		return err
	}
	wait, cancel = context.WithTimeout(ctx, s.wait)
	defer cancel()
	return s.counter.Free(wait, q.Slots)
}

// flush gives back what is to be given back.
func (s *shared) flush(ctx context.Context) {
	for s.flushBatch(ctx) {
	}
}

// flushBatch gives one batch back, and reports whether there may be another. A call that settles
// comes between two batches.
func (s *shared) flushBatch(ctx context.Context) bool {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	s.mu.Lock()
	n := min(freeBatch, len(s.free))
	batch := s.free[:n:n]
	if s.free = s.free[n:]; len(s.free) == 0 {
		s.free = nil
	}
	s.mu.Unlock()
	if n == 0 {
		return false
	}
	wait, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if err := s.counter.Free(wait, batch); err != nil {
		if ctx.Err() == nil {
			s.report(err)
		}
		s.give(batch...)
		return false
	}
	return true
}

// renew renews what is held. A slot that was given back meanwhile is given back again.
func (s *shared) renew(ctx context.Context) error {
	s.mu.Lock()
	var all []Slot
	holds := make([]*hold, 0, len(s.held))
	for _, h := range s.held {
		all = append(all, h.slots...)
		holds = append(holds, h)
	}
	s.mu.Unlock()
	wait, cancel := context.WithTimeout(ctx, renewWait)
	defer cancel()
	err := s.counter.Renew(wait, all)
	for _, h := range holds {
		s.mu.Lock()
		_, held := s.held[h.id]
		s.mu.Unlock()
		if !held {
			s.give(h.slots...)
		}
	}
	return err
}

// takeRequest asks the counter for a request; ok is false where it was not answered.
func (s *shared) takeRequest(ctx context.Context, l *Limits, p *toolkeep.Principal) (ok bool, err error) {
	q := &Question{}
	var kinds [2]string
	var limits [2]int
	add := func(kind, name string, perMinute int, r rate) {
		if !r.unlimited() {
			kinds[len(q.Rates)], limits[len(q.Rates)] = kind, perMinute
			q.Rates = append(q.Rates, r.shared(name))
		}
	}
	add(TypeAgent, nameOf("agent", p.Tenant, p.Subject), l.agentRPM, l.whole.agentRate)
	add(TypeGlobal, nameOf("global"), l.globalRPM, l.whole.globalRate)
	if len(q.Rates) == 0 {
		return true, nil
	}
	a, ok := s.ask(ctx, q)
	if !ok {
		return false, nil
	}
	if a.Refused >= 0 {
		err = l.whole.rateError(kinds[a.Refused], limits[a.Refused], a.Wait)
	}
	now := l.now()
	for i := range q.Rates {
		full, known := a.full(q, i)
		switch {
		case !known:
		case kinds[i] == TypeGlobal:
			l.global.Store(now + int64(full))
		default:
			sh, b, has := open(l.agents, l.agentKey(p), true, now)
			if has {
				b.tat = now + int64(full)
			}
			sh.mu.Unlock()
		}
	}
	return true, err
}

// full returns how long the bucket of a rate takes until it is full again. Of a refusal it is known
// for the bucket that refuses.
func (a *Answer) full(q *Question, i int) (time.Duration, bool) {
	switch {
	case i < 0:
	case a.Refused < 0:
		return a.Full[i], true
	case a.Refused == i:
		return a.Wait + q.Rates[i].Depth - q.Rates[i].Step, true
	}
	return 0, false
}

// take asks the counter for a call, which has its slots on this node already; own is nil for
// a dry run.
func (s *shared) take(ctx context.Context, l *Limits, p *toolkeep.Principal, t *toolkeep.Tool, child bool, own *Slots) (ok bool, err error) {
	q := &Question{Dry: own == nil}
	spec := l.spec(t)
	pair, tool := -1, -1
	if r := l.whole.pairRate; !r.unlimited() {
		pair = len(q.Rates)
		q.Rates = append(q.Rates, r.shared(nameOf("pair", p.Tenant, p.Subject, t.ID)))
	}
	var toolName string
	if spec.PerMinute > 0 || spec.MaxConcurrent > 0 {
		toolName = nameOf("tool", t.Tenant, t.ID, spec.Algorithm, strconv.Itoa(spec.PerMinute), strconv.Itoa(spec.Burst), strconv.Itoa(spec.MaxConcurrent))
	}
	if spec.PerMinute > 0 {
		tool = len(q.Rates)
		r := ratesOf(spec).shared(toolName)
		r.Algorithm, r.PerMinute = spec.Algorithm, spec.PerMinute
		q.Rates = append(q.Rates, r)
	}
	h := &hold{id: s.newID()}
	if l.concurrent > 0 && !child {
		h.agent = true
		h.slots = append(h.slots, Slot{nameOf("agent slots", p.Tenant, p.Subject), h.id, l.concurrent})
	}
	if spec.MaxConcurrent > 0 {
		h.slots = append(h.slots, Slot{toolName + ":slots", h.id, spec.MaxConcurrent})
	}
	q.Slots = h.slots
	if len(q.Rates)+len(q.Slots) == 0 {
		return true, nil
	}
	a, ok := s.ask(ctx, q)
	if !ok {
		return false, nil
	}
	if own != nil {
		l.copy(p, t, &spec, q, &a, pair, tool)
	}
	switch {
	case a.Refused < 0:
	case a.Refused == pair:
		return true, l.whole.rateError(TypeAgentTool, l.pairRPM, a.Wait).With("tool_id", t.ID)
	case a.Refused == tool:
		return true, l.whole.rateError(TypeTool, spec.PerMinute, a.Wait).With("tool_id", t.ID)
	case h.agent && a.Refused == len(q.Rates):
		return true, l.whole.slotError(TypeAgent, l.concurrent)
	default:
		return true, l.whole.slotError(TypeTool, spec.MaxConcurrent).With("tool_id", t.ID)
	}
	if own != nil && len(h.slots) > 0 {
		own.hold, own.shared = h, s
		s.has(h)
	}
	return true, nil
}

// copy notes how full the buckets are, for the time when the counter fails. Of windows a node knows
// its own calls.
func (l *Limits) copy(p *toolkeep.Principal, t *toolkeep.Tool, spec *toolkeep.RateLimitSpec, q *Question, a *Answer, pair, tool int) {
	now := l.now()
	if full, known := a.full(q, pair); known {
		s, b, has := open(l.pairs, l.hash.key(p.Tenant, p.Subject, t.ID), true, now)
		if has {
			b.tat = now + int64(full)
		}
		s.mu.Unlock()
	}
	if full, known := a.full(q, tool); known {
		s, b, has := open(l.tools, l.toolKey(t, spec), true, now)
		switch {
		case !has:
		case spec.Algorithm != fixedWindow && spec.Algorithm != slidingWindow:
			b.tat = now + int64(full)
		case a.Refused < 0 && b.wait(spec, now) == 0:
			b.add(spec, now)
		}
		s.mu.Unlock()
	}
}

// resume takes in the counter the slots of the call, and of those above it, that have theirs
// again on this node; all or none. It waits as long as other nodes have them, until ctx ends. An
// agent's slot is taken over the limit. Without an answer the renewal takes them.
func (s *Slots) resume(ctx context.Context) {
	for {
		all, fresh, at := s.lacking()
		if len(all) == 0 {
			return
		}
		var q Question
		for _, h := range fresh {
			q.Slots = append(q.Slots, h.slots...)
			if h.agent {
				q.Slots[len(q.Slots)-len(h.slots)].Most = maxCount
			}
		}
		a, ok := Answer{Refused: -1}, false
		if !at.down.Load() {
			a, ok = at.ask(ctx, &q)
		}
		if !ok { // under other ids: those of the question are given back
			all, fresh, _ = s.lacking()
		}
		if !ok || a.Refused < 0 {
			for i, c := range all {
				c.regain(fresh[i])
			}
			return
		}
		if !toolkeep.Sleep(ctx, resumeAfter) {
			return
		}
	}
}

// lacking returns the call and those above it that run and have no slots in the counter, and
// what each is to have: under another id than before, since that may yet be given back.
func (s *Slots) lacking() (all []*Slots, fresh []*hold, at *shared) {
	for c := s; c != nil; c = c.above {
		c.mu.Lock()
		if c.hold != nil && c.lacks && c.stage == running {
			at = c.shared
			h := &hold{id: at.newID(), agent: c.hold.agent}
			for _, slot := range c.hold.slots {
				slot.ID = h.id
				h.slots = append(h.slots, slot)
			}
			all, fresh = append(all, c), append(fresh, h)
		}
		c.mu.Unlock()
	}
	return all, fresh, at
}

// regain notes that the call has slots in the counter again, unless it has none by now or got
// them otherwise.
func (s *Slots) regain(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != running || !s.lacks {
		s.shared.give(h.slots...)
		return
	}
	s.hold, s.lacks = h, false
	s.shared.has(h)
}

// shared makes a Rate of a bucket. Its step is in whole microseconds, rounded up.
func (r rate) shared(name string) Rate {
	step := (time.Duration(r.step) + time.Microsecond - 1).Truncate(time.Microsecond)
	if r.step == 0 {
		return Rate{Name: name}
	}
	return Rate{Name: name, Step: step, Depth: step * time.Duration(r.depth/r.step)}
}

// nameOf is a name in the counter: the kind, and a hash of the parts, since they may be as
// long as they like, and the counter's memory need not show them.
func nameOf(kind string, parts ...string) string {
	if len(parts) == 0 {
		return kind
	}
	b := make([]byte, 0, 256)
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:16])
}
