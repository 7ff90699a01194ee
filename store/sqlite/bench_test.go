package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// benchCall returns roughly what a read-only call of a builtin tool records.
func benchCall(n int64) *toolkeep.Invocation {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	return &toolkeep.Invocation{
		ID: fmt.Sprintf("0195f0a2-7b6c-7c1d-9e21-%012x", n), Tenant: "default", Subject: "agent-1", Face: "rest", KeyID: "k_0123456789",
		Session: "session-1", ToolID: "builtin.echo", Version: "1.0.0", Range: "^1.0", Category: "system", Kind: "builtin",
		Digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", State: toolkeep.CallSucceeded,
		AskHash: [32]byte{1}, ArgsHash: [32]byte{2}, CallID: "c_0123456789abcdef", ArgsSize: 580,
		CreatedAt: at, StartedAt: at, EndedAt: at.Add(time.Millisecond), Attempts: 1, ToolUS: 12, TotalUS: 78, OutputSize: 600,
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRecord reports µs of CPU per feed row, including the indexing.
func BenchmarkRecord(b *testing.B) {
	for _, clients := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s := mustOpen(b, Config{Path: filepath.Join(b.TempDir(), "b.db")})
			b.ReportAllocs()
			var n atomic.Int64
			start := cpu()
			b.ResetTimer()
			parallel(clients, func() {
				for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
					if err := s.Apply(b.Context(), toolkeep.RecordCall{Invocation: benchCall(i)}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			if err := s.catchUp(b.Context()); err != nil {
				b.Error(err)
			}
			b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N), "µs-cpu/op")
			b.ReportMetric(float64(b.N)/float64(s.groups.Load()), "rows/group")
		})
	}
}

func BenchmarkClaimAndMove(b *testing.B) {
	for _, clients := range []int{1, 32} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s := mustOpen(b, Config{Path: filepath.Join(b.TempDir(), "b.db")})
			b.ReportAllocs()
			output := make([]byte, 600)
			var n atomic.Int64
			start := cpu()
			b.ResetTimer()
			parallel(clients, func() {
				for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
					v := benchCall(i)
					v.State, v.Key = toolkeep.CallRunning, v.ID
					err := s.Apply(b.Context(), toolkeep.ClaimCall{Invocation: v})
					if err == nil {
						v.State, v.Output = toolkeep.CallSucceeded, output
						err = s.Apply(b.Context(), toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}})
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N), "µs-cpu/op")
		})
	}
}

// BenchmarkByKey looks for keys that no call holds, as each keyed call does.
func BenchmarkByKey(b *testing.B) {
	s := mustOpen(b, Config{Path: filepath.Join(b.TempDir(), "b.db")})
	for i := range int64(2000) {
		v := benchCall(i)
		v.State, v.Key = toolkeep.CallRunning, v.ID
		mustApply(b, s, toolkeep.ClaimCall{Invocation: v})
	}
	if err := s.catchUp(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		if _, err := s.Invocations().ByKey(b.Context(), "default", "agent-1", "none"); !errors.Is(err, toolkeep.ErrNotFound) {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N), "µs-cpu/op")
}
