package approval

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestDecisionsNeverWiden: of random decisions of random people, a request is approved only if as
// many different people as are needed, none of them its own, approved the digest that it ends with.
func TestDecisionsNeverWiden(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	approvedSome := 0
	for range 3000 {
		q := &Request{Tenant: "t", Subject: "agent", OnBehalf: pick("", "ann"), KeyID: "ka", Needed: 1 + rnd.IntN(3), State: Pending, Digest: "d0", ExpiresAt: time.Unix(2, 0), Actor: pick("", "sue"), Chain: []string{"zoe", "planner"},
			Levels: []Level{{Roles: []string{"lead"}}, {Roles: []string{"head"}, After: time.Hour}}, Level: rnd.IntN(2)}
		level := q.Level
		for range 12 {
			p := &toolkeep.Principal{Tenant: pick("t", "t", "t", "u"), Subject: pick("agent", "ann", "sue", "p1", "p2", "p3", "planner"), OnBehalf: pick("", "", "", "ann", "agent", "p1"),
				Chain: [][]string{nil, nil, {"zoe"}, {"p1"}}[rnd.IntN(4)], KeyID: pick("", "k1", "k2", "ka"), Roles: []string{pick("lead", "head", "none")}}
			_ = q.Decide(p, Decision{Approve: rnd.IntN(8) > 0, Digest: pick("d0", "d0", "d1"), At: time.Unix(1, 0)})
		}
		if q.State != Approved {
			continue
		}
		approvedSome++
		people := map[string]bool{}
		for _, d := range q.Decisions {
			if d.Approve && d.Digest == q.Digest {
				people[d.person()] = true
			}
			if q.Actor != "" && (d.By == q.Actor || d.OnBehalf == q.Actor) || d.By == "agent" || d.By == "planner" || d.By == q.OnBehalf || d.OnBehalf == "agent" || d.OnBehalf != "" && d.OnBehalf == q.OnBehalf || d.KeyID == "ka" {
				t.Fatalf("a decision of its own counted: %+v of %+v", d, q)
			}
		}
		if len(people) < q.Needed {
			t.Fatalf("%d people approved of %d at level %d: %+v", len(people), q.Needed, level, q.Decisions)
		}
	}
	if approvedSome < 100 {
		t.Fatalf("only %d were approved; the test shows nothing", approvedSome)
	}
}

func TestDigest(t *testing.T) {
	a := toolOf("a.b", "low")
	seen := map[string]string{}
	for name, v := range map[string]toolkeep.Tool{
		"it": *a, "another tool": {ID: "a.c", Version: a.Version, Digest: a.Digest}, "another version": {ID: a.ID, Version: "1.0.1", Digest: a.Digest},
		"another manifest": {ID: a.ID, Version: a.Version, Digest: "sha256:e"}, "moved texts": {ID: "a.b1", Version: ".0.0", Digest: a.Digest},
	} {
		for _, args := range [][32]byte{{}, {1}} {
			d := Digest(&v, args)
			if other := seen[d]; other != "" {
				t.Errorf("%s and %s have the same digest", name, other)
			}
			seen[d] = fmt.Sprint(name, args[0])
		}
	}
	row := &toolkeep.Invocation{ToolID: a.ID, Version: a.Version, Digest: a.Digest, ArgsHash: [32]byte{1}}
	if DigestOf(row) != Digest(a, [32]byte{1}) {
		t.Error("a row's digest differs from its call's")
	}
}
