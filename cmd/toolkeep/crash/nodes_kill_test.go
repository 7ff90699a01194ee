package crash_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

const (
	killCalls   = 200
	killClients = 16
)

// seedOf returns the seed of a test's random choices, TOOLKEEP_TEST_SEED or a new one.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("TOOLKEEP_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TOOLKEEP_TEST_SEED: %v", err)
		}
	}
	t.Logf("TOOLKEEP_TEST_SEED=%d does the same again", seed)
	return seed
}

// waitingCall is one call of killedAtRandom and what became of it.
type waitingCall struct {
	ask
	name  string
	to    []int         // nodes to ask, in this order
	wait  time.Duration // before it is sent
	id    string        // what the first answer said
	tries int
}

// killedAtRandom sends 200 waiting calls to nodes that are killed and started again
// all the time. Each call ends once.
func killedAtRandom(t *testing.T, c *cluster) {
	c.settings = append(c.settings, "calls.lease=3s")
	random := rand.New(rand.NewPCG(seedOf(t), 1))
	c.three()
	c.tools()
	calls := make([]*waitingCall, killCalls)
	for i := range calls {
		w := &waitingCall{name: fmt.Sprintf("call-%d", i), wait: time.Duration(random.IntN(1200)) * time.Millisecond}
		for range 64 {
			w.to = append(w.to, random.IntN(len(c.nodes)))
		}
		w.ask = ask{tool: []string{readTool, putTool, addTool}[i%3], key: "key of " + w.name, async: true,
			args: named(w.name, 100+random.IntN(900))}
		calls[i] = w
	}
	sent := c.send(calls)
	kills := 0
	for over := false; !over; {
		select {
		case <-sent:
			over = kills >= 6
		case <-time.After(time.Duration(300+random.IntN(900)) * time.Millisecond):
		}
		kills += c.killSome(random)
	}
	c.settle()
	t.Logf("%d kills", kills)
	c.checkEnds(calls, random)
	c.down()
	c.nothingLeft()
	c.checkJournal(calls)
}

// send has clients send the calls, each until it is answered; closed when all are.
func (c *cluster) send(calls []*waitingCall) <-chan struct{} {
	var next atomic.Int64
	var clients sync.WaitGroup
	for range killClients {
		clients.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(calls) {
					return
				}
				pause(calls[i].wait)
				c.admit(calls[i])
			}
		})
	}
	sent := make(chan struct{})
	go func() {
		clients.Wait()
		close(sent)
	}()
	return sent
}

// admit sends a call, with its key, to one node after the other until it is taken.
func (c *cluster) admit(w *waitingCall) {
	limit := time.Now().Add(waitLimit)
	for ; time.Now().Before(limit); w.tries++ {
		p := c.nodes[w.to[w.tries%len(w.to)]].now.Load()
		if p == nil {
			pause(20 * time.Millisecond)
			continue
		}
		got, err := p.call(w.ask)
		switch {
		case err != nil: // the node died, before or after it took the call
		case got.http == http.StatusAccepted || got.http == http.StatusOK:
			if w.id != "" && w.id != got.ID {
				c.t.Errorf("%s was taken as %s and as %s", w.name, w.id, got.ID)
			}
			w.id = got.ID
			return
		default:
			c.t.Errorf("%s was answered %s", w.name, got)
			return
		}
	}
	c.t.Errorf("%s was not taken", w.name)
}

// killSome kills one node, sometimes two, and starts them again after a while.
func (c *cluster) killSome(random *rand.Rand) int {
	c.t.Helper()
	victims := random.Perm(len(c.nodes))[:1+random.IntN(3)/2]
	for _, i := range victims {
		p := c.nodes[i].now.Swap(nil)
		p.signal(syscall.SIGKILL)
		p.killed()
		p.client.CloseIdleConnections()
	}
	pause(time.Duration(random.IntN(1000)) * time.Millisecond)
	for _, i := range victims {
		c.up(c.nodes[i])
	}
	return len(victims)
}

// settle waits until no call waits or runs.
func (c *cluster) settle() {
	c.t.Helper()
	took := within(c.t, waitLimit, "every call has ended", func() bool {
		return c.number(`SELECT count(*) FROM invocations WHERE state IN ('accepted', 'queued', 'running')`) == 0
	})
	c.t.Logf("the last call ended %s later", took.Round(time.Millisecond))
}

// mayEnd reports whether a call may end this way: after a kill, a write that may not be repeated can end with an
// unknown outcome.
func (w *waitingCall) mayEnd(r row) bool {
	return r.is(toolkeep.CallSucceeded, "") || w.tool == addTool && r.is(toolkeep.CallUnknown, toolkeep.OutcomeUnknown)
}

// checkEnds compares every node's records with the service's counts.
func (c *cluster) checkEnds(calls []*waitingCall, random *rand.Rand) {
	t := c.t
	asked := c.upstream.counts()
	states, again := map[string]int{}, 0
	for _, w := range calls {
		first := c.p(random.IntN(len(c.nodes))).record(w.id)
		states[w.tool+" "+first.State]++
		n := asked[w.name]
		delete(asked, w.name)
		again += max(0, n-1)
		switch {
		case first.http != http.StatusOK || !w.mayEnd(first):
			t.Errorf("%s of %s (%d times sent) ended as %s", w.name, w.tool, w.tries+1, first)
		case n == 0 && first.State == string(toolkeep.CallSucceeded):
			t.Errorf("%s of %s succeeded and was never carried out", w.name, w.tool)
		case n > 1 && w.tool == addTool:
			t.Errorf("%s of %s was carried out %d times", w.name, w.tool, n)
		}
		for i := range c.nodes {
			if is := c.p(i).record(w.id); is.State != first.State || is.Error.Code != first.Error.Code {
				t.Errorf("%s is %s at one node and %s at another", w.name, first, is)
			}
		}
		// Repeating it returns the same result and executes nothing.
		got, err := c.p(random.IntN(len(c.nodes))).call(w.ask)
		if err != nil || got.ID != w.id || !got.Metadata.Replayed || got.Error.Code != first.Error.Code {
			t.Errorf("%s sent again is answered %+v %v", w.name, got, err)
		}
		if now := c.upstream.count(w.name); now != n {
			t.Errorf("%s was carried out again after it had ended", w.name)
		}
	}
	for name, n := range asked {
		t.Errorf("the service was asked %d times for %s, which nobody called", n, name)
	}
	if odd := c.upstream.oddities(); odd != "" {
		t.Error(odd)
	}
	t.Logf("ends: %v; %d executions were repeated", states, again)
}

// checkJournal looks that each call ended once.
func (c *cluster) checkJournal(calls []*waitingCall) {
	ends := c.ends()
	for _, w := range calls {
		if len(ends[w.id]) != 1 {
			c.t.Errorf("%s ended as %v", w.name, ends[w.id])
		}
		delete(ends, w.id)
	}
	for id := range ends {
		c.t.Errorf("there is a call %s of which no caller was told", id)
	}
	if n := c.number(`SELECT count(*) FROM invocations WHERE tool LIKE 'chaos.%'`); n != int64(len(calls)) {
		c.t.Errorf("there are %d calls, want %d", n, len(calls))
	}
}

// takenUp kills a node in the moment in which its lease of a call is newest.
func takenUp(t *testing.T, c *cluster) {
	c.up(c.add(""))
	c.tools()
	open := c.upstream.hold("held")
	defer open()
	running := ask{id: uuid.NewString(), tool: putTool, args: named("held", 0), key: "held", async: true}
	if got, err := c.p(0).call(running); err != nil || got.http != http.StatusAccepted {
		t.Fatalf("%s %v", got, err)
	}
	within(t, waitLimit, "the call runs", func() bool { return c.upstream.count("held") == 1 })
	c.up(c.add(""))
	lease := func() int64 { return c.number(`SELECT lease_until FROM invocations WHERE id = $1`, running.id) }
	before := lease()
	within(t, waitLimit, "the lease is renewed", func() bool { return lease() > before })

	first := c.nodes[0].now.Swap(nil)
	first.signal(syscall.SIGKILL)
	first.killed()
	took := within(t, waitLimit, "another node carries the call on", func() bool { return c.upstream.count("held") == 2 })
	t.Logf("taken up after %s; a quiet machine with the settings as they are by default needs less than 15 s", took.Round(time.Millisecond))
	open()
	until(t, "the call has ended", func() bool { return toolkeep.CallState(c.p(1).record(running.id).State).Ended() })
	if is := c.p(1).record(running.id); !is.is(toolkeep.CallSucceeded, "") {
		t.Errorf("the call is %s", is)
	}
	c.down()
	c.nothingLeft()
	if ends := c.ends()[running.id]; !slices.Equal(ends, []toolkeep.CallState{toolkeep.CallSucceeded}) {
		t.Errorf("the call ended as %v", ends)
	}
}

// seenEverywhere publishes and blocks on one node after the other.
func seenEverywhere(t *testing.T, c *cluster) {
	c.three()
	var slowest time.Duration
	everywhere := func(what string, ok func(r row) bool, tool string) {
		t.Helper()
		for i := range c.nodes {
			took := within(t, seenWithin, fmt.Sprintf("%s at node %d", what, i), func() bool {
				got, err := c.p(i).call(ask{tool: tool, args: named(tool, 0)})
				return err == nil && ok(got)
			})
			slowest = max(slowest, took)
		}
	}
	for round := range 6 {
		id := fmt.Sprintf("chaos.round%d", round)
		c.p(round % 3).publish(c.upstream.tool(id, reading))
		everywhere("a published tool can be called", func(r row) bool { return r.Status == "success" }, id)
		c.p((round+1)%3).must("POST", "/api/v1/tools/"+id+"/versions/1.0.0/state", `{"state":"blocked"}`, http.StatusOK, nil)
		everywhere("a blocked one cannot", func(r row) bool { return r.Code == string(toolkeep.ToolBlocked) }, id)
		c.p((round+2)%3).must("POST", "/api/v1/tools/"+id+"/versions/1.0.0/state", `{"state":"active"}`, http.StatusOK, nil)
		everywhere("one that is active again can", func(r row) bool { return r.Status == "success" }, id)
	}
	t.Logf("all nodes saw each change within %s", slowest.Round(time.Millisecond))

	// A key made on one node opens all, and a revoked one none.
	var made struct {
		ID     string `json:"id"`
		Secret string `json:"secret"`
	}
	c.p(0).must("POST", "/api/v1/keys", `{"subject":"visitor","roles":["admin"]}`, http.StatusCreated, &made)
	opens := func(i int) bool {
		p := c.p(i)
		visitor := &process{t: t, url: p.url, client: p.client, key: made.Secret}
		status, _, err := visitor.do("GET", "/api/v1/tools", "")
		return err == nil && status == http.StatusOK
	}
	for i := range c.nodes {
		// Asking with the key until it works would fail logins, which block the address.
		within(t, seenWithin, "a new key is known", func() bool {
			_, list, err := c.p(i).do("GET", "/api/v1/keys?page_size=200", "")
			return err == nil && strings.Contains(string(list), made.ID)
		})
		if !opens(i) {
			t.Errorf("a new key does not open node %d", i)
		}
	}
	c.p(1).must("DELETE", "/api/v1/keys/"+made.ID, "", http.StatusNoContent, nil)
	for i := range c.nodes {
		within(t, seenWithin, "a revoked key is refused", func() bool { return !opens(i) })
	}
	c.down()
}

// seenWithin is a second, and much patience with a machine that has other work.
const seenWithin = time.Minute
