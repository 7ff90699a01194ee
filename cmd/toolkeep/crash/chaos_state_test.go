package crash_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// cascadingFailure: the server of a tool answers every request with status 500.
func (x *chaos) cascadingFailure(t *testing.T, p *process) {
	wires := newProxy(t, "127.77.0.6", x.upstream.addr())
	once := reading + `,"retry":{"max_attempts":1},"breaker":{"failure_rate":5,"open_ms":%d}`
	long := fmt.Sprintf(once, time.Hour.Milliseconds())
	p.toolAt(wires.addr, "chaos.broken", long, "")
	p.toolAt(wires.addr, "chaos.covered", long+`,"fallback":"`+readTool+`"`, "")
	p.toolAt(wires.addr, "chaos.mended", fmt.Sprintf(once, 1000), "")
	var sent atomic.Int64
	wires.fail(func(string) fault {
		sent.Add(1)
		return fault{answer: "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"}
	})
	// "error rate > 5% for 60 seconds", "circuit breaker transitions CLOSED -> OPEN": at the tenth of ten failures
	// (minimum_calls), and not only after a minute of them.
	broken := func(tool string) outcome { return p.ends(ask{tool: tool, args: named("broken", 0)}) }
	news := x.redis.Subscribe(t.Context(), "toolkeep:default:"+breaker.Channel)
	defer news.Close()
	if _, err := news.Receive(t.Context()); err != nil { // it has subscribed
		t.Fatal(err)
	}
	for range 10 {
		broken("chaos.broken").is(t, "the tool's server fails", toolkeep.UpstreamServerError)
	}
	// "new requests return E3903 immediately", "latency reduced (fail-fast via circuit breaker)", "no wasted backend calls",
	// "health check disabled while open": nothing at all is sent.
	if got := broken("chaos.broken").is(t, "the breaker is open", toolkeep.CircuitBreakerOpen); got.http != http.StatusServiceUnavailable || got.After <= 0 || sent.Load() != 10 {
		t.Errorf("%d requests: %s", sent.Load(), got.raw)
	}
	if n := p.metric(`tool_circuit_breaker_transitions_total{from_state="closed",to_state="open",tool_id="chaos.broken"}`); n != 1 {
		t.Errorf("%v transitions from closed to open", n)
	}
	// G-008: "published on open, half-open, closed transitions", each with its tool.
	told := func(tool, state string) {
		t.Helper()
		until(t, "it is told that "+tool+" is "+state, func() bool {
			m, err := news.ReceiveMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(m.Payload, `"circuit_name":"tool:`+tool+`"`) && strings.Contains(m.Payload, `"state":"`+state+`"`)
		})
	}
	told("chaos.broken", "open")
	// "fallback tool invoked (if configured)": while the tool fails, and while its breaker is open.
	for i := range 15 {
		got := p.ends(ask{tool: "chaos.covered", args: named(fmt.Sprintf("covered %d", i), 0)}).is(t, "the tool has a fallback", "")
		if got.Meta.Fallback == nil || got.Meta.Fallback.ToolID != readTool || x.upstream.count(fmt.Sprintf("covered %d", i)) != 1 {
			t.Errorf("%s", got.raw)
		}
	}
	if n := sent.Load(); n != 20 {
		t.Errorf("%d requests were sent to the server that fails, want 20", n)
	}
	// "circuit breaker resets after 30s": after open_ms, which is a second for this tool, by one test call.
	for range 10 {
		broken("chaos.mended").is(t, "the tool's server fails", toolkeep.UpstreamServerError)
	}
	if b := p.breaker("tool:chaos.mended"); b.State == "closed" {
		t.Errorf("after ten failures the breaker is %+v", b)
	}
	wires.fail(nil)
	until(t, "a test call succeeds", func() bool { return broken("chaos.mended").Status == "success" })
	until(t, "the breaker is closed", func() bool { return p.breaker("tool:chaos.mended").State == "closed" })
	told("chaos.mended", "half_open")
	told("chaos.mended", "closed")
}

// cacheCorruption: a cached result changes in the node's memory, as by a fault of the machine.
func (x *chaos) cacheCorruption(t *testing.T, p *process) {
	p.toolAt(x.upstream.addr(), "chaos.cached", reading+`,"cache":{"policy":"ttl","ttl_s":3600}`, "")
	const name = "intact-7f3a9c51d2e84b06"
	call := func(source string, runs int) {
		t.Helper()
		got := p.ends(ask{tool: "chaos.cached", args: named(name, 0)}).is(t, "a cached call", "")
		if got.Meta.Source != source || x.upstream.count(name) != runs || !strings.Contains(string(got.Result), name) {
			t.Errorf("want %s after %d runs: %d runs, %s", source, runs, x.upstream.count(name), got.raw)
		}
	}
	call("executed", 1)
	call("cache", 1)
	corruptions := p.metric("tool_cache_corruptions_total")
	if n := overwrite(t, p.cmd.Process.Pid, name, "faulty-7f3a9c51d2e84b06"); n == 0 {
		t.Fatal("the result is nowhere in the node's memory")
	}
	// "cache read fails", "tool re-executed (no cached result)", "cache entry evicted", "no crash (graceful fallback)".
	call("executed", 2)
	// "new result cached".
	call("cache", 2)
	// "metric cache_corruptions incremented".
	if n := p.metric("tool_cache_corruptions_total") - corruptions; n != 1 {
		t.Errorf("%v corruptions were counted", n)
	}
}

// overwrite replaces a text wherever a process has it in what it may write of its own memory.
func overwrite(t *testing.T, pid int, from, to string) (places int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	buf := make([]byte, 4<<20)
	for line := range strings.Lines(string(maps)) {
		var begin, end, offset, inode int64
		var may, device string
		if n, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &begin, &end, &may, &offset, &device, &inode); n != 6 || err != nil || inode != 0 || !strings.HasPrefix(may, "rw") {
			continue
		}
		for at := begin; at < end; at += int64(len(buf) - len(from)) { // so that a text across two pieces is in one of them
			n, _ := memory.ReadAt(buf[:min(int64(len(buf)), end-at)], at) // what cannot be read holds nothing
			for i := bytes.Index(buf[:n], []byte(from)); i >= 0; i = bytes.Index(buf[:n], []byte(from)) {
				if _, err := memory.WriteAt([]byte(to), at+int64(i)); err != nil {
					t.Fatal(err)
				}
				copy(buf[i:], to)
				places++
			}
		}
	}
	return places
}

// handleExpiration: the answer of an asynchronous call is not fetched in time.
func (x *chaos) handleExpiration(t *testing.T, p *process) {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, x.server.DSN(x.database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	number := func(query string, args ...any) (n int) {
		t.Helper()
		if err := conn.QueryRow(ctx, query, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	in := func(id, state string) bool {
		return number(`SELECT count(*) FROM invocations WHERE id = $1 AND state = $2`, id, state) == 1
	}
	ids := map[string]string{}
	for _, name := range []string{"left", "fetched"} {
		ids[name] = uuid.NewString()
		if got, err := p.call(ask{id: ids[name], tool: readTool, args: named(name, 0), async: true}); err != nil || got.http != http.StatusAccepted {
			t.Fatalf("%s %v", got, err)
		}
		until(t, "the call has ended", func() bool { return in(ids[name], "succeeded") }) // asking the node for it would fetch it
	}
	if is := p.record(ids["fetched"]); !is.is(toolkeep.CallSucceeded, "") {
		t.Errorf("the call is %s", is)
	}
	// Its 24 hours pass at once.
	if n := number(`WITH aged AS (UPDATE invocations SET expires = 1 WHERE id = ANY($1) RETURNING 1) SELECT count(*) FROM aged`, []string{ids["left"], ids["fetched"]}); n != 2 {
		t.Fatalf("%d calls were made older", n)
	}
	// "handle cleaned up automatically".
	until(t, "the answer that was not fetched is erased", func() bool { return in(ids["left"], "expired") })
	// "retrieval returns E3704 (handle expired)".
	status, raw, err := p.do("GET", "/api/v1/invocations/"+ids["left"], "")
	if err != nil || !strings.Contains(string(raw), string(toolkeep.HandleExpired)) || strings.Contains(string(raw), `"name":"left"`) {
		t.Errorf("the expired answer: %d %s %v", status, raw, err)
	}
	if is := p.record(ids["fetched"]); !is.is(toolkeep.CallSucceeded, "") {
		t.Errorf("what was fetched is %s", is)
	}
	// "agent must re-invoke tool".
	p.answered(ask{tool: readTool, args: named("left", 0)})
	if n := x.upstream.count("left"); n != 2 {
		t.Errorf("the tool ran %d times", n)
	}
	// "no orphaned handles accumulate", "memory not exhausted by stale handles".
	if n := number(`SELECT count(*) FROM invocations WHERE state = 'expired' AND (output IS NOT NULL OR sealed IS NOT NULL)`); n != 0 {
		t.Errorf("%d expired calls have an answer or arguments", n)
	}
}

// timeoutRace: answers come at the moment at which the call's time is over.
func (x *chaos) timeoutRace(t *testing.T, p *process) {
	const calls, clients = 1000, 25
	server := newCounter(t)
	p.toolAt(server.addr(), "chaos.calm", reading, "")
	p.answered(ask{tool: "chaos.calm", args: named("first", 0)}) // the node knows the server's breaker now
	p.must("POST", "/api/v1/breakers/host:"+server.addr(), `{"action":"close","reason":"the race"}`, http.StatusOK, nil)
	var mu sync.Mutex
	var all sync.WaitGroup
	var took []time.Duration
	for n := range clients { // which opens their connections
		all.Go(func() {
			for i := range 4 {
				began := time.Now()
				if got, err := p.call(ask{tool: "chaos.calm", args: named(fmt.Sprintf("calm-%d-%d", n, i), 0)}); err != nil || got.Status != "success" {
					t.Errorf("without a race: %s %v", got, err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	limit := int(min(max(40, 4*took[len(took)/2].Milliseconds()), 1000)) // of what this machine takes now
	p.toolAt(server.addr(), "chaos.race", reading+`,"retry":{"max_attempts":1},"breaker":{"enabled":false}`, fmt.Sprintf(`"timeout_ms":%d,`, limit))
	var ids []string
	var next, succeeded, late atomic.Int64
	end := time.Now().Add(time.Minute)
	more := func(i int) bool {
		return i < calls || (succeeded.Load() == 0 || late.Load() == 0) && time.Now().Before(end)
	}
	for range clients {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; more(i); i = int(next.Add(1)) - 1 {
				id := uuid.NewString()
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
				got, err := p.call(ask{id: id, tool: "chaos.race", args: named(id, i%(limit+limit/8))})
				switch { // "either result returned OR timeout error", "consistent behavior across 1000 runs"
				case err == nil && got.Status == "success":
					succeeded.Add(1)
				case err == nil && got.Error.Code == string(toolkeep.Timeout) && got.Status == "timeout",
					err == nil && got.Code == string(toolkeep.Timeout): // before it was sent
					late.Add(1)
				default:
					t.Errorf("call %d: %s %v", i, got, err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("of a limit of %d ms, %d answers came in time and %d calls were late", limit, succeeded.Load(), late.Load())
	if late.Load() == 0 || succeeded.Load() == 0 {
		t.Error("there was no race: all calls had the same outcome")
	}
	// What the callers got is what is recorded.
	until(t, "all are recorded", func() bool { return p.count("/api/v1/invocations?tool_id=chaos.race") == len(ids) })
	if n := p.count("/api/v1/invocations?tool_id=chaos.race&state=succeeded"); int64(n) != succeeded.Load() {
		t.Errorf("%d calls are recorded as succeeded, %d callers got an answer", n, succeeded.Load())
	}
	// "no duplicate processing".
	for _, id := range ids {
		if n := server.count(id); n > 1 {
			t.Errorf("%s was carried out %d times", id, n)
		}
	}
}
