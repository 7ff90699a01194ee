package toolkeeptest_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestOverload: a node whose requests wait for the processor longer than they may refuses new calls and says when to come again;
// those that it has taken go on, a cancel and the probes of health are answered, and so are calls once few are in flight.
func TestOverload(t *testing.T) {
	t.Parallel()
	// Any wait is longer than that, and what is held stays on any machine.
	k, g := withGate(t, map[string]string{"calls.max_cpu_wait": "1us", "calls.sync_limit": "5m", "tools.timeout": "5m"})
	k.Publish(gated("gate.read", "1.0.0", reads), gated("gate.write", "1.0.0", writes))
	c := admin(t, k)
	const held, id = 32, "0193b1b5-0000-7000-8000-000000000001" // as many are always taken
	var calls sync.WaitGroup
	for n := range held - 1 {
		calls.Go(func() { c.call("gate.read", named("held "+strconv.Itoa(n))).success(t) })
	}
	calls.Go(func() { c.call("gate.write", named("cancelled"), `"invocation_id":"`+id+`"`) })
	waitUntil(t, "all have reached their tools", func() bool { return len(g.starts()) == held })
	ctx, end := context.WithCancel(t.Context())
	defer end()
	calls.Go(func() { // so that calls come while one of them takes long
		for ctx.Err() == nil {
			_, _ = c.try(ctx, "POST", "/api/v1/tools/invoke", envelope("std.echo", "{}"))
		}
	})
	var a answer
	waitUntil(t, "a call is refused", func() bool {
		a = c.call("std.echo", "{}")
		return a.status == 503
	})
	end()
	a.refused(t, toolkeep.Backpressure)
	if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 || after > 3 {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
	if why := a.at(t, "details", "reason"); why != "CPU_WAIT" {
		t.Errorf("the reason is %v: %s", why, a.body)
	}
	c.do("GET", "/health/ready", "").want(t, 200)
	c.do("POST", "/api/v1/invocations/"+id+"/cancel", `{"reason":"by the test"}`).want(t, 200)
	g.openAll()
	calls.Wait()
	waitUntil(t, "calls are taken again", func() bool { return c.call("std.echo", "{}").status == 200 })
}
