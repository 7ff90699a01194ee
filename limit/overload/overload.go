package overload

import (
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Config sets the bounds of one process. The zero value refuses nothing.
type Config struct {
	Wait     time.Duration // of a request for the processor; 0 is no bound
	InFlight int           // calls at once, of priority low three quarters of it, of high a quarter more; 0 is no bound
}

// Values of details.reason of a refusal.
const (
	CPUWait  = "CPU_WAIT"  // requests wait for the processor for too long
	InFlight = "IN_FLIGHT" // as many calls are in flight as may
)

const (
	pause = 20 * time.Millisecond // between two measurements, at least
	stale = time.Second           // after which a measurement tells nothing of the present
	// maxPause is what a refused call is told to wait at most; what comes over the wire are whole seconds.
	maxPause = 3*time.Second - time.Millisecond
	few      = 32 // calls in flight that are not refused for the wait
)

// Guard knows the load of one process. It is safe for concurrent use.
type Guard struct {
	c      Config
	send   func()               // makes heard run once the processor has come to it; nil without Config.Wait
	now    func() time.Duration // since New
	random func() float64       // from 0 to 1
	shut   func() error         // ends what calls heard

	began  atomic.Int64 // the measurement that is under way, as nanoseconds of now; 0 for none
	ended  atomic.Int64 // the last one
	last   atomic.Int64 // what it was, in nanoseconds
	before atomic.Int64 // the one before it, 0 where that was too long ago

	refused atomic.Int64
	hearing sync.WaitGroup
}

// New makes the guard of a process, which Stop ends. An error is one of the operating system.
func New(c Config) (*Guard, error) {
	start := time.Now().Add(-time.Second) // so that 0 is no time
	g := &Guard{c: c, now: func() time.Duration { return time.Since(start) }, random: rand.Float64, shut: func() error { return nil }}
	if c.Wait <= 0 {
		return g, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	g.send = func() { _, _ = w.Write([]byte{0}) } // it fails after Stop alone
	g.shut = w.Close
	g.hearing.Go(func() {
		defer func() { _ = r.Close() }()
		for b := make([]byte, 1); ; {
			if _, err := r.Read(b); err != nil {
				return
			}
			g.heard()
		}
	})
	return g, nil
}

// Stop ends the guard. It may be called twice, and on a nil Guard.
func (g *Guard) Stop() {
	if g == nil {
		return
	}
	_ = g.shut() // a pipe that is closed twice
	g.hearing.Wait()
}

// heard ends a measurement.
func (g *Guard) heard() {
	now, before := int64(g.now()), g.last.Load()
	if g.began.Load()-g.ended.Load() > int64(stale) {
		before = 0
	}
	g.before.Store(before)
	g.last.Store(now - g.began.Load())
	g.ended.Store(now)
	g.began.Store(0)
}

// Wait is how long requests have waited for the processor lately, 0 where none came within the last second. A nil Guard knows of none.
func (g *Guard) Wait() time.Duration {
	if g == nil {
		return 0
	}
	return g.wait(int64(g.now()))
}

func (g *Guard) wait(now int64) time.Duration {
	began, last := g.began.Load(), g.last.Load()
	until := now
	if began != 0 {
		until = began
	}
	switch {
	case until-g.ended.Load() > int64(stale):
		return 0
	case began == 0:
		return time.Duration(min(last, g.before.Load()))
	}
	return time.Duration(min(last, max(g.before.Load(), now-began))) // it takes so long at least
}

// measure begins a measurement, unless one is under way or has just ended.
func (g *Guard) measure(now int64) {
	if now-g.ended.Load() >= int64(pause) && g.began.Load() == 0 && g.began.CompareAndSwap(0, now) {
		g.send()
	}
}

// Check refuses a new call (E3811, with RetryAfter and the details reason, and waited_ms or limit_concurrent) of a process that has
// as many in flight, this one included. A nil Guard refuses none.
func (g *Guard) Check(priority toolkeep.Priority, inFlight int64) error {
	if g == nil {
		return nil
	}
	limit := int64(g.c.InFlight)
	switch priority {
	case toolkeep.Low:
		limit = (limit*3 + 3) / 4
	case toolkeep.High:
		limit += limit / 4
	default:
		priority = toolkeep.Normal
	}
	if limit > 0 && inFlight > limit {
		return g.refusal(toolkeep.NewError(toolkeep.Backpressure, "this node has %d calls in flight, as many as calls.max_in_flight allows for calls of priority %s; nothing was done by this request, so try again",
			limit, priority).With("reason", InFlight).With("limit_concurrent", limit))
	}
	if g.send == nil {
		return nil
	}
	now := int64(g.now())
	g.measure(now)
	wait := g.wait(now)
	if !g.Sheds(priority, inFlight, wait, g.c.Wait) {
		return nil
	}
	return g.refusal(toolkeep.NewError(toolkeep.Backpressure, "requests wait %s for the processor of this node, so that some calls of priority %s are refused (calls.max_cpu_wait is %s); nothing was done by this request, so try again",
		wait.Round(time.Millisecond), priority, g.c.Wait).With("reason", CPUWait).With("waited_ms", wait.Milliseconds()))
}

// Sheds says whether a new call is one of those that are refused where calls wait so long and the bound is this one: a share
// that rises with the wait, for each priority from another one on. A nil Guard refuses none.
func (g *Guard) Sheds(priority toolkeep.Priority, inFlight int64, wait, bound time.Duration) bool {
	from := 1.0
	switch priority {
	case toolkeep.Low:
		from = 0.5
	case toolkeep.High:
		from = 2
	}
	share := float64(wait)/(float64(bound)*from) - 1
	return g != nil && inFlight > few && share > 0 && g.random() < share
}

// Pause is how long a refused call is to stay away, from 1 ms to 3 s by chance: calls that are refused at one moment are not to come
// again at one moment. A Guard made by New has one.
func (g *Guard) Pause() time.Duration {
	return time.Millisecond + time.Duration(g.random()*float64(maxPause))
}

// refusal completes E3811.
func (g *Guard) refusal(e *toolkeep.Error) error {
	g.refused.Add(1)
	e.NothingSent = true
	return e.After(g.Pause())
}

// Refused is how many calls were refused since New. A nil Guard has refused none.
func (g *Guard) Refused() int64 {
	if g == nil {
		return 0
	}
	return g.refused.Load()
}
