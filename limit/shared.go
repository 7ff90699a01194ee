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

// Rate is a limit of calls a minute under a name, which holds nothing secret. Algorithm is one
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
// refuses the call, -1 for none; Wait is the time until a rate admits it. States are those of all
// rates after a call that is admitted, and that of the rate alone which refuses one.
type Answer struct {
	Refused int
	Wait    time.Duration
	States  []State
}

// State is how many calls a rate admits now, and how long it takes until it admits as many as it can.
type State struct {
	Left  int
	Reset time.Duration
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

// take asks the counter for a request or a call, which has its slots on this node already; own is nil for
// a request and a dry run. ok is false where it was not answered.
func (s *shared) take(ctx context.Context, l *Limits, all []bounded, own *Slots, dry bool) (least toolkeep.RateLeft, ok bool, err error) {
	q := &Question{Dry: dry}
	var rates, slots [most]*bounded
	h := &hold{}
	for i := range all {
		b := &all[i]
		if b.spec.PerMinute > 0 {
			rates[len(q.Rates)] = b
			q.Rates = append(q.Rates, b.rate())
		}
		if b.spec.MaxConcurrent > 0 {
			if h.id == "" {
				h.id, h.agent = s.newID(), b.kind == TypeAgent
			}
			slots[len(h.slots)] = b
			h.slots = append(h.slots, Slot{b.slots(), h.id, b.spec.MaxConcurrent})
		}
	}
	q.Slots = h.slots
	if len(q.Rates)+len(q.Slots) == 0 {
		return least, true, nil
	}
	a, ok := s.ask(ctx, q)
	if !ok {
		return least, false, nil
	}
	switch {
	case a.Refused >= len(q.Rates):
		b := slots[a.Refused-len(q.Rates)]
		return least, true, l.whole.slotError(b.kind, b.spec.MaxConcurrent)
	case a.Refused >= 0:
		b := rates[a.Refused]
		l.copy(b, &a.States[0], dry, false)
		return least, true, l.whole.rateError(b, a.Wait, a.States[0].Reset)
	}
	for i, b := range rates[:len(q.Rates)] {
		l.copy(b, &a.States[i], dry, true)
		if b.tells() {
			least = least.Least(toolkeep.RateLeft{Kind: b.kind, PerMinute: b.spec.PerMinute, Left: a.States[i].Left, Reset: a.States[i].Reset})
		}
	}
	if own != nil && len(h.slots) > 0 {
		own.hold, own.shared = h, s
		s.has(h)
	}
	return least, true, nil
}

// copy notes how full a bucket is, for the time when the counter fails. Answers may come in another order than they were
// given in: the fullest is the newest. Of windows a node knows its own calls.
func (l *Limits) copy(b *bounded, state *State, dry, admitted bool) {
	if dry {
		return
	}
	now := l.now()
	full := now + int64(state.Reset)
	if b.in == nil {
		for at := l.globalAt.Load(); at < full && !l.globalAt.CompareAndSwap(at, full); at = l.globalAt.Load() {
		}
		return
	}
	s, e, ok := b.in.open(b.key, true, now)
	defer s.mu.Unlock()
	switch {
	case !ok:
	case !windowed(b.spec.Algorithm):
		e.at = max(e.at, full)
	case admitted && e.wait(&b.spec, now) == 0:
		e.add(&b.spec, now)
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

// rate is what the counter is asked. The step of a bucket is in whole microseconds, rounded up. A window has a name
// of its own, or it would find what a bucket left there before limits.algorithm was changed.
func (b *bounded) rate() Rate {
	r := rateOf(&b.spec)
	step := (time.Duration(r.step) + time.Microsecond - 1).Truncate(time.Microsecond)
	named := Rate{Algorithm: b.spec.Algorithm, PerMinute: b.spec.PerMinute, Step: step, Depth: step * time.Duration(r.depth/r.step)}
	kind, parts := b.kind, b.of[:]
	switch b.kind {
	case TypeTool:
		named.Name = b.tool()
		return named
	case TypeAgentTool:
		kind = "pair"
	case TypeGlobal:
		parts = nil
	case TypeTenant:
		parts = parts[:1]
	default:
		parts = parts[:2]
	}
	if windowed(b.spec.Algorithm) {
		kind += " " + b.spec.Algorithm
	}
	named.Name = nameOf(kind, parts...)
	return named
}

// slots is the name of the slots in the counter.
func (b *bounded) slots() string {
	if b.kind == TypeAgent {
		return nameOf("agent slots", b.of[0], b.of[1])
	}
	return b.tool() + ":slots"
}

func (b *bounded) tool() string {
	return nameOf("tool", b.of[0], b.of[1], b.of[2], strconv.Itoa(b.spec.PerMinute), strconv.Itoa(b.spec.Burst), strconv.Itoa(b.spec.MaxConcurrent))
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
