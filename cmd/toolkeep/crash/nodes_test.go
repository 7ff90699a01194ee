package crash_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// TestNodes tests several processes on one PostgreSQL as one server: they share all state, and each is dispensable.
func TestNodes(t *testing.T) {
	l := &lab{binary: program}
	server := pgtest.Start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{ // the longest first: few run at a time
		{"cut off by silence", func(t *testing.T, c *cluster) { cutOff(t, c, swallowing) }},
		{"cut off by resets", func(t *testing.T, c *cluster) { cutOff(t, c, refusing) }},
		{"chaos", chaosScenarios},
		{"each part away", eachPartAway},
		{"a sink survives", sinkSurvives},
		{"killed at random", killedAtRandom},
		{"frozen", frozen},
		{"taken up by another", takenUp},
		{"taken up by itself", takenUpByItself},
		{"work for all moves", workMoves},
		{"started before the database", startedBefore},
		{"watched and cancelled", watchedAndCancelled},
		{"stopped before the database", stoppedBefore},
		{"what one does all see", seenEverywhere},
		{"any node answers", anyNodeAnswers},
		{"started all at once", startedAllAtOnce},
		{"not waiting for what is wrong", notWaiting},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newCluster(t, l, server))
		})
	}
}

// cluster is some nodes on one database, and a service for their tools.
type cluster struct {
	t        *testing.T
	l        *lab
	server   *pgtest.Server
	database string
	settings []string // of all nodes
	key      string   // of the admin, "" until the first node has made it
	nodes    []*node
	upstream *counter
	conn     *pgx.Conn // of the test; nil until it is needed
	noted    bool      // the database keeps the ends of calls
}

// node is a place in the cluster. Its process may be killed and replaced.
type node struct {
	dir      string
	settings []string
	crashAt  string                  // TOOLKEEP_CRASH_AT of its next process
	now      atomic.Pointer[process] // nil while it is down
}

func newCluster(t *testing.T, l *lab, server *pgtest.Server, settings ...string) *cluster {
	t.Helper()
	shared := t.TempDir()
	return &cluster{t: t, l: l, server: server, database: server.NewName(t), upstream: newCounter(t),
		settings: append(settings, "log.level=WARN", "log.components.tool_executor=ERROR", "secrets.seal_key="+filepath.Join(shared, "seal.key"), "store.blobs="+filepath.Join(shared, "blobs"))}
}

// add makes a node that reaches the database at an address, "" for the server's
// own, and does not start it.
func (c *cluster) add(addr string) *node {
	dsn := c.server.DSN(c.database)
	if addr != "" {
		dsn = c.server.TCP(addr, c.database)
	}
	n := &node{dir: c.t.TempDir(), settings: append([]string{"store.dsn=" + dsn}, c.settings...)}
	c.nodes = append(c.nodes, n)
	return n
}

// begin launches a node's process and does not wait for it.
func (c *cluster) begin(n *node) *process {
	c.t.Helper()
	if c.key != "" { // only the node that made it has it
		if err := os.WriteFile(filepath.Join(n.dir, "admin.key"), []byte(c.key+"\n"), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	return c.l.launch(c.t, n.dir, n.crashAt, n.settings...)
}

// up starts nodes, one after the other.
func (c *cluster) up(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		c.serving(n, c.begin(n))
	}
}

// serving waits until a process that was begun serves.
func (c *cluster) serving(n *node, p *process) {
	c.t.Helper()
	if !p.serves() {
		c.t.Fatalf("a node did not start: %s", p.ended())
	}
	if p.key != "" {
		c.key = p.key
	}
	if !c.noted {
		c.noted = true
		c.noteEnds()
	}
	n.now.Store(p)
}

// three starts the usual three nodes.
func (c *cluster) three() {
	c.t.Helper()
	for range 3 {
		c.up(c.add(""))
	}
}

// down stops all nodes, which must drain well.
func (c *cluster) down() {
	c.t.Helper()
	for _, n := range c.nodes {
		if p := n.now.Swap(nil); p != nil {
			p.stop()
		}
	}
}

// p is the process of a node, which must be up.
func (c *cluster) p(i int) *process {
	c.t.Helper()
	p := c.nodes[i].now.Load()
	if p == nil {
		c.t.Fatalf("node %d is down", i)
	}
	return p
}

// publish registers a tool on a node.
func (s *process) publish(manifest string) {
	s.t.Helper()
	s.must("POST", "/api/v1/tools/register", `{"manifest":`+manifest+`}`, http.StatusCreated, nil)
}

// within waits until ok, and says how long that took.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	end := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
	return time.Since(began)
}

// pause lets time pass without waiting for a condition: between two kills, or during a network cut.
func pause(d time.Duration) { <-time.After(d) }

// noteEnds has the database keep each end of each call, in their order.
func (c *cluster) noteEnds() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.server.DSN(c.database))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `CREATE TABLE test_ends (n BIGINT GENERATED ALWAYS AS IDENTITY, id TEXT, state TEXT);
		CREATE FUNCTION test_note() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO test_ends (id, state) VALUES (NEW.id, NEW.state); RETURN NULL; END $$;
		CREATE TRIGGER test_note AFTER INSERT OR UPDATE OF state ON invocations FOR EACH ROW
			WHEN (NEW.state IN ('succeeded', 'failed', 'refused', 'cancelled', 'unknown')) EXECUTE FUNCTION test_note()`); err != nil {
		c.t.Fatal(err)
	}
}

// ends gives the states in which each call ended, in their order, as noteEnds kept them. A call that
// did not end is there with none. The journal must have each of those that ended.
func (c *cluster) ends() map[string][]toolkeep.CallState {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	s, err := postgres.Open(ctx, postgres.Config{DSN: c.server.DSN(c.database), Node: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.Pool().Query(ctx, `SELECT i.id, coalesce(e.state, '') FROM invocations AS i LEFT JOIN test_ends AS e ON e.id = i.id ORDER BY e.n`)
	if err != nil {
		c.t.Fatal(err)
	}
	ends := map[string][]toolkeep.CallState{}
	var id, state string
	if _, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		if ends[id] = append(ends[id], toolkeep.CallState(state)); state == "" {
			ends[id] = nil
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
	told := map[string]bool{}
	for _, e := range storetest.Entries(ctx, c.t, s) {
		if e.Call != nil {
			told[e.Call.ID] = true
		}
	}
	for id, states := range ends {
		if len(states) > 0 != told[id] {
			c.t.Errorf("call %s ended as %v, and the journal has it: %t", id, states, told[id])
		}
	}
	return ends
}

// number asks the database for one. Only the goroutine of the test may.
func (c *cluster) number(query string, args ...any) (n int64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if c.conn == nil {
		conn, err := pgx.Connect(ctx, c.server.DSN(c.database))
		if err != nil {
			c.t.Fatal(err)
		}
		c.conn = conn
		c.t.Cleanup(func() {
			if err := conn.Close(context.Background()); err != nil {
				c.t.Error(err)
			}
		})
	}
	if err := c.conn.QueryRow(ctx, query, args...).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// nothingLeft checks the database after all calls have ended and all nodes have stopped.
func (c *cluster) nothingLeft() {
	c.t.Helper()
	for what, query := range map[string]string{
		"calls that have not ended":         `SELECT count(*) FROM invocations WHERE state IN ('accepted', 'queued', 'running')`,
		"ended calls with sealed arguments": `SELECT count(*) FROM invocations WHERE sealed IS NOT NULL`,
		"ended calls with a lease":          `SELECT count(*) FROM invocations WHERE lease_owner <> ''`,
		"jobs that wait":                    `SELECT count(*) FROM river_job WHERE state IN ('available', 'pending', 'retryable', 'scheduled')`,
	} {
		if n := c.number(query); n != 0 {
			c.t.Errorf("%s: %d", what, n)
		}
	}
}

// same fails unless two JSON texts say the same.
func same(t *testing.T, what string, a, b []byte) {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%s: %v in %s", what, err, a)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%s: %v in %s", what, err, b)
	}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("%s differs:\n%s\n%s", what, a, b)
	}
}

// health returns a node's readiness: the HTTP status, the overall status and the store's.
func (s *process) health() (code int, status, store string) {
	s.t.Helper()
	code, raw, err := s.do("GET", "/health/ready", "")
	if err != nil {
		s.t.Fatal(err)
	}
	var h struct {
		Status     string `json:"status"`
		Components struct {
			Store struct {
				Status string `json:"status"`
			} `json:"store"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		s.t.Fatalf("%v in %s", err, raw)
	}
	return code, h.Status, h.Components.Store.Status
}
