package usage

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

const (
	waiting    = 2000        // events that may wait to be written
	batch      = 100         // that are written at once
	writeEvery = time.Second // and how long one waits at most
	lastWrite  = 2 * time.Second
)

// writer writes events in the background, so that no search waits for the store. What
// comes faster than the store takes it is dropped and counted.
type writer struct {
	store toolkeep.Applier
	clock func() time.Time
	log   *slog.Logger
	in    chan pendingEvent
	ask   chan chan struct{} // write now, and close
	done  chan struct{}      // closed when run ends

	dropped  atomic.Int64
	dropTime atomic.Int64 // of the newest that was dropped, in milliseconds
	written  atomic.Int64
}

// pendingEvent makes its event when it is written, off the path of the search.
type pendingEvent func() (toolkeep.Event, error)

func newWriter(store toolkeep.Applier, clock func() time.Time, log *slog.Logger) *writer {
	return &writer{store: store, clock: clock, log: log, in: make(chan pendingEvent, waiting), ask: make(chan chan struct{}), done: make(chan struct{})}
}

func (w *writer) put(e pendingEvent) {
	select {
	case w.in <- e:
	default:
		w.drop(1)
	}
}

func (w *writer) drop(n int) {
	w.dropped.Add(int64(n))
	w.dropTime.Store(w.clock().UnixMilli())
}

// run writes until ctx ends, and then what waits.
func (w *writer) run(ctx context.Context) {
	defer close(w.done)
	var held []toolkeep.Change
	due := time.NewTimer(0)
	defer due.Stop()
	<-due.C
	armed := false
	write := func(ctx context.Context) {
		if len(held) > 0 && w.store.Apply(ctx, held...) == nil {
			w.written.Add(int64(len(held)))
			held = nil
		}
		armed = len(held) > 0
		if armed {
			due.Reset(writeEvery)
		}
	}
	for {
		in := w.in
		if len(held) >= batch {
			in = nil // the store did not take them: what comes waits in the channel
		}
		select {
		case e := <-in:
			held = w.take(held, e)
			switch {
			case len(held) >= batch:
				write(ctx)
			case !armed:
				armed = true
				due.Reset(writeEvery)
			}
		case <-due.C:
			write(ctx)
			if armed {
				w.log.Warn("retrieval events could not be written and are kept for another try", "events", len(held))
			}
		case asked := <-w.ask:
			for len(w.in) > 0 && len(held) < waiting {
				held = w.take(held, <-w.in)
			}
			write(ctx)
			close(asked)
		case <-ctx.Done():
			for len(w.in) > 0 {
				held = w.take(held, <-w.in)
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
			defer cancel()
			if write(last); len(held) > 0 {
				w.drop(len(held))
				w.log.Warn("retrieval events are lost, for the store did not take them", "events", len(held))
			}
			return
		}
	}
}

func (w *writer) take(held []toolkeep.Change, e pendingEvent) []toolkeep.Change {
	made, err := e()
	if err != nil {
		w.log.Error("a retrieval event could not be made", "error", err)
		w.drop(1)
		return held
	}
	return append(held, toolkeep.AppendEvent{Event: made})
}

// flush writes what waits; false where the writer has ended.
func (w *writer) flush(ctx context.Context) bool {
	asked := make(chan struct{})
	select {
	case w.ask <- asked:
	case <-w.done:
		return false
	case <-ctx.Done():
		return false
	}
	select {
	case <-asked:
		return true
	case <-ctx.Done():
		return false
	}
}

// Retrieved records a search in the background and gives the id of its event, by which
// feedback names it, at once. It never waits. The record is in the store within a
// second, unless the store is away for long: the newest are then dropped, counted, and
// told by Health.
func (u *Usage) Retrieved(p *toolkeep.Principal, r Retrieval) string {
	v, err := uuid.NewV7()
	if err != nil {
		u.writer.drop(1)
		return ""
	}
	id := v.String()
	if r.At.IsZero() {
		r.At = u.c.Clock().Add(-r.Took)
	}
	if r.Session.Tenant == "" {
		r.Session.Tenant = p.Tenant
	}
	if r.Session.Subject == "" {
		r.Session.Subject = p.Subject
	}
	// A header may hold any bytes, and JSON takes no others than these: one odd name of a
	// client must not cost the record.
	for _, s := range []*string{&r.Agent, &r.Query, &r.Session.ID, &r.Session.Subject, &r.Strategy} {
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	addr := p.Addr
	u.writer.put(func() (toolkeep.Event, error) {
		subject := short(r.Session.Subject)
		d := retrievedData{EventID: id, Timestamp: stamp(r.At), UserID: subject, AgentDID: subject, SessionID: short(r.Session.ID),
			Strategy: r.Strategy, TookMS: r.Took.Milliseconds(), Found: max(r.Found, len(r.Tools)), Face: r.Face, Address: addr,
			Agent: clip(u.c.Clean(r.Session.Tenant, clip(r.Agent, 4*maxAgent)), maxAgent)}
		if !u.c.NoHistory {
			// Cut to size only after cleaning: half a secret would not be recognised.
			d.Query = clip(u.c.Clean(r.Session.Tenant, clip(r.Query, 64<<10)), maxQuery)
		}
		n := min(len(r.Tools), maxOffered)
		d.Tools, d.Parts = make([]string, n), make([][5]float64, n)
		for i, o := range r.Tools[:n] {
			d.Tools[i], d.Parts[i] = o.Tool, rounded(o.Parts)
		}
		return eventOf(EventRetrieved, r.Session.Tenant, id, r.At, d)
	})
	return id
}
