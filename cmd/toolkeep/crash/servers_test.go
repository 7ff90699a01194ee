package crash_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
)

// familyServer is an MCP server over stdio that starts processes as it likes: one
// of its own group, one in a session of its own, and one in a session below another
// that has gone. All carry MARK in their environment.
const familyServer = `#!/bin/bash
sleep 601 &
setsid sleep 602 &
(setsid bash -c 'sleep 603 & sleep 604 & wait' &)
while read -r line; do
  [[ $line =~ \"id\":([0-9]+) ]] || continue
  id=${BASH_REMATCH[1]}
  case $line in
  *'"method":"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"family","version":"1"}}' ;;
  *'"method":"tools/list"'*) result='{"tools":[{"name":"hello","description":"Says hello.","inputSchema":{"type":"object"}},{"name":"hang","description":"Never answers.","inputSchema":{"type":"object"}}]}' ;;
  *'"name":"hang"'*) echo waiting >> "$MARKS/waiting"; continue ;;
  *'"method":"tools/call"'*) result='{"content":[{"type":"text","text":"hello"}]}' ;;
  *) echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"no such method"}}'; continue ;;
  esac
  echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
sleep 605
`

// marked counts the processes that carry a mark.
func marked(t *testing.T, mark string) (n int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		// One that ended meanwhile, or is a zombie, has no environment.
		if raw, err := os.ReadFile(file); err == nil && bytes.Contains(raw, []byte("MARK="+mark)) {
			n++
		}
	}
	return n
}

// TestServersEndWithToolkeep: after kill -9 at any moment, or an ordered stop, no process of an MCP server is left.
func TestServersEndWithToolkeep(t *testing.T) {
	l := &lab{binary: program}
	script := filepath.Join(t.TempDir(), "family")
	if err := os.WriteFile(script, []byte(familyServer), 0o700); err != nil {
		t.Fatal(err)
	}
	import1 := func(t *testing.T, s *process) (mark, marks string) {
		t.Helper()
		mark, marks = uuid.NewString(), t.TempDir()
		spec, err := json.Marshal(map[string]any{"transport": "stdio", "command": []string{script}, "env": map[string]string{"MARK": mark, "MARKS": marks}})
		if err != nil {
			t.Fatal(err)
		}
		s.must("PUT", "/api/v1/servers/family", string(spec), http.StatusOK, nil)
		return mark, marks
	}
	none := func(t *testing.T, mark string) {
		t.Helper()
		within(t, waitLimit, "no process of the server is left", func() bool { return marked(t, mark) == 0 })
	}
	invoke := func(s *process, tool string) {
		s.must("POST", "/api/v1/tools/invoke", `{"tool_id":"family.`+tool+`","parameters":{}}`, http.StatusOK, nil)
	}

	t.Run("killed", func(t *testing.T) {
		s := l.start(t, t.TempDir(), "")
		mark, _ := import1(t, s)
		none(t, mark) // the import has its own process, which is gone
		invoke(s, "hello")
		within(t, waitLimit, "the family is there", func() bool { return marked(t, mark) >= 5 })
		s.signal(syscall.SIGKILL)
		s.killed()
		none(t, mark)
	})
	t.Run("killed while a tool runs", func(t *testing.T) {
		s := l.start(t, t.TempDir(), "")
		mark, marks := import1(t, s)
		began := make(chan struct{})
		go func() {
			defer close(began)
			_, _, _ = s.do("POST", "/api/v1/tools/invoke", `{"tool_id":"family.hang","parameters":{}}`) // it is cut off
		}()
		within(t, waitLimit, "the tool runs", func() bool {
			raw, err := os.ReadFile(filepath.Join(marks, "waiting"))
			return err == nil && strings.Contains(string(raw), "waiting")
		})
		s.signal(syscall.SIGKILL)
		s.killed()
		<-began
		none(t, mark)
	})
	t.Run("killed while it starts", func(t *testing.T) {
		s := l.start(t, t.TempDir(), "")
		mark, marks := uuid.NewString(), t.TempDir()
		// It starts its family and never answers the handshake.
		spec, err := json.Marshal(map[string]any{"transport": "stdio", "env": map[string]string{"MARK": mark, "MARKS": marks},
			"command": []string{"/bin/bash", "-c", "setsid sleep 601 & sleep 602 & sleep 603"}})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = s.do("PUT", "/api/v1/servers/family", string(spec)) // it is cut off
		}()
		within(t, waitLimit, "it starts", func() bool { return marked(t, mark) >= 3 })
		s.signal(syscall.SIGKILL)
		s.killed()
		<-done
		none(t, mark)
	})
	t.Run("stopped", func(t *testing.T) {
		s := l.start(t, t.TempDir(), "")
		mark, _ := import1(t, s)
		invoke(s, "hello")
		within(t, waitLimit, "the family is there", func() bool { return marked(t, mark) >= 5 })
		s.stop()
		if n := marked(t, mark); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}
