package crash_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
)

const (
	chaosSecret = "secret-of-the-shop-8d1c"
	vaultToken  = "token-of-the-vault-41f0"
)

// chaos has two nodes on one PostgreSQL and one Redis, with Vault's KV engine. A proxy stands between the second node and the
// database, and one before Vault. Its tests are the eight scenarios of Execution 12.1.1: what that expects and validates
// stands in quotation marks beside what asserts it. docs/degradation.md says where Toolkeep does something else, and why.
type chaos struct {
	*cluster
	store, vault *proxy
	redis        *goredis.Client
}

func chaosScenarios(t *testing.T, c *cluster) {
	redis, kv := redistest.Start(t), vaulttest.StartKV(t, "secret=2")
	vaulttest.PutKV(t, kv, "secret/data/default/shop", `{"data":{"key":"`+chaosSecret+`"}}`)
	x := &chaos{cluster: c, store: newProxy(t, "127.77.0.3", c.server.Addr()), vault: newProxy(t, "127.77.0.4", strings.TrimPrefix(kv, "http://"))}
	x.redis = goredis.NewClient(&goredis.Options{Network: "unix", Addr: strings.TrimPrefix(redis.URL(), "unix://")})
	t.Cleanup(func() { _ = x.redis.Close() })
	c.settings = append(c.settings, "redis.url="+redis.TCP("redis"), "vault.address=http://"+x.vault.addr, "vault.token="+vaultToken,
		"vault.paths=secret/data/{tenant}/", "vault.mounts=secret=2", "vault.timeout=30s", "breaker.failure_rate=50", "calls.lease=3s", "calls.record_wait=50ms",
		"store.max_staleness=12s", "egress.idle_timeout=1s", "cache.shared=false")
	c.up(c.add(""), c.add(x.store.addr))
	c.tools()
	c.p(0).answered(ask{tool: readTool, args: named("first", 0)})
	c.p(0).client.CloseIdleConnections()
	before := c.p(0).metric("go_goroutines")

	var tampered string
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range []struct {
			name string
			run  func(*testing.T, *process)
		}{
			{"1 network timeout", x.networkTimeout},
			{"2 registry unavailable", x.registryUnavailable},
			{"3 vault rate limit", x.vaultRateLimit},
			{"4 permission denial attack", func(t *testing.T, p *process) { tampered = x.denialAttack(t, p) }},
			{"5 cascading failure", x.cascadingFailure},
			{"6 cache corruption", x.cacheCorruption},
			{"7 async handle expiration", x.handleExpiration},
			{"8 timeout race", x.timeoutRace},
		} {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(t, x.p(0).in(t))
			})
		}
	})
	if t.Failed() {
		return
	}
	// 1 "no memory leaks", 8 "no hanging goroutines", "memory leak detector shows zero leaks".
	c.p(0).client.CloseIdleConnections()
	// The node may lead more work than at first, with a goroutine for each; one left of each late call would be hundreds.
	until(t, "the node has no more goroutines than before", func() bool { return c.p(0).metric("go_goroutines") <= before+50 })
	if n := x.vault.open(); n > 20 {
		t.Errorf("%d connections to Vault are open", n)
	}
	first := c.p(0)
	c.down()
	c.nothingLeft()
	log := first.stderr.String()
	// 3 "no secrets leaked in error messages".
	if strings.Contains(log, chaosSecret) || strings.Contains(log, vaultToken) {
		t.Error("a secret is in the log")
	}
	// 6 "alert triggered: CacheCorruptionDetected": the line that an alert is made of.
	if !strings.Contains(log, string(toolkeep.CacheCorrupt)) {
		t.Errorf("the log has no %s", toolkeep.CacheCorrupt)
	}
	x.trailIsImmutable(tampered)
}

// in is the process for a test of its own.
func (s *process) in(t *testing.T) *process {
	return &process{t: t, dir: s.dir, url: s.url, key: s.key, cmd: s.cmd, client: s.client}
}

// metric sums the series of a name, or of a name with some first labels.
func (s *process) metric(name string) (sum float64) {
	s.t.Helper()
	var where struct{ Metrics string }
	raw, err := os.ReadFile(filepath.Join(s.dir, "server.json"))
	if err == nil {
		err = json.Unmarshal(raw, &where)
	}
	var resp *http.Response
	if err == nil {
		resp, err = s.client.Get(where.Metrics)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if raw, err = io.ReadAll(resp.Body); err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		rest, ok := strings.CutPrefix(string(line), name)
		if !ok || rest[0] != ' ' && rest[0] != '{' && rest[0] != ',' && rest[0] != '}' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			s.t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// outcome is an answer with what the scenarios look at.
type outcome struct {
	row
	Result json.RawMessage `json:"result"`
	After  float64         `json:"retry_after_s"`
	Meta   struct {
		Source   string `json:"source"`
		Retries  int    `json:"retry_count"`
		MS       int64  `json:"duration_ms"`
		Fallback *struct {
			ToolID string `json:"tool_id"`
		} `json:"fallback"`
	} `json:"execution_metadata"`
	raw string
}

// ends sends a call and reads its answer, whatever that is.
func (s *process) ends(a ask) outcome {
	s.t.Helper()
	status, raw, err := s.do("POST", "/api/v1/tools/invoke", a.body())
	o := outcome{raw: string(raw)}
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	if err != nil {
		s.t.Fatalf("%s: %v in %s", a.tool, err, raw)
	}
	o.http = status
	return o
}

// is fails unless the call succeeded ("") or ended with the code, as a result or as a refusal.
func (o outcome) is(t *testing.T, what string, code toolkeep.Code) outcome {
	t.Helper()
	got := o.Code + o.Error.Code
	if got != string(code) || (code == "") != (o.Status == "success") {
		t.Fatalf("%s: want %q: %d %s", what, code, o.http, o.raw)
	}
	return o
}

// toolAt publishes a tool that asks the service behind an address with the argument name; more is JSON of its manifest, and
// limits of its execution.
func (s *process) toolAt(addr, id, more, limits string) {
	s.t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	s.publish(fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":"1.0.0","description":"Asks the service of a test.","risk":"low",%s,
		"parameters_schema":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"ms":{"type":"integer"}}},
		"permissions":{"network":[{"host":%q,"port":%s}]},
		"execution":{"kind":"http",%s"binding":{"method":"POST","server":"http://%s","path":"/do",
			"parameters":[{"name":"name","in":"query"},{"name":"ms","in":"query"}]}}}`, id, more, host, port, limits, addr))
}

// called is what a node shows of a breaker.
type called struct {
	State    string `json:"state"`
	Window   int    `json:"window_calls"`
	Failures int    `json:"window_failures"`
}

func (s *process) breaker(id string) (b called) {
	s.t.Helper()
	s.must("GET", "/api/v1/breakers/"+id, "", http.StatusOK, &b)
	return b
}

// addr is where the counter listens.
func (u *counter) addr() string { return strings.TrimPrefix(u.url, "http://") }

// networkTimeout: 5 % of the requests are lost; the tool's server takes them for sent.
func (x *chaos) networkTimeout(t *testing.T, p *process) {
	wires := newProxy(t, "127.77.0.5", x.upstream.addr())
	p.toolAt(wires.addr, "chaos.lossy", reading+`,"retry":{"max_attempts":3,"base_delay_ms":1},"breaker":{"window":"count","window_size":10000}`, `"attempt_timeout_ms":2000,`)
	p.toolAt(wires.addr, "chaos.lost", reading+`,"retry":{"max_attempts":3,"base_delay_ms":1}`, `"attempt_timeout_ms":100,`)
	p.toolAt(wires.addr, "chaos.late", reading+`,"retry":{"max_attempts":3,"base_delay_ms":1},"breaker":{"enabled":false}`, `"timeout_ms":100,`)
	timeouts := p.metric("tool_timeout_total")
	var sent, lost atomic.Int64
	wires.fail(func(string) (f fault) {
		if f.lose = sent.Add(1)%20 == 0; f.lose {
			lost.Add(1)
		}
		return f
	})
	const calls, clients = 120, 6
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			for i := range calls / clients {
				name := fmt.Sprintf("lossy-%d-%d", n, i)
				got, err := p.call(ask{tool: "chaos.lossy", args: named(name, 0)})
				if err != nil || got.Status != "success" || x.upstream.count(name) < 1 {
					t.Errorf("%s: %s %v, carried out %d times", name, got, err, x.upstream.count(name))
				}
			}
		})
	}
	all.Wait()
	// "retry attempted (up to 3x)": a lost request is sent again, and its caller does not see it.
	if n := lost.Load(); n < calls/20 || sent.Load() < calls+n { // more where the machine is late
		t.Errorf("%d requests were sent and %d lost, for %d calls", sent.Load(), n, calls)
	}
	// "circuit breaker status updated": an attempt whose time is over before it is sent counts too.
	if b := p.breaker("tool:chaos.lossy"); int64(b.Failures) < lost.Load() || b.Window < int(sent.Load()) || b.State != "closed" {
		t.Errorf("the breaker is %+v after %d lost requests of %d", b, lost.Load(), sent.Load())
	}
	wires.fail(func(string) fault { return fault{lose: true} })
	got := p.ends(ask{tool: "chaos.lost", args: named("lost thrice", 0)}).is(t, "each attempt is lost", toolkeep.UpstreamTimeout)
	if got.Meta.Retries != 2 {
		t.Errorf("%d retries: %s", got.Meta.Retries, got.raw)
	}
	// "error E3901 (TIMEOUT_EXCEEDED) returned": an attempt that is late is E3502, the call E3901.
	// "timeout detected within 200ms", of a call with a limit of 100 ms: one of those of a minute, for the machine has other work too.
	until(t, "a call ends within 200 ms", func() bool {
		got := p.ends(ask{tool: "chaos.late", args: named("late", 0)}).is(t, "the tool's time is over", toolkeep.Timeout)
		if got.Code != "" { // it was over before the request was sent
			return false
		}
		if got.Meta.MS < 100 {
			t.Fatalf("a limit of 100 ms ended a call after %d ms", got.Meta.MS)
		}
		return got.Meta.MS <= 200
	})
	// "metric tool_timeout_total incremented".
	if n := p.metric("tool_timeout_total") - timeouts; n < 2 {
		t.Errorf("tool_timeout_total rose by %v", n)
	}
	// "request cancelled via context", "no memory leaks (connections cleaned up)": what waits for a lost answer is given up.
	until(t, "no connection to the tool's server is left", func() bool { return wires.open() == 0 })
}

// registryUnavailable: the second node loses the database, which holds its catalogue.
func (x *chaos) registryUnavailable(t *testing.T, _ *process) {
	apart, other := x.p(1).in(t), x.p(0).in(t)
	apart.answered(ask{tool: readTool, args: named("before", 0)})
	x.store.cut(refusing)
	down := func() bool {
		code, status, store := apart.health()
		return code == http.StatusOK && status == "DEGRADED" && store == "DOWN"
	}
	apart.ends(ask{tool: addTool, args: named("apart", 0), key: "apart"}).is(t, "a call with a key without the database", toolkeep.RecordUnavailable)
	const calls = 20
	ids := make([]string, calls)
	for i := range ids {
		// "tool registry cache used (fallback)", "cache hit rate maintained > 95%": all of them.
		ids[i] = apart.ends(ask{tool: readTool, args: named(fmt.Sprintf("apart %d", i), 0)}).is(t, "a reading call without the database", "").ID
		if i == 0 {
			// "service remains available (degraded)".
			until(t, "the node says that it is degraded", down)
		}
	}
	// "no cascading failures to agents": the node beside it does not notice.
	for i := range 10 {
		name := fmt.Sprintf("beside %d", i)
		other.answered(ask{tool: addTool, args: named(name, 0), key: name})
	}
	if code, status, _ := other.health(); code != http.StatusOK || status == "DOWN" {
		t.Errorf("the node beside it says %d %s", code, status)
	}
	// "E3003 returned if cache also expired", "readiness probe fails": after store.max_staleness, or catalog.stale_for of a node alone.
	until(t, "the node is not ready any more", func() bool { code, status, _ := apart.health(); return code == 503 && status == "DOWN" })
	if got := apart.ends(ask{tool: readTool, args: named("too old", 0)}).is(t, "what it knows is too old", toolkeep.RegistryUnavailable); got.After <= 0 || x.upstream.count("too old") != 0 {
		t.Errorf("carried out %d times: %s", x.upstream.count("too old"), got.raw)
	}
	x.store.cut(passing)
	until(t, "the node is well again", func() bool { code, status, _ := apart.health(); return code == http.StatusOK && status == "UP" })
	for _, id := range ids {
		until(t, "no record is lost", func() bool { return other.record(id).is(toolkeep.CallSucceeded, "") })
	}
	apart.answered(ask{tool: addTool, args: named("after", 0), key: "after"})
}

// tooMany is Vault's answer to a request over its limit.
func tooMany(header string) fault {
	return fault{answer: "HTTP/1.1 429 Too Many Requests\r\n" + header + "Content-Type: application/json\r\nContent-Length: 27\r\n\r\n" + `{"errors":["rate limited"]}`}
}

// vaultRateLimit: Vault refuses 2 % of the reads of a secret, then all.
func (x *chaos) vaultRateLimit(t *testing.T, p *process) {
	p.toolAt(x.upstream.addr(), "chaos.secret", reading+`,"auth":[{"type":"bearer","secret":"vault://secret/default/shop#key"}],"breaker":{"enabled":false}`, "")
	call := func(name string) outcome { return p.ends(ask{tool: "chaos.secret", args: named(name, 0)}) }
	call("with a secret").is(t, "a call with a secret of Vault", "")
	if got := x.upstream.bearer(); got != chaosSecret {
		t.Fatalf("the tool's server got %q", got)
	}
	var reads atomic.Int64
	limit := func(of func(n int64) bool, header string) {
		reads.Store(0)
		x.vault.fail(func(piece string) fault {
			if strings.HasPrefix(piece, "GET /v1/secret/data/") && of(reads.Add(1)) {
				return tooMany(header)
			}
			return fault{}
		})
	}
	defer x.vault.fail(nil)
	// "retry with exponential backoff": the caller does not see it.
	const calls = 100
	limit(func(n int64) bool { return n%50 == 1 }, "")
	for i := range calls {
		call(fmt.Sprintf("secret %d", i)).is(t, "Vault refused one read", "")
	}
	if n := reads.Load(); n != calls+3 {
		t.Errorf("%d reads for %d calls, of which every 50th is refused", n, calls)
	}
	// "Retry-After header honored".
	limit(func(n int64) bool { return n == 1 }, "Retry-After: 1\r\n")
	if got := call("after a second").is(t, "Vault asked for a pause", ""); got.Meta.MS < 1000 {
		t.Errorf("it was asked again after %d ms", got.Meta.MS)
	}
	// "E3801 after max retries": E3403, since E3801 tells a caller to slow down, and this one did nothing wrong.
	limit(func(int64) bool { return true }, "")
	got := call("refused").is(t, "Vault refuses all reads", toolkeep.SecretRetrievalFailed)
	if n := reads.Load(); n != 3 || got.http != http.StatusServiceUnavailable || x.upstream.count("refused") != 0 {
		t.Errorf("%d reads: %s", n, got.raw)
	}
	// "no secrets leaked in error messages".
	if strings.Contains(got.raw, chaosSecret) || strings.Contains(got.raw, vaultToken) || strings.Contains(got.raw, x.vault.addr) {
		t.Errorf("the refusal says too much: %s", got.raw)
	}
	// "retry backoff follows exponential pattern", "max retry delay capped at 32 seconds": TestBackoff of secret/vault.
	x.vault.fail(nil)
	call("after it").is(t, "Vault answers again", "")
}

// denialAttack: an agent calls what it may not, again and again, in every form. It gives the id of one of its attempts.
func (x *chaos) denialAttack(t *testing.T, p *process) (attempt string) {
	key := func(subject, role string) *process {
		var made struct{ Secret string }
		p.must("POST", "/api/v1/keys", fmt.Sprintf(`{"subject":%q,"roles":[%q]}`, subject, role), http.StatusCreated, &made)
		as := p.in(t)
		as.key = made.Secret
		return as
	}
	mallory, alice := key("mallory", "auditor"), key("alice", "agent") // an auditor sees tools and calls none
	const attempts = 60
	denied, limited := 0, 0
	for i := range attempts {
		a := ask{id: uuid.NewString(), tool: []string{addTool, readTool, putTool}[i%3], args: named("attack", 0), async: i%5 == 1, approval: i%7 == 2}
		if i%2 == 0 {
			a.key = fmt.Sprint("attack ", i)
		}
		got := mallory.ends(a)
		switch attempt = a.id; toolkeep.Code(got.Code) {
		case toolkeep.PermissionDenied: // "each request returns E3201"
			if denied++; limited > 0 {
				t.Errorf("attempt %d is %s", i, got.raw)
			}
		case toolkeep.AuthFailuresLimited: // "request rate limited after N failures", "rate limiter per-agent applies"
			if limited++; got.http != http.StatusTooManyRequests || got.After <= 0 {
				t.Errorf("attempt %d is %s", i, got.raw)
			}
		default: // "no bypass of permission check"
			t.Errorf("attempt %d is %s", i, got.raw)
		}
		if i%10 == 0 { // "rate limit prevents DoS": others go on
			alice.ends(ask{tool: readTool, args: named("beside the attack", 0)}).is(t, "the call of another agent", "")
		}
	}
	if denied != 10 || limited != attempts-10 {
		t.Errorf("%d attempts were denied and %d limited; access.agent_failures is 10", denied, limited)
	}
	if n := x.upstream.count("attack"); n != 0 {
		t.Errorf("%d attempts were carried out", n)
	}
	if n := p.metric(`tool_auth_failures_total{reason="permission_denied"}`); n < 10 {
		t.Errorf("tool_auth_failures_total counts %v", n)
	}
	// "audit log captures all attempts".
	until(t, "all attempts are in the audit", func() bool { return p.count("/api/v1/invocations?agent_id=mallory&state=refused") == attempts })
	return attempt
}

// trailIsImmutable starts a node and verifies the chains, then removes a record behind its back and finds that told.
func (x *chaos) trailIsImmutable(id string) {
	t := x.t
	x.up(x.nodes[0])
	x.p(0).chainsAreWhole() // 4 "audit trail complete and immutable"
	if n := x.number(`WITH gone AS (DELETE FROM invocations WHERE id = $1 RETURNING 1) SELECT count(*) FROM gone`, id); n != 1 {
		t.Fatalf("%d records of the attempt were removed", n)
	}
	found := false
	for next := ""; ; {
		var page struct {
			Intact bool
			Next   string
		}
		x.p(0).must(http.MethodGet, "/api/v1/audit/verify?cursor="+next, "", http.StatusOK, &page)
		if found = found || !page.Intact; page.Next == "" {
			break
		}
		next = page.Next
	}
	if !found {
		t.Error("a record was removed, and the audit does not tell")
	}
	x.down()
}
