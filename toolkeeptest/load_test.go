package toolkeeptest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// hammer collects the results of many clients.
type hammer struct {
	t     *testing.T
	mu    sync.Mutex
	ids   map[string]int // invocation ids in responses
	codes map[string]int // number of each outcome
	bad   []string
}

func (h *hammer) got(a answer, err error, want bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.bad = append(h.bad, err.Error())
		return
	}
	what := fmt.Sprint(a.status)
	if code := a.text(h.t, "code"); code != "" {
		what += " " + code
	} else if code := a.text(h.t, "error", "error_code"); code != "" {
		what += " " + code
	}
	h.codes[what]++
	if a.status >= 500 && a.status != 503 || strings.Contains(what, string(toolkeep.InternalError)) {
		h.bad = append(h.bad, a.String())
	}
	if !want {
		return
	}
	id := a.text(h.t, "invocation_id")
	if id == "" {
		h.bad = append(h.bad, "no id: "+a.String())
		return
	}
	h.ids[id]++
}

// TestHammer: 200 clients make every kind of call while tools are published and
// blocked: no server error, and exactly one record per call.
func TestHammer(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"http.max_key": "4KiB", "log.level": "WARN"}})
	k.Publish(toolkeeptest.Manifest("h.echo", "1.0.0", "echo", reads), toolkeeptest.Manifest("h.cached", "1.0.0", "echo", reads, cached),
		toolkeeptest.Manifest("h.flaky", "1.0.0", "echo", reads), toolkeeptest.Manifest("h.cut", "1.0.0", "echo", reads, `"result":{"max_output_bytes":64}`))
	h := &hammer{t: t, ids: map[string]int{}, codes: map[string]int{}}
	boss := admin(t, k)
	var clients []*client
	for i := range 20 {
		tenant := []string{"default", otherTenant}[i%2]
		clients = append(clients, as(t, k, k.Key(tenant, fmt.Sprint("agent-", i), "agent")))
	}

	// Two seconds, or on a busy machine until everything intended has happened.
	until, latest := time.Now().Add(2*time.Second), time.Now().Add(2*time.Minute)
	going := func() bool {
		now := time.Now()
		return now.Before(until) || now.Before(latest) && !h.enough()
	}
	var wg sync.WaitGroup
	var n atomic.Int64
	for i := range 200 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for going() {
				h.one(clients[i%len(clients)], r)
				n.Add(1)
			}
		})
	}
	wg.Go(func() {
		for v := 1; going(); v++ {
			state := []string{"blocked", "active"}[v%2]
			h.got(boss.do("POST", "/api/v1/tools/h.flaky/versions/1.0.0/state", fmt.Sprintf(`{"state":%q,"reason":"x"}`, state)), nil, false)
			m := toolkeeptest.Manifest("h.echo", fmt.Sprintf("1.0.%d", v), "echo", reads)
			h.got(boss.do("POST", "/api/v1/tools/register", `{"shared":true,"manifest":`+m+`}`), nil, false)
			h.got(boss.do("POST", "/cache/invalidate/h.cached", ""), nil, false)
		}
	})
	wg.Wait()

	// Every waiting call ends.
	for _, id := range h.waiting(clients) {
		id.c.ended(id.id)
	}
	for _, b := range h.bad[:min(len(h.bad), 10)] {
		t.Errorf("%.600s", b)
	}
	t.Logf("%d rounds, %d calls: %v", n.Load(), len(h.ids), h.codes)
	if !h.enough() {
		t.Errorf("the load left something out: %v", h.codes)
	}
	records := 0
	for _, c := range []*client{boss, as(t, k, k.Key(otherTenant, "boss", "admin"))} {
		for page, full := 1, true; full; page++ { // total_count ends at 10,000
			list := c.do("GET", fmt.Sprint("/api/v1/invocations?page_size=200&page=", page), "").want(t, 200).at(t, "invocations").([]any)
			records, full = records+len(list), len(list) == 200
		}
	}
	if records != len(h.ids) {
		t.Errorf("%d records of %d calls", records, len(h.ids))
	}
}

// enough reports whether everything that the load should cause has happened.
func (h *hammer) enough() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ids) >= 200 && h.codes["202"] > 0 && h.codes["409 E3908"] > 0 && h.codes["403 E3010"] > 0
}

type pending struct {
	c  *client
	id string
}

func (h *hammer) waiting(clients []*client) (all []pending) {
	for _, c := range clients {
		for _, state := range []string{"queued", "running"} {
			a := c.do("GET", "/api/v1/invocations?page_size=200&state="+state, "").want(h.t, 200)
			list, _ := a.at(h.t, "invocations").([]any)
			for _, v := range list {
				all = append(all, pending{c, v.(map[string]any)["invocation_id"].(string)})
			}
		}
	}
	return all
}

// one performs a random action.
func (h *hammer) one(c *client, r *rand.Rand) {
	call := func(tool, args string, more ...string) answer {
		a, err := c.try(context.Background(), "POST", "/api/v1/tools/invoke", envelope(tool, args, more...))
		h.got(a, err, !strings.Contains(strings.Join(more, ""), "dry_run"))
		return a
	}
	get := func(path string) {
		a, err := c.try(context.Background(), "GET", path, "")
		h.got(a, err, false)
	}
	num := fmt.Sprintf(`{"n":%d}`, r.IntN(5))
	switch r.IntN(14) {
	case 0, 1:
		call("h.echo", num)
	case 2:
		call("h.echo", num, `"tool_version":"^1.0.0"`)
	case 3:
		call("h.cached", num)
	case 4:
		call("h.flaky", num)
	case 5:
		call("std.note_append", fmt.Sprintf(`{"text":"note %d"}`, r.IntN(3)), keyed(fmt.Sprint("key-", r.IntN(20))))
	case 6:
		call("std.note_append", `{"text":"unkeyed"}`)
	case 7:
		call("std.echo", num, async)
	case 8:
		a := call("std.wait", `{"duration_ms":60000}`, async)
		if id := a.text(h.t, "invocation_id"); id != "" {
			b, err := c.try(context.Background(), "POST", "/api/v1/invocations/"+id+"/cancel", `{"reason":"load"}`)
			h.got(b, err, false)
		}
	case 9:
		call("std.fail", `{"code":"E3510"}`)
	case 10:
		call("std.hash", `{"text":1}`)
	case 11:
		call("h.cut", fmt.Sprintf(`{"t":%q}`, strings.Repeat("x", 200)))
	case 12:
		call("h.echo", num, `"dry_run":true`)
	case 13:
		get([]string{"/api/v1/tools", "/api/v1/invocations?page_size=5", "/api/v1/tools/retrieval/search?q=echo", "/api/v1/tools/h.echo/versions"}[r.IntN(4)])
	}
}
