package toolkeeptest_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestNodeWithAClockAhead: a node whose clock is 30 s ahead is not ready and says why. It gives up no
// call of another node although it is the one that sweeps, and its own leases are by PostgreSQL's clock.
func TestNodeWithAClockAhead(t *testing.T) {
	t.Parallel()
	const ahead, lease = 30 * time.Second, 5 * time.Second
	dsn, dir := pgtest.NewDatabase(t), t.TempDir()
	start := func(name string, off time.Duration) *toolkeeptest.Toolkeep {
		return toolkeeptest.New(t, toolkeeptest.Option{Options: node.Options{Clock: func() time.Time { return time.Now().Add(off) }},
			Settings: map[string]string{"store.dsn": dsn, "node.name": name, "calls.lease": lease.String(),
				"secrets.seal_key": filepath.Join(dir, "seal.key"), "store.blobs": filepath.Join(dir, "blobs")}})
	}
	wrong := start("wrong", ahead) // the first one leads
	right := start("right", 0)
	key := right.Key("default", "boss", "admin")
	wrong.AwaitKey("default", key)
	at := map[string]*client{"wrong": as(t, wrong, key), "right": as(t, right, key)}
	waitUntil(t, "it is not ready and says why", func() bool {
		a := at["wrong"].do("GET", "/health/ready", "")
		return a.status == 503 && strings.Contains(a.body, `"what":"clock"`) && strings.Contains(wrong.Log(), "the database's clock is 30s off")
	})
	at["right"].do("GET", "/health/ready", "").want(t, 200)
	waitUntil(t, "it leads", func() bool {
		var list struct {
			Nodes []struct {
				Name  string
				Leads []string
			}
		}
		if err := json.Unmarshal([]byte(at["right"].do("GET", "/api/v1/admin/nodes", "").body), &list); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list.Nodes, func(n struct {
			Name  string
			Leads []string
		}) bool {
			return n.Name == "wrong" && slices.Contains(n.Leads, "calls.sweep")
		})
	})

	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// Each call lasts for longer than a sweep, and for less than its lease.
	ended := make(chan string, len(at))
	ids := map[string]string{"wrong": uuid.NewString(), "right": uuid.NewString()}
	for name, c := range at {
		go func() {
			a, err := c.try(t.Context(), "POST", "/api/v1/tools/invoke",
				envelope("std.wait", `{"duration_ms":3000}`, `"invocation_id":"`+ids[name]+`"`, keyed("of "+name)))
			if err != nil {
				ended <- fmt.Sprintf("%s: %v", name, err)
				return
			}
			ended <- fmt.Sprintf("%s %d %t", name, a.status, a.succeeded())
		}()
	}
	left := map[string]float64{} // seconds, by PostgreSQL's clock
	waitUntil(t, "both calls had a lease", func() bool {
		for name, id := range ids {
			var s float64
			if conn.QueryRow(t.Context(), `SELECT lease_until / 1e9 - extract(epoch FROM clock_timestamp()) FROM invocations WHERE id = $1 AND lease_owner <> ''`, id).Scan(&s) == nil {
				left[name] = max(left[name], s)
			}
		}
		return len(left) == len(ids)
	})
	for name, s := range left {
		if s > lease.Seconds()+5 {
			t.Errorf("the lease of a call at the node that is %s lasts for %.1f s more", name, s)
		}
	}
	got := map[string]bool{<-ended: true, <-ended: true}
	if !got["wrong 200 true"] || !got["right 200 true"] {
		t.Errorf("the calls end as %v", got)
	}
}
