package postgres

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func BenchmarkApply(b *testing.B) {
	server := pgtest.Start(b)
	for _, kind := range []string{"record", "claim"} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", kind, callers), func(b *testing.B) {
				s := mustOpen(b, Config{DSN: server.NewDatabase(b)})
				var n atomic.Int64
				b.ReportAllocs()
				b.ResetTimer()
				parallel(callers, func(int) {
					for {
						i := n.Add(1)
						if i > int64(b.N) {
							return
						}
						var c toolkeep.Change = toolkeep.RecordCall{Invocation: storetest.FullCall(fmt.Sprint(i), toolkeep.CallSucceeded, 1)}
						if kind == "claim" {
							v := storetest.FullCall(fmt.Sprint(i), toolkeep.CallRunning, 1)
							v.Key = ""
							c = toolkeep.ClaimCall{Invocation: v}
						}
						if err := s.Apply(b.Context(), c); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
