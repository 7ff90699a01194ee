package pgvector_test

import (
	"fmt"
	"testing"

	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/pgvector"
	"github.com/toolkeep/toolkeep/discover/vectortest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// BenchmarkAlike compares one query, and one with three requests, with all tools.
func BenchmarkAlike(b *testing.B) {
	server := pgtest.StartVector(b)
	back, err := pgvector.New(pgvector.Config{DSN: server.NewDatabase(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer back.Close()
	for _, n := range []int{10_000, 100_000} {
		v, err := back.Open(b.Context(), fmt.Sprint("m", n), 384)
		if err != nil {
			b.Fatal(err)
		}
		of := make([]discover.Digest, n)
		numbers := vectortest.Vectors(1, n, 384)
		for i := range of {
			of[i] = vectortest.Digest(fmt.Sprint(i))
		}
		for i := 0; i < n; i += 1000 {
			if err := v.Put(b.Context(), of[i:i+1000], numbers[i:i+1000]); err != nil {
				b.Fatal(err)
			}
		}
		s := v.Select(of)
		for _, q := range []int{1, 4} {
			b.Run(fmt.Sprintf("tools=%d/queries=%d", n, q), func(b *testing.B) {
				b.ReportAllocs()
				queries, to := vectortest.Vectors(2, q, 384), make([][]float32, q)
				for i := range to {
					to[i] = make([]float32, n)
				}
				for b.Loop() {
					if err := s.Alike(b.Context(), queries, to); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
