package toolkeeptest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestLimitsInRedis: two nodes whose limits Redis counts. An agent has its whole limit on one of them, and none of it
// is left on the other. Without Redis each admits its share, and says so.
func TestLimitsInRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	nodes := cluster(t, 2, func(o *toolkeeptest.Option) {
		o.Settings["redis.url"], o.Settings["limits.agent_per_minute"] = redis.URL(), "4"
	})
	const whole, share = `"agent";q=4;w=60`, `"agent";q=2;w=60`
	clients := func(subject string) [2]*client {
		key := nodes[0].Key("default", subject, "agent")
		nodes[1].AwaitKey("default", key)
		return [2]*client{as(t, nodes[0], key), as(t, nodes[1], key)}
	}
	bob := clients("bob")
	policy := func(c *client) string { return c.call("std.nothing", "{}").header.Get("RateLimit-Policy") }
	counts := func() bool { return policy(bob[0]) == whole && policy(bob[1]) == whole }
	// A machine that is busy for 50 ms is a Redis that is away: then it is another agent's turn.
	away := func() int {
		return strings.Count(nodes[0].Log()+nodes[1].Log(), "Redis does not count the limits")
	}
	undisturbed := false
	for i := 0; i < 20 && !undisturbed; i++ {
		within(t, 10*time.Second, "Redis counts for both nodes", counts)
		ann, before := clients(fmt.Sprint("ann", i)), away()
		var answers []answer
		for _, node := range []int{0, 0, 0, 0, 1, 0} {
			answers = append(answers, ann[node].call("std.nothing", "{}"))
		}
		if undisturbed = away() == before; !undisturbed {
			continue
		}
		for n, a := range answers {
			if n < 4 {
				a.refused(t, toolkeep.ToolNotFound)
				continue
			}
			a.overLimit(t, toolkeep.RateLimitExceeded, "agent")
			if strings.Contains(a.body, "share_per_minute") {
				t.Errorf("a limit that Redis counts has shares: %s", a.body)
			}
		}
	}
	if !undisturbed {
		t.Fatal("Redis never answered for 6 requests within its time")
	}

	redis.Down(t)
	within(t, 10*time.Second, "each node admits its share without Redis", func() bool { return policy(bob[0]) == share && policy(bob[1]) == share })
	within(t, 10*time.Second, "health says so", func() bool {
		_, body := nodes[0].Do("GET", "/health/ready", "")
		return strings.Contains(body, "shared_limits") && strings.Contains(body, "DEGRADED")
	})
	redis.Up(t)
	within(t, 20*time.Second, "Redis counts again", counts)
}
