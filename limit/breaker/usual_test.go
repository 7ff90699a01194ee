package breaker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestUsual compares what is learned of a tool's times with the exact shares, also after the tool has become slower or faster.
func TestUsual(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var u usual
	for _, scale := range []float64{20e6, 200e6, 5e6} { // nanoseconds
		var took []float64
		for i := range 3000 {
			d := scale * (1 + random.ExpFloat64())
			u.add(int64(d))
			if i >= 1000 {
				took = append(took, d)
			}
		}
		slices.Sort(took)
		for name, c := range map[string]struct{ got, want float64 }{
			"half": {float64(u.mid.Load()), took[len(took)/2]}, "95 in 100": {float64(u.high.Load()), took[len(took)*95/100]},
		} {
			if c.got < c.want*0.7 || c.got > c.want*1.5 {
				t.Errorf("at %s: %s take up to %s, want about %s", time.Duration(scale), name, time.Duration(c.got), time.Duration(c.want))
			}
		}
	}
}

// TestUsualOfATool: attempts that fail or are given up teach nothing, and a Guard without breakers knows nothing.
func TestUsualOfATool(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := New(Config{Clock: func() time.Time { return now }})
	g := s.Of(&toolkeep.Tool{ID: "std.a", Manifest: &toolkeep.Manifest{}}, "host:a:1")
	for _, c := range []struct {
		o    Outcome
		d    time.Duration
		want time.Duration
	}{{Failed, time.Hour, 0}, {Ignored, time.Hour, 0}, {Succeeded, time.Second, time.Second}, {Failed, time.Hour, time.Second}} {
		a, err := g.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(c.d)
		a.Done(c.o, c.o)
		if mid, high := g.Usual(); mid > c.want || high > c.want || c.want > 0 && mid < c.want*9/10 {
			t.Errorf("after %v in %s: %s and %s, want %s", c.o, c.d, mid, high, c.want)
		}
	}
	// One that another attempt outran has taken longer than it shows: 95 in 100 are not known to be faster.
	_, before := g.Usual()
	a, err := g.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	a.Outlasted()
	a.Done(Ignored, Ignored)
	if _, high := g.Usual(); high <= before {
		t.Errorf("after an attempt that was outrun: %s, before %s", high, before)
	}
	if mid, high := (Guard{}).Usual(); mid != 0 || high != 0 {
		t.Errorf("without breakers: %s, %s", mid, high)
	}
}
