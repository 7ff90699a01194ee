package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// timeouts measures how long after a time limit its call is answered, of a tool whose server never answers.
func timeouts(b *bench) (part, error) {
	const limit = 100 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return part{}, err
	}
	upstream := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}
	go func() { _ = upstream.Serve(l) }() // until it is closed
	defer upstream.Close()
	srv, err := b.server("timeouts", "TOOLKEEP_BREAKER_ENABLED=false")
	if err != nil {
		return part{}, err
	}
	defer srv.stop()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	number, _ := strconv.Atoi(port)
	p := part{set: fmt.Sprintf("Set: calls over REST of a tool of kind http whose server never answers, each with a limit of %s; late is what a caller waited beyond it, with "+
		"the request, the record of the call and the answer. Breakers are off.", limit)}
	for _, whose := range []struct {
		name    string
		tool    map[string]any // members of execution
		options map[string]any
	}{
		{"call", map[string]any{"timeout_ms": 10_000}, map[string]any{"timeout_seconds": limit.Seconds()}},
		{"tool", map[string]any{"timeout_ms": limit.Milliseconds()}, map[string]any{}},
		{"attempt", map[string]any{"timeout_ms": 10_000, "attempt_timeout_ms": limit.Milliseconds()}, map[string]any{}},
	} {
		id := "bench.silent_" + whose.name
		whose.tool["kind"] = "http"
		whose.tool["binding"] = map[string]any{"method": "GET", "server": "http://" + l.Addr().String(), "path": "/"}
		if err := srv.post("/api/v1/tools/register", map[string]any{"manifest": map[string]any{
			"schema_version": 1, "tool_id": id, "version": "1.0.0", "description": "Asks a server that never answers.",
			"parameters_schema": map[string]any{"type": "object"}, "side_effects": "reads", "risk": "low",
			"permissions": map[string]any{"network": []any{map[string]any{"host": "127.0.0.1", "port": number}}},
			"retry":       map[string]any{"policy": "none"}, "execution": whose.tool,
		}}); err != nil {
			return part{}, err
		}
		whose.options["tool_id"], whose.options["parameters"] = id, map[string]any{}
		body, err := json.Marshal(whose.options)
		if err != nil {
			return part{}, err
		}
		for _, callers := range []int{1, clients} {
			m, err := closedLoop(overREST(body, false, srv), callers, b.d)
			if err != nil {
				return part{}, err
			}
			for i := range m.latencies {
				m.latencies[i] -= limit
			}
			p.rows = append(p.rows, []string{"of the " + whose.name, strconv.Itoa(callers), strconv.FormatInt(m.calls, 10), m.quantiles()})
		}
	}
	return p, nil
}
