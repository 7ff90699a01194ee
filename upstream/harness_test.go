//go:build linux

package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// limit bounds a test's waits.
const limit = time.Minute

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// testConfig is small and fast.
func testConfig(t *testing.T) Config {
	return Config{
		Reaper: []string{self(t), "__reaper"}, Dir: t.TempDir(), stopGrace: 200 * time.Millisecond,
		backoffBase: 50 * time.Millisecond,
	}
}

// stdioSpec is the bad server in the given mode.
func stdioSpec(t *testing.T, mode string) Spec {
	return Spec{
		Name: "s", Transport: Stdio, Command: []string{self(t)},
		Env: map[string]string{"UPSTREAM_TEST_PROGRAM": "server", "MODE": mode},
	}
}

// start runs Servers with the specs, and checks at the end that nothing is left.
func start(t *testing.T, c Config, specs ...Spec) *Servers {
	t.Helper()
	for i := range specs {
		if faults := specs[i].Validate(); faults != nil {
			t.Fatalf("the spec is not valid: %v", faults)
		}
	}
	before := openFiles(t)
	s := New(c)
	s.Set(specs)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		if list, err := processes(); err == nil {
			for _, p := range below(os.Getpid(), list) {
				t.Errorf("process %d is left", p.pid)
			}
		}
		eventually(t, "descriptors are closed", func() bool {
			if c.HTTPClient != nil { // repeatedly: a connection may become idle late
				c.HTTPClient("", nil).CloseIdleConnections()
			}
			return openFiles(t) <= before
		})
	})
	return s
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// eventually polls a condition.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come to pass that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func alice() *toolkeep.Principal { return &toolkeep.Principal{Tenant: "acme", Subject: "alice"} }
func bob() *toolkeep.Principal   { return &toolkeep.Principal{Tenant: "acme", Subject: "bob"} }
func carol() *toolkeep.Principal { return &toolkeep.Principal{Tenant: "globex", Subject: "carol"} }

// toolCall is a request for a tool of the server "s".
func toolCall(p *toolkeep.Principal, tool, text string) *Request {
	return &Request{
		Principal: p, Server: "s", Method: mcp.MethodCallTool,
		Params: []byte(`{"name":"` + tool + `","arguments":{"text":` + string(mcp.Quote(text)) + `}}`),
	}
}

// call makes a call and returns its result's text.
func call(t *testing.T, s *Servers, r *Request) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	a, err := s.Do(ctx, r)
	if err != nil {
		t.Fatalf("%s: %v (cause %v)", r.Params, err, errors.Unwrap(err))
	}
	return textOf(a)
}

func textOf(a *Answer) string {
	for block := range mcp.Elements(mcp.Get(a.Result, "content")) {
		return mcp.Text(block, "text")
	}
	return string(a.Result)
}

// fails makes a call that must fail with the code.
func fails(t *testing.T, s *Servers, r *Request, code toolkeep.Code) *toolkeep.Error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return failsIn(t, ctx, s, r, code)
}

func failsIn(t *testing.T, ctx context.Context, s *Servers, r *Request, code toolkeep.Code) *toolkeep.Error {
	t.Helper()
	a, err := s.Do(ctx, r)
	if err == nil {
		t.Fatalf("%s: got %s, want %s", r.Params, a.Result, code)
	}
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("%s: %v (cause %v), want %s", r.Params, err, errors.Unwrap(err), code)
	}
	return e
}

// status returns the status of the server "s".
func status(t *testing.T, s *Servers, p *toolkeep.Principal) Status {
	t.Helper()
	for _, st := range s.Status(p) {
		if st.Name == "s" {
			return st
		}
	}
	t.Fatal("the server has no status")
	return Status{}
}

func logs(t *testing.T, s *Servers, p *toolkeep.Principal) string {
	t.Helper()
	b, err := s.Logs(p, "s")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// alive reports whether the process exists and is not a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func pids(t *testing.T, text string) []int {
	t.Helper()
	var list []int
	for _, f := range strings.Fields(text) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("%q is not a list of pids", text)
		}
		list = append(list, n)
	}
	return list
}

// listener is a Peer that records notifications and gives preset answers.
type listener struct {
	answer func(ctx context.Context, method string, params []byte) ([]byte, error)
	block  chan struct{} // Notify blocks on it unless nil

	mu   sync.Mutex
	got  []string
	asks []string
}

func (l *listener) Ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	l.mu.Lock()
	l.asks = append(l.asks, method+" "+string(params))
	l.mu.Unlock()
	if l.answer == nil {
		return nil, errors.New("nobody is there")
	}
	return l.answer(ctx, method, params)
}

func (l *listener) Notify(method string, params []byte) {
	if l.block != nil {
		<-l.block
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, method+" "+string(params))
}

func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.got...)
}

func (l *listener) has(part string) bool {
	return strings.Contains(fmt.Sprint(l.heard()), part)
}
