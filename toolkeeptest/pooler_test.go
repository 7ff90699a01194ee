package toolkeeptest_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// work calls a node from many goroutines: reading, keyed and waiting calls, lists. What a
// busy machine's store took too long for is refused as retryable: it repeats that for a minute, and counts it.
func work(t *testing.T, k *toolkeeptest.Toolkeep, admin, from string) (repeated int64) {
	t.Helper()
	var again atomic.Int64
	call := func(method, path, body string, header ...string) {
		header = append(header, "Authorization", "Bearer "+admin)
		status, answer := k.Do(method, path, body, header...)
		for until := time.Now().Add(time.Minute); busy(status, answer) && time.Now().Before(until) && toolkeep.Sleep(t.Context(), 100*time.Millisecond); {
			again.Add(1)
			status, answer = k.Do(method, path, body, header...)
		}
		if status != http.StatusOK && status != http.StatusAccepted {
			t.Errorf("%s %s: %d %s", method, path, status, answer)
		}
	}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for n := range 4 {
				call(http.MethodPost, "/api/v1/tools/invoke", `{"tool_id":"std.hash","parameters":{"text":"x"}}`)
				call(http.MethodPost, "/api/v1/tools/invoke", `{"tool_id":"std.note_append","parameters":{"notebook":"n","text":"x"}}`, "Idempotency-Key", fmt.Sprint(from, i, n))
				call(http.MethodPost, "/api/v1/tools/invoke", `{"tool_id":"std.hash","parameters":{"text":"y"},"execution_options":{"async_mode":true}}`)
				call(http.MethodGet, "/api/v1/invocations?page_size=5", "")
			}
		})
	}
	all.Wait()
	within(t, 10*time.Second, "no call waits", func() bool {
		_, waiting := k.Do(http.MethodGet, "/api/v1/invocations?state=queued", "", "Authorization", "Bearer "+admin)
		_, running := k.Do(http.MethodGet, "/api/v1/invocations?state=running", "", "Authorization", "Bearer "+admin)
		return strings.Contains(waiting, `"total_count":0`) && strings.Contains(running, `"total_count":0`)
	})
	return again.Load()
}

// busy tells whether an answer refuses a request since the store takes too long, and says to repeat it.
func busy(status int, answer string) bool {
	return status == http.StatusServiceUnavailable && strings.Contains(answer, `"retryable":true`) && busyCode(answer)
}

// busyCode tells whether text has the code of such an answer: the store has not answered for store.max_wait,
// or a record could not be written within 5 s.
func busyCode(text string) bool {
	return strings.Contains(text, `"code":"`+string(toolkeep.Backpressure)+`"`) || strings.Contains(text, `"code":"`+string(toolkeep.RecordUnavailable)+`"`)
}

// TestConnections counts the sessions of a node in PostgreSQL from its start to its end: with
// the default settings at most 10 at any time.
func TestConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	database := server.NewName(t)
	watch, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	var most atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		defer watch.Close(context.Background())
		for ctx.Err() == nil {
			var n int64
			if err := watch.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity WHERE datname = $1`, database).Scan(&n); err != nil {
				t.Error(err)
				return
			}
			most.Store(max(most.Load(), n))
		}
	})
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"store.dsn": server.DSN(database), "secrets.seal_key": filepath.Join(t.TempDir(), "seal.key")}})
	admin := k.Key("default", "operator", "admin")
	k.AwaitKey("default", admin)
	work(t, k, admin, "")
	k.Close()
	end()
	watching.Wait()
	if n := most.Load(); n > 10 || n < 5 {
		t.Errorf("the node had %d connections at once, want at most 10, and some", n)
	}
}

// TestNodesBehindPooler: two nodes whose only way to PostgreSQL is a small PgBouncer work as
// one, in each mode, and say that nothing notifies them.
func TestNodesBehindPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	for _, mode := range []string{"transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			size := map[string]int{"transaction": 6, "session": 20}[mode]
			dsn := server.Pooler(t, mode, fmt.Sprintf("default_pool_size = %d", size))(server.NewName(t))
			seal, blobs := filepath.Join(t.TempDir(), "seal.key"), filepath.Join(t.TempDir(), "blobs")
			var nodes []*toolkeeptest.Toolkeep
			for range 2 {
				nodes = append(nodes, toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{
					"store.dsn": dsn, "secrets.seal_key": seal, "store.blobs": blobs}}))
			}
			admin := nodes[0].Key("default", "operator", "admin")
			nodes[1].AwaitKey("default", admin)
			var all sync.WaitGroup
			repeated := make([]int64, len(nodes))
			for i, k := range nodes {
				all.Go(func() { repeated[i] = work(t, k, admin, fmt.Sprint(i)) })
			}
			all.Wait()
			a := as(t, nodes[1], "").do("GET", "/health/ready", "").want(t, 200)
			if a.text(t, "status") != "UP" || a.text(t, "components", "store", "details", "notifications") != "polled" {
				t.Errorf("%s", a.body)
			}
			for i, k := range nodes {
				k.Close()
				log := k.Log()
				faults := slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool {
					return !strings.Contains(line, `"level":"ERROR"`) || repeated[i] > 0 && busyCode(line)
				})
				if len(faults) > 0 || !strings.Contains(log, "the feed is polled") {
					t.Errorf("the log:\n%s", log)
				}
			}
		})
	}
}
