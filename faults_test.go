package toolkeep_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestFaultsAreBounded(t *testing.T) {
	few, wide := []toolkeep.Fault{{Pointer: "/a", Rule: "type", Message: "must be a string"}}, strings.Repeat("é", 1<<20)
	list := func(n int, f toolkeep.Fault) []toolkeep.Fault {
		out := make([]toolkeep.Fault, n)
		for i := range out {
			out[i] = f
			out[i].Pointer = fmt.Sprint("/", i, f.Pointer)
		}
		return out
	}
	for name, x := range map[string]struct {
		in     []toolkeep.Fault
		n      int
		listed int // without the one that counts
		rest   string
	}{
		"none":            {nil, 1, 0, ""},
		"few":             {few, 1, 1, ""},
		"as many as fit":  {list(100, toolkeep.Fault{}), 1, 100, ""},
		"one more":        {list(101, toolkeep.Fault{}), 1, 100, "and 1 more faults"},
		"many":            {list(2_000_000, toolkeep.Fault{}), 1, 100, "and 1999900 more faults"},
		"one wide":        {[]toolkeep.Fault{{Pointer: wide, Rule: wide, Message: wide}}, 1, 1, ""},
		"many wide":       {list(100, toolkeep.Fault{Message: wide, Pointer: wide}), 1, 15, "and 85 more faults"},
		"bounded before":  {toolkeep.BoundFaults(list(300, toolkeep.Fault{})), 1, 100, "and 200 more faults"},
		"counted first":   {append([]toolkeep.Fault{toolkeep.MoreFaults(7)}, list(2, toolkeep.Fault{})...), 1, 2, "and 7 more faults"},
		"a share":         {list(300, toolkeep.Fault{}), 10, 10, "and 290 more faults"},
		"a tiny share":    {list(3, toolkeep.Fault{}), 5000, 1, "and 2 more faults"},
		"a share of wide": {list(30, toolkeep.Fault{Message: wide}), 100, 1, "and 29 more faults"},
	} {
		t.Run(name, func(t *testing.T) {
			got := toolkeep.ShareFaults(x.in, x.n)
			size := 0
			for _, f := range got {
				size += len(f.Pointer) + len(f.Rule) + len(f.Message)
			}
			if most := toolkeep.MaxFaultBytes/x.n + 100; size > most {
				t.Errorf("%d bytes, at most %d", size, most)
			}
			if x.rest != "" {
				last := got[len(got)-1]
				if last.Message != x.rest || last.Rule != toolkeep.RuleLimit {
					t.Errorf("the last is %+v", last)
				}
				got = got[:len(got)-1]
			}
			if len(got) != x.listed {
				t.Errorf("%d faults, want %d", len(got), x.listed)
			}
		})
	}
}
