//go:build !linux

package upstream

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// launch starts the command in a process group of its own. This is weaker than
// Linux's reaper: a process that leaves the group is not found, and nothing ends
// the tree if Toolkeep is killed but stdin's end.
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

// kill ends the process group.
func (p *process) kill() {
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	go func() {
		if !p.within(p.grace) {
			_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		}
	}()
}

// leftovers tells whether there may be any.
func leftovers(*os.ProcessState) bool { return true }

// sweep ends what is left of the group.
func (p *process) sweep() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) }

func describeExit(code int, err error) string {
	if code >= 0 {
		return "it exited with status " + strconv.Itoa(code)
	}
	return "it ended: " + err.Error()
}
