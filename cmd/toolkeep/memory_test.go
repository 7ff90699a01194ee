package main

import (
	"testing"
	"time"
)

// TestIdleness: memory is released once when a process becomes idle after it allocated much, and never while it works or
// has allocated little.
func TestIdleness(t *testing.T) {
	now := time.Unix(1000, 0)
	i, allocated := idleness{since: now}, uint64(0)
	released := func(d time.Duration, perSecond int) (n int) {
		for range d / gcLook {
			now = now.Add(gcLook)
			allocated += uint64(perSecond) * uint64(gcLook) / uint64(time.Second)
			if i.look(allocated, now) {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		what      string
		d         time.Duration
		perSecond int
		want      int
	}{
		{"idle from the start", time.Minute, 1000, 0},
		{"an import", 10 * time.Second, 100 << 20, 0},
		{"idle after it", time.Minute, 100 << 10, 1},
		{"a few calls", 30 * time.Second, 200 << 10, 0},
		{"many calls", time.Minute, 2 << 20, 0},
		{"a pause too short", 4 * time.Second, 0, 0},
		{"many calls again", 10 * time.Second, 20 << 20, 0},
		{"idle after them", 10 * time.Second, 0, 1},
	} {
		if got := released(step.d, step.perSecond); got != step.want {
			t.Errorf("%s: memory was released %d times, not %d", step.what, got, step.want)
		}
	}
}
