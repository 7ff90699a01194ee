package toolkeeptest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestMain fails if a test leaks a goroutine. The test binary is also the reaper of MCP
// servers' processes and the program of one.
func TestMain(m *testing.M) {
	if code, ran := otherProgram(); ran {
		os.Exit(code)
	}
	code := pgtest.Main{M: m}.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "after all tests:", err)
		code = 1
	}
	os.Exit(code)
}

// answer is an HTTP response.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %v\n%s", a.status, a.header, a.body) }

// object returns the body as a tree.
func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(a.body))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("no JSON object (%v): %s", err, a)
	}
	return m
}

// at follows a path in the body; nil if there is no such path.
func (a answer) at(t testing.TB, path ...string) any {
	t.Helper()
	var v any = a.object(t)
	for _, p := range path {
		switch n := v.(type) {
		case map[string]any:
			v = n[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i >= len(n) {
				return nil
			}
			v = n[i]
		default:
			return nil
		}
	}
	return v
}

func (a answer) text(t testing.TB, path ...string) string {
	t.Helper()
	s, _ := a.at(t, path...).(string)
	return s
}

func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// refused expects a problem document with the code.
func (a answer) refused(t testing.TB, code toolkeep.Code) answer {
	t.Helper()
	if got := a.text(t, "code"); got != string(code) {
		t.Fatalf("code %q, want %s: %d %s", got, code, a.status, a.body)
	}
	return a
}

// failed expects the result of a tool that failed with the code.
func (a answer) failed(t testing.TB, code toolkeep.Code) answer {
	t.Helper()
	if got := a.text(t, "error", "error_code"); got != string(code) {
		t.Fatalf("error_code %q, want %s: %d %s", got, code, a.status, a.body)
	}
	return a
}

func (a answer) success(t testing.TB) answer {
	t.Helper()
	if got := a.text(t, "status"); a.status != 200 || got != "success" {
		t.Fatalf("status %q, want success: %d %s", got, a.status, a.body)
	}
	return a
}

func (a answer) id(t testing.TB) string {
	t.Helper()
	id := a.text(t, "invocation_id")
	if id == "" {
		t.Fatalf("no invocation_id: %s", a)
	}
	return id
}

// client is a REST caller with its own connections.
type client struct {
	t    testing.TB
	url  string
	key  string
	http *http.Client
	seen func(string) // receives every response; may be nil
}

func as(t testing.TB, k *toolkeeptest.Toolkeep, key string) *client {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(tr.CloseIdleConnections)
	return &client{t: t, url: k.URL(), key: key, http: &http.Client{Transport: tr}}
}

func admin(t testing.TB, k *toolkeeptest.Toolkeep) *client { return as(t, k, k.AdminKey) }

// try sends one request; header alternates names and values.
func (c *client) try(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a := answer{resp.StatusCode, resp.Header, string(raw)}
	if c.seen != nil {
		c.seen(resp.Status + "\n" + a.String())
	}
	return a, err
}

func (c *client) do(method, path, body string, header ...string) answer {
	c.t.Helper()
	a, err := c.try(context.Background(), method, path, body, header...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// call invokes a tool; more are further fields of the body.
func (c *client) call(tool, parameters string, more ...string) answer {
	c.t.Helper()
	return c.do("POST", "/api/v1/tools/invoke", envelope(tool, parameters, more...))
}

func envelope(tool, parameters string, more ...string) string {
	body := fmt.Sprintf(`{"tool_id":%q,"parameters":%s`, tool, parameters)
	for _, m := range more {
		body += "," + m
	}
	return body + "}"
}

const async = `"execution_options":{"async_mode":true}`

func keyed(key string) string {
	return fmt.Sprintf(`"execution_options":{"idempotency_key":%q}`, key)
}

// event is a server-sent event.
type event struct{ name, id, data string }

// follow reads a call's events until its stream ends or until returns true.
func (c *client) follow(id string, until func(event) bool) []event {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", c.url+"/api/v1/invocations/"+id+"/events", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		raw, _ := io.ReadAll(resp.Body)
		c.t.Fatalf("events of %s: %d %s", id, resp.StatusCode, raw)
	}
	var all []event
	var e event
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		line := lines.Text()
		if c.seen != nil {
			c.seen(line)
		}
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if e != (event{}) {
				all = append(all, e)
				if until != nil && until(e) {
					return all
				}
			}
			e = event{}
		case name == "event":
			e.name = value
		case name == "id":
			e.id = value
		case name == "data":
			e.data = value
		}
	}
	if err := lines.Err(); err != nil {
		c.t.Fatalf("events of %s: %v", id, err)
	}
	return all
}

// ended follows the event stream until the call has ended, then reads the call.
func (c *client) ended(id string) answer {
	c.t.Helper()
	events := c.follow(id, nil)
	if len(events) == 0 || events[len(events)-1].name != "result" {
		c.t.Fatalf("the stream of %s ended without a result: %v", id, events)
	}
	return c.do("GET", "/api/v1/invocations/"+id, "").want(c.t, 200)
}

// reaches follows the event stream until the call is in the state.
func (c *client) reaches(id string, state toolkeep.CallState) {
	c.t.Helper()
	want := fmt.Sprintf(`"state":%q`, state)
	found := false
	c.follow(id, func(e event) bool { found = found || strings.Contains(e.data, want); return found })
	if !found {
		c.t.Fatalf("%s did not reach %s", id, state)
	}
}

// waitUntil polls until the condition holds; the limit is for a broken system.
func waitUntil(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// clock is a clock that a test can advance; it also advances on its own, a hundred
// times slower if begin is set.
type clock struct {
	mu    sync.Mutex
	off   time.Duration
	begin time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begin.IsZero() {
		return c.begin.Add(time.Since(c.begin)/100 + c.off)
	}
	return time.Now().Add(c.off)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

// gate is an executor whose calls wait until they are released. Its tools are of kind
// code; the argument name identifies a call.
type gate struct {
	mu      sync.Mutex
	started []string
	open    map[string]chan struct{}
	all     bool
	stopped map[string]bool // name -> its context ended before it was released
}

func newGate() *gate { return &gate{open: map[string]chan struct{}{}, stopped: map[string]bool{}} }

func (g *gate) Kind() string                              { return "code" }
func (g *gate) Check(*toolkeep.Manifest) []toolkeep.Fault { return nil }

func (g *gate) door(name string) chan struct{} {
	if g.open[name] == nil {
		g.open[name] = make(chan struct{})
	}
	return g.open[name]
}

func (g *gate) Execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
	name, _ := x.Args["name"].(string)
	g.mu.Lock()
	g.started = append(g.started, name)
	door, all := g.door(name), g.all
	g.mu.Unlock()
	if !all {
		select {
		case <-door:
		case <-ctx.Done():
			g.mu.Lock()
			g.stopped[name] = true
			g.mu.Unlock()
			code := toolkeep.Cancelled
			if ctx.Err() == context.DeadlineExceeded {
				code = toolkeep.UpstreamTimeout
			}
			return nil, toolkeep.NewError(code, "the gate was left")
		}
	}
	return &toolkeep.Output{Value: map[string]any{"name": name, "subject": x.Principal.Subject}, HasValue: true}, nil
}

func (g *gate) letGo(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.door(name))
}

// openAll releases all calls from now on.
func (g *gate) openAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = true
	for _, d := range g.open {
		select {
		case <-d:
		default:
			close(d)
		}
	}
}

func (g *gate) starts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.started...)
}

func (g *gate) count(name string) int {
	n := 0
	for _, s := range g.starts() {
		if s == name {
			n++
		}
	}
	return n
}

// awaits waits until a call of the name is inside the gate.
func (g *gate) awaits(t testing.TB, name string) {
	t.Helper()
	waitUntil(t, "the call "+name+" starts", func() bool { return g.count(name) > 0 })
}

// gated returns the manifest of a tool behind the gate.
func gated(id, version string, more ...string) string {
	extra := ""
	for _, m := range more {
		extra += "," + m
	}
	return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":%q,"description":"Waits at a gate.",`+
		`"parameters_schema":{"type":"object","properties":{"name":{"type":"string"}}},"execution":{"kind":"code","binding":{}}%s}`, id, version, extra)
}

const (
	reads  = `"side_effects":"reads"`
	writes = `"side_effects":"writes"`
	cached = `"cache":{"policy":"ttl","ttl_s":300}`
)

func named(name string) string { return fmt.Sprintf(`{"name":%q}`, name) }

// withGate starts a system with a gate.
func withGate(t testing.TB, settings map[string]string, more ...func(*toolkeeptest.Option)) (*toolkeeptest.Toolkeep, *gate) {
	t.Helper()
	g := newGate()
	o := toolkeeptest.Option{Settings: settings}
	o.Options.Executors = []toolkeep.Executor{g}
	for _, m := range more {
		m(&o)
	}
	k := toolkeeptest.New(t, o)
	t.Cleanup(g.openAll) // before the system is stopped
	return k, g
}

// upstream starts a server for tools of kind http.
func upstream(t testing.TB, h http.HandlerFunc) (url string, port int) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	_, p, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	port, err := strconv.Atoi(p)
	if err != nil {
		t.Fatal(err)
	}
	return s.URL, port
}

// files returns every file below dir with its content.
func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		rel, _ := filepath.Rel(dir, path)
		all[rel] = raw
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func jsonText(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}
