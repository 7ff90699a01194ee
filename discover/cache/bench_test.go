package cache

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/redis"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
)

// many is a catalogue of ten thousand tools.
func many() []toolkeep.Version {
	out := make([]toolkeep.Version, 10_000)
	words := []string{"message", "weather", "invoice", "calendar", "ticket", "robot", "garden", "train", "music", "paper"}
	for i := range out {
		w, v := words[i%10], words[i/10%10]
		out[i] = tool("", fmt.Sprintf("demo%d.%s_%d", i%100, w, i), "1.0.0", fmt.Sprintf("Sends the %s of a %s to place number %d", w, v, i))
	}
	return out
}

func benchmark(b *testing.B, n *node, prepare func()) {
	q := ask("send a message of the garden to place 7")
	n.warm(b, q)
	b.ReportAllocs()
	for b.Loop() {
		if prepare != nil {
			prepare()
		}
		if _, report := n.Cache.Find(b.Context(), q, sees("acme")); !report.CacheHit {
			b.Fatal("no hit")
		}
	}
}

// BenchmarkHit is an L1 hit with five tools, out of ten thousand.
func BenchmarkHit(b *testing.B) {
	n := newSystem(false).node(b, many())
	benchmark(b, n, nil)
}

// BenchmarkHitParallel is the same on all cores.
func BenchmarkHitParallel(b *testing.B) {
	n := newSystem(false).node(b, many())
	q := ask("send a message of the garden to place 7")
	n.warm(b, q)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n.Cache.Find(b.Context(), q, sees("acme"))
		}
	})
}

// BenchmarkHitShared is the same from a real Redis on this machine.
func BenchmarkHitShared(b *testing.B) {
	client, err := redis.New(redis.Config{URL: redistest.Start(b).URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	n := newSystem(false).node(b, many(), func(c *Config) {
		c.Remote, c.Patience = client.Cache("search", 0, nil), 10*time.Second
	})
	benchmark(b, n, func() { n.local.InvalidateAll() })
}

// BenchmarkMiss is a new query each time, with keyword search in the index behind.
func BenchmarkMiss(b *testing.B) {
	n := newSystem(false).node(b, many())
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		n.Cache.Find(b.Context(), ask(fmt.Sprint("send a message of the garden to place ", i)), sees("acme"))
	}
}
