package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What agents measures: agents that call a tool whose server fails, hangs and is slow for some of the requests.
const (
	agentCount   = 1000
	errorPercent = 5  // answered with status 500
	hangPercent  = 1  // never answered
	slowPercent  = 10 // answered after slowAnswer
	slowAnswer   = 200 * time.Millisecond
	hangLimit    = time.Second // the tool's attempt_timeout_ms
)

// unsteady is that server.
type unsteady struct {
	n                     atomic.Int64
	errors, hangs, slowed atomic.Int64
}

func (u *unsteady) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := u.n.Add(1) * 37 % 100 // so that faults are not in a row
	w.Header().Set("Content-Type", "application/json")
	switch {
	case at < errorPercent:
		u.errors.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":"injected"}`)
		return
	case at < errorPercent+hangPercent:
		u.hangs.Add(1)
		<-r.Context().Done()
		return
	case at < errorPercent+hangPercent+slowPercent:
		u.slowed.Add(1)
		select {
		case <-time.After(slowAnswer):
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, `{"ok":true}`)
}

// agents measures 1,000 agents at once, with a pause between two calls and without one.
func agents(b *bench) (part, error) {
	p := part{set: fmt.Sprintf("Set: %d agents, each with a key of its own, call a reading tool of kind http over REST, limits off, SQLite. Its server answers %d %% of the requests with status 500, "+
		"%d %% not at all (given up after %s) and %d %% after %s; the tool is tried up to 3 times, and breakers open above 50 %%. Overhead is `overhead_us` of the answers: "+
		"all but the tool, with the pauses between attempts. Share is what the slowest agent got of an agent's mean number of calls.",
		agentCount, errorPercent, hangPercent, hangLimit, slowPercent, slowAnswer)}
	for _, c := range []struct {
		name  string
		pause time.Duration
	}{{"a second after each answer", time.Second}, {"at once after each answer", 0}} {
		row, err := b.crowd(c.name, c.pause)
		if err != nil {
			return part{}, fmt.Errorf("%s: %w", c.name, err)
		}
		p.rows = append(p.rows, row)
	}
	return p, nil
}

func (b *bench) crowd(name string, pause time.Duration) ([]string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &unsteady{}
	upstream := &http.Server{Handler: u, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = upstream.Serve(l) }() // until it is closed
	defer upstream.Close()
	srv, err := b.server("agents "+name, "TOOLKEEP_EGRESS_IDLE_TIMEOUT=1s", "TOOLKEEP_STORE_MAX_WAIT=0", "TOOLKEEP_CALLS_MAX_CPU_WAIT=0",
		"TOOLKEEP_LIMITS_CONCURRENT=-1", "TOOLKEEP_LIMITS_HTTP_CONCURRENT=-1",
		"TOOLKEEP_BREAKER_FAILURE_RATE=50", "TOOLKEEP_BREAKER_CONSECUTIVE_FAILURES=0") // on a busy machine more is late than hangs
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	number, _ := strconv.Atoi(port)
	if err := srv.post("/api/v1/tools/register", map[string]any{"manifest": map[string]any{
		"schema_version": 1, "tool_id": "bench.unsteady", "version": "1.0.0", "description": "Asks a server that fails now and then.",
		"parameters_schema": map[string]any{"type": "object"}, "side_effects": "reads", "risk": "low",
		"permissions": map[string]any{"network": []any{map[string]any{"host": "127.0.0.1", "port": number}}},
		"retry":       map[string]any{"max_attempts": 3, "base_delay_ms": 20},
		"execution": map[string]any{"kind": "http", "timeout_ms": 10_000, "attempt_timeout_ms": hangLimit.Milliseconds(),
			"binding": map[string]any{"method": "GET", "server": "http://" + l.Addr().String(), "path": "/"}},
	}}); err != nil {
		return nil, err
	}
	keys := make([]string, agentCount)
	for i := range keys {
		raw, err := srv.send(http.MethodPost, "/api/v1/keys", map[string]any{"subject": fmt.Sprint("agent-", i), "roles": []string{"agent"}})
		if err != nil {
			return nil, err
		}
		var made struct{ Secret string }
		if err := json.Unmarshal(raw, &made); err != nil {
			return nil, err
		}
		keys[i] = made.Secret
	}
	// What a first crowd leaves, such as buffers of its connections, is there before.
	if _, err := askAll(srv, keys, 0, time.Second); err != nil {
		return nil, err
	}
	before, err := srv.settled()
	if err != nil {
		return nil, err
	}
	all, err := askAll(srv, keys, pause, b.d)
	if err != nil {
		return nil, err
	}
	after, err := srv.settled()
	if err != nil {
		return nil, err
	}
	if after.goroutines > before.goroutines+10 || after.files > before.files+10 || after.memory > before.memory+maxGrown {
		return nil, fmt.Errorf("a leak: %+v before, %+v after", before, after)
	}
	var m measured
	var overheads []time.Duration
	least, sum := int64(-1), int64(0)
	ends := map[string]int64{}
	for _, a := range all {
		m.latencies = append(m.latencies, a.took...)
		overheads = append(overheads, a.overhead...)
		calls := int64(len(a.took))
		if sum += calls; least < 0 || calls < least {
			least = calls
		}
		for status, n := range a.ends {
			ends[status] += n
		}
	}
	slices.Sort(m.latencies)
	slices.Sort(overheads)
	over := measured{latencies: overheads}
	mean := float64(sum) / agentCount
	share := float64(least) / mean
	if share < 0.5 && mean >= 50 { // of fewer calls, two that hung are half
		return nil, fmt.Errorf("the slowest agent made %d calls, the mean is %.1f: less than half of its share", least, mean)
	}
	return []string{name, fmt.Sprintf("%.0f", float64(sum)/b.d.Seconds()), fmt.Sprintf("%.2f %%", 100*float64(sum-ends["success"])/float64(sum)),
		m.quantiles(), over.quantiles(), fmt.Sprintf("%.0f %%", 100*share),
		fmt.Sprintf("%d / %d", before.goroutines, after.goroutines), fmt.Sprintf("%d / %d", before.files, after.files),
		fmt.Sprintf("%.0f / %.0f MB", float64(before.memory)/1e6, float64(after.memory)/1e6)}, nil
}

// agentRun is what one agent met.
type agentRun struct {
	took, overhead []time.Duration
	ends           map[string]int64 // by status
	err            error
}

// askAll has each agent call, with a pause after each answer, for d.
func askAll(srv *process, keys []string, pause, d time.Duration) ([]agentRun, error) {
	all := make([]agentRun, len(keys))
	body, err := json.Marshal(map[string]any{"tool_id": "bench.unsteady", "parameters": map[string]any{}})
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() {
			as := *srv
			as.key = key
			if pause > 0 { // they do not all come at the same moment
				time.Sleep(pause * time.Duration(i) / time.Duration(len(keys)))
			}
			all[i] = askUntil(request(&as, body, "")(0), srv.addr, pause, end)
		})
	}
	wg.Wait()
	for _, a := range all {
		if a.err != nil {
			return nil, a.err
		}
	}
	return all, nil
}

func askUntil(req []byte, addr string, pause time.Duration, end time.Time) (a agentRun) {
	a.ends = map[string]int64{}
	c, err := dial(addr)
	if err != nil {
		a.err = err
		return a
	}
	defer c.c.Close()
	for began := time.Now(); began.Before(end); began = time.Now() {
		length, err := c.start(req)
		if err != nil || length < 0 {
			a.err = errors.Join(err, errors.New("an agent got no answer of a known length"))
			return a
		}
		answer := make([]byte, length)
		if _, err := io.ReadFull(c.r, answer); err != nil {
			a.err = err
			return a
		}
		a.took = append(a.took, time.Since(began))
		var v struct {
			Status   string
			Metadata struct {
				Overhead int64 `json:"overhead_us"`
			} `json:"execution_metadata"`
		}
		if err := json.Unmarshal(answer, &v); err != nil {
			a.err = err
			return a
		}
		a.ends[v.Status]++
		a.overhead = append(a.overhead, time.Duration(v.Metadata.Overhead)*time.Microsecond)
		time.Sleep(pause)
	}
	return a
}

// held is what a process holds.
type held struct {
	goroutines, files int
	memory            int64 // RssAnon, bytes
}

// maxGrown is how much more memory a server may hold after the calls than before, in bytes: what the collector leaves.
const maxGrown = 64 << 20

// settled is what the server holds once that no longer falls.
func (p *process) settled() (last held, err error) {
	for range 20 {
		now := held{memory: p.rssAnon()}
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
		if err != nil {
			return now, err
		}
		now.files = len(list)
		resp, err := http.Get(p.metrics)
		if err != nil {
			return now, err
		}
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return now, err
		}
		for line := range bytes.Lines(raw) {
			if v, ok := strings.CutPrefix(string(line), "go_goroutines "); ok {
				now.goroutines, _ = strconv.Atoi(strings.TrimSpace(v))
			}
		}
		if last != (held{}) && now.goroutines >= last.goroutines && now.files >= last.files && now.memory >= last.memory-maxGrown/64 {
			return now, nil
		}
		last = now
		time.Sleep(1500 * time.Millisecond)
	}
	return last, nil
}
