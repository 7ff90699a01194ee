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

	"github.com/toolkeep/toolkeep/datadir"
)

// bridged is a running `toolkeep mcp`, started in an empty folder that is not the data directory's.
type bridged struct {
	t      *testing.T
	c      *exec.Cmd
	in     io.WriteCloser
	lines  chan string
	stderr bytes.Buffer
}

// command is the binary without the test's control variables, which are not settings and which a server refuses.
func command(args ...string) *exec.Cmd {
	c := exec.Command("toolkeep", args...)
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TOOLKEEP_") })
	c.Env = append(own, "TOOLKEEP_HTTP_ADDR=127.0.0.1:0", "TOOLKEEP_METRICS_ADDR=127.0.0.1:0", "TOOLKEEP_GRPC_ADDR=127.0.0.1:0", "TOOLKEEP_EXAMPLES_TOOLS=true", "TOOLKEEP_URL=")
	return c
}

func startBridge(t *testing.T, args ...string) *bridged {
	t.Helper()
	b := &bridged{t: t, c: command(append([]string{"mcp"}, args...)...), lines: make(chan string)}
	b.c.Dir = t.TempDir()
	b.c.Stderr = &b.stderr
	var err error
	if b.in, err = b.c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := b.c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.lines)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			b.lines <- line
		}
	}()
	return b
}

func (b *bridged) write(format string, args ...any) {
	b.t.Helper()
	if _, err := fmt.Fprintf(b.in, format+"\n", args...); err != nil {
		b.t.Fatal(err)
	}
}

// until reads lines until each of the texts stood in one, and returns the last line.
func (b *bridged) until(texts ...string) string {
	b.t.Helper()
	limit := time.After(waitLimit)
	for {
		select {
		case line, ok := <-b.lines:
			if !ok {
				err := b.c.Wait() // stderr is complete then
				b.t.Fatalf("the bridge ended: %v\n%s", err, b.stderr.String())
			}
			if strings.Contains(line, "toolkeep-bridge") {
				b.t.Errorf("an answer to the bridge itself: %s", line)
			}
			texts = slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(line, text) })
			if len(texts) == 0 {
				return line
			}
		case <-limit:
			b.t.Fatalf("nothing came with %q", texts)
		}
	}
}

// ask sends a request and reads its response; notifications in between may say that lists changed.
func (b *bridged) ask(id int, method, params string) string {
	b.t.Helper()
	b.write(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
	return b.until(fmt.Sprintf(`"id":%d,`, id))
}

// end closes the bridge's standard input, and fails if it left something in its folder.
func (b *bridged) end() {
	b.t.Helper()
	b.in.Close()
	for range b.lines {
	}
	if err := b.c.Wait(); err != nil {
		b.t.Errorf("the bridge ended with %v:\n%s", err, b.stderr.String())
	}
	if left, err := os.ReadDir(b.c.Dir); err != nil || len(left) > 0 {
		b.t.Errorf("the folder where the bridge was started holds %v, %v", left, err)
	}
}

// killServer kills the server of a data directory and waits for its end.
func killServer(t *testing.T, dir string) {
	t.Helper()
	info, err := datadir.ReadServerFile(dir)
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

// TestBridgeReconnectsWhileIdle: the server ends and another starts at another address while the client is silent.
// The client is told that its lists may have changed; its log level and its subscription hold in the new session.
func TestBridgeReconnectsWhileIdle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() { endServer(dir) })
	serve := func() {
		t.Helper()
		c := command("serve", "--data", dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = c.Wait() }()
		awaitReady(t, dir)
	}
	serve()
	tools := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(tools, []byte(`[{"name": "read", "inputSchema": {"type": "object"}}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := offersPath()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := command("--data", dir, "import", "mcp", "notes", "--env", "EVENTS=1", "--", program, tools).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := startBridge(t, "--data", dir, "--view", "servers/notes")
	if got := b.ask(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); !strings.Contains(got, `"subscribe":true`) {
		t.Fatal(got)
	}
	b.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for i, m := range []struct{ method, params string }{
		{"logging/setLevel", `{"level":"info"}`}, {"resources/subscribe", `{"uri":"` + offersNote + `"}`}, {"tools/list", `{}`}} {
		if got := b.ask(2+i, m.method, m.params); !strings.Contains(got, `"result"`) {
			t.Fatal(got)
		}
	}
	const updated = "notifications/resources/updated"
	told := func(id int) {
		t.Helper()
		b.write(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read"}}`, id)
		b.until(fmt.Sprintf(`"id":%d,`, id), updated)
		if got := b.ask(id+1, "resources/read", `{"uri":"`+offersNote+`"}`); !strings.Contains(got, "log level info") {
			t.Error(got)
		}
	}
	told(10)
	for id := range 2 {
		killServer(t, dir)
		serve()
		b.until("notifications/tools/list_changed", "notifications/resources/list_changed", updated)
		told(20 + 2*id)
	}
	b.end()
}

// TestBridgeStartsNoServerWhileIdle: a bridge that only looks leaves a stopped server stopped.
func TestBridgeStartsNoServerWhileIdle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := &bridge{a: &app{data: dir, stderr: io.Discard}, local: true}
	if _, err := b.open(t.Context(), false); err == nil {
		t.Error("there is a connection without a server")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v", err)
	}
}

// TestBridgeOutlivesItsServer: the server started by `toolkeep mcp` is killed between two requests. The next
// request starts another at another address, and the client's session continues there.
func TestBridgeOutlivesItsServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() { endServer(dir) })
	b := startBridge(t, "--data", dir)
	ask := b.ask
	if got := ask(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); !strings.Contains(got, `"result"`) {
		t.Fatal(got)
	}
	b.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	b.write(`{broken`)
	b.until(`"id":null,"error":{"code":-32700,`)
	b.write(`{"jsonrpc":"2.0","method":"initialize"}`)
	b.until(`"id":null,"error":{"code":-32600,`)
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
	out, err := command("serve", "--data", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "toolkeep mcp started that process") {
		t.Errorf("serve beside the bridge's server: %v\n%s", err, out)
	}
	for range 3 {
		if got := told("tools/call", `{"name":"std__hash","arguments":{"text":"hello"}}`); !strings.Contains(got, "2cf24dba") {
			t.Fatal(got)
		}
		killServer(t, dir)
	}
	if got := told("tools/list", `{}`); !strings.Contains(got, "std__hash") {
		t.Fatal(got)
	}
	b.end()
}

// TestBridgeStartsNoOtherServer: a server with a flag of its own is gone. A request is refused with what was given, and
// succeeds when the server runs again; a bridge that begins meanwhile ends.
func TestBridgeStartsNoOtherServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() { endServer(dir) })
	serve := func() {
		t.Helper()
		c := command("serve", "--data", dir, "--set", "limits.agent_per_minute=1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = c.Wait() }()
		awaitReady(t, dir)
	}
	serve()
	b := startBridge(t, "--data", dir)
	if got := b.ask(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); !strings.Contains(got, `"result"`) {
		t.Fatal(got)
	}
	killServer(t, dir)
	got := b.ask(2, "tools/list", `{}`)
	for id := 3; strings.Contains(got, "may not have been delivered") && id < 10; id++ {
		got = b.ask(id, "tools/list", `{}`)
	}
	if !strings.Contains(got, `"error"`) || !strings.Contains(got, "(--set)") || strings.Contains(got, "agent_per_minute") {
		t.Error(got)
	}
	c := command("mcp", "--data", dir)
	if out, err := c.CombinedOutput(); err == nil || c.ProcessState.ExitCode() != exitUnavailable || !strings.Contains(string(out), "(--set)") {
		t.Errorf("%v\n%s", err, out)
	}
	if pid, err := datadir.Holder(dir); pid != 0 || err != nil {
		t.Errorf("process %d runs, %v", pid, err)
	}
	serve()
	if got := b.ask(20, "tools/list", `{}`); !strings.Contains(got, "std__hash") {
		t.Error(got)
	}
	b.end()
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
