package toolkeeptest_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// cluster starts n nodes on one database. change may change the options of each.
func cluster(t *testing.T, n int, change ...func(*toolkeeptest.Option)) []*toolkeeptest.Toolkeep {
	t.Helper()
	dsn := pgtest.NewDatabase(t)
	seal := filepath.Join(t.TempDir(), "seal.key")
	blobs := filepath.Join(t.TempDir(), "blobs")
	nodes := make([]*toolkeeptest.Toolkeep, n)
	for i := range nodes {
		o := toolkeeptest.Option{Settings: map[string]string{
			"store.dsn": dsn, "secrets.seal_key": seal, "store.blobs": blobs}}
		for _, f := range change {
			f(&o)
		}
		nodes[i] = toolkeeptest.New(t, o)
	}
	return nodes
}

// within polls check until it is true. Taking longer than limit is only logged, because
// a busy machine is slower; the test fails if it never becomes true.
func within(t *testing.T, limit time.Duration, what string, check func() bool) {
	t.Helper()
	began := time.Now()
	never := time.After(max(limit, time.Minute))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-tick.C:
		case <-never:
			t.Fatalf("%s: not within %s", what, time.Since(began).Round(time.Second))
		}
	}
	if took := time.Since(began); took > limit {
		t.Logf("%s: only after %s, not within %s", what, took.Round(time.Millisecond), limit)
	}
}

// TestThreeNodesAreOne: what one node publishes, blocks, re-keys or runs, all nodes
// see.
func TestThreeNodesAreOne(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3)
	a, b, c := nodes[0], nodes[1], nodes[2]
	admin := a.Key("default", "operator", "admin")
	as := func(k *toolkeeptest.Toolkeep, method, path, body string, header ...string) (int, string) {
		return k.Do(method, path, body, append(header, "Authorization", "Bearer "+admin)...)
	}
	b.AwaitKey("default", admin)
	c.AwaitKey("default", admin)

	a.Publish(toolkeeptest.Manifest("demo.shared", "1.0.0", "echo", `"side_effects":"none"`))
	invoke := `{"tool_id":"demo.shared","parameters":{"message":"hi"}}`
	within(t, time.Second, "a published tool is callable on the other nodes", func() bool {
		status, _ := as(c, http.MethodPost, "/api/v1/tools/invoke", invoke)
		other, _ := as(b, http.MethodPost, "/api/v1/tools/invoke", invoke)
		return status == http.StatusOK && other == http.StatusOK
	})
	if _, err := b.Catalog().SetState(t.Context(), access.System(), "demo.shared", "1.0.0", catalog.StateChange{State: toolkeep.Blocked}); err != nil {
		t.Fatal(err)
	}
	within(t, time.Second, "a blocked tool is refused on another node", func() bool {
		_, body := as(a, http.MethodPost, "/api/v1/tools/invoke", invoke)
		return strings.Contains(body, "E3010")
	})

	// One idempotency key on two nodes executes once.
	append1 := `{"tool_id":"std.note_append","parameters":{"notebook":"shared","text":"once"}}`
	var ids sync.Map
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			status, body := as(nodes[i%3], http.MethodPost, "/api/v1/tools/invoke", append1, "Idempotency-Key", "k-1")
			if status != http.StatusOK && status != http.StatusAccepted {
				t.Errorf("%d %s", status, body)
			}
			ids.Store(field(body, "invocation_id"), true)
		})
	}
	wg.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d invocations for one key", n)
	}

	// A waiting call admitted on one node is watched and cancelled on others.
	_, body := as(a, http.MethodPost, "/api/v1/tools/invoke",
		`{"tool_id":"std.wait","parameters":{"duration_ms":60000},"execution_options":{"async_mode":true}}`)
	id := field(body, "invocation_id")
	within(t, 10*time.Second, "the call runs", func() bool {
		_, body := as(b, http.MethodGet, "/api/v1/invocations/"+id, "")
		return strings.Contains(body, `"state":"running"`)
	})
	for _, k := range nodes {
		if status, body := as(k, http.MethodPost, "/api/v1/invocations/"+id+"/cancel", `{"reason":"test"}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
	}
	within(t, 5*time.Second, "a cancel on any node reaches the one that runs the call", func() bool {
		_, body := as(c, http.MethodGet, "/api/v1/invocations/"+id, "")
		return strings.Contains(body, `"state":"cancelled"`)
	})

	approvedElsewhere(t, nodes, as)
}

// approvedElsewhere: a caller that waits on one node gets its answer when a person approves on
// another, and a standing approval holds on all until it is taken back on any.
func approvedElsewhere(t *testing.T, nodes []*toolkeeptest.Toolkeep, as func(k *toolkeeptest.Toolkeep, method, path, body string, header ...string) (int, string)) {
	t.Helper()
	a, b, c := nodes[0], nodes[1], nodes[2]
	bot := a.Key("default", "approved-bot", "agent")
	c.AwaitKey("default", bot)
	ask := func(k *toolkeeptest.Toolkeep, options string) string {
		_, body := k.Do(http.MethodPost, "/api/v1/tools/invoke", `{"tool_id":"std.echo","parameters":{"message":"hi"},"execution_options":{"require_approval":true`+options+`}}`,
			"Authorization", "Bearer "+bot)
		return body
	}
	answer := make(chan string, 1)
	go func() { answer <- ask(a, "") }()
	id := ""
	within(t, 10*time.Second, "the call waits, as another node says", func() bool {
		_, body := as(b, http.MethodGet, "/api/v1/approvals?state=pending", "")
		id = field(body, "invocation_id")
		return id != ""
	})
	remember := `{"remember":{"for":"arguments","until":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}}`
	if status, body := as(b, http.MethodPost, "/api/v1/approvals/"+id+"/approve", remember); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	select {
	case body := <-answer:
		if !strings.Contains(body, `"status":"success"`) {
			t.Errorf("the caller got %s", body)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the caller got no answer")
	}
	within(t, 5*time.Second, "a standing approval holds on another node", func() bool {
		return strings.Contains(ask(c, `,"async_mode":true`), `"status":"pending"`)
	})
	within(t, 5*time.Second, "it is taken back where it was followed", func() bool {
		status, body := as(a, http.MethodDelete, "/api/v1/approvals/grants/"+id, "")
		if status != http.StatusNoContent && status != http.StatusNotFound {
			t.Fatalf("%d %s", status, body)
		}
		return status == http.StatusNoContent
	})
	within(t, 5*time.Second, "one that was taken back does not", func() bool {
		return strings.Contains(ask(c, `,"async_mode":true`), `"status":"pending_approval"`)
	})
}

// field extracts a string field from JSON text.
func field(body, name string) string {
	_, rest, _ := strings.Cut(body, `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// TestNodeLost: the waiting calls of a lost node finish on another, each exactly once.
func TestNodeLost(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2)
	ctx := context.Background()
	const calls = 40
	ids := make([]string, calls)
	for i := range ids {
		res, err := nodes[i%2].Pipeline().Invoke(ctx, owner(nodes[0]), &toolkeep.Call{Tool: "std.wait", Async: true, Face: "test",
			Arguments: []byte(fmt.Sprintf(`{"duration_ms":%d}`, 50+i))})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = res.InvocationID
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := nodes[0].Stop(short); err != nil {
		t.Logf("the stop without patience: %v", err)
	}
	within(t, 30*time.Second, "every call ends", func() bool {
		for _, id := range ids {
			row, err := nodes[1].Store().Invocations().Get(ctx, toolkeep.CallRef{Tenant: "default", ID: id})
			if err != nil {
				t.Fatal(err)
			}
			if row.State != toolkeep.CallSucceeded {
				return false
			}
		}
		return true
	})
}

// owner returns a principal whose key the nodes know, because workers refresh it.
func owner(k *toolkeeptest.Toolkeep) *toolkeep.Principal {
	p, err := k.Access().Authenticate(context.Background(), k.Key("default", "waiter", "admin"), "127.0.0.1")
	if err != nil {
		panic(err)
	}
	return p
}
