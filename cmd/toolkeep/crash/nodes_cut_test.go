package crash_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

const cutFor = 30 * time.Second

// cutOff cuts one of three nodes off the database for half a minute. The node keeps doing what needs no database,
// the others are unaffected, and it recovers by itself.
func cutOff(t *testing.T, c *cluster, how cutting) {
	c.settings = append(c.settings, "store.max_staleness=25s") // the node serves while it is looked at, on machines of any speed
	host := map[cutting]string{refusing: "127.77.0.1", swallowing: "127.77.0.2"}[how]
	wires := newProxy(t, host, c.server.Addr())
	c.up(c.add(wires.addr))
	c.tools()
	apart := c.p(0)

	// What it carries out when the cut comes. The others start when it has taken it.
	held := map[string]*ask{readTool: nil, putTool: nil, addTool: nil}
	open := map[string]func(){}
	for tool := range held {
		a := ask{id: uuid.NewString(), tool: tool, args: named("held by "+tool, 0), key: "held by " + tool, async: true}
		held[tool] = &a
		open[tool] = c.upstream.hold("held by " + tool)
		defer open[tool]()
		if got, err := apart.call(a); err != nil || got.http != http.StatusAccepted {
			t.Fatalf("%s %v", got, err)
		}
		within(t, waitLimit, "the call runs", func() bool { return c.upstream.count("held by "+tool) == 1 })
	}
	c.up(c.add(""), c.add(""))
	c.p(1).knows(readTool, putTool, addTool)
	c.p(2).knows(readTool, putTool, addTool)
	kept := apart.answered(ask{tool: addTool, args: named("before", 0), key: "before"})
	short := make([]ask, 30) // some of them are under way when the cut comes
	for i := range short {
		short[i] = ask{id: uuid.NewString(), tool: putTool, args: named(fmt.Sprintf("short-%d", i), 200), key: fmt.Sprintf("short-%d", i), async: true}
		if got, err := c.p(i % 3).call(short[i]); err != nil || got.http != http.StatusAccepted {
			t.Fatalf("%s %v", got, err)
		}
	}

	wires.cut(how)
	over := time.After(cutFor)
	read := c.apartFrom(apart, kept.ID)
	c.untouched(held, short)
	for _, o := range open {
		o() // its call ends, but no caller learns of it
	}
	select {
	case <-over:
		t.Log("the others needed longer than the cut lasts")
	default:
		<-over
	}
	if code, status, _ := apart.health(); code != http.StatusServiceUnavailable || status != "DOWN" {
		t.Errorf("a node that sees no changes of others any more says %d %s", code, status)
	}
	if got, err := apart.call(ask{tool: readTool, args: named("too old", 0)}); err != nil || got.Code != string(toolkeep.RegistryUnavailable) || c.upstream.count("too old") != 0 {
		t.Errorf("it answers a reading call %s %v", got, err)
	}
	wires.cut(passing)
	began := time.Now()
	c.back(apart, read)
	t.Logf("all is as before %s after the end of the cut", time.Since(began).Round(time.Millisecond))

	for _, a := range append(short, *held[readTool], *held[putTool]) {
		if is := apart.record(a.id); !is.is(toolkeep.CallSucceeded, "") {
			t.Errorf("%s %s is %s", a.tool, a.key, is)
		}
	}
	if is := apart.record(held[addTool].id); !is.is(toolkeep.CallUnknown, toolkeep.OutcomeUnknown) {
		t.Errorf("what may have been done and may not be repeated is %s", is)
	}
	c.worksAlone(0)
	c.down()
	c.nothingLeft()
	for id, ends := range c.ends() {
		if len(ends) != 1 {
			t.Errorf("%s ended as %v", id, ends)
		}
	}
	for name, n := range c.upstream.counts() {
		if n > 1 && name != "held by "+readTool && name != "held by "+putTool && name[:5] != "short" {
			t.Errorf("%s was carried out %d times", name, n)
		}
	}
	if odd := c.upstream.oddities(); odd != "" {
		t.Error(odd)
	}
}

// apartFrom looks at the node without database. It gives the ids of the calls whose
// records it owes.
func (c *cluster) apartFrom(apart *process, kept string) (read []string) {
	t := c.t
	took := within(t, waitLimit, "the node says that it has no store", func() bool {
		code, status, store := apart.health()
		return code == http.StatusOK && status == "DEGRADED" && store == "DOWN"
	})
	t.Logf("degraded after %s", took.Round(time.Millisecond))
	var slowest time.Duration
	timed := func(do func()) {
		began := time.Now()
		do()
		slowest = max(slowest, time.Since(began))
	}
	for i := range 3 {
		name := fmt.Sprintf("read apart %d", i)
		timed(func() {
			got := apart.answered(ask{tool: readTool, args: named(name, 0)})
			read = append(read, got.ID)
		})
		if n := c.upstream.count(name); n != 1 {
			t.Errorf("%s was carried out %d times", name, n)
		}
	}
	t.Logf("a reading call took up to %s", slowest.Round(time.Millisecond))
	slowest = 0
	for what, a := range map[string]ask{
		"writing":             {tool: addTool, args: named("refused", 0)},
		"writing with key":    {tool: addTool, args: named("refused", 0), key: "refused"},
		"repeatable":          {tool: putTool, args: named("refused", 0), key: "refused too"},
		"reading with key":    {tool: readTool, args: named("refused", 0), key: "refused also"},
		"waiting":             {tool: readTool, args: named("refused", 0), async: true},
		"kept, with its key":  {tool: addTool, args: named("before", 0), key: "before"},
		"waiting and writing": {tool: putTool, args: named("refused", 0), async: true, key: "refused as well"},
	} {
		timed(func() {
			got, err := apart.call(a)
			if err != nil || got.http != http.StatusServiceUnavailable || got.Code != string(toolkeep.RecordUnavailable) {
				t.Errorf("a call that is %s is answered %s %v", what, got, err)
			}
		})
	}
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/api/v1/invocations/" + kept, ""}, {"GET", "/api/v1/invocations", ""},
		{"GET", "/api/v1/invocations/" + kept + "/events", ""},
		{"POST", "/api/v1/invocations/" + kept + "/cancel", "{}"},
		{"POST", "/api/v1/tools/register", `{"manifest":` + c.upstream.tool("chaos.refused", reading) + `}`},
		{"POST", "/api/v1/keys", `{"subject":"x","roles":["agent"]}`},
	} {
		timed(func() {
			if status, raw, err := apart.do(r.method, r.path, r.body); err != nil || status != http.StatusServiceUnavailable {
				t.Errorf("%s %s is answered %d %s %v", r.method, r.path, status, raw, err)
			}
		})
	}
	t.Logf("a refusal took up to %s", slowest.Round(time.Millisecond))
	if n := c.upstream.count("refused"); n != 0 {
		t.Errorf("%d refused calls were carried out", n)
	}
	for _, path := range []string{"/api/v1/tools", "/api/v1/tools/" + readTool, "/api/v1/tools/retrieval/search?q=hash", "/health/live", "/api/v1/keys"} {
		apart.must("GET", path, "", http.StatusOK, nil)
	}
	return read
}

// untouched looks at the other nodes during the cut: they work, and take over what
// the one apart had.
func (c *cluster) untouched(held map[string]*ask, short []ask) {
	t := c.t
	var slowest time.Duration
	for i := range 40 {
		began := time.Now()
		name := fmt.Sprintf("meanwhile-%d", i)
		c.p(1 + i%2).answered(ask{tool: addTool, args: named(name, 0), key: name})
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("a keyed call at the others took up to %s", slowest.Round(time.Millisecond))
	c.p(1).publish(c.upstream.tool("chaos.meanwhile", reading))
	c.p(2).must("POST", "/api/v1/tools/"+addTool+"/versions/1.0.0/state", `{"state":"blocked"}`, http.StatusOK, nil)
	within(t, seenWithin, "what one does the other sees", func() bool {
		got, err := c.p(1).call(ask{tool: addTool, args: named("blocked", 0)})
		return err == nil && got.Code == string(toolkeep.ToolBlocked)
	})
	for _, tool := range []string{readTool, putTool} {
		took := within(t, waitLimit, "another node carries the call on", func() bool { return c.upstream.count("held by "+tool) == 2 })
		t.Logf("%s was taken over after %s more", tool, took.Round(time.Millisecond))
	}
	until(t, "what may not be repeated has ended", func() bool {
		return c.p(1).record(held[addTool].id).is(toolkeep.CallUnknown, toolkeep.OutcomeUnknown)
	})
	for _, a := range short {
		until(t, "the short calls have ended", func() bool { return toolkeep.CallState(c.p(2).record(a.id).State).Ended() })
	}
}

// back waits until the node that was apart is like the others.
func (c *cluster) back(apart *process, read []string) {
	t := c.t
	for what, ok := range map[string]func() bool{
		"the node is well": func() bool {
			code, status, store := apart.health()
			return code == http.StatusOK && status == "UP" && store == "UP"
		},
		"the records it owed are there": func() bool {
			for _, id := range read {
				if !c.p(1).record(id).is(toolkeep.CallSucceeded, "") {
					return false
				}
			}
			return true
		},
		"it knows what was published": func() bool {
			got, err := apart.call(ask{tool: "chaos.meanwhile", args: named("after", 0)})
			return err == nil && got.Status == "success"
		},
		"it knows what was blocked": func() bool {
			got, err := apart.call(ask{tool: addTool, args: named("blocked", 0)})
			return err == nil && got.Code == string(toolkeep.ToolBlocked)
		},
		"it takes keyed calls": func() bool {
			got, err := apart.call(ask{tool: putTool, args: named("keyed again", 0), key: "keyed again"})
			return err == nil && got.Status == "success"
		},
	} {
		t.Logf("%s: after %s", what, within(t, waitLimit, what, ok).Round(time.Millisecond))
	}
}

// worksAlone stops the other nodes and has one carry out a waiting call.
func (c *cluster) worksAlone(one int) {
	for i, n := range c.nodes {
		if i != one {
			n.now.Swap(nil).stop()
		}
	}
	p := c.p(one)
	a := ask{id: uuid.NewString(), tool: putTool, args: named("alone", 0), key: "alone", async: true}
	if got, err := p.call(a); err != nil || got.http != http.StatusAccepted {
		c.t.Fatalf("%s %v", got, err)
	}
	took := within(c.t, waitLimit, "the node works on the queue", func() bool { return p.record(a.id).is(toolkeep.CallSucceeded, "") })
	c.t.Logf("it carried out a waiting call after %s", took.Round(time.Millisecond))
}
