package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRun runs the client without a server and without a scenario; the conformance suite tests it with both
// (toolkeeptest/mcp).
func TestRun(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, c := range map[string]struct {
		args     []string
		scenario string
		context  string
		code     int
		says     string
	}{
		"no scenario":      {[]string{"x", gone.URL}, "", "", 2, "auth/… and"},
		"unknown scenario": {[]string{"x", gone.URL}, "auth/dpop", "", 2, "dpop"},
		"no address":       {[]string{"x"}, "initialize", "", 2, "usage"},
		"bad address":      {[]string{"x", "ftp://x"}, "initialize", "", 1, "http or https"},
		"bad context":      {[]string{"x", gone.URL}, "initialize", "{", 1, "MCP_CONFORMANCE_CONTEXT"},
		"no server":        {[]string{"x", gone.URL}, "tools_call", "", 1, "E3541"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			code := run(t.Context(), c.args, func(k string) string {
				return map[string]string{"MCP_CONFORMANCE_SCENARIO": c.scenario, "MCP_CONFORMANCE_CONTEXT": c.context}[k]
			}, &said)
			if code != c.code || !strings.Contains(said.String(), c.says) {
				t.Errorf("%d: %s", code, said.String())
			}
		})
	}
}
