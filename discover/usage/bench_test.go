package usage

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// full is what a tenant with so many tools knows after so many days in which each tool
// was called on each day, with searches.
func full(b testing.TB, tools, days int) (*Usage, []toolkeep.Entry) {
	now := begin
	u := New(Config{Store: newMemory(func() time.Time { return now }), Clock: func() time.Time { return now }})
	r := rand.New(rand.NewPCG(1, 2))
	seq := int64(0)
	add := func(c toolkeep.Change) toolkeep.Entry {
		seq++
		return *entryOf(b, seq, now, c)
	}
	for range days {
		for i := range tools {
			user, session := fmt.Sprint("user", r.IntN(1000)), fmt.Sprint("s", i/4)
			if i%10 == 0 {
				var found []string
				for k := range 5 {
					found = append(found, fmt.Sprint("ns.tool", (i+k)%tools))
				}
				u.fold(add(searchEvent(b, now, "t", fmt.Sprint("r", seq), user, session, fmt.Sprint("a question of some words ", i), found...)))
			}
			v := callOf(now, "t", user, session, fmt.Sprint("ns.tool", i))
			v.ToolUS = r.Int64N(300_000)
			u.fold(add(toolkeep.RecordCall{Invocation: v}))
			now = now.Add(day / time.Duration(tools+1))
		}
	}
	var calls []toolkeep.Entry
	for range 20_000 {
		calls = append(calls, add(toolkeep.RecordCall{Invocation: callOf(now, "t", fmt.Sprint("user", r.IntN(1000)), fmt.Sprint("n", r.IntN(5000)), fmt.Sprint("ns.tool", r.IntN(tools)))}))
	}
	return u, calls
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkFold is calls a second into a tenant of 10,000 tools; MB is what it takes.
func BenchmarkFold(b *testing.B) {
	for _, days := range []int{1, 30} {
		b.Run(fmt.Sprint("days=", days), func(b *testing.B) {
			before := heap()
			u, calls := full(b, 10_000, days)
			mb := heap() - before
			b.ReportAllocs()
			n := int64(0)
			for b.Loop() {
				c := calls[n%int64(len(calls))]
				n++
				c.Seq = 1<<40 + n
				u.fold(c)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			b.ReportMetric(mb, "MB")
			runtime.KeepAlive(calls)
		})
	}
}

// BenchmarkReaders is what a search asks.
func BenchmarkReaders(b *testing.B) {
	u, calls := full(b, 10_000, 2)
	for _, c := range calls {
		u.fold(c)
	}
	tools := make([]string, 1000)
	for i := range tools {
		tools[i] = fmt.Sprint("ns.tool", i)
	}
	last := calls[len(calls)-1].Call // its conversation is still there
	s := discover.Session{Tenant: "t", Subject: last.Subject, ID: last.Session}
	b.Run("SuccessRates", func(b *testing.B) { // of the candidates of a search
		b.ReportAllocs()
		for b.Loop() {
			if u.SuccessRates("t", tools[:100])[99] < 0 {
				b.Fatal("not known")
			}
		}
	})
	b.Run("History", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(u.History(s).Recent) == 0 {
				b.Fatal("not known")
			}
		}
	})
}

// BenchmarkCheckpoint writes and reads the state of 10,000 tools in use for 30 days.
func BenchmarkCheckpoint(b *testing.B) {
	u, _ := full(b, 10_000, 30)
	store := u.c.Store.(*memory)
	for b.Loop() {
		if err := u.Checkpoint(b.Context()); err != nil {
			b.Fatal(err)
		}
		fresh := New(u.c)
		if err := fresh.take(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	bytes := 0
	for _, it := range store.items {
		bytes += len(it.Body)
	}
	b.ReportMetric(float64(bytes)/(1<<20), "MB")
}
