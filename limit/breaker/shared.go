package breaker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Kind is the kind of the documents of breakers, each its tool's tenant's; the id is that of the breaker.
const Kind = "breaker"

// Types of events.
const (
	eventOpened     = "ai.agent.circuit.opened"
	eventHalfOpened = "ai.agent.circuit.half_opened"
	eventClosed     = "ai.agent.circuit.closed"
)

const (
	// storeWait is how long a test call, and a change of state, waits for the store.
	storeWait = 2 * time.Second
	// storeAgain is how long after a failure the store is asked again.
	storeAgain = time.Second
	// testLease is for how long nothing may be heard of test calls before another node makes them.
	testLease = time.Minute
	// testRenewal is how often a node says that its test calls still run.
	testRenewal = testLease / 3
	// tries is how often a change is tried again that met another one.
	tries = 5
)

// Store is what Breakers needs of a store.
type Store interface {
	toolkeep.Applier
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Record is the document of a breaker that is not closed.
type Record struct {
	State State     `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Until is when test calls begin; of half_open, when they count as given up.
	Until    time.Time `json:"until,omitzero"`
	Node     string    `json:"node,omitempty"`   // which opened it, or makes the test calls
	By       string    `json:"by,omitempty"`     // the operator who forced it
	Reason   string    `json:"reason,omitempty"` // why it opened; the operator's words if forced
	Calls    uint32    `json:"calls,omitempty"`  // of that node, in the window
	Failures uint32    `json:"failures,omitempty"`
	Slow     uint32    `json:"slow,omitempty"`
	InARow   int       `json:"in_a_row,omitempty"`
	// LatencyMS is how long these calls took on average.
	LatencyMS float64 `json:"latency_ms,omitempty"`
	Passed    int     `json:"passed,omitempty"` // test calls that succeeded
}

func (r *Record) forced() bool { return r.State == ForcedOpen || r.State == ForcedClosed }

// read reads a document. One that cannot be read blocks, as an operator's open one would.
func read(d toolkeep.Document) Record {
	var r Record
	if json.Unmarshal(d.Body, &r) != nil || r.State != Open && r.State != HalfOpen && !r.forced() {
		r = Record{State: ForcedOpen, Since: d.UpdatedAt, Reason: "the breaker's document cannot be read; reset it"}
	}
	return r
}

// Start reads the states and keeps them from now on, until Stop.
func (s *Breakers) Start(ctx context.Context) (after int64, err error) {
	all, after, err := s.c.Store.Documents(ctx, Kind)
	if err != nil {
		return 0, err
	}
	for _, d := range all {
		b := s.kept(keyOf(d.Tenant, d.ID))
		b.mu.Lock()
		b.adopt(read(d), s.now(), s.c.Clock(), s.c.Node)
		b.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil && !s.ended {
		run, end := context.WithCancel(context.Background())
		s.end = end
		s.keeping.Go(func() { s.keep(run) })
		s.keeping.Go(func() { s.tell(run) })
	}
	return after, nil
}

// Stop ends what Start began. It may be called twice.
func (s *Breakers) Stop() {
	s.mu.Lock()
	s.ended = true
	end := s.end
	s.mu.Unlock()
	if end != nil {
		end()
	}
	s.keeping.Wait()
}

// Follow is told of the feed: the document of a breaker that changed is read again.
func (s *Breakers) Follow(c toolkeep.Committed) {
	switch d := c.Change.(type) {
	case toolkeep.PutDocument:
		if d.Document.Kind == Kind {
			s.mark(s.kept(keyOf(d.Document.Tenant, d.Document.ID)))
		}
	case toolkeep.DeleteDocument:
		if d.Kind == Kind {
			if b := s.known(keyOf(d.Tenant, d.ID)); b != nil {
				s.mark(b)
			}
		}
	}
}

// mark has keep reconcile a breaker with the store.
func (s *Breakers) mark(b *Breaker) {
	s.mu.Lock()
	s.dirty[b] = struct{}{}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep reconciles breakers with the store, one after the other. While the store fails it tries again each second.
func (s *Breakers) keep(ctx context.Context) {
	renewal := time.NewTicker(s.renewal)
	defer renewal.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-renewal.C:
			for _, b := range s.which(func(b *Breaker) bool { return !b.passing.Load() && b.tested() }) {
				s.mark(b)
			}
		case <-s.wake:
		}
		for ctx.Err() == nil {
			b := s.next()
			if b == nil {
				break
			}
			err := b.alone(ctx, func() error { return s.reconcile(ctx, b, false) })
			if err != nil && ctx.Err() == nil {
				s.c.Log.Warn("the state of a breaker cannot be read or written; this is tried again", "breaker", b.key.ID(), "error", err)
				s.mark(b)
				toolkeep.Sleep(ctx, storeAgain)
			}
		}
	}
}

// alone runs what reads and writes the document of the breaker while nothing else of this node does; the error is ctx's if it ends
// before.
func (b *Breaker) alone(ctx context.Context, do func() error) error {
	select {
	case b.io <- struct{}{}:
		defer func() { <-b.io }()
		return do()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tested reports whether test calls of this node are under way.
func (b *Breaker) tested() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running > 0
}

func (s *Breakers) next() *Breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.dirty {
		delete(s.dirty, b)
		return b
	}
	return nil
}

// claim makes this node the one that tests a breaker whose time is over. It returns why it does not, "" where the
// breaker is to be looked at again. b.mu is held, but not while the store is asked.
func (s *Breakers) claim(ctx context.Context, b *Breaker) (refusal string, wait time.Duration) {
	if s.c.Store == nil {
		b.record.State, b.record.Since = HalfOpen, s.c.Clock().UTC()
		b.testing()
		return "", 0
	}
	if b.claiming { // another call does the same
		return refusedTesting, time.Second
	}
	b.claiming = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.claiming = false
	}()
	within, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	if err := b.alone(within, func() error { return s.reconcile(within, b, true) }); err != nil {
		if ctx.Err() == nil {
			s.c.Log.Warn("a breaker's state cannot be read or written, so its tool is not tried again", "breaker", b.key.ID(), "error", err)
		}
		return refusedNoStore, storeAgain
	}
	return "", 0
}

// reconcile writes what this node decided about a breaker, unless another one decided meanwhile, whose state it then
// takes. With claim it makes this node the one that tests, if the time for that has come. b.io is held.
func (s *Breakers) reconcile(ctx context.Context, b *Breaker, claim bool) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	var err error
	for range tries {
		var d toolkeep.Document
		var is *Record
		d, err = s.c.Store.Document(ctx, Kind, b.key.tenant, b.key.ID())
		switch {
		case err == nil:
			r := read(d)
			is = &r
		case !errors.Is(err, toolkeep.ErrNotFound):
			return err
		}
		b.mu.Lock()
		plan := s.plan(b, is, claim)
		b.mu.Unlock()
		if plan == nil {
			return nil
		}
		if err = s.write(ctx, b, d, plan); err == nil {
			b.mu.Lock()
			s.wrote(b, plan)
			more := b.intent != none
			b.mu.Unlock()
			if !more && (!claim || plan.claims) {
				return nil
			}
			continue
		}
		if !errors.Is(err, toolkeep.ErrStale) && !errors.Is(err, toolkeep.ErrNotFound) {
			return err
		}
	}
	return err
}

// plan is a change of a document.
type plan struct {
	next   *Record // nil removes it
	event  string  // "" for none
	intent intent  // which it carries out
	epoch  int64
	passed int
	claims bool
}

// plan compares what is stored, nil for closed, with what this node decided. It returns what is to be written, nil
// where the stored state is taken. b.mu is held.
func (s *Breakers) plan(b *Breaker, is *Record, claim bool) *plan {
	now, wall := s.now(), s.c.Clock().UTC()
	next := b.record
	w := &plan{next: &next, intent: b.intent, epoch: b.epoch.Load(), passed: b.record.Passed}
	tests := is != nil && is.State == HalfOpen && is.Node == s.c.Node && b.mine // the test calls of this node
	switch {
	case is == nil && b.intent == opens:
		next.Node, w.event = s.c.Node, eventOpened
		return w
	case is == nil:
		if b.state != Closed {
			b.closing()
		}
		return nil
	case tests && b.intent == closes:
		w.next, w.event = nil, eventClosed
		return w
	case tests && (b.intent == progresses || b.intent == none && b.running > 0 && is.Until.Sub(wall) <= testLease-testRenewal):
		next.State, next.Node, next.Until = HalfOpen, s.c.Node, wall.Add(testLease)
		return w
	case is.State == HalfOpen && is.Node == s.c.Node && b.intent == reopens:
		next.Node, w.event = s.c.Node, eventOpened
		return w
	}
	if !tests {
		b.adopt(*is, now, wall, s.c.Node)
	}
	if !claim || b.mine || b.until > now || b.state != Open && b.state != HalfOpen {
		return nil
	}
	next = b.record
	w.claims, w.intent = true, none
	if is.State == Open {
		w.event, next.Since = eventHalfOpened, wall
	}
	next.State, next.Node, next.Until = HalfOpen, s.c.Node, wall.Add(testLease)
	return w
}

// write writes a plan, if the document is still d.
func (s *Breakers) write(ctx context.Context, b *Breaker, d toolkeep.Document, w *plan) error {
	var changes []toolkeep.Change
	if w.next == nil {
		changes = append(changes, toolkeep.DeleteDocument{Kind: Kind, Tenant: b.key.tenant, ID: b.key.ID(), Expect: d.Revision, By: s.c.Node})
	} else {
		body, err := json.Marshal(w.next)
		if err != nil {
			return err
		}
		changes = append(changes, toolkeep.PutDocument{Document: toolkeep.Document{Kind: Kind, Tenant: b.key.tenant, ID: b.key.ID(), Body: body, UpdatedBy: s.c.Node}, Expect: d.Revision})
	}
	if w.event != "" {
		r := w.next
		if r == nil {
			r = &Record{State: Closed, Node: s.c.Node, Passed: w.passed}
		}
		changes = append(changes, s.event(w.event, b.key, r))
		return s.applied(b.key, r, s.c.Store.Apply(ctx, changes...))
	}
	return s.c.Store.Apply(ctx, changes...)
}

// wrote notes that a plan is in the store. b.mu is held.
func (s *Breakers) wrote(b *Breaker, w *plan) {
	switch {
	case w.claims:
		b.record = *w.next
		b.testing()
	case b.epoch.Load() != w.epoch: // it opened again meanwhile
	case w.intent == closes:
		b.closing()
	case w.intent == progresses && b.record.Passed > w.passed: // more of them succeeded meanwhile
	case b.intent == w.intent:
		b.record.Node = s.c.Node
		b.intent = none
	}
}

// adopt takes the state that is stored. b.mu is held.
func (b *Breaker) adopt(r Record, now int64, wall time.Time, node string) {
	same := b.state == r.State && b.record.Since.Equal(r.Since) && !(b.mine && r.Node != node)
	b.record, b.intent = r, none
	// No longer than it was written for, also if the clocks of the nodes differ.
	b.until = now + int64(max(0, min(r.Until.Sub(wall), r.Until.Sub(r.Since), MaxOpen)))
	if r.State == HalfOpen {
		b.until = now + int64(max(0, min(r.Until.Sub(wall), testLease)))
		if r.Node == node && !b.mine { // of an earlier run of this node
			b.until = now
		}
	}
	if !same {
		b.window.clear()
		b.setState(r.State)
	}
}

func (s *Breakers) event(kind string, k key, r *Record) toolkeep.Change {
	data := map[string]any{"circuit_name": k.ID(), "state": string(r.State)}
	if k.tool {
		data["tool_id"] = k.name
	}
	for name, text := range map[string]string{"reason": r.Reason, "agent_did": r.By, "node": r.Node} {
		if text != "" {
			data[name] = text
		}
	}
	if kind == eventClosed {
		data["test_success_count"] = r.Passed
	} else if r.Calls > 0 {
		data["failure_count"], data["slow_count"], data["window_size"] = int(r.Failures), int(r.Slow), int(r.Calls)
		data["failure_rate"] = float64(r.Failures*1000/r.Calls) / 10
	}
	return toolkeep.AppendEvent{Event: toolkeep.Event{ID: uuid.Must(uuid.NewV7()).String(), Type: kind, Tenant: cmp.Or(k.tenant, s.c.Home), Time: s.c.Clock().UTC(), Data: canon.Append(nil, data)}}
}

// Force has an operator open a breaker or close it, whatever its calls end with, until Reset. The breaker need not be
// known here. An error is that of the store.
func (s *Breakers) Force(ctx context.Context, tenant, id string, state State, by, reason string) error {
	r := &Record{State: state, Since: s.c.Clock().UTC(), By: by, Reason: reason, Node: s.c.Node}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	kind := eventOpened
	if state == ForcedClosed {
		kind = eventClosed
	}
	k := keyOf(tenant, id)
	return s.operate(ctx, k, toolkeep.PutDocument{Document: toolkeep.Document{Kind: Kind, Tenant: tenant, ID: id, Body: body, UpdatedBy: by}, Expect: toolkeep.AnyRevision}, kind, r)
}

// Reset closes a breaker, with nothing counted on this node, and on others if it was not closed. An error is that of the store.
func (s *Breakers) Reset(ctx context.Context, tenant, id, by, reason string) error {
	k := keyOf(tenant, id)
	err := s.operate(ctx, k, toolkeep.DeleteDocument{Kind: Kind, Tenant: tenant, ID: id, Expect: toolkeep.AnyRevision, By: by},
		eventClosed, &Record{State: Closed, By: by, Reason: reason, Node: s.c.Node})
	if b := s.known(k); b != nil && err == nil {
		b.mu.Lock()
		if b.state == Closed {
			b.closing()
		}
		b.mu.Unlock()
	}
	return err
}

// operate writes what an operator decided, a document's change and its event, and takes it here at once. Where there is no document
// to delete, the event alone is written.
func (s *Breakers) operate(ctx context.Context, k key, document toolkeep.Change, kind string, r *Record) error {
	b, event := s.kept(k), s.event(kind, k, r)
	return b.alone(ctx, func() error {
		err := s.c.Store.Apply(ctx, document, event)
		if errors.Is(err, toolkeep.ErrNotFound) {
			err = s.c.Store.Apply(ctx, event)
		}
		if s.applied(k, r, err) == nil {
			b.mu.Lock()
			b.intent = none // what this node decided before is over
			b.mu.Unlock()
			err = s.reconcile(ctx, b, false)
		}
		return err
	})
}
