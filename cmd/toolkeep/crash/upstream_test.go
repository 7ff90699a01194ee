package crash_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// counter is the service behind the tools of a test. It counts what it is asked
// for by name, the argument that makes each call its own.
type counter struct {
	url  string
	port int

	mu    sync.Mutex
	began map[string]int
	keys  map[string]string        // Idempotency-Key of the first request
	auth  string                   // Authorization of the last request that had one
	odd   []string                 // what must not happen
	gates map[string]chan struct{} // requests of these names wait until theirs is closed
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	u := &counter{began: map[string]int{}, keys: map[string]string{}, gates: map[string]chan struct{}{}}
	s := httptest.NewServer(u)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	u.url = s.URL
	at, err := url.Parse(s.URL)
	if err == nil {
		u.port, err = strconv.Atoi(at.Port())
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// ServeHTTP answers after as many milliseconds as the request says, or when its
// gate is opened.
func (u *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
	u.mu.Lock()
	u.began[name]++
	n := u.began[name]
	key := r.Header.Get("Idempotency-Key")
	if n == 1 {
		u.keys[name] = key
	} else if u.keys[name] != key {
		u.odd = append(u.odd, fmt.Sprintf("%s came with key %q and then %q", name, u.keys[name], key))
	}
	if auth := r.Header.Get("Authorization"); auth != "" {
		u.auth = auth
	}
	gate := u.gates[name]
	u.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
	}
	delay := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer delay.Stop()
	select {
	case <-delay.C:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name}) // a caller that is gone gets nothing
}

// count says how many requests of a name have begun.
func (u *counter) count(name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.began[name]
}

// bearer is the token of the last request that had one.
func (u *counter) bearer() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.TrimPrefix(u.auth, "Bearer ")
}

// counts is count for all names.
func (u *counter) counts() map[string]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.began)
}

// hold has requests of a name wait until open is called.
func (u *counter) hold(name string) (open func()) {
	gate := make(chan struct{})
	u.mu.Lock()
	u.gates[name] = gate
	u.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

// oddities returns what must not happen but did.
func (u *counter) oddities() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.Join(u.odd, "\n")
}

// How a tool of a test is declared.
const (
	reading    = `"side_effects":"reads"`
	writing    = `"side_effects":"writes"`
	repeatable = `"side_effects":"writes","idempotent":true`
)

// tool is a manifest of one that asks the service.
func (u *counter) tool(id, declared string) string {
	return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":"1.0.0","description":"Asks the service of a test.",%s,"risk":"low",
		"parameters_schema":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"ms":{"type":"integer"}}},
		"permissions":{"network":[{"host":"127.0.0.1","port":%d}]},
		"execution":{"kind":"http","timeout_ms":120000,"binding":{"method":"POST","server":%q,"path":"/do",
			"parameters":[{"name":"name","in":"query"},{"name":"ms","in":"query"}]}}}`, id, declared, u.port, u.url)
}

// named are the arguments of one call.
func named(name string, ms int) string {
	return fmt.Sprintf(`{"name":%q,"ms":%d}`, name, ms)
}

// The tools that most tests publish.
const (
	readTool = "chaos.read"
	putTool  = "chaos.put" // may be repeated
	addTool  = "chaos.add" // may not
)

// tools publishes them on a node and waits until all that are up know them.
func (c *cluster) tools() {
	c.t.Helper()
	for id, declared := range map[string]string{readTool: reading, putTool: repeatable, addTool: writing} {
		c.p(0).publish(c.upstream.tool(id, declared))
	}
	for _, n := range c.nodes {
		if p := n.now.Load(); p != nil {
			p.knows(readTool, putTool, addTool)
		}
	}
}

// knows waits until the node has the tools.
func (s *process) knows(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		within(s.t, waitLimit, "a node knows "+id, func() bool {
			status, _, err := s.do("GET", "/api/v1/tools/"+id, "")
			return err == nil && status == http.StatusOK
		})
	}
}
