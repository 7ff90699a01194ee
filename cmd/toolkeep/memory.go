package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// GC pacing: the heap may grow to four times a small live heap, so that a busy server collects seldom, but only
// about gcRoom above a large one, so that 100,000 cached results do not cost five times their memory. GOGC in the
// environment disables the pacing, GOMEMLIMIT adds its soft limit.
const (
	gcMost  = 400 // percent
	gcLeast = 40
	gcRoom  = 48 << 20 // bytes
	gcLook  = 250 * time.Millisecond
)

// paceCollector adjusts GOGC until ctx ends.
func paceCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	now := gcMost
	debug.SetGCPercent(now)
	go func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		tick := time.NewTicker(gcLook)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			metrics.Read(live)
			want := gcPercent(live[0].Value.Uint64())
			// Setting it stops the world briefly, so skip small changes.
			if diff := want - now; diff > now/8 || -diff > now/8 {
				now = want
				debug.SetGCPercent(now)
			}
		}
	}()
}

// gcPercent returns the GOGC that leaves gcRoom above the live heap.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcMost
	}
	return int(min(gcMost, max(gcLeast, gcRoom*100/live)))
}
