package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestServersOfNodes: with several nodes the list has a line for each server and node, with one none.
func TestServersOfNodes(t *testing.T) {
	const first, second = `{"node":"a","state":"ready","pid":11,"sessions":2,"started_at":"2026-03-01T12:00:00Z","definition_at":"2026-02-01T12:00:00Z"}`, `{"node":"b","state":"idle","sessions":0}`
	var nodes string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"servers":[{"name":"notes","transport":"stdio","state":"idle","sessions":0,"tools":3,"nodes":[`+nodes+`]}]}`)
	}))
	defer s.Close()
	t.Setenv("TOOLKEEP_URL", s.URL)
	t.Setenv("TOOLKEEP_KEY", "k")
	for _, c := range []struct{ nodes, want string }{
		{first, ""},
		{first + "," + second, "NAME NODE STATE PID STARTED SESSIONS DEFINITION OF\n" +
			"notes a ready 11 2026-03-01T12:00:00Z 2 2026-02-01T12:00:00Z\nnotes b idle - - 0 -"},
	} {
		nodes = c.nodes
		var out, said strings.Builder
		code := run(t.Context(), func() {}, []string{"servers"}, strings.NewReader(""), &out, &said)
		_, got, _ := strings.Cut(out.String(), "\n\n")
		var lines []string
		for line := range strings.Lines(got) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if got := strings.Join(lines, "\n"); code != 0 || got != c.want {
			t.Errorf("exit code %d, %s%s\nwant %s", code, said.String(), got, c.want)
		}
	}
}
