package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBridgeOutlivesItsServer: the server started by `toolkeep mcp` is killed between two requests. The next
// request starts another at another address, and the client's session continues there.
func TestBridgeOutlivesItsServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() { endServer(dir) })
	c := exec.Command("toolkeep", "mcp", "--data", dir)
	// The test's control variables are not settings, and the server would refuse them.
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TOOLKEEP_") })
	c.Env = append(own, "TOOLKEEP_HTTP_ADDR=127.0.0.1:0", "TOOLKEEP_METRICS_ADDR=127.0.0.1:0", "TOOLKEEP_GRPC_ADDR=127.0.0.1:0", "TOOLKEEP_URL=")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	// ask sends a request and reads its response; notifications in between may say that lists changed.
	ask := func(id int, method, params string) string {
		t.Helper()
		if _, err := io.WriteString(in, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)); err != nil {
			t.Fatal(err)
		}
		limit := time.After(waitLimit)
		for {
			select {
			case line, ok := <-lines:
				if !ok {
					err := c.Wait() // stderr is complete then
					t.Fatalf("the bridge ended: %v\n%s", err, stderr.String())
				}
				if strings.Contains(line, fmt.Sprintf(`"id":%d,`, id)) {
					return line
				}
			case <-limit:
				t.Fatalf("%s got no answer", method)
			}
		}
	}
	if got := ask(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); !strings.Contains(got, `"result"`) {
		t.Fatal(got)
	}
	if _, err := io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	id := 1
	// told repeats a request while its response is the error of the connection cut by the kill: repeating is the
	// client's task.
	told := func(method, params string) string {
		t.Helper()
		for range 10 {
			id++
			if got := ask(id, method, params); !strings.Contains(got, "may not have been delivered") {
				return got
			}
		}
		t.Fatal("every connection is cut")
		return ""
	}
	for range 3 {
		if got := told("tools/call", `{"name":"std__hash","arguments":{"text":"hello"}}`); !strings.Contains(got, "2cf24dba") {
			t.Fatal(got)
		}
		info, err := readServerFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(waitLimit); running(info.PID); <-time.After(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the killed server does not end")
			}
		}
	}
	if got := told("tools/list", `{}`); !strings.Contains(got, "std__hash") {
		t.Fatal(got)
	}
	in.Close()
	for range lines {
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the bridge ended with %v:\n%s", err, stderr.String())
	}
}

// running reports whether a process exists and is not a zombie, as a child of the bridge is until the bridge waits
// for it.
func running(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z")
}
