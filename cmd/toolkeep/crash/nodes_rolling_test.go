package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
)

// TestNodesBehindABalancer restarts three nodes one after the other behind a plain TCP balancer, and
// then kills Redis, which counts their limits, and PostgreSQL, while clients write with keys at a steady rate. Each
// call is answered with success, at the latest when it is repeated with its key; each write happens once, and each
// answer has its record. Without Redis the calls go on, and each node admits its share.
func TestNodesBehindABalancer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t) // of its own, since it is killed
	redis := redistest.Start(t)
	c := newCluster(t, &lab{binary: program}, server, "redis.url="+redis.URL())
	b := servertest.NewBalancer(t)
	balance := func() {
		var all []string
		for _, n := range c.nodes {
			if p := n.now.Load(); p != nil {
				all = append(all, strings.TrimPrefix(p.url, "http://"))
			}
		}
		b.To(all...)
	}
	c.three()
	c.tools()
	balance()
	w := c.writers("http://"+b.Addr, 4, 50*time.Millisecond)

	w.answers(40)
	for _, n := range c.nodes {
		p := n.now.Swap(nil)
		p.stop() // the balancer gives it connections until it refuses them
		balance()
		w.answers(20)
		c.up(n)
		p = n.now.Load()
		p.knows(addTool)
		balance()
		w.answers(20)
	}
	t.Logf("rolling restart: %d calls, %d sent again, the slowest answered after %s", w.answered.Load(), w.again.Load(), w.slowest())

	all := func(what, shared string, limit func(perMinute int) bool) {
		t.Helper()
		for i := range c.nodes {
			within(t, waitLimit, what, func() bool { return c.p(i).sharedLimits() == shared && limit(c.p(i).agentLimit()) })
		}
	}
	const whole = 1_000_000 // limits.agent_per_minute of launch
	all("Redis counts the limits", "UP", func(n int) bool { return n == whole })
	redis.Down(t)
	all("each node admits its share", "DOWN", func(n int) bool { return n < whole/2 })
	w.answers(20)
	redis.Up(t)
	all("Redis counts the limits again", "UP", func(n int) bool { return n == whole })
	w.answers(20)

	before := w.again.Load()
	if err := server.Down(); err != nil {
		t.Fatal(err)
	}
	until(t, "the clients notice", func() bool { return w.again.Load() > before+8 })
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	up := time.Now()
	took := w.answers(1)
	w.answers(40)
	for i := range c.nodes {
		within(t, waitLimit, "the node is well", func() bool { code, status, _ := c.p(i).health(); return code == http.StatusOK && status == "UP" })
	}
	t.Logf("PostgreSQL killed: the first write %s after it was back, all nodes well after %s; the slowest call %s", took.Round(time.Millisecond), time.Since(up).Round(time.Millisecond), w.slowest())
	w.stop()

	c.settle()
	c.down()
	c.nothingLeft()
	counts, ends := c.upstream.counts(), c.ends()
	w.ids.Range(func(name, id any) bool {
		if n := counts[name.(string)]; n != 1 {
			t.Errorf("%s was carried out %d times", name, n)
		}
		if is := ends[id.(string)]; len(is) != 1 || is[0] != toolkeep.CallSucceeded {
			t.Errorf("%s was answered with success; its record %s ended as %v", name, id, is)
		}
		return true
	})
	if n := len(counts); int64(n) != w.answered.Load() {
		t.Errorf("%d writes were carried out, %d answered", n, w.answered.Load())
	}
}

// writers are clients that write at a steady rate, each call with a key until it is answered.
type writers struct {
	t        *testing.T
	answered atomic.Int64
	again    atomic.Int64 // sent again with the key
	ids      sync.Map     // of calls, by name
	end      chan struct{}
	done     sync.WaitGroup

	mu   sync.Mutex
	slow time.Duration // of the slowest
}

func (c *cluster) writers(url string, clients int, every time.Duration) *writers {
	w := &writers{t: c.t, end: make(chan struct{})}
	for n := range clients {
		p := &process{t: c.t, url: url, key: c.key, client: &http.Client{Transport: &http.Transport{}, Timeout: waitLimit}}
		w.done.Go(func() {
			defer p.client.CloseIdleConnections()
			tick := time.NewTicker(every)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-w.end:
					return
				case <-tick.C:
				}
				if !w.write(p, fmt.Sprintf("write %d-%d", n, i)) {
					return
				}
			}
		})
	}
	c.t.Cleanup(w.stop)
	return w
}

// write sends one call until it succeeds; false if it cannot.
func (w *writers) write(p *process, name string) bool {
	began := time.Now()
	a := ask{tool: addTool, key: "key of " + name, args: named(name, 5)}
	for time.Since(began) < waitLimit {
		got, err := p.call(a)
		switch {
		case err == nil && got.http == http.StatusOK && got.Status == "success":
			w.ids.Store(name, got.ID)
			w.mu.Lock()
			w.slow = max(w.slow, time.Since(began))
			w.mu.Unlock()
			w.answered.Add(1)
			return true
		case err == nil && got.http != http.StatusServiceUnavailable && got.http != http.StatusAccepted && !got.still():
			w.t.Errorf("%s is answered %s", name, got)
			return false
		}
		w.again.Add(1)
		pause(20 * time.Millisecond)
	}
	w.t.Errorf("%s got no answer", name)
	return false
}

// still tells whether the call of the key goes on.
func (r row) still() bool { return r.State == string(toolkeep.CallRunning) }

func (w *writers) slowest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slow.Round(time.Millisecond)
}

// answers waits until so many more calls were answered, and says how long that took.
func (w *writers) answers(n int64) time.Duration {
	w.t.Helper()
	want := w.answered.Load() + n
	return within(w.t, waitLimit, "calls are answered", func() bool { return w.answered.Load() >= want || w.t.Failed() })
}

// stop waits for the calls that are under way.
func (w *writers) stop() {
	select {
	case <-w.end:
	default:
		close(w.end)
	}
	w.done.Wait()
}

// sharedLimits is the status of the limits that nodes share in a node's health.
func (s *process) sharedLimits() string {
	s.t.Helper()
	_, raw, err := s.do("GET", "/health/ready", "")
	if err != nil {
		s.t.Fatal(err)
	}
	var h struct {
		Components map[string]struct{ Status string }
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		s.t.Fatalf("%v in %s", err, raw)
	}
	return h.Components["shared_limits"].Status
}

// agentLimit is how many requests a minute a node says that an agent has there.
func (s *process) agentLimit() (perMinute int) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+"/api/v1/tools/invoke", strings.NewReader(`{"tool_id":"std.nothing","parameters":{}}`))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	policy := resp.Header.Get("RateLimit-Policy")
	var kind string // the limit of the server has as many requests
	if _, err := fmt.Sscanf(policy, `%q;q=%d;`, &kind, &perMinute); err != nil {
		s.t.Fatalf("the policy of an agent's requests is %q: %v", policy, err)
	}
	return perMinute
}
