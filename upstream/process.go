package upstream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// processConfig says what to run.
type processConfig struct {
	reaper  []string // argv prefix; unused where there is no reaper
	command []string
	env     []string
	dir     string
	grace   time.Duration // for each of the three steps of stop
}

// process is one running command with its tree.
type process struct {
	grace  time.Duration
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	life   io.Closer // whose end ends the tree; nil without a reaper
	pid    int       // of the command

	done   chan struct{} // closed when the tree is gone and waited for
	ended  error         // how it ended, once done is closed; nil for status 0
	stops  sync.Once
	killed sync.Once
}

// errNoStart is the cause of a command that could not be started at all.
var errNoStart = errors.New("the command could not be started")

// startProcess starts the command and returns when it runs.
func startProcess(c processConfig) (*process, error) {
	// Or the system would say that the command is not there.
	if info, err := os.Stat(c.dir); c.dir != "" && err != nil {
		return nil, fmt.Errorf("%w: its folder: %w", errNoStart, err)
	} else if c.dir != "" && !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is no folder", errNoStart, c.dir)
	}
	ends, err := pipes()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoStart, err)
	}
	p := &process{grace: c.grace, stdin: ends.inW, stdout: ends.outR, stderr: ends.errR, done: make(chan struct{})}
	err = p.launch(c, ends)
	ends.closeChild()
	if err != nil {
		ends.closeOurs()
		return nil, err
	}
	return p, nil
}

// wait waits for the command or its reaper; it runs once, on its own goroutine.
func (p *process) wait() {
	p.ended = p.cmd.Wait()
	if leftovers(p.cmd.ProcessState) {
		p.sweep()
	}
	if p.life != nil {
		_ = p.life.Close()
	}
	close(p.done)
}

// within tells whether the tree is gone within d.
func (p *process) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// stop ends the tree: stdin's end, then SIGTERM, then SIGKILL, each after the
// grace period, and returns when it is gone. With now it begins with SIGTERM.
func (p *process) stop(now bool) {
	p.stops.Do(func() { _ = p.stdin.Close() })
	if !now && p.within(p.grace) {
		return
	}
	p.killed.Do(p.kill)
	<-p.done
}

// why says in a few words how the command ended.
func (p *process) why() string {
	select {
	case <-p.done:
	default:
		return "it still runs"
	}
	var exit *exec.ExitError
	switch {
	case p.ended == nil:
		return "it exited with status 0"
	case errors.As(p.ended, &exit):
		return describeExit(exit.ExitCode(), p.ended)
	}
	return "it cannot be waited for: " + p.ended.Error()
}

// ends are the pipes to a child, each with two ends.
type ends struct{ inR, inW, outR, outW, errR, errW *os.File }

func pipes() (*ends, error) {
	e := &ends{}
	for _, pair := range [][2]**os.File{{&e.inR, &e.inW}, {&e.outR, &e.outW}, {&e.errR, &e.errW}} {
		r, w, err := os.Pipe()
		if err != nil {
			e.closeChild()
			e.closeOurs()
			return nil, err
		}
		*pair[0], *pair[1] = r, w
	}
	return e, nil
}

func (e *ends) closeChild() { closeAll(e.inR, e.outW, e.errW) }
func (e *ends) closeOurs()  { closeAll(e.inW, e.outR, e.errR) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
