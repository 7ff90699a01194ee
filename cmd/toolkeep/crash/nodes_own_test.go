package crash_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

// takenUpByItself kills a node that runs a call under a lease of an hour, and starts it
// again: it takes the call up at once. Another directory with the node's name does not, as
// the process that it knows of may be alive.
func takenUpByItself(t *testing.T, c *cluster) {
	c.settings = append(c.settings, "calls.lease=1h", "node.name=first")
	c.up(c.add(""))
	c.tools()
	open := c.upstream.hold("held")
	defer open()
	running := ask{id: uuid.NewString(), tool: putTool, args: named("held", 0), key: "held", async: true}
	if got, err := c.p(0).call(running); err != nil || got.http != http.StatusAccepted {
		t.Fatalf("%s %v", got, err)
	}
	kill := func() {
		p := c.nodes[0].now.Swap(nil)
		p.signal(syscall.SIGKILL)
		p.killed()
	}
	within(t, waitLimit, "the call runs", func() bool { return c.upstream.count("held") == 1 })
	kill()
	c.up(c.nodes[0])
	within(t, waitLimit, "the node carries its own call on", func() bool { return c.upstream.count("held") == 2 })
	kill()
	other := c.add("")
	other.settings = append(other.settings, "calls.lease=10s") // after which it may give up calls of others
	c.up(other)
	if is := c.p(1).record(running.id); is.State != string(toolkeep.CallRunning) {
		t.Errorf("the call is %s: a node took up what one of its name holds that may be alive", is)
	}
	c.number(`UPDATE invocations SET lease_until = 1 WHERE id = $1 RETURNING 1`, running.id)
	within(t, waitLimit, "a node carries on what has lapsed", func() bool { return c.upstream.count("held") == 3 })
	open()
	until(t, "the call has ended", func() bool { return toolkeep.CallState(c.p(1).record(running.id).State).Ended() })
	if is := c.p(1).record(running.id); !is.is(toolkeep.CallSucceeded, "") {
		t.Errorf("the call is %s", is)
	}
	c.down()
	c.nothingLeft()
}

// workMoves kills the node that does the work of all: another does all of it, once. The
// killed one comes back under its name.
func workMoves(t *testing.T, c *cluster) {
	c.three()
	works := func(i int) (of map[string][]string, all []string) {
		var list struct {
			Nodes []struct {
				Name  string
				Leads []string
			}
		}
		c.p(i).must(http.MethodGet, "/api/v1/admin/nodes", "", http.StatusOK, &list)
		of = map[string][]string{}
		for _, n := range list.Nodes {
			of[n.Name] = n.Leads
			all = append(all, n.Leads...)
		}
		slices.Sort(all)
		return of, all
	}
	name := func(i int) string {
		raw, err := os.ReadFile(filepath.Join(c.nodes[i].dir, "node.name"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(raw))
	}
	var all []string
	within(t, waitLimit, "the nodes know each other", func() bool {
		of, led := works(0)
		all = led
		others, _ := works(1)
		return len(of) == 3 && len(others) == 3 && len(others[name(0)]) == len(all) // the first to start has got everything
	})
	if len(all) < 3 || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Fatalf("they lead %v", all)
	}
	first := c.nodes[0].now.Swap(nil)
	first.signal(syscall.SIGKILL)
	first.killed()
	took := within(t, waitLimit, "the others do its work", func() bool {
		of, led := works(1)
		return len(of[name(0)]) == 0 && slices.Equal(led, all)
	})
	t.Logf("taken over after %s; a quiet machine needs less than 15 s", took)
	within(t, waitLimit, "the killed node is gone", func() bool {
		of, _ := works(1)
		return len(of) == 2
	})
	c.up(c.nodes[0])
	within(t, waitLimit, "the killed node is back", func() bool {
		of, led := works(2)
		is, there := of[name(0)]
		return len(of) == 3 && there && len(is) == 0 && slices.Equal(led, all)
	})
	c.down()
	if n := c.number(`SELECT (SELECT count(*) FROM nodes) + (SELECT count(*) FROM leads)`); n != 0 {
		t.Errorf("nodes that stopped left %d rows", n)
	}
}
