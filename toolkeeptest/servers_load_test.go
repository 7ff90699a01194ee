//go:build linux

// Processes are looked up in /proc.

package toolkeeptest_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// children returns the processes below this one, with their states; zombies count.
func children(t *testing.T) map[int]string {
	t.Helper()
	parent, state := map[int]int{}, map[int]string{}
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		// Format: pid (name) state ppid …; the name may contain any character.
		end := strings.LastIndexByte(string(raw), ')')
		fields := strings.Fields(string(raw)[end+1:])
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if end > 0 && len(fields) > 1 {
			parent[pid], _ = strconv.Atoi(fields[1])
			state[pid] = fields[0]
		}
	}
	out := map[int]string{}
	for pid := range parent {
		for up, depth := parent[pid], 0; up > 1 && depth < 50; up, depth = parent[up], depth+1 {
			if up == os.Getpid() {
				out[pid] = state[pid]
				break
			}
		}
	}
	return out
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestManyAgentsFewProcesses: 200 agents call two servers concurrently, over REST and
// MCP, for 5 s, or as long as TOOLKEEP_SOAK says (make soak). The number of processes
// stays constant, and nothing is left afterwards.
func TestManyAgentsFewProcesses(t *testing.T) {
	length := 5 * time.Second
	if s := os.Getenv("TOOLKEEP_SOAK"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	within(t, 30*time.Second, "processes of earlier tests are gone", func() bool { return len(children(t)) == 0 })
	files := openFiles(t)

	t.Run("agents", func(t *testing.T) {
		k := withServers(t, nil)
		boss := admin(t, k)
		names := []string{"one", "two"}
		pids := map[string]string{}
		for _, name := range names {
			boss.put(t, name, offerByStdio(t, definition("pid", "Tells the process."), definition("echo", "Answers.")))
			pids[name] = boss.call(name+".pid", `{}`).output(t)
		}
		before := children(t)
		if len(before) != 4 { // each server under its reaper
			t.Fatalf("two servers are %d processes: %v", len(before), before)
		}

		ctx, stop := context.WithTimeout(t.Context(), length)
		defer stop()
		var calls atomic.Int64
		var work sync.WaitGroup
		for i := range 200 {
			key, name := k.Key("default", fmt.Sprintf("agent-%d", i), "agent"), names[i%2]
			if i%8 == 0 {
				s := agent(t, k, key, []string{"/all", "/servers/" + name}[i/8%2])
				tool := []string{name + "__pid", "pid"}[i/8%2]
				work.Go(func() {
					for n := 0; n == 0 || ctx.Err() == nil; n++ { // at least once, however slow the machine is
						r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: map[string]any{}})
						if err != nil || r.IsError || said(r) != pids[name] {
							t.Errorf("MCP: %v %+v", err, r)
							return
						}
						calls.Add(1)
					}
				})
				continue
			}
			c := as(t, k, key)
			work.Go(func() {
				for n := 0; n == 0 || ctx.Err() == nil; n++ { // at least once, however slow the machine is
					a, err := c.try(t.Context(), "POST", "/api/v1/tools/invoke", envelope(name+".pid", `{}`))
					if err != nil || a.status != 200 || !strings.Contains(a.body, `"`+pids[name]+`"`) {
						t.Errorf("REST: %v %s", err, a)
						return
					}
					calls.Add(1)
				}
			})
		}
		work.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				if now := children(t); !slices.Equal(sortedKeys(before), sortedKeys(now)) {
					t.Errorf("the processes were %v and are %v", before, now)
					return
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
		work.Wait()
		t.Logf("%d calls in %s", calls.Load(), length)
		if n := calls.Load(); n < 200 {
			t.Errorf("only %d calls", n)
		}
	})

	http.DefaultClient.CloseIdleConnections()
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	within(t, 30*time.Second, "descriptors are closed", func() bool { return openFiles(t) <= files })
}

func sortedKeys(m map[int]string) []int {
	out := make([]int, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
