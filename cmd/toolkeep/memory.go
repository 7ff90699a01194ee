package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// GC pacing: the heap may grow to four times a small live heap, so that a busy server collects seldom, but only
// about gcRoom above a large one, so that 100,000 cached results do not cost five times their memory. GOGC in the
// environment disables the pacing, GOMEMLIMIT adds its soft limit.
const (
	gcMost  = 400 // percent
	gcLeast = 40
	gcStart = 60
	gcRoom  = 48 << 20 // bytes
	gcLook  = 250 * time.Millisecond
)

// A process that allocates less than idleRate for idleFor is idle. It gives the room above its live heap back to the
// system, if it has allocated idleRoom since the last time: what an import or a start left behind.
const (
	idleRate = 1 << 20 // bytes a second
	idleFor  = 5 * time.Second
	idleRoom = 16 << 20 // bytes
)

// idleness notices when a process becomes idle.
type idleness struct {
	started, released uint64    // bytes allocated until the look that began the period, and until the last release
	since             time.Time // of that look
}

// look is told the bytes that the process has ever allocated, and reports whether to release memory.
func (i *idleness) look(allocated uint64, now time.Time) bool {
	passed := now.Sub(i.since)
	if float64(allocated-i.started) > idleRate*max(passed, time.Second).Seconds() {
		i.started, i.since = allocated, now
		return false
	}
	if passed < idleFor {
		return false
	}
	i.started, i.since = allocated, now
	if allocated-i.released < idleRoom {
		return false
	}
	i.released = allocated
	return true
}

// paceCollector adjusts GOGC until ctx ends. Until started is called, the heap may grow by gcStart: a catalogue that is read grows by
// gcRoom every few moments, and each time the whole of it would be collected.
func paceCollector(ctx context.Context) (started func()) {
	var running atomic.Bool
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	now := gcMost
	debug.SetGCPercent(now)
	go func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
		idle := idleness{since: time.Now()}
		tick := time.NewTicker(gcLook)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			metrics.Read(live)
			if idle.look(live[1].Value.Uint64(), time.Now()) {
				debug.FreeOSMemory()
			}
			want := gcPercent(live[0].Value.Uint64())
			if !running.Load() {
				want = max(want, gcStart)
			}
			// Setting it stops the world briefly, so skip small changes.
			if diff := want - now; diff > now/8 || -diff > now/8 {
				now = want
				debug.SetGCPercent(now)
			}
		}
	}()
	return func() { running.Store(true) }
}

// gcPercent returns the GOGC that leaves gcRoom above the live heap.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcMost
	}
	return int(min(gcMost, max(gcLeast, gcRoom*100/live)))
}
