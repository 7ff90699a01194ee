package invoke

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestFollowersAreBounded: so are how many follow, how many events wait for one that does not read, and how many a second it is told.
func TestFollowersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l live
		pr := &toolkeep.Principal{Tenant: "t", Subject: "s"}
		for i := range maxOwnFollowers {
			w, err := l.join(pr, toolkeep.InvocationFilter{})
			if err != nil {
				t.Fatal(i, err)
			}
			defer l.leave(w)
		}
		if _, err := l.join(pr, toolkeep.InvocationFilter{}); !toolkeep.IsCode(err, toolkeep.ConcurrencyLimitExceeded) {
			t.Errorf("one subject follows more often than %d times: %v", maxOwnFollowers, err)
		}
		other := &toolkeep.Principal{Tenant: "u", Subject: "s"}
		w, err := l.join(other, toolkeep.InvocationFilter{})
		if err != nil {
			t.Fatal(err)
		}
		l.leave(w)
		var seen *follower
		for w := range l.all {
			seen = w
		}
		for range 2 * followRate {
			l.tell(LiveStarted, &toolkeep.Invocation{Tenant: "t", Subject: "s"})
		}
		if n := len(seen.events); n != followRate || seen.gap() != followRate || seen.gap() != 0 {
			t.Errorf("%d were told in a second", n)
		}
		for range 10 {
			time.Sleep(time.Second)
			for range followRate {
				l.tell(LiveStarted, &toolkeep.Invocation{Tenant: "t", Subject: "s"})
			}
		}
		if n := len(seen.events); n != followBuffer || seen.gap() != 11*followRate-followBuffer {
			t.Errorf("%d wait", n)
		}
	})
}

// TestNoFollowerCostsNothing: a call that ends allocates nothing for followers that are not there.
func TestNoFollowerCostsNothing(t *testing.T) {
	p := &Pipeline{}
	v := &toolkeep.Invocation{Tenant: "t", State: toolkeep.CallSucceeded}
	if n := testing.AllocsPerRun(100, func() { p.called(v, nil, nil, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
