package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
)

const (
	firstPause = 250 * time.Millisecond // between tries, before jitter; doubled by each failure
	mostPause  = 30 * time.Second
	mostLater  = 5 * time.Minute // that a sink may ask for
	maxError   = 300             // bytes of an error that is shown

	window = 20_000 // numbers that a sink of a part of the entries looks at in one query
)

// sink is one sink and how far it is.
type sink struct {
	Settings
	c      *Config
	events bool // it takes no calls
	out    Sink

	turn chan struct{} // held by who delivers, or has the dead letters
	dead deadLetters

	mu    sync.Mutex
	state State
}

// record is the body of a SinkKind document.
type record struct {
	BegunAt time.Time `json:"begun_at"`
	Lost    int64     `json:"lost,omitempty"`
	LostAt  time.Time `json:"lost_at,omitzero"` // when the last of them was noticed
}

// position is how far a run has come.
type position struct {
	at       toolkeep.JournalPosition
	times    map[int64]time.Time
	caughtUp time.Time // when nothing was left
	newest   time.Time // of all of these
	record   record
	revision int64 // of the record's document; 0: there is none
}

func (s *sink) known() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// run delivers until ctx ends. What fails then is the next leader's to tell.
func (s *sink) run(ctx context.Context) {
	defer s.works()
	var p *position
	for failures := 0; ctx.Err() == nil; {
		more, err := s.step(ctx, &p)
		switch {
		case err == nil:
			if failures > 0 {
				s.works()
			}
			if failures = 0; !more {
				toolkeep.Sleep(ctx, s.Flush)
			}
		case ctx.Err() != nil:
		default: // of the store, where another node may have moved a cursor, or a panic
			p = nil
			failures++
			if failures > 1 || errors.Is(err, errPanic) {
				s.fails(err)
			}
			if failures == 2 {
				s.c.Log.Warn("a sink cannot go on; it is tried again", "sink", s.Name, "error", err)
			}
			toolkeep.Sleep(ctx, pause(failures))
		}
	}
}

// errPanic is what State shows of a panic; the log has more.
var errPanic = errors.New("internal error; the server's log has it")

// step delivers what there is at p, which it reads first if it is nil.
func (s *sink) step(ctx context.Context, p **position) (more bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.c.Log.Error("a sink panicked; it is tried again", "sink", s.Name, "panic", v, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	if *p == nil {
		if *p, err = s.begin(ctx); err != nil {
			return false, err
		}
	}
	return s.round(ctx, *p)
}

// pause is how long to wait after failures in a row, with full jitter.
func pause(failures int) time.Duration {
	most := min(firstPause<<min(failures, 16), mostPause)
	return time.Duration(rand.Int64N(int64(most))) + time.Millisecond
}

// load reads the position. A sink that has none yet has revision 0.
func (s *sink) load(ctx context.Context) (*position, error) {
	p := &position{at: toolkeep.JournalPosition{}, times: map[int64]time.Time{}}
	d, err := s.c.Store.Document(ctx, SinkKind, "", s.Name)
	if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
		return nil, err
	}
	if err == nil {
		if p.revision = d.Revision; json.Unmarshal(d.Body, &p.record) != nil {
			return nil, fmt.Errorf("the document of the sink %s cannot be read", s.Name)
		}
	}
	cursors, err := s.c.Store.Cursors(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	for _, c := range cursors {
		p.moved(c)
	}
	return p, nil
}

func (p *position) moved(c toolkeep.Cursor) {
	p.at[c.Writer], p.times[c.Writer] = c.Seq, c.At
	if c.At.After(p.newest) {
		p.newest = c.At
	}
}

// begin reads the position, and gives a new sink one.
func (s *sink) begin(ctx context.Context) (*position, error) {
	p, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	s.lost(&p.record)
	if p.revision != 0 {
		return p, nil
	}
	now := s.c.Clock().UTC()
	p.record.BegunAt = now
	changes := []toolkeep.Change{}
	if !s.FromStart {
		writers, err := s.c.Store.ChainWriters(ctx, p.at)
		if err != nil {
			return nil, err
		}
		for _, w := range writers {
			changes = append(changes, toolkeep.MoveCursor{Reader: s.Name, From: p.at[w.ID], To: toolkeep.Cursor{Writer: w.ID, Seq: w.Newest, At: now}})
		}
	}
	put, err := s.put(p, toolkeep.NoRevision)
	if err != nil {
		return nil, err
	}
	if err := s.c.Store.Apply(ctx, append(changes, put)...); err != nil {
		return nil, err
	}
	return s.load(ctx)
}

func (s *sink) put(p *position, expect int64) (toolkeep.Change, error) {
	body, err := json.Marshal(p.record)
	return toolkeep.PutDocument{OmitBody: true, Expect: expect,
		Document: toolkeep.Document{Kind: SinkKind, ID: s.Name, Body: body, UpdatedBy: author}}, err
}

func (s *sink) lost(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Lost, s.state.LostAt = r.Lost, r.LostAt
}

func (s *sink) query(writer, after, upTo int64, limit int) toolkeep.LinkQuery {
	q := toolkeep.LinkQuery{Writer: writer, After: after, UpTo: upTo, All: true, Events: s.events, Content: true, Limit: limit}
	if len(s.Tenants) == 1 {
		q.All, q.Tenant = false, s.Tenants[0]
	}
	return q
}

// span returns the numbers of a writer that are looked at next: after and up to. Those of a sink that reads a part of
// the entries are few enough for a query that finds none.
func (s *sink) span(ctx context.Context, p *position, w toolkeep.ChainWriter) (after, upTo int64, err error) {
	after = p.at[w.ID]
	if !s.part() {
		return after, w.Newest, nil
	}
	if after == 0 { // the numbers of a writer may begin far later
		first, _, err := s.c.Store.Links(ctx, toolkeep.LinkQuery{Writer: w.ID, UpTo: w.Newest, All: true, Limit: 1})
		if err != nil {
			return 0, 0, err
		}
		if len(first) == 0 {
			return w.Newest, w.Newest, nil
		}
		after = first[0].Seq - 1
	}
	return after, min(w.Newest, after+window), nil
}

// read makes the event of an entry. An error is a damaged entry.
func (s *sink) read(l *toolkeep.Link) (*toolkeep.Entry, Event, error) {
	e, err := s.c.Store.Entry(*l)
	if err != nil {
		return nil, Event{}, err
	}
	if e == nil {
		return nil, Event{}, fmt.Errorf("there is no kind %d of entries", l.Kind)
	}
	entry, err := audit.NewEntry(l, e)
	if err != nil {
		return e, Event{}, err
	}
	event, err := newEvent(entry)
	return e, event, err
}

// part reports whether the sink reads a part of the entries.
func (s *sink) part() bool { return s.events || len(s.Tenants) == 1 }

// stood returns the time up to which the sink had all of a writer.
func (s *sink) stood(p *position, writer int64) time.Time {
	at, ok := p.times[writer]
	if !ok || p.caughtUp.After(at) {
		return p.newest
	}
	return at
}

// trimmed reports whether retention may have removed, since the sink began, what was recorded after at. What it had
// removed by then was never the sink's.
func (s *sink) trimmed(p *position, at time.Time) bool {
	keeps := s.c.Store.KeepsFrom()
	began := p.record.BegunAt.Add(-s.c.Clock().Sub(keeps)) // KeepsFrom of then
	return !at.IsZero() && at.Before(keeps) && !at.Before(began)
}

// missing is how many entries retention may have removed that have a number after one and up to another, between which
// there is no entry. A sink that reads a part of the entries does not see it.
func (s *sink) missing(p *position, at time.Time, after, upTo int64) int64 {
	if s.part() || !s.trimmed(p, at) {
		return 0
	}
	return upTo - after
}

// send delivers events or makes them dead letters. It returns with an error only when ctx ends.
func (s *sink) send(ctx context.Context, events []Event) error {
	size, failures, refusals := min(len(events), s.Batch), 0, 0
	for len(events) > 0 {
		n, err := s.deliver(ctx, events[:min(size, len(events))])
		if n > 0 {
			events, failures, refusals = events[n:], 0, 0
		}
		if err == nil {
			size = min(2*size, s.Batch)
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if no, ok := errors.AsType[*Refused](err); ok {
			if size = min(size, len(events)); size > 1 { // which one it is shows itself alone
				size /= 2
				continue
			}
			if refusals++; refusals > s.Retries {
				if err = s.bury(ctx, &events[0], no.Err); err == nil {
					events, failures, refusals = events[1:], 0, 0
					continue
				}
			}
		}
		failures++
		s.failed(err, failures)
		wait := pause(failures)
		if later, ok := errors.AsType[*Later](err); ok {
			wait = max(wait, min(later.After, mostLater))
		}
		if !toolkeep.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
	return nil
}

// take waits for the turn to deliver.
func (s *sink) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sink) deliver(ctx context.Context, events []Event) (done int, err error) {
	if err := s.take(ctx); err != nil {
		return 0, err
	}
	defer func() { <-s.turn }()
	limited, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	done, err = s.out.Deliver(limited, events)
	if err == nil {
		done = len(events)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Delivered += int64(done)
	if done > 0 && s.state.Error != "" {
		s.c.Log.Info("a sink takes events again", "sink", s.Name, "after", s.c.Clock().Sub(s.state.FailingSince).Round(time.Second))
		s.state.works()
	}
	return done, err
}

// failed notes a failure. The first of several is logged once the retries are used up.
func (s *sink) failed(err error, failures int) {
	text := s.fails(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Failures++
	if failures == s.Retries+1 {
		s.c.Log.Warn("a sink does not take events; it is tried until it does, and nothing is lost meanwhile", "sink", s.Name, "error", text)
	}
}

// fails notes why nothing is delivered, and returns the text that is shown.
func (s *sink) fails(err error) string {
	text := err.Error()
	if len(text) > maxError {
		text = text[:maxError] + "…"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.FailingSince.IsZero() {
		s.state.FailingSince = s.c.Clock().UTC()
	}
	s.state.Error, s.state.Full = text, errors.Is(err, errFull)
	return text
}

// works notes that nothing fails.
func (s *sink) works() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.works()
}

func (st *State) works() { st.Error, st.FailingSince, st.Full = "", time.Time{}, false }

// bury makes an event a dead letter.
func (s *sink) bury(ctx context.Context, e *Event, cause error) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	if err := s.dead.add(s.c.Clock(), e, cause); err != nil {
		return err
	}
	s.mu.Lock()
	s.state.DeadLetters = s.dead.count
	s.state.works()
	s.mu.Unlock()
	s.c.Log.Warn("a sink refuses an event, which is a dead letter now", "sink", s.Name, "event", e.ID, "type", e.Type, "error", cause)
	return nil
}

// replay sends the dead letters again.
func (s *sink) replay(ctx context.Context) (r Replayed, err error) {
	if err := s.take(ctx); err != nil {
		return r, err
	}
	defer func() { <-s.turn }()
	tried := 0
	sent, err := s.dead.replay(func(e *Event) (stop bool, err error) {
		if ctx.Err() != nil {
			return true, nil
		}
		limited, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		_, err = s.out.Deliver(limited, []Event{*e})
		if tried++; err != nil && ctx.Err() != nil && tried > 1 {
			return true, nil // the time is up, which is no fault of the sink; the next replay sends it
		}
		_, refused := errors.AsType[*Refused](err)
		if err != nil && r.Error == "" {
			r.Error = err.Error()
		}
		return err != nil && !refused, err
	})
	s.mu.Lock()
	s.state.DeadLetters = s.dead.count
	s.state.Delivered += int64(sent)
	s.mu.Unlock()
	r.Sent, r.Remaining = sent, s.dead.count
	return r, err
}

// status reads how far the sink is.
func (s *sink) status(ctx context.Context) (Status, error) {
	t := Status{Settings: s.Settings}
	p, err := s.load(ctx)
	if err != nil || p.revision == 0 {
		return t, err
	}
	t.Begun, t.Lost = true, p.record.Lost
	writers, err := s.c.Store.ChainWriters(ctx, p.at)
	if err != nil {
		return t, err
	}
	for _, w := range writers {
		after, upTo, err := s.span(ctx, p, w)
		if err != nil {
			return t, err
		}
		links, _, err := s.c.Store.Links(ctx, s.query(w.ID, after, upTo, 1))
		if err != nil {
			return t, err
		}
		if len(links) == 0 {
			t.Behind += w.Newest - upTo
			continue
		}
		t.Behind += w.Newest - links[0].Seq + 1
		if e, err := s.c.Store.Entry(links[0]); err == nil && e != nil && (t.Oldest.IsZero() || e.At.Before(t.Oldest)) {
			t.Oldest = e.At.UTC()
		}
	}
	return t, nil
}
