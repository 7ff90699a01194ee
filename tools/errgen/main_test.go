package main

import (
	"strings"
	"testing"
)

// unbuilt are the codes that nothing raises, by the part that will and that this build does not
// have. A part that is built takes its codes out.
var unbuilt = map[string]string{
	"budgets":                     "E3820",
	"priorities and backpressure": "E3911",
	"sandboxes":                   "E3920 E3921 E3923 E3924 E3926",
	"the document bridge":         "E3940 E3942 E3943 E3944",
	"checkpoints":                 "E3960 E3961 E3966 E3967",
	"agent runs":                  "E3980 E3981 E3982 E3984 E3985 E3986",
	// The result cache logs these and the call goes on, so that no caller gets them.
	"the operator alone": "E3701",
}

// TestEveryCodeIsRaised: a code of a built part that no source names is one that no caller ever
// gets.
func TestEveryCodeIsRaised(t *testing.T) {
	t.Chdir("../..")
	rows, err := readRows()
	if err != nil {
		t.Fatal(err)
	}
	used, err := named()
	if err != nil {
		t.Fatal(err)
	}
	waits := map[string]string{}
	for part, codes := range unbuilt {
		for code := range strings.FieldsSeq(codes) {
			waits[code] = part
		}
	}
	for _, r := range rows {
		part, waiting := waits[r.code]
		switch raised := used[goName(r.name)]; {
		case raised && waiting:
			t.Errorf("%s %s is raised; take it from the codes that wait for %s", r.code, r.name, part)
		case !raised && !waiting:
			t.Errorf("%s %s is raised by nothing; raise it, or name the part that will", r.code, r.name)
		}
		delete(waits, r.code)
	}
	for code, part := range waits {
		t.Errorf("%s, which waits for %s, is not in contracts/errors.csv", code, part)
	}
}
