package servers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream"
)

// nodes are those of a store, of which a answers.
type nodes []toolkeep.NodeState

func (n nodes) Live() ([]toolkeep.NodeState, time.Duration) { return n, time.Second }
func (n nodes) Owner() string                               { return "a/1" }

// TestNodesOfAServer: each node that lives says what it does for a server, to the tenant alone.
func TestNodesOfAServer(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	running := func(owner, tenant, name string, pid int) upstream.Running {
		return upstream.Running{Tenant: tenant, Status: upstream.Status{Name: name, Owner: owner, State: upstream.StateReady, PID: pid, Sessions: 2, Since: began}}
	}
	var live nodes
	store := &memory{grown: make(chan struct{})}
	h := newNode(t, store, func(c *Config) { c.Members = &live })
	h.imports(httpSpec, tool("read", "Reads."))
	if _, err := h.Import(t.Context(), admin("default"), "common", []byte(httpSpec), ImportOptions{Shared: true}); err != nil {
		t.Fatal(err)
	}
	told := func(state string, all ...upstream.Running) toolkeep.NodeState {
		t.Helper()
		h.pool.mu.Lock()
		h.pool.running = all
		h.pool.mu.Unlock()
		raw, err := json.Marshal(struct {
			Seals string `json:"seals"`
			Told
		}{"k", h.Told()})
		if err != nil || len(raw) > 17<<10 {
			t.Fatalf("%d bytes are told, %v", len(raw), err)
		}
		return toolkeep.NodeState{Name: state, Run: "1", Data: raw}
	}
	var many []upstream.Running
	for i := range 1000 {
		many = append(many, running("zeta", "zeta", fmt.Sprint("s", i), 1))
	}
	live = nodes{
		told("a", running("acme", "acme", "pages", 11)),
		told("b", running("", "acme", "common", 21), running("", "globex", "common", 22), running("acme", "acme", "pages", 23)),
		told("c"),
		told("d", many...),
		{Name: "e", Run: "1", Data: []byte(`{"seals":"k"}`)},
	}
	h.pool.mu.Lock()
	h.pool.running = nil
	h.pool.mu.Unlock()
	shown := func(tenant, name string) string {
		t.Helper()
		for _, s := range h.List(admin(tenant)) {
			if s.Name != name {
				continue
			}
			var out []string
			for _, n := range s.Nodes {
				if n.PID != 0 && (n.DefinitionAt.IsZero() || !n.StartedAt.Equal(began)) {
					t.Errorf("%+v", n)
				}
				out = append(out, fmt.Sprintf("%s %s %d %d %t", n.Node, n.State, n.PID, n.Sessions, n.Self))
			}
			return strings.Join(out, ", ")
		}
		return ""
	}
	const rest = "c idle 0 0 false, d unknown 0 0 false, e unknown 0 0 false"
	for _, c := range []struct{ tenant, name, want string }{
		{"acme", "pages", "a idle 0 0 true, b ready 23 2 false, " + rest}, // what a said is older than what it knows
		{"acme", "common", "a idle 0 0 true, b ready 21 2 false, " + rest},
		{"globex", "common", "a idle 0 0 true, b ready 22 2 false, " + rest},
		{"default", "common", "a idle 0 0 true, b idle 0 0 false, " + rest},
		{"globex", "pages", ""},
	} {
		if got := shown(c.tenant, c.name); got != c.want {
			t.Errorf("%s of %s:\n%s\nwant\n%s", c.name, c.tenant, got, c.want)
		}
	}
	if got := string(WithoutTold(live[1].Data)); got != `{"seals":"k"}` {
		t.Errorf("the data of a node is shown as %s", got)
	}
	if got := string(WithoutTold(live[3].Data)); strings.Contains(got, "zeta") || !strings.Contains(got, `"servers_left_out":`) {
		t.Errorf("the data of a node is shown as %s", got)
	}
}
