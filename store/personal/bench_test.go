package personal_test

import (
	"context"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/personal"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// nowhere is a store that keeps nothing but documents: what is left is the cost of sealing.
type nowhere struct{ raw }

func (nowhere) ApplyWithin(context.Context, ...toolkeep.Change) error { return nil }

func BenchmarkRecord(b *testing.B) {
	sealer, err := secret.NewSealer()
	if err != nil {
		b.Fatal(err)
	}
	s, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "toolkeep.db"), Log: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	keys := personal.NewKeys(s, quiet())
	keys.Use(sealer)
	v := toolkeep.Invocation{Tenant: "t", Subject: "agent", OnBehalf: "person", ToolID: "ns.tool", State: toolkeep.CallSucceeded, CallID: "call_0123456789", ArgsHash: [32]byte{1}, AskHash: [32]byte{2}}
	for _, c := range []struct {
		name  string
		store personal.Store
		seals bool
	}{{"seal", nowhere{s}, true}, {"store clear", s, false}, {"store sealed", s, true}} {
		b.Run(c.name, func(b *testing.B) {
			sealed := personal.NewSealed(c.store, keys, c.seals)
			b.ReportAllocs()
			b.SetParallelism(16)
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					w := v
					w.ID = c.name + strconv.Itoa(b.N) + "-" + strconv.FormatInt(n.Add(1), 10)
					if err := sealed.ApplyWithin(context.Background(), toolkeep.RecordCall{Invocation: &w}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
