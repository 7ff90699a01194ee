package toolkeeptest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/store/redis/redistest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestResultsInRedis: two nodes share results of tools, until these are dropped, and go on alone while Redis is away. A node
// that starts later shares them too.
func TestResultsInRedis(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"n":"run %d"}`, asked.Add(1))
	}))
	defer s.Close()
	f := newFinders(t, true)
	const cached = `"cache":{"policy":"ttl","ttl_s":3600}`
	f.nodes[0].Publish(webTool("d.kept", s.URL, "/", cached), webTool("d.secret", s.URL, "/", cached, `"redact":["/x"]`),
		strings.Replace(fileTool("d.file", "read", "reads"), `,"make_dirs":true}}`, `}},`+cached, 1))
	for i, k := range f.nodes { // each has its own file
		if err := os.MkdirAll(filepath.Join(k.Dir, "files", "default"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(k.Dir, "files", "default", "own.txt"), fmt.Appendf(nil, "of node %d", i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, ann := f.key(t, "default", "ann", "agent")
	file := func(i int) bool {
		return strings.Contains(as(t, f.nodes[i], ann).call("d.file", `{"path":"own.txt"}`).success(t).body, fmt.Sprintf("of node %d", i))
	}
	ask := func(k *toolkeeptest.Toolkeep, tool string) string {
		return as(t, k, ann).call(tool, `{}`).success(t).text(t, "result", "n")
	}
	drop := func(k *toolkeeptest.Toolkeep) {
		as(t, k, f.nodes[0].AdminKey).do("DELETE", "/api/v1/tools/admin/cache/invalidate", `{"scope":"all"}`).want(t, 200)
	}
	within(t, 10*time.Second, "the other node knows the tools", func() bool {
		return as(t, f.nodes[1], ann).call("d.file", `{"path":"own.txt"}`).status == http.StatusOK && as(t, f.nodes[1], ann).call("d.secret", `{}`).status == http.StatusOK && as(t, f.nodes[1], ann).call("d.kept", `{}`).status == http.StatusOK
	})
	// share has a node ask the tool, and returns what both then get.
	share := func(one, other *toolkeeptest.Toolkeep) (text string) {
		within(t, 10*time.Second, "a node gets what the other one asked for", func() bool {
			drop(one)
			text = ask(one, "d.kept")
			return ask(other, "d.kept") == text
		})
		return text
	}
	share(f.nodes[0], f.nodes[1])
	within(t, 10*time.Second, "a node gets what the other one asked for, in their order", func() bool {
		drop(f.nodes[0])
		if !file(0) {
			t.Error("a node gave another node's file")
		}
		hidden, text := ask(f.nodes[0], "d.secret"), ask(f.nodes[0], "d.kept")
		if ask(f.nodes[1], "d.kept") != text {
			return false // the other node has not followed the drop, or has no result yet
		}
		if ask(f.nodes[1], "d.secret") == hidden {
			t.Error("the result of a tool with secret arguments was shared")
		}
		if !file(1) {
			t.Error("a node gave another node's file")
		}
		return true
	})
	later := f.node(t, nil)
	within(t, 10*time.Second, "a node that starts later knows the key", func() bool {
		return as(t, later, ann).call("std.hash", `{}`).status != http.StatusUnauthorized
	})
	var kept string
	within(t, 10*time.Second, "a node that started later gets what others asked for", func() bool {
		kept = share(f.nodes[1], f.nodes[0])
		return ask(later, "d.kept") == kept
	})

	redis := f.redis.Client(t)
	names, err := redis.Keys(t.Context(), "*results*").Result()
	if err != nil || len(names) < 2 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		if value, _ := redis.Get(t.Context(), name).Result(); strings.Contains(name+value, "d.kept") || strings.Contains(value, "run") {
			t.Errorf("%s can be read: %q", name, value)
		}
	}

	drop(f.nodes[1])
	fresh := ask(f.nodes[1], "d.kept")
	if fresh == kept {
		t.Error("a node gave a result that was dropped on it")
	}
	for _, k := range []*toolkeeptest.Toolkeep{f.nodes[0], later} {
		within(t, time.Second, "another node gives no result that was dropped", func() bool { return ask(k, "d.kept") != kept })
	}

	f.redis.Down(t)
	held := ask(f.nodes[0], "d.kept")
	if got := ask(f.nodes[0], "d.kept"); got != held {
		t.Errorf("without Redis memory gives %q, want %q", got, held)
	}
	drop(f.nodes[0])
	if got := ask(f.nodes[0], "d.kept"); got == held {
		t.Error("without Redis a node gave a result that was dropped on it")
	}
	f.redis.Up(t)
	share(f.nodes[0], f.nodes[1])
}

// TestWarmStart: a node that starts again has the results that it used, of tools that want it, before they are asked for.
func TestWarmStart(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir := filepath.Join(t.TempDir(), "data")
	open := func() *toolkeeptest.Toolkeep {
		return toolkeeptest.Open(t, dir, toolkeeptest.Option{Settings: map[string]string{"redis.url": redis.URL(), "search.model": "none"}})
	}
	k := open()
	const cached = `"side_effects":"none","cache":{"policy":"ttl","ttl_s":3600,"warm":%t}`
	k.Publish(toolkeeptest.Manifest("w.warm", "1.0.0", "echo", fmt.Sprintf(cached, true)), toolkeeptest.Manifest("w.cold", "1.0.0", "echo", fmt.Sprintf(cached, false)))
	key := k.AdminKey
	hits := func(tool string) bool {
		return as(t, k, key).call(tool, `{}`).success(t).at(t, "execution_metadata", "cache_hit") == true
	}
	waitUntil(t, "a node that stops leaves both results, its list, and the list of lists", func() bool {
		for _, tool := range []string{"w.warm", "w.cold"} {
			waitUntil(t, "the result is cached", func() bool { return hits(tool) })
		}
		k.Close()
		names, err := redis.Client(t).Keys(t.Context(), "*results*").Result()
		k = open()
		return err == nil && len(slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "names") })) == 4
	})
	waitUntil(t, "the cache is warm", func() bool { return strings.Contains(k.Log(), "the result cache was warmed") })
	redis.Down(t)
	if warm, cold := hits("w.warm"), hits("w.cold"); !warm || cold {
		t.Errorf("without Redis, is the warm tool's result there: %t; and that of the other one: %t", warm, cold)
	}
}
