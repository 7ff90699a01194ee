package toolkeeptest_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestToolsOfAServerThatRests: a server's tools are listed before it has been started.
func TestToolsOfAServerThatRests(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	boss := admin(t, k)
	boss.put(t, "notes", offerByStdio(t, definition("remember", "Keeps a text."), definition("pid", "Tells the process.")))
	list := boss.do("GET", "/api/v1/servers", "").want(t, 200)
	if list.text(t, "servers", "0", "state") != "idle" || fmt.Sprint(list.at(t, "servers", "0", "tools")) != "2" {
		t.Errorf("%s", list.body)
	}
}

// TestServersOnEachNode: each node shows the process of a server on every one. A node alone shows its
// own, and the list of nodes names no server, since those of all tenants are told.
func TestServersOnEachNode(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.NewDatabase(t), t.TempDir()
	nodes := make([]*toolkeeptest.Toolkeep, 2)
	for i := range nodes {
		nodes[i] = withServers(t, map[string]string{"store.dsn": dsn, "secrets.seal_key": filepath.Join(dir, "seal.key"), "store.blobs": filepath.Join(dir, "blobs")})
	}
	key := nodes[0].Key("default", "boss", "admin")
	nodes[1].AwaitKey("default", key)
	all := []*client{as(t, nodes[0], key), as(t, nodes[1], key)}
	all[0].put(t, "notes", offerByStdio(t, definition("pid", "Tells the process.")))
	pids := map[string]bool{}
	for _, c := range all {
		within(t, 5*time.Second, "the node runs it", func() bool {
			a := c.call("notes.pid", `{}`)
			if a.status == 200 {
				pids[a.output(t)] = true
			}
			return a.status == 200
		})
	}
	type onNode struct {
		Node, State  string
		Self         bool
		PID          int
		Sessions     int
		StartedAt    time.Time `json:"started_at"`
		DefinitionAt time.Time `json:"definition_at"`
	}
	on := func(c *client) (list []onNode) {
		t.Helper()
		var got struct{ Nodes []onNode }
		if err := json.Unmarshal([]byte(c.do("GET", "/api/v1/servers/notes", "").want(t, 200).body), &got); err != nil {
			t.Fatal(err)
		}
		return got.Nodes
	}
	for i, c := range all {
		within(t, 10*time.Second, "each node's process is shown", func() bool {
			list := on(c)
			ready := 0
			for _, n := range list {
				if n.State == "ready" && n.Sessions == 1 && pids[fmt.Sprint(n.PID)] && !n.StartedAt.IsZero() && !n.DefinitionAt.IsZero() {
					ready++
				}
			}
			return len(list) == 2 && ready == 2 && list[0].PID != list[1].PID && list[0].Self != list[1].Self
		})
		if body := c.do("GET", "/api/v1/admin/nodes", "").want(t, 200).body; strings.Contains(body, "notes") {
			t.Errorf("node %d lists %s", i, body)
		}
	}

	k := withServers(t, nil)
	alone := admin(t, k)
	alone.put(t, "notes", offerByStdio(t, definition("pid", "Tells the process.")))
	alone.call("notes.pid", `{}`).want(t, 200)
	if list := on(alone); len(list) != 1 || list[0].State != "ready" || !list[0].Self {
		t.Errorf("a node alone shows %+v", list)
	}
}
