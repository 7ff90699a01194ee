package discover

import (
	"fmt"
	"slices"
	"testing"
)

func BenchmarkZZ(b *testing.B) {
	x, all := meant(b, 100_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		all[i%len(all)] = tool("ns.changed", "1.0.0", fmt.Sprint("changed ", i))
		x.Update(slices.Values(all))
	}
}
