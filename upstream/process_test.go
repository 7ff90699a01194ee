//go:build linux

package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func startProgram(t *testing.T, program string, grace time.Duration) *process {
	t.Helper()
	p, err := startProcess(processConfig{
		reaper: []string{self(t), "__reaper"}, command: []string{self(t)}, dir: t.TempDir(), grace: grace,
		env: []string{"UPSTREAM_TEST_PROGRAM=" + program, "PATH=" + os.Getenv("PATH")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(p.stdin, p.stdout, p.stderr) })
	return p
}

func TestReaperPassesTheExitStatusOn(t *testing.T) {
	p := startProgram(t, "exit", time.Second)
	if !p.within(limit) {
		t.Fatal("the reaper does not end with its command")
	}
	if got := p.why(); got != "it exited with status 7" {
		t.Error(got)
	}
	p = startProgram(t, "sleep", time.Second)
	if got := p.why(); got != "it still runs" {
		t.Error(got)
	}
	if err := syscall.Kill(p.pid, syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	if !p.within(limit) { // stop would send other signals after its grace period
		t.Fatal("it survives SIGABRT")
	}
	// Go's handler turns SIGABRT into a trace and status 2.
	if got := p.why(); got != "it exited with status 2" && got != "it was killed by the signal aborted" {
		t.Error(got)
	}
}

func TestStopEndsWhatIgnoresEverything(t *testing.T) {
	p := startProgram(t, "stubborn and says so", 50*time.Millisecond)
	if line, err := bufio.NewReader(p.stdout).ReadString('\n'); line != "deaf\n" {
		t.Fatalf("%q, %v", line, err)
	}
	pid := p.pid
	p.stop(false)
	if alive(pid) {
		t.Error("the command lives")
	}
	if got := p.why(); got != "it was killed by the signal killed" {
		t.Error(got)
	}
	p.stop(false) // a second time does nothing
}

func TestStartNamesWhatCannotBeRun(t *testing.T) {
	for name, command := range map[string][]string{
		"no such file or directory": {"/no/such/program"},
		"not found in $PATH":        {"no-such-program-anywhere"},
		"permission denied":         {"/etc/passwd"},
	} {
		_, err := startProcess(processConfig{reaper: []string{self(t), "__reaper"}, command: command, dir: t.TempDir(), grace: time.Second, env: []string{"PATH=/usr/bin"}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", command, err)
		}
	}
	// An invalid Config.Reaper is reported too.
	for _, dir := range []string{filepath.Join(t.TempDir(), "gone"), self(t)} {
		_, err := startProcess(processConfig{reaper: []string{self(t), "__reaper"}, command: []string{self(t)}, dir: dir, grace: time.Second})
		if !errors.Is(err, errNoStart) || !strings.Contains(err.Error(), "folder") || !strings.Contains(err.Error(), dir) {
			t.Errorf("in %s: %v", dir, err)
		}
	}
	_, err := startProcess(processConfig{reaper: []string{"/bin/true"}, command: []string{"x"}, dir: t.TempDir(), grace: time.Second})
	if err == nil || !strings.Contains(err.Error(), "Config.Reaper") {
		t.Error(err)
	}
	_, err = startProcess(processConfig{command: []string{"x"}, grace: time.Second})
	if err == nil || !strings.Contains(err.Error(), "Config.Reaper") {
		t.Error(err)
	}
}

func TestReaperRefusesWhatIsNotFromToolkeep(t *testing.T) {
	for _, args := range [][]string{nil, {"--", "x"}, {"-grace=1s", "x"}, {"-grace=x", "--", "y"}, {"-grace=-1s", "--", "y"}} {
		cmd := exec.Command(self(t), append([]string{"__reaper"}, args...)...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != exitUsage {
			t.Errorf("%v: status %d, %s", args, cmd.ProcessState.ExitCode(), out)
		}
	}
}

func TestReaperIsSmall(t *testing.T) {
	p := startProgram(t, "sleep", time.Second)
	reaper := p.cmd.Process.Pid
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", reaper))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kb, _ := strconv.Atoi(f[1])
			t.Logf("RssAnon of the reaper: %d kB", kb)
			if kb > 40_000 { // it is 2 MB; the race detector adds 15
				t.Errorf("the reaper has %d kB of its own", kb)
			}
		}
	}
	eventually(t, "the tree below it counts", func() bool { return residentBytes([]int{reaper})[reaper] > 1<<20 })
	p.stop(true)
}

// TestKilledReaperLeavesNoCommand kills the reaper itself, which in practice only the
// kernel's OOM killer does.
func TestKilledReaperLeavesNoCommand(t *testing.T) {
	p := startProgram(t, "sleep", time.Second)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !p.within(limit) {
		t.Fatal("the end of the reaper is not seen")
	}
	eventually(t, "the command ends with its reaper", func() bool { return !alive(p.pid) })
	if got := p.why(); !strings.Contains(got, "its reaper ended") {
		t.Error(got)
	}
}

// TestTreeIsReaped: a server starts processes that outlive it, one in its own session,
// and is ended in every possible way.
func TestTreeIsReaped(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *Servers){
		"stop": func(t *testing.T, s *Servers) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = s.Stop(ctx)
		},
		"restart": func(t *testing.T, s *Servers) {
			if err := s.Restart(alice(), "s"); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func(t *testing.T, s *Servers) { s.Set(nil) },
		"crash": func(t *testing.T, s *Servers) {
			fails(t, s, toolCall(alice(), "die", ""), toolkeep.MCPUnavailable)
		},
		"killed": func(t *testing.T, s *Servers) {
			if err := syscall.Kill(status(t, s, alice()).PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, kind := range []string{"gentle", "stubborn"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				s := start(t, testConfig(t), stdioSpec(t, ""))
				tree := pids(t, call(t, s, toolCall(alice(), "fork", kind)))
				tree = append(tree, status(t, s, alice()).PID)
				for _, pid := range tree {
					if !alive(pid) {
						t.Fatalf("%d does not live", pid)
					}
				}
				if len(tree) != 3 {
					t.Fatalf("the tree is %v", tree)
				}
				end(t, s)
				eventually(t, "the whole tree is gone", func() bool {
					for _, pid := range tree {
						if alive(pid) {
							return false
						}
					}
					return true
				})
			})
		}
	}
}

// runToolkeep is the Toolkeep to be killed: it starts a server with a process tree,
// prints the pids and waits.
func runToolkeep() int {
	exe, _ := os.Executable()
	dir, _ := os.MkdirTemp("", "killed")
	s := New(Config{Reaper: []string{exe, "__reaper"}, Dir: dir, stopGrace: 100 * time.Millisecond})
	s.Set([]Spec{{Name: "s", Transport: Stdio, Command: []string{exe}, Env: map[string]string{"UPSTREAM_TEST_PROGRAM": "server", "MODE": os.Getenv("MODE")}}})
	a, err := s.Do(context.Background(), toolCall(alice(), "fork", "stubborn"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(dir)
	st := s.Status(alice())[0]
	list, _ := processes()
	for _, p := range below(os.Getpid(), list) {
		fmt.Print(p.pid, " ")
	}
	fmt.Println(textOf(a), st.PID)
	waitForever()
	return 0
}

// TestKilledToolkeepLeavesNoChild kills a Toolkeep with SIGKILL.
func TestKilledToolkeepLeavesNoChild(t *testing.T) {
	for _, mode := range []string{"", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			cmd := exec.Command(self(t))
			cmd.Env = append(os.Environ(), "UPSTREAM_TEST_PROGRAM=toolkeep", "MODE="+mode)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(out)
			dir, _ := r.ReadString('\n')
			line, err := r.ReadString('\n')
			if err != nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				t.Fatal(dir, line, err, stderr.String())
			}
			t.Cleanup(func() { _ = os.RemoveAll(strings.TrimSpace(dir)) })
			tree := pids(t, line)
			if len(tree) < 6 { // reaper, server, two grandchildren, and three of them once more
				t.Errorf("the tree is %v", tree)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, r)
			_ = cmd.Wait()
			eventually(t, "no child is left", func() bool {
				for _, pid := range tree {
					if alive(pid) {
						return false
					}
				}
				return true
			})
		})
	}
}
