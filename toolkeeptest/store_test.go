package toolkeeptest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node/stores"
	"github.com/toolkeep/toolkeep/store/sqlite"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// onWriter runs a statement on the write connection.
func onWriter(t *testing.T, k *toolkeeptest.Toolkeep, statement string) {
	t.Helper()
	if _, err := k.Store().(interface{ Beneath() stores.Store }).Beneath().(*sqlite.Store).WriteDB().ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// TestStoreTrouble: with a database that refuses writes, in two ways, calls that need a
// record first are refused, read-only ones work, and nothing is lost.
func TestStoreTrouble(t *testing.T) {
	t.Parallel()
	for _, trouble := range []struct{ name, begin, end string }{
		{"read only", "PRAGMA query_only = 1", "PRAGMA query_only = 0"},
		{"full", "PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1073741823"},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			k, g := withGate(t, map[string]string{"calls.poll": "20ms"})
			g.openAll()
			k.Publish(gated("gate.read", "1.0.0", reads), gated("gate.write", "1.0.0", writes), gated("gate.cached", "1.0.0", reads, cached))
			cacheIsCurrent(t, k)
			c := admin(t, k)
			c.call("gate.write", named("before"), keyed("before")).success(t)
			c.call("gate.cached", named("warm")).success(t)
			spool := filepath.Join(k.Dir, "spool.jsonl")

			onWriter(t, k, trouble.begin)
			if trouble.name == "full" {
				// What the writer still has to copy may free pages: it is asked to, until it frees none.
				for round := 0; fill(t, k, c) > 0; round++ {
					if round == 50 {
						t.Fatal("the database did not stay full")
					}
					c.do("GET", "/api/v1/invocations", "")
				}
			}
			for i, more := range [][]string{nil, {keyed("k")}, {async}} {
				a := c.call("gate.write", named("refused"), more...).want(t, 503).refused(t, toolkeep.RecordUnavailable)
				if a.at(t, "retryable") != true {
					t.Errorf("%d: %s", i, a.body)
				}
			}
			c.call("gate.read", named("refused"), keyed("k2")).want(t, 503).refused(t, toolkeep.RecordUnavailable)
			c.call("gate.read", named("refused"), async).want(t, 503).refused(t, toolkeep.RecordUnavailable)
			if n := g.count("refused"); n != 0 {
				t.Errorf("%d calls were carried out without a record", n)
			}
			read := c.call("gate.read", named("answered")).success(t).id(t)
			hit := c.call("gate.cached", named("warm")).success(t)
			if hit.at(t, "execution_metadata", "cache_hit") != true {
				t.Errorf("the cache is gone: %s", hit.body)
			}
			// A stored result is replayed if it can be read, and never computed again.
			if a := c.call("gate.write", named("before"), keyed("before")); a.status != 503 && a.at(t, "execution_metadata", "idempotency_replayed") != true {
				t.Errorf("the kept answer is gone: %s", a.body)
			}
			if raw, err := os.ReadFile(spool); err != nil || !strings.Contains(string(raw), read) {
				t.Errorf("the record of %s is not in the spool (%v)", read, err)
			}
			if info, err := os.Stat(spool); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the spool's mode: %v (%v)", info.Mode(), err)
			}
			if a := c.do("GET", "/api/v1/invocations/"+read, ""); a.status != 404 && a.status != 503 {
				t.Errorf("the record is read before it is there: %s", a)
			}
			c.do("POST", "/api/v1/keys", `{"subject":"x","roles":["agent"]}`).want(t, 503).refused(t, toolkeep.RecordUnavailable)
			a := c.do("POST", "/api/v1/tools/register", `{"manifest":`+gated("gate.new", "1.0.0", reads)+`}`)
			if a.status != 503 {
				t.Errorf("registering: %s", a)
			}
			c.call("gate.new", named("x")).refused(t, toolkeep.ToolNotFound)
			waitUntil(t, "health is degraded", func() bool {
				a := c.do("GET", "/health/ready", "")
				return a.status == 200 && a.text(t, "status") == "DEGRADED" && a.text(t, "components", "record_spool", "status") == "DOWN" &&
					a.text(t, "components", "store", "status") == "DOWN"
			})
			metrics := *c
			metrics.url = strings.TrimSuffix(k.MetricsURL(), "/metrics")
			if m := metrics.do("GET", "/metrics", ""); !strings.Contains(m.body, "toolkeep_spool_records ") || strings.Contains(m.body, "toolkeep_spool_records 0") {
				t.Errorf("the metrics do not tell of the spool")
			} else if !strings.Contains(m.body, "toolkeep_result_memory_bytes 0") || !strings.Contains(m.body, "toolkeep_result_memory_limit_bytes ") {
				t.Errorf("the metrics do not tell of the memory of results")
			}

			onWriter(t, k, trouble.end)
			waitUntil(t, "the record is in the store", func() bool {
				return c.do("GET", "/api/v1/invocations/"+read, "").status == 200
			})
			waitUntil(t, "health is up", func() bool { return c.do("GET", "/health/ready", "").text(t, "status") == "UP" })
			if _, err := os.Stat(spool); !os.IsNotExist(err) {
				t.Errorf("the spool is still there: %v", err)
			}
			c.call("gate.write", named("after"), keyed("k")).success(t)
			c.ended(c.call("gate.write", named("after-async"), async).want(t, 202).id(t)).success(t)
			c.do("POST", "/api/v1/tools/register", `{"manifest":`+gated("gate.new", "1.0.0", reads)+`}`).want(t, 201)
			var total int
			fmt.Sscan(fmt.Sprint(c.do("GET", "/api/v1/invocations?tool_id=gate.read", "").at(t, "total_count")), &total)
			if total != 3 { // two refused and one successful, each once
				t.Errorf("%d records of gate.read, want 3", total)
			}
		})
	}
}

// fill writes until the last pages are full, with calls, with keys and with what only reads: a small
// row may still fit where a large one does not. It returns how many fitted.
func fill(t *testing.T, k *toolkeeptest.Toolkeep, c *client) (fitted int) {
	t.Helper()
	full := func(write func() int) {
		t.Helper()
		for range 2000 {
			if write() >= 500 {
				return
			}
			fitted++
		}
		t.Fatal("the database did not become full")
	}
	full(func() int { return c.call("gate.write", named("filler")).status })
	full(func() int { return c.call("gate.write", named("filler"), async).status }) // the queue has pages of its own
	full(func() int { return c.do("POST", "/api/v1/keys", `{"subject":"filler","roles":["agent"]}`).status })
	full(func() int { // and the record of a reading call, which is the smallest
		id := c.call("std.echo", `{}`).success(t).id(t)
		if raw, err := os.ReadFile(filepath.Join(k.Dir, "spool.jsonl")); err == nil && strings.Contains(string(raw), id) {
			return 500
		}
		return 200
	})
	return fitted
}

// TestDatabaseLockedByAnother holds the database's lock, like a backup tool might, for
// longer than the server waits.
func TestDatabaseLockedByAnother(t *testing.T) {
	t.Parallel()
	k, g := withGate(t, map[string]string{"store.max_wait": "2s"})
	g.openAll()
	k.Publish(gated("gate.read", "1.0.0", reads), gated("gate.write", "1.0.0", writes))
	c := admin(t, k)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(k.Dir, "toolkeep.db")+"?_pragma=busy_timeout(60000)") // the server may be writing
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	got := make(chan answer, 3)
	for _, body := range []string{envelope("gate.write", named("keyed"), keyed("k")), envelope("gate.write", named("plain")), envelope("gate.read", named("read"))} {
		go func() {
			a, err := c.try(context.Background(), "POST", "/api/v1/tools/invoke", body)
			if err != nil {
				a.body = err.Error()
			}
			got <- a
		}()
	}
	// The lock is held until the server first gives up. Later calls may succeed;
	// refused ones must not have been executed.
	refused := 0
	for i := range 3 {
		a := <-got
		switch {
		case a.status == 503:
			a.refused(t, toolkeep.RecordUnavailable)
			refused++
		default:
			a.success(t)
		}
		if i == 0 {
			if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ran := g.count("keyed") + g.count("plain"); ran+refused != 2 || g.count("read") != 1 {
		t.Errorf("%d calls were refused, ran %v", refused, g.starts())
	}
	// What waited behind the lock makes the store refuse new calls for a moment (E3811).
	waitUntil(t, "the store takes changes again", func() bool { return c.call("gate.write", named("again")).status == 200 })
	before := g.count("keyed")
	a := c.call("gate.write", named("keyed"), keyed("k"), `"timeout_seconds":5`).success(t)
	if (a.at(t, "execution_metadata", "idempotency_replayed") == true) != (before == 1) || g.count("keyed") != 1 {
		t.Errorf("%s after %v", a.body, g.starts())
	}
	list := c.do("GET", "/api/v1/invocations?state=running", "").want(t, 200)
	if fmt.Sprint(list.at(t, "total_count")) != "0" {
		t.Errorf("calls that were refused are left running: %s", list.body)
	}
}
