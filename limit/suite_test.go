package limit_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/limit/limittest"
)

// TestSuite runs the suite of limits on those of a process, and on shares of several.
func TestSuite(t *testing.T) {
	var now atomic.Int64
	limittest.Run(t, limittest.Harness{
		Pass: func(_ *testing.T, d time.Duration) { now.Add(int64(d)) },
		New: func(_ *testing.T, nodes int, c limit.Config) []*limit.Limits {
			c.Clock = func() time.Time { return time.Unix(1_800_000_000, now.Load()) }
			all := make([]*limit.Limits, nodes)
			for i := range all {
				all[i] = limit.New(c)
				all[i].SetNodes(i, nodes)
			}
			return all
		},
	})
}
