// Package servertest runs real servers for tests, each a process that ends with the test's. The server packages
// (pgtest, mariatest, redistest) set up and query theirs.
package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Missing skips the test for a reason, such as a server that is not installed. With TOOLKEEP_TEST_ALL=1, which make
// test sets, the test fails instead.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("TOOLKEEP_TEST_ALL") == "1" {
		t.Fatal(why)
	}
	t.Skip("LEFT OUT: ", why)
}

// Needs marks a test that starts a real server. It is skipped under -short, which make quick sets.
func Needs(t testing.TB, server string) {
	t.Helper()
	if testing.Short() {
		t.Skip("LEFT OUT by -short: it starts ", server)
	}
}

// Build builds a command of this module into the file program; pkg is a path relative to the test's folder. It
// opens every source file of the command, so that go test reruns the test after a change instead of using its
// cache.
func Build(program, pkg string, args ...string) error {
	const sources = `{{if and .Module .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}`
	list := slices.Concat([]string{"list", "-deps"}, args, []string{"-f", sources, pkg})
	files, err := exec.Command("go", list...).Output()
	if err != nil {
		return fmt.Errorf("the sources of %s cannot be listed: %w", pkg, err)
	}
	for _, name := range strings.Fields(string(files)) {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	build := slices.Concat([]string{"build"}, args, []string{"-o", program, pkg})
	if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot be built: %w\n%s", pkg, err, out)
	}
	return nil
}

// FreePort returns a free loopback port for a server that may be stopped and started on it again. It lies below the
// ports that Linux gives by itself to connections and to listeners on port 0, which would take it meanwhile.
func FreePort() (int, error) {
	const first, end = 10_000, 32_768
	for range 100 {
		port := first + rand.IntN(end-first)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no port from %d to %d is free", first, end-1)
}

// Process is a started server.
type Process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	exit  error // once ended is closed
}

// Start starts a server in its own process group and appends its output to the file log. However this process ends,
// the server is killed with it.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		p.exit = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Answer repeats ask until it succeeds, for at most ready; it fails early if the server ends.
func (p *Process) Answer(ready time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			if p.exit == nil {
				return errors.New("the server ended")
			}
			return fmt.Errorf("the server ended: %w", p.exit)
		case <-ctx.Done():
			return fmt.Errorf("the server did not answer within %s: %w", ready, err)
		case <-tick.C:
		}
	}
}

// Ended reports whether the server has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the server.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Freeze suspends the process as [Freeze] does.
func (p *Process) Freeze() error { return Freeze(p.cmd.Process) }

// Freeze suspends a process by SIGSTOP and waits until all of its threads stand still, at most
// 10 s: the signal only asks, and on a busy machine a thread may go on for many milliseconds.
// It reads /proc, so it needs Linux. SIGCONT ends it.
func Freeze(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil {
			return err
		}
		running := len(stats) == 0
		for _, stat := range stats {
			raw, err := os.ReadFile(stat)
			// The state follows the name, which may itself hold parentheses: proc(5).
			if end := bytes.LastIndexByte(raw, ')'); err != nil || !bytes.HasPrefix(raw[end+1:], []byte(" T")) {
				running = true
				break
			}
		}
		switch {
		case !running:
			return nil
		case time.Since(began) > 10*time.Second:
			return fmt.Errorf("process %d does not stand still 10 s after SIGSTOP", p.Pid)
		}
	}
}

// End sends a signal and waits until the server ends. After limit the server is killed, which is an error. An ended
// server is left alone.
func (p *Process) End(sig syscall.Signal, limit time.Duration) error {
	if p.Ended() {
		return nil
	}
	if err := p.Signal(sig); err != nil {
		return err
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case <-p.ended:
		return nil
	case <-over.C:
	}
	err := p.cmd.Process.Kill()
	<-p.ended
	return errors.Join(fmt.Errorf("it did not end within %s of %s", limit, sig), err)
}

// Tail returns the end of the server's output, 8 KiB at most.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-8<<10):]))
}
