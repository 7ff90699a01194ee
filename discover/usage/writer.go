package usage

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

const (
	waiting    = 2000        // events that may wait to be written
	batch      = 100         // events written at once
	writeEvery = time.Second // the longest an event waits
	lastWrite  = 2 * time.Second
)

// writer writes events in the background, so that no search waits for the store. Events beyond the
// store's rate are dropped and counted.
type writer struct {
	store   toolkeep.Applier
	clock   func() time.Time
	log     *slog.Logger
	wake    chan struct{} // another batch is ready
	writing chan struct{} // holds a token during a write

	mu    sync.Mutex
	queue []pendingEvent

	dropped, written atomic.Int64
	lostAt           atomic.Int64 // when the last was dropped, in milliseconds
}

// pendingEvent builds its event when it is written, outside the search's path.
type pendingEvent func() (toolkeep.Event, error)

func (w *writer) put(e pendingEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == waiting {
		w.drop(1)
		return
	}
	w.queue = append(w.queue, e)
	if len(w.queue)%batch == 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (w *writer) drop(n int) {
	w.dropped.Add(int64(n))
	w.lostAt.Store(w.clock().UnixMilli())
}

// waits returns how many events are pending.
func (w *writer) waits() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(len(w.queue))
}

// run writes until ctx ends, and then the pending events.
func (w *writer) run(ctx context.Context) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.wake:
			w.write(ctx, batch)
		case <-tick.C:
			w.write(ctx, 1)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
			defer cancel()
			if w.write(last, 1); len(w.queue) > 0 {
				w.drop(len(w.queue))
				w.log.Warn("records of searches are lost: the store did not accept them", "events", len(w.queue))
			}
			return
		}
	}
}

// write writes batches while at least least events are pending. Events the store does not accept
// stay pending.
func (w *writer) write(ctx context.Context, least int) {
	select {
	case w.writing <- struct{}{}:
		defer func() { <-w.writing }()
	case <-ctx.Done():
		return
	}
	for {
		w.mu.Lock()
		n := len(w.queue)
		next := slices.Clone(w.queue[:min(n, batch)])
		w.mu.Unlock()
		if n < least {
			return
		}
		var made []toolkeep.Change
		for _, e := range next {
			event, err := e()
			if err != nil {
				w.log.Error("the record of a search cannot be made", "error", err)
				continue
			}
			made = append(made, toolkeep.AppendEvent{Event: event})
		}
		if err := w.store.Apply(ctx, made...); err != nil {
			w.log.Warn("records of searches cannot be written and are tried again", "events", n, "error", err)
			return
		}
		w.written.Add(int64(len(made)))
		if failed := len(next) - len(made); failed > 0 {
			w.drop(failed)
		}
		w.mu.Lock()
		w.queue = slices.Delete(w.queue, 0, len(next))
		w.mu.Unlock()
	}
}

// kept is what is stored of a query. It is cut once more after it was cleaned: half a secret would not be recognised.
func (u *Usage) kept(query string) string {
	return toolkeep.CutBytes(u.c.Clean(toolkeep.CutBytes(query, maxCleaned)), maxQuery)
}

// Retrieved records a search in the background and at once returns its event id, which feedback
// refers to, "" where r.Unlearned. It never blocks. The record is in the store within a second, unless the store is
// unavailable for long: then the newest are dropped, counted, and reported by Health.
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
		r.Session.Subject = p.Person()
	}
	// Headers may hold any bytes, but JSON must be UTF-8: an odd client name must not lose the
	// record.
	r.Query, r.Agent = toolkeep.CutBytes(r.Query, maxCleaned), toolkeep.CutBytes(r.Agent, 4*maxAgent)
	if u.c.NoHistory {
		r.Query = ""
	}
	for _, s := range []*string{&r.Agent, &r.Query, &r.Session.ID, &r.Session.Subject, &r.Strategy} {
		*s = strings.ToValidUTF8(strings.Clone(*s), "\uFFFD") // not what it was cut from
	}
	addr, agent := p.Addr, strings.ToValidUTF8(p.Subject, "\uFFFD")
	u.writer.put(func() (toolkeep.Event, error) {
		subject := short(r.Session.Subject)
		d := retrievedData{EventID: id, Timestamp: stamp(r.At), UserID: subject, AgentDID: short(agent), SessionID: short(r.Session.ID),
			Strategy: r.Strategy, TookMS: r.Took.Milliseconds(), Found: max(r.Found, len(r.Tools)), Face: r.Face, Address: addr, Unlearned: r.Unlearned,
			Agent: toolkeep.CutBytes(u.c.Clean(r.Agent), maxAgent)}
		d.Query = u.kept(r.Query)
		n := min(len(r.Tools), maxOffered)
		d.Tools, d.Parts = make([]string, n), make([][5]float64, n)
		for i, o := range r.Tools[:n] {
			d.Tools[i], d.Parts[i] = o.Tool, rounded(o.Parts)
		}
		e, err := eventOf(EventRetrieved, r.Session.Tenant, id, r.At, d)
		e.Person = r.Session.Subject
		return e, err
	})
	if r.Unlearned {
		return ""
	}
	return id
}
