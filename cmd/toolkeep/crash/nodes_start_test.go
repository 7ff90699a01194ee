package crash_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startedAllAtOnce starts nodes on an empty database at the same moment.
func startedAllAtOnce(t *testing.T, c *cluster) {
	var begun []*process
	for range 3 {
		begun = append(begun, c.begin(c.add("")))
	}
	keys := 0
	for i, p := range begun {
		if !p.listens() {
			t.Fatalf("a node did not start: %s", p.ended())
		}
		key, err := os.ReadFile(filepath.Join(c.nodes[i].dir, "admin.key"))
		if err == nil {
			keys++
			c.key = strings.TrimSpace(string(key))
		}
	}
	if keys == 0 {
		t.Fatal("nobody has the admin key")
	}
	for i, p := range begun {
		p.read()
		if p.key == "" {
			p.key = c.key
		}
		c.nodes[i].now.Store(p)
	}
	for _, owner := range begun {
		for _, p := range begun {
			with := &process{t: t, url: p.url, client: p.client, key: owner.key}
			within(t, seenWithin, "the admin key of each node opens all", func() bool {
				status, _, err := with.do("GET", "/api/v1/tools", "")
				return err == nil && status == http.StatusOK
			})
		}
	}
	if n := c.p(0).count("/api/v1/keys"); n != keys {
		t.Errorf("there are %d keys, and %d that somebody has", n, keys)
	}
	c.tools()
	tools := c.p(0).count("/api/v1/tools")
	for i := range c.nodes {
		if n := c.p(i).count("/api/v1/tools"); n != tools {
			t.Errorf("node %d has %d tools, another %d", i, n, tools)
		}
		c.p(i).answered(ask{tool: readTool, args: named("once", 0)})
	}
	c.down()
	c.nothingLeft()
}

// startedBefore starts a node while its database cannot be reached, in several
// ways. It waits, and serves when the database is there.
func startedBefore(t *testing.T, c *cluster) {
	wires := newProxy(t, "127.77.0.3", c.server.Addr())
	for _, how := range []cutting{refusing, swallowing} {
		wires.cut(how)
		n := c.add(wires.addr)
		p := c.begin(n)
		p.waitsFor(2 * time.Second)
		wires.cut(passing)
		c.serving(n, p)
		got, err := p.call(ask{tool: "std.hash", args: `{"text":"x"}`, key: "k"})
		if err != nil || got.Status != "success" {
			t.Errorf("%s %v", got, err)
		}
		n.now.Swap(nil).stop()
	}
	c.nothingLeft()
}

// waitsFor fails if the process serves or ends within the time.
func (s *process) waitsFor(d time.Duration) {
	s.t.Helper()
	select {
	case <-s.first:
		s.t.Fatalf("without a database the process served or ended: %s", s.ended())
	case <-time.After(d):
	}
}

// stoppedBefore stops a node that waits for its database.
func stoppedBefore(t *testing.T, c *cluster) {
	wires := newProxy(t, "127.77.0.4", c.server.Addr())
	for _, how := range []cutting{refusing, swallowing} {
		wires.cut(how)
		p := c.begin(c.add(wires.addr))
		p.waitsFor(time.Second)
		p.signal(syscall.SIGTERM)
		if how := p.ended(); how != "exit status 0" {
			t.Errorf("the process that waited ended with %q", how)
		}
	}
}

// notWaiting starts nodes with what no waiting mends.
func notWaiting(t *testing.T, c *cluster) {
	for what, dsn := range map[string]string{
		"a database that is not there": c.server.DSN("nowhere"),
		"a user who is not there":      strings.Replace(c.server.DSN(c.database), "user=postgres", "user=nobody", 1),
		"no DSN":                       "this is none",
	} {
		n := c.add("")
		n.settings[0] = "store.dsn=" + dsn
		p := c.begin(n)
		if how := p.ended(); how != "exit status 4" {
			t.Errorf("%s: ended with %q", what, how)
		}
		if said := p.stderr.String(); !strings.Contains(said, "store.dsn") {
			t.Errorf("%s: nobody was told what to look at: %s", what, said)
		}
	}
}
