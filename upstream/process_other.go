//go:build !linux

package upstream

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// launch starts the command in its own process group. This is weaker than Linux's
// reaper: a process that leaves the group is not found, and if Toolkeep is killed,
// nothing but the closed stdin ends the tree.
func (p *process) launch(c processConfig, e *ends) error {
	p.cmd = exec.Command(c.command[0], c.command[1:]...)
	p.cmd.Env, p.cmd.Dir = c.env, c.dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = e.inR, e.outW, e.errW
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errNoStart, err)
	}
	p.pid = p.cmd.Process.Pid
	go p.wait()
	return nil
}

// kill kills the process group.
func (p *process) kill() {
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	go func() {
		if !p.within(p.grace) {
			_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		}
	}()
}

// leftovers reports whether processes may be left.
func leftovers(*os.ProcessState) bool { return true }

// sweep kills the rest of the group.
func (p *process) sweep() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) }

func describeExit(code int, err error) string {
	if code >= 0 {
		return "it exited with status " + strconv.Itoa(code)
	}
	return "it ended: " + err.Error()
}
