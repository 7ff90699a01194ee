package discover_test

import (
	"fmt"
	"testing"

	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/vectortest"
)

const benchDimensions = 384

// filled returns n vectors in memory-mapped storage.
func filled(b *testing.B, n int) (discover.Vectors, []discover.Digest) {
	b.Helper()
	v, err := discover.NewMemory(b.TempDir(), nil).Open(b.Context(), "m", benchDimensions)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { v.Close() })
	of := make([]discover.Digest, n)
	for i := range of {
		of[i] = vectortest.Digest(fmt.Sprint(i))
	}
	for i := 0; i < n; i += 1000 {
		if err := v.Put(b.Context(), of[i:i+1000], vectortest.Vectors(uint64(i), 1000, benchDimensions)); err != nil {
			b.Fatal(err)
		}
	}
	return v, of
}

// BenchmarkAlike compares one query, and one with three requests, with all tools.
func BenchmarkAlike(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		v, of := filled(b, n)
		s := v.Select(of)
		for _, q := range []int{1, 4, 9} {
			b.Run(fmt.Sprintf("tools=%d/queries=%d", n, q), func(b *testing.B) {
				queries, to := vectortest.Vectors(2, q, benchDimensions), make([][]float32, q)
				for i := range to {
					to[i] = make([]float32, n)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Alike(b.Context(), queries, to); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSelect measures the cost of one changed tool.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		v, of := filled(b, n)
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.Select(of)
			}
		})
	}
}

// BenchmarkOpen measures the reading at a restart.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	m := discover.NewMemory(dir, nil)
	v, err := m.Open(b.Context(), "m", benchDimensions)
	if err != nil {
		b.Fatal(err)
	}
	const n = 100_000
	of := make([]discover.Digest, 1000)
	for i := 0; i < n; i += 1000 {
		for k := range of {
			of[k] = vectortest.Digest(fmt.Sprint(i + k))
		}
		if err := v.Put(b.Context(), of, vectortest.Vectors(uint64(i), 1000, benchDimensions)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Close(); err != nil {
			b.Fatal(err)
		}
		if v, err = m.Open(b.Context(), "m", benchDimensions); err != nil {
			b.Fatal(err)
		}
	}
	if err := v.Close(); err != nil {
		b.Fatal(err)
	}
}
