package access

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Bounds of the trail.
const (
	perAddress = 100  // failures of an address in a minute that are told one by one
	perMinute  = 1000 // of all addresses; further ones are told as of no address
	untold     = 1000 // records that wait for the store
	inOneApply = 100
	trailBeat  = 5 * time.Second
)

// eventFailed is the record of a failed authentication, or of an authorisation that
// refused no call: a refused call has its own record.
const eventFailed = "ai.agent.auth.failed"

// trail tells of failures: each is a WARN line and a record. Past 100 a minute and
// address, the rest of the minute is one of each, with their number.
type trail struct {
	a       *Access
	records chan toolkeep.Event
	done    sync.WaitGroup // of run, which outlives the follower of a closed store

	mu     sync.Mutex
	minute int64 // since 1970
	told   int   // in the minute
	of     map[string]*tally
	lost   atomic.Int64 // records for which there was no room, since the last minute began
}

type tally struct{ each, more int }

func newTrail(a *Access) *trail {
	return &trail{a: a, records: make(chan toolkeep.Event, untold), of: map[string]*tally{}}
}

// tell tells of a failure from an address in net.
func (t *trail) tell(f Failure, net string) {
	if !t.counts(f.At, net) {
		return
	}
	args := []any{"reason", f.Reason, "addr", f.Addr}
	data := map[string]any{"reason": f.Reason, "ip_address": f.Addr}
	for _, v := range [...]struct{ log, record, text string }{
		{"tenant", "", f.Tenant}, {"subject", "agent_id", f.Subject}, {"on_behalf_of", "on_behalf_of", f.OnBehalf},
		{"key", "key_id", f.KeyID}, {"tool", "tool_id", f.Tool}, {"permission", "permission", f.Permission},
	} {
		if v.text == "" {
			continue
		}
		args = append(args, v.log, toolkeep.ClipBytes(v.text, maxPattern))
		if v.record != "" {
			data[v.record] = toolkeep.ClipBytes(v.text, maxPattern)
		}
	}
	if f.Chain != nil {
		args, data["caller_chain"] = append(args, "caller_chain", f.Chain), canon.Strings(f.Chain)
	}
	t.a.config.Log.Warn("access refused", args...)
	if f.Tool == "" { // a call has its own record
		t.record(f.At, f.Tenant, data)
	}
}

// counts reports whether the failure is told by itself.
func (t *trail) counts(at time.Time, net string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(at)
	c := t.of[net]
	if c == nil {
		if len(t.of) >= perMinute {
			net = ""
		}
		if c = t.of[net]; c == nil {
			c = new(tally)
			t.of[net] = c
		}
	}
	if c.each >= perAddress || t.told >= perMinute {
		c.more++
		return false
	}
	c.each++
	t.told++
	return true
}

// turn begins another minute if the last is over. t.mu is held.
func (t *trail) turn(now time.Time) {
	m := now.Unix() / 60
	if m > t.minute { // times of failures are taken before the lock
		t.end(now)
		t.minute, t.told = m, 0
	}
}

// end tells of what was counted. t.mu is held.
func (t *trail) end(now time.Time) {
	for net, c := range t.of {
		if c.more == 0 {
			continue
		}
		t.a.config.Log.Warn("access refused further times within a minute", "addr", net, "times", c.more)
		t.record(now, "", map[string]any{"reason": "further", "ip_address": net, "times": int64(c.more)})
	}
	if n := t.lost.Swap(0); n > 0 {
		t.a.config.Log.Error("records of refused access were left out: the store is slower than they come", "lost", n)
	}
	clear(t.of)
}

// record hands an event to run; it never waits.
func (t *trail) record(at time.Time, tenant string, data map[string]any) {
	if tenant == "" {
		tenant = HomeTenant
	}
	id, err := uuid.NewV7()
	if err == nil {
		select {
		case t.records <- toolkeep.Event{ID: id.String(), Type: eventFailed, Tenant: tenant, Time: at, Data: canon.Append(nil, data)}:
			return
		default:
		}
	}
	t.lost.Add(1)
}

// run writes the records and ends minutes, until ctx ends.
func (t *trail) run(ctx context.Context) {
	beat := time.NewTicker(trailBeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			t.mu.Lock()
			t.end(t.a.config.Clock())
			t.mu.Unlock()
			for t.write(context.WithoutCancel(ctx)) {
			}
			if n := len(t.records); n > 0 {
				t.a.config.Log.Error("records of refused access were left out at the stop", "lost", n)
			}
			return
		case <-beat.C:
			t.mu.Lock()
			t.turn(t.a.config.Clock())
			t.mu.Unlock()
		case e := <-t.records:
			t.write(ctx, e)
		}
	}
}

// write applies these records and those that wait; false if there were none.
func (t *trail) write(ctx context.Context, first ...toolkeep.Event) bool {
	var changes []toolkeep.Change
	for _, e := range first {
		changes = append(changes, toolkeep.AppendEvent{Event: e})
	}
	for more := true; more && len(changes) < inOneApply; {
		select {
		case e := <-t.records:
			changes = append(changes, toolkeep.AppendEvent{Event: e})
		default:
			more = false
		}
	}
	if len(changes) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, trailBeat)
	defer cancel()
	if err := t.a.config.Store.Apply(ctx, changes...); err != nil {
		t.a.config.Log.Error("records of refused access could not be written", "lost", len(changes), "error", err)
		return false
	}
	return true
}
