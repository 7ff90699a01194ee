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

// processConfig describes the command to run.
type processConfig struct {
	reaper  []string // argv prefix; unused on systems without a reaper
	command []string
	env     []string
	dir     string
	grace   time.Duration // per step of stop
}

// process is one running command with its process tree.
type process struct {
	grace  time.Duration
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	life   io.Closer // closing it ends the tree; nil without a reaper
	pid    int       // of the command

	done   chan struct{} // closed when the tree has ended and been reaped
	ended  error         // exit error, valid once done is closed; nil for status 0
	stops  sync.Once
	killed sync.Once
}

// errNoStart is the cause if the command could not be started.
var errNoStart = errors.New("the command could not be started")

// startProcess starts the command and returns once it runs.
func startProcess(c processConfig) (*process, error) {
	// Otherwise the error would say that the command is missing.
	if info, err := os.Stat(c.dir); c.dir != "" && err != nil {
		return nil, fmt.Errorf("%w: its folder: %w", errNoStart, err)
	} else if c.dir != "" && !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is not a folder", errNoStart, c.dir)
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

// within reports whether the tree ends within d.
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

// stop ends the tree and waits for it: it closes stdin, then sends SIGTERM, then
// SIGKILL, with the grace period between. With now it starts with SIGTERM.
func (p *process) stop(now bool) {
	p.stops.Do(func() { _ = p.stdin.Close() })
	if !now && p.within(p.grace) {
		return
	}
	p.killed.Do(p.kill)
	<-p.done
}

// why describes how the command ended.
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
