package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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

// run delivers until ctx ends.
func (s *sink) run(ctx context.Context) {
	var p *position
	for failures := 0; ctx.Err() == nil; {
		more, err := false, error(nil)
		if p == nil {
			p, err = s.begin(ctx)
		}
		if err == nil {
			more, err = s.round(ctx, p)
		}
		switch {
		case err == nil:
			if failures = 0; !more {
				toolkeep.Sleep(ctx, s.Flush)
			}
		case ctx.Err() != nil:
		default: // of the store; another node may have moved a cursor
			p = nil
			if failures++; failures == 2 {
				s.c.Log.Warn("a sink's cursor cannot be read or moved; it is tried again", "sink", s.Name, "error", err)
			}
			toolkeep.Sleep(ctx, pause(failures))
		}
	}
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
	s.lost(p.record.Lost)
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

func (s *sink) lost(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Lost = n
}

// round delivers one batch of each writer with news. more: there may be others at once. An error is the store's,
// or that ctx ended.
func (s *sink) round(ctx context.Context, p *position) (more bool, err error) {
	writers, err := s.c.Store.ChainWriters(ctx, p.at)
	if err != nil {
		return false, err
	}
	if len(writers) == 0 {
		p.caughtUp = s.c.Clock().UTC()
		p.newest = p.caughtUp
	}
	for _, w := range writers {
		full, err := s.batch(ctx, p, w)
		if err != nil {
			return false, err
		}
		more = more || full
	}
	return more, nil
}

func (s *sink) query(writer, after, upTo int64, limit int) toolkeep.LinkQuery {
	q := toolkeep.LinkQuery{Writer: writer, After: after, UpTo: upTo, All: true, Events: s.events, Content: true, Limit: limit}
	if len(s.Tenants) == 1 {
		q.All, q.Tenant = false, s.Tenants[0]
	}
	return q
}

// batch delivers a writer's next entries. full: there may be more.
func (s *sink) batch(ctx context.Context, p *position, w toolkeep.ChainWriter) (full bool, err error) {
	from := p.at[w.ID]
	links, read, err := s.c.Store.Links(ctx, s.query(w.ID, from, w.Newest, s.Batch))
	if err != nil {
		return false, err
	}
	to := toolkeep.Cursor{Writer: w.ID, Seq: read, At: s.c.Clock().UTC()}
	lost, events := int64(0), make([]Event, 0, len(links))
	for i := range links {
		l := &links[i]
		if l.Gone {
			lost++
			continue
		}
		e, err := s.c.Store.Entry(*l)
		if err != nil || e == nil || len(l.Hash) == 0 { // damaged, which verify tells of, or from before the chain
			continue
		}
		if to.Seq == l.Seq {
			to.At = e.At.UTC()
		}
		entry, err := audit.NewEntry(l, e)
		if err != nil {
			return false, err
		}
		event, err := newEvent(entry)
		if err != nil {
			return false, err
		}
		if s.takes(&event) {
			events = append(events, event)
		}
	}
	lost += s.missing(p, w.ID, from, read, links)
	if err := s.send(ctx, events); err != nil {
		return false, err
	}
	s.c.Hook(s.Name)
	if err := s.move(ctx, p, from, to, lost); err != nil {
		return false, err
	}
	return len(links) == s.Batch, nil
}

// missing is how many entries retention may have removed between from and read: numbers without an entry, if
// where the sink was is older than what retention keeps. A sink that reads a part of the entries sees what
// lies between the others only where all of it is gone.
func (s *sink) missing(p *position, writer, from, read int64, links []toolkeep.Link) int64 {
	at, ok := p.times[writer]
	if !ok || p.caughtUp.After(at) {
		at = p.newest
	}
	if at.IsZero() || !at.Before(s.c.Store.KeepsFrom()) {
		return 0
	}
	if s.events || len(s.Tenants) == 1 {
		if len(links) > 0 {
			return 0
		}
		return read - from
	}
	return read - from - int64(len(links))
}

// move moves the cursor, and notes what was lost.
func (s *sink) move(ctx context.Context, p *position, from int64, to toolkeep.Cursor, lost int64) error {
	changes := []toolkeep.Change{toolkeep.MoveCursor{Reader: s.Name, From: from, To: to}}
	if lost > 0 {
		p.record.Lost += lost
		put, err := s.put(p, p.revision)
		if err != nil {
			return err
		}
		changes = append(changes, put)
	}
	if err := s.c.Store.Apply(ctx, changes...); err != nil {
		return err
	}
	p.moved(to)
	if lost > 0 {
		p.revision++
		s.lost(p.record.Lost)
		s.c.Log.Warn("retention removed entries before a sink had them", "sink", s.Name, "at_most", lost, "in_all", p.record.Lost)
	}
	return nil
}

// send delivers events or makes them dead letters. It returns with an error only when ctx ends.
func (s *sink) send(ctx context.Context, events []Event) error {
	size, failures, refusals := len(events), 0, 0
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
		s.state.Error, s.state.FailingSince, s.state.Full = "", time.Time{}, false
	}
	return done, err
}

// failed notes a failure. The first of several is logged once the retries are used up.
func (s *sink) failed(err error, failures int) {
	text := err.Error()
	if len(text) > maxError {
		text = text[:maxError] + "…"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Failures++; s.state.FailingSince.IsZero() {
		s.state.FailingSince = s.c.Clock().UTC()
	}
	s.state.Error, s.state.Full = text, errors.Is(err, errFull)
	if failures == s.Retries+1 {
		s.c.Log.Warn("a sink does not take events; it is tried until it does, and nothing is lost meanwhile", "sink", s.Name, "error", text)
	}
}

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
	s.state.Error, s.state.FailingSince, s.state.Full = "", time.Time{}, false
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
	sent, err := s.dead.replay(func(e *Event) (stop bool, err error) {
		limited, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		_, err = s.out.Deliver(limited, []Event{*e})
		_, refused := errors.AsType[*Refused](err)
		if err != nil && r.Error == "" {
			r.Error = err.Error()
		}
		return !refused, err
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
		links, _, err := s.c.Store.Links(ctx, s.query(w.ID, p.at[w.ID], w.Newest, 1))
		if err != nil {
			return t, err
		}
		if len(links) == 0 {
			continue
		}
		t.Behind += w.Newest - links[0].Seq + 1
		if e, err := s.c.Store.Entry(links[0]); err == nil && e != nil && (t.Oldest.IsZero() || e.At.Before(t.Oldest)) {
			t.Oldest = e.At.UTC()
		}
	}
	return t, nil
}
