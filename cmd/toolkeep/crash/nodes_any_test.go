package crash_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

// anyNodeAnswers has one client ask the nodes in turn, and several at random.
func anyNodeAnswers(t *testing.T, c *cluster) {
	random := rand.New(rand.NewPCG(seedOf(t), 3))
	c.three()
	c.tools()

	t.Log("the same call without a key")
	var first json.RawMessage
	for i := range 6 {
		got := c.p(i % 3).answered(ask{tool: "std.hash", args: `{"text":"the same"}`})
		if i == 0 {
			first = got.Result
		}
		same(t, "the result of the same call", first, got.Result)
	}

	t.Log("the same key at every node, one after the other")
	for i := range 6 {
		name := fmt.Sprintf("turn-%d", i)
		a := ask{tool: addTool, args: named(name, 0), key: name}
		first := c.p(i % 3).answered(a)
		if first.Metadata.Replayed {
			t.Errorf("%s is an answer to something else: %+v", name, first)
		}
		for j := range 3 {
			got := c.p((i + 1 + j) % 3).answered(a)
			if got.ID != first.ID || !got.Metadata.Replayed || got.Status != first.Status {
				t.Errorf("%s at the next node is answered %+v, was %+v", name, got, first)
			}
			same(t, "the kept result", first.Result, got.Result)
		}
		other := a
		other.args = named(name+" but other", 0)
		if got, err := c.p((i + 2) % 3).call(other); err != nil || got.Code != string(toolkeep.IdempotencyConflict) {
			t.Errorf("another call with the same key is answered %s %v", got, err)
		}
	}

	t.Log("a few keys at random nodes, at the same time")
	const keys, asks = 20, 200
	ids := make([]sync.Map, keys)
	at := make([]int, asks)
	for i := range at {
		at[i] = random.IntN(3)
	}
	var clients sync.WaitGroup
	for w := range killClients {
		clients.Go(func() {
			for i := w; i < asks; i += killClients {
				name := fmt.Sprintf("crowd-%d", i%keys)
				got, err := c.p(at[i]).call(ask{tool: addTool, args: named(name, 20), key: name})
				if err != nil || got.http != http.StatusOK || got.Status != "success" {
					t.Errorf("%s: %s %v", name, got, err)
				}
				ids[i%keys].Store(got.ID, true)
			}
		})
	}
	clients.Wait()
	for k := range ids {
		n := 0
		ids[k].Range(func(any, any) bool { n++; return true })
		if done := c.upstream.count(fmt.Sprintf("crowd-%d", k)); n != 1 || done != 1 {
			t.Errorf("key %d has %d calls and was carried out %d times", k, n, done)
		}
	}

	t.Log("records and lists")
	paths := []string{"/api/v1/invocations?page_size=200", "/api/v1/invocations?page_size=7&page=3", "/api/v1/invocations?tool_id=" + addTool,
		"/api/v1/tools?page_size=200", "/api/v1/tools/" + addTool, "/api/v1/tools/" + addTool + "/versions", "/api/v1/keys"}
	ids[0].Range(func(id, _ any) bool { paths = append(paths, "/api/v1/invocations/"+id.(string)); return true })
	for _, path := range paths {
		var all [3]json.RawMessage
		for i := range all {
			c.p(i).must("GET", path, "", http.StatusOK, &all[i])
		}
		same(t, path, all[0], all[1])
		same(t, path, all[0], all[2])
	}
	c.down()
	c.nothingLeft()
}

// full is row with the result.
type full struct {
	row
	Result json.RawMessage `json:"result"`
}

// answered sends a call that must succeed.
func (s *process) answered(a ask) full {
	s.t.Helper()
	var f full
	s.must("POST", "/api/v1/tools/invoke", a.body(), http.StatusOK, &f)
	if f.Status != "success" || len(f.Result) == 0 {
		s.t.Errorf("%s is answered %+v", a.tool, f)
	}
	return f
}

// event is one of the events of a call.
type event struct{ name, data string }

// watch follows a call's events until they end, on a connection of its own.
func (s *process) watch(ctx context.Context, id string) <-chan event {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+"/api/v1/invocations/"+id+"/events", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := s.client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("the events of %s: %v %v", id, resp, err)
	}
	events := make(chan event, 100)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		var e event
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				if e.name != "" {
					events <- e
				}
				e = event{}
			}
		}
	}()
	return events
}

// watchedAndCancelled follows a call from another node than the one that runs it,
// and cancels it from a third.
func watchedAndCancelled(t *testing.T, c *cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	c.up(c.add(""))
	runs := c.p(0) // alone, so that it is the one that takes the call
	a := ask{id: uuid.NewString(), tool: "std.wait", args: `{"duration_ms":60000,"message":"half way"}`, async: true, key: "watched"}
	if got, err := runs.call(a); err != nil || got.http != http.StatusAccepted {
		t.Fatalf("%s %v", got, err)
	}
	until(t, "the call runs", func() bool { return runs.record(a.id).State == string(toolkeep.CallRunning) })
	c.up(c.add(""), c.add(""))
	events := c.p(1).watch(ctx, a.id)
	seen := map[string]int{}
	next := func() (e event, ok bool) {
		select {
		case e, ok = <-events:
		case <-ctx.Done():
			t.Fatalf("no more events after %v", seen)
		}
		seen[e.name]++
		return e, ok
	}
	for percent := 0; seen["progress"] < 2; {
		e, ok := next()
		if !ok {
			t.Fatalf("the events ended after %v", seen)
		}
		var p struct {
			State   string `json:"state"`
			Percent int    `json:"progress_percent"`
			Phase   string `json:"current_phase"`
		}
		if err := json.Unmarshal([]byte(e.data), &p); err != nil || p.State != "running" || p.Percent < percent {
			t.Errorf("event %s after %d percent: %s (%v)", e.name, percent, e.data, err)
		}
		percent = p.Percent
	}
	began := time.Now()
	c.p(2).must("POST", "/api/v1/invocations/"+a.id+"/cancel", `{"reason":"seen enough"}`, http.StatusOK, nil)
	for ok := true; ok; {
		var e event
		if e, ok = next(); e.name == "result" {
			if !strings.Contains(e.data, `"status":"cancelled"`) {
				t.Errorf("the call ended as %s", e.data)
			}
			t.Logf("cancelled, and seen to be, within %s", time.Since(began).Round(time.Millisecond))
		}
	}
	if seen["result"] != 1 {
		t.Errorf("the events were %v", seen)
	}
	for i := range c.nodes {
		if is := c.p(i).record(a.id); !is.is(toolkeep.CallCancelled, toolkeep.Cancelled) {
			t.Errorf("node %d says %s", i, is)
		}
	}
	c.down()
	c.nothingLeft()
	if ends := c.ends()[a.id]; len(ends) != 1 {
		t.Errorf("the call ended as %v", ends)
	}
}
