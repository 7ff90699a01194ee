package main

import (
	"math"
	"testing"
	"time"
)

// TestSimulate: what is scarce alone decides how many calls there are.
func TestSimulate(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		costs costs
		want  float64 // calls a second
	}{
		{"the nodes' cores", 1, costs{steps: 1, node: time.Millisecond}, nodeCores * 1000},
		{"the cores of more nodes", 3, costs{steps: 1, node: time.Millisecond}, 3 * nodeCores * 1000},
		{"the database's cores", 64, costs{steps: 2, databaseCall: time.Millisecond}, databaseCores * 1000},
		{"the answers to commits", 1, costs{steps: 1, flush: 100 * time.Millisecond}, nodeClients / (0.1 + groupDelay.Seconds())},
	} {
		if got := simulate(c.nodes, c.costs).perSecond; math.Abs(got/c.want-1) > 0.1 {
			t.Errorf("%s: %.0f calls a second, want %.0f", c.name, got, c.want)
		}
	}
}
