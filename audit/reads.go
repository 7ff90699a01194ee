package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// EventRead is the event of a read of what is published (Discovery 10.3). A search and a context that
// succeeded have the event of package discover/usage.
const EventRead = "ai.agent.tool.read"

// What is read.
const (
	ReadManifest = "manifest"
	ReadVersions = "versions"
	ReadDiff     = "diff"
	ReadRelated  = "related"
	ReadList     = "list"
	ReadExport   = "export"
	ReadSearch   = "search"
	ReadContext  = "context"
)

// Which reads become events.
const (
	AllReads     = "all"
	RefusedReads = "refused"
	NoReads      = "off"
)

// Bounds of the events of reads.
const (
	readsEach    = 100    // of an agent in a minute, refused and others apart, that have an event each
	readsReaders = 10_000 // agents that are counted in a minute by themselves; further ones by tenant, at most as many
	readsWaiting = 5000   // events that wait for the store; as many more if they count others
	readsBatch   = 100    // in one Apply
	readsEvery   = time.Second
	readsWrite   = 5 * time.Second // for one Apply
	readsText    = 256             // bytes of an id in an event
)

// Read is one read. Of the principal it has who reads, and from where.
type Read struct {
	What    string // one of the constants above
	Tool    string // as it was asked for, "" without one
	Version string // as it was asked for
	Query   string // its SHA-256 alone is recorded
	Found   int    // tools or versions in the answer
	Face    string // rest, grpc, mcp
	Session string
	// Err is why the read was refused, nil if it was not.
	Err error
}

// Reader is what a face tells of reads; Reads is one. Read never blocks.
type Reader interface {
	Read(p *toolkeep.Principal, r Read)
}

// Tell tells a Reader of a read, none if it is nil. A search that found nothing was no refusal, and has
// its own event.
func Tell(to Reader, p *toolkeep.Principal, r Read) {
	if to == nil || toolkeep.IsCode(r.Err, toolkeep.NoToolMatches) {
		return
	}
	if r.Err == nil && (r.What == ReadSearch || r.What == ReadContext) {
		return
	}
	to.Read(p, r)
}

// ReadsConfig configures Reads. Store is required.
type ReadsConfig struct {
	Store toolkeep.Applier
	Which string // AllReads, RefusedReads or NoReads; "" is all
	// Clean removes what looks like a secret from what a caller sent; nil: nothing is removed.
	Clean func(text string) string
	Clock func() time.Time
	Log   *slog.Logger
}

// Reads writes events of reads, in batches, in the background: no read waits for the store. Past 100 a
// minute of one agent, refused ones and others apart, the rest of its minute is one event with their
// number. Events for which there is no room are left out, counted and told once in the log.
type Reads struct {
	c    ReadsConfig
	wake chan struct{} // a batch is ready
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	minute int64 // since 1970
	of     map[reader]*readTally
	queue  []toolkeep.Event
	losing bool // the log was told of events that were left out

	written, lost atomic.Int64
}

// reader is who is counted, and for which reads.
type reader struct {
	tenant, subject string
	refused         bool
}

type readTally struct{ each, more int64 }

// ReadStats are the numbers of a process since it began.
type ReadStats struct{ Written, Lost, Waiting int64 }

// NewReads begins to write. End it with Stop.
func NewReads(c ReadsConfig) *Reads {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Clean == nil {
		c.Clean = func(text string) string { return text }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	r := &Reads{c: c, wake: make(chan struct{}, 1), of: map[reader]*readTally{}}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.done.Go(func() { r.run(ctx) })
	return r
}

// Stop writes what waits, within 5 s, and ends. It may be called twice.
func (r *Reads) Stop() {
	r.stop()
	r.done.Wait()
}

// Stats returns how many events were written and left out, and how many wait.
func (r *Reads) Stats() ReadStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ReadStats{Written: r.written.Load(), Lost: r.lost.Load(), Waiting: int64(len(r.queue))}
}

// Read takes note of a read.
func (r *Reads) Read(p *toolkeep.Principal, d Read) {
	if r.c.Which == NoReads || d.Err == nil && r.c.Which == RefusedReads {
		return
	}
	now := r.c.Clock()
	r.mu.Lock()
	each := r.counts(now, reader{p.Tenant, p.Subject, d.Err != nil})
	r.mu.Unlock()
	if !each {
		return
	}
	event, err := r.event(now, p, d)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.lose()
		return
	}
	r.put(event, readsWaiting)
}

// counts reports whether a read has an event of its own. r.mu is held.
func (r *Reads) counts(now time.Time, who reader) bool {
	r.turn(now)
	t := r.of[who]
	if t == nil {
		if len(r.of) >= readsReaders {
			who.subject = ""
		}
		if t = r.of[who]; t == nil {
			if len(r.of) >= 2*readsReaders {
				r.lose()
				return false
			}
			t = new(readTally)
			r.of[who] = t
		}
	}
	if t.each >= readsEach {
		t.more++
		return false
	}
	t.each++
	return true
}

// turn begins another minute if the last is over. r.mu is held.
func (r *Reads) turn(now time.Time) {
	if m := now.Unix() / 60; m > r.minute { // times are taken before the lock
		r.end(now)
		r.minute = m
	}
}

// end tells of what was only counted. r.mu is held.
func (r *Reads) end(now time.Time) {
	for who, t := range r.of {
		if t.more == 0 {
			continue
		}
		data := map[string]any{"action": "retrieve", "what": "further", "times": t.more, "tenant_id": who.tenant, "decision": Allowed}
		if who.subject != "" {
			data["agent_did"] = toolkeep.ClipBytes(strings.ToValidUTF8(who.subject, "\uFFFD"), readsText)
		}
		if who.refused {
			data["decision"] = Refused
		}
		if event, err := eventOfRead(now, who.tenant, data); err == nil {
			r.put(event, 2*readsWaiting)
		} else {
			r.lose()
		}
	}
	clear(r.of)
}

// put lets an event wait for the store if fewer than limit do. r.mu is held.
func (r *Reads) put(e toolkeep.Event, limit int) {
	if len(r.queue) >= limit {
		r.lose()
		return
	}
	if r.queue = append(r.queue, e); len(r.queue)%readsBatch == 0 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// lose counts an event that is left out. r.mu is held.
func (r *Reads) lose() {
	r.lost.Add(1)
	if !r.losing {
		r.losing = true
		r.c.Log.Error("events of reads are left out of the audit: the store is slower than they come; toolkeep_audit_reads_dropped_total counts them")
	}
}

// event is the event of one read.
func (r *Reads) event(now time.Time, p *toolkeep.Principal, d Read) (toolkeep.Event, error) {
	data := map[string]any{"action": "retrieve", "what": d.What, "tenant_id": p.Tenant, "decision": Allowed}
	for _, v := range [...]struct{ name, text string }{
		{"agent_did", p.Subject}, {"user_did", p.OnBehalf}, {"key_id", p.KeyID}, {"session_id", d.Session}, {"tool_id", r.clean(d.Tool)}, {"tool_version", r.clean(d.Version)},
		{"face", d.Face}, {"ip_address", p.Addr}, {"user_agent", p.UserAgent},
	} {
		if v.text != "" {
			data[v.name] = toolkeep.ClipBytes(strings.ToValidUTF8(v.text, "\uFFFD"), readsText)
		}
	}
	if len(p.Chain) > 0 {
		data["caller_chain"] = canon.Strings(p.Chain)
	}
	if d.Query != "" {
		sum := sha256.Sum256([]byte(d.Query))
		data["query_digest"] = "sha256:" + hex.EncodeToString(sum[:])
	}
	if e := toolkeep.AsError(d.Err); e != nil {
		info := e.Code.Info()
		data["error_code"], data["error_name"], data["decision"] = string(e.Code), info.Name, Refused
		if info.HTTP >= 500 {
			data["decision"] = Failed
		}
	} else {
		data["found"] = int64(d.Found)
	}
	e, err := eventOfRead(now, p.Tenant, data)
	e.Person = p.Person()
	return e, err
}

// clean is a caller's text without what looks like a secret.
func (r *Reads) clean(text string) string {
	if text == "" {
		return ""
	}
	return r.c.Clean(toolkeep.CutBytes(text, 16*readsText))
}

func eventOfRead(now time.Time, tenant string, data map[string]any) (toolkeep.Event, error) {
	id, err := uuid.NewV7()
	return toolkeep.Event{ID: id.String(), Type: EventRead, Tenant: tenant, Time: now, Data: canon.Append(nil, data)}, err
}

// run writes until ctx ends, and then what waits.
func (r *Reads) run(ctx context.Context) {
	beat := time.NewTicker(readsEvery)
	defer beat.Stop()
	for {
		select {
		case <-r.wake:
		case <-beat.C:
			r.mu.Lock()
			r.turn(r.c.Clock())
			r.mu.Unlock()
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), readsWrite)
			defer cancel()
			r.mu.Lock()
			r.end(r.c.Clock())
			r.mu.Unlock()
			if r.write(last); r.Stats().Waiting > 0 {
				r.c.Log.Error("events of reads are left out of the audit at the stop: the store did not take them", "lost", r.Stats().Waiting)
			}
			return
		}
		r.write(ctx)
	}
}

// write applies what waits, in batches. What the store does not take goes on waiting.
func (r *Reads) write(ctx context.Context) {
	for {
		r.mu.Lock()
		n := min(len(r.queue), readsBatch)
		changes := make([]toolkeep.Change, n)
		for i := range changes {
			changes[i] = toolkeep.AppendEvent{Event: r.queue[i]}
		}
		r.mu.Unlock()
		if n == 0 {
			return
		}
		one, cancel := context.WithTimeout(ctx, readsWrite)
		err := r.c.Store.Apply(one, changes...)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				r.c.Log.Warn("events of reads cannot be written and are tried again", "events", n, "error", err)
			}
			return
		}
		r.written.Add(int64(n))
		r.mu.Lock()
		r.queue = append(r.queue[:0], r.queue[n:]...)
		if len(r.queue) == 0 && r.losing {
			r.losing = false
			r.c.Log.Warn("events of reads are written again", "left_out", r.lost.Load())
		}
		r.mu.Unlock()
	}
}
