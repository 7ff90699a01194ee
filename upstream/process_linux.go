package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// launch starts the command under a reaper and waits for its report.
func (p *process) launch(c processConfig, e *ends) error {
	if len(c.reaper) == 0 {
		return fmt.Errorf("%w: Config.Reaper is not set", errNoStart)
	}
	ours, theirs, err := lifelines()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoStart, err)
	}
	argv := append(append([]string(nil), c.reaper...), "-grace="+c.grace.String(), "--")
	argv = append(argv, c.command...)
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env, p.cmd.Dir = c.env, c.dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = e.inR, e.outW, e.errW
	p.cmd.ExtraFiles = []*os.File{theirs}
	// A session of its own: terminal signals to Toolkeep do not reach it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = p.cmd.Start()
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return fmt.Errorf("%w: the reaper: %w", errNoStart, err)
	}
	e.closeChild() // otherwise the reaper's death would go unnoticed
	p.life = ours
	p.pid, err = hear(ours)
	go p.wait()
	if err != nil {
		p.killed.Do(p.kill)
		<-p.done
		return fmt.Errorf("%w: %w", errNoStart, err)
	}
	return nil
}

// lifelines returns the two ends of the socket to a reaper.
func lifelines() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "lifeline"), os.NewFile(uintptr(fds[1]), "lifeline"), nil
}

// hear reads the reaper's report: the command's pid, or why it did not start.
func hear(life *os.File) (int, error) {
	_ = life.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(io.LimitReader(life, 16<<10)).ReadString('\n')
	_ = life.SetReadDeadline(time.Time{})
	line = strings.TrimSuffix(line, "\n")
	if why, ok := strings.CutPrefix(line, "fail "); ok {
		return 0, errors.New(why)
	}
	number, ok := strings.CutPrefix(line, "pid ")
	pid, bad := strconv.Atoi(number)
	if err != nil || !ok || bad != nil {
		return 0, errors.New("the reaper did not answer; Config.Reaper must lead to upstream.RunReaper")
	}
	return pid, nil
}

// kill makes the reaper end the tree. A reaper that does not respond is killed, with
// all that can be found of its tree.
func (p *process) kill() {
	_ = p.life.Close()
	go func() {
		if p.within(p.grace + unkillable + 5*time.Second) {
			return
		}
		_ = p.cmd.Process.Kill()
	}()
}

// leftovers reports whether processes may be left: a reaper that exited leaves none.
func leftovers(s *os.ProcessState) bool { return !s.Exited() }

// sweep runs after a reaper was killed: the command died with it, the rest of its
// session did not.
func (p *process) sweep() {
	list, err := processes()
	if err != nil || p.pid <= 1 {
		return
	}
	for _, x := range list {
		if x.session == p.pid {
			_ = syscall.Kill(x.pid, syscall.SIGKILL)
		}
	}
}

// describeExit reads the reaper's exit status, which is the command's.
func describeExit(code int, err error) string {
	switch {
	case code == exitNoStart:
		return "it could not be started"
	case code > 128 && code < 128+65:
		return "it was killed by the signal " + syscall.Signal(code-128).String()
	case code >= 0:
		return "it exited with status " + strconv.Itoa(code)
	}
	return "its reaper ended: " + err.Error()
}
