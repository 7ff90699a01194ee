package upstream

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	prSetDeathSignal    = 1
	prSetChildSubreaper = 36

	// lifeline is the descriptor of the reaper's socket to Toolkeep.
	lifeline = 3
	// unkillable is how long the reaper keeps trying to end a tree that survives
	// SIGKILL: a process blocked in the kernel, or one of another user.
	unkillable = 30 * time.Second

	exitUsage   = 125
	exitNoStart = 126
)

// RunReaper is the main function of the reaper, a small process between Toolkeep and
// one server's command. It runs the command and ends its whole process tree. The
// program calls it with the arguments after Config.Reaper, "-grace=DURATION -- COMMAND
// ARGS…", before it sets up anything else, and exits with the result: the command's
// exit status, 128 plus the signal that killed it, or 126 if it could not be started.
//
// The reaper is the subreaper of the tree: an orphaned descendant becomes its child,
// even in its own session, and cannot escape. The tree is ended when the command exits,
// when the other end of file descriptor 3 closes (Toolkeep closed it or died), on
// SIGTERM, and when Toolkeep is no longer the parent. Every process gets SIGTERM and,
// after the grace period, SIGKILL until none is left. The command itself dies with the
// reaper (parent-death signal), even if the reaper is killed.
func RunReaper(args []string) int {
	// The command's parent-death signal is tied to the thread that starts it.
	runtime.LockOSThread()
	runtime.GOMAXPROCS(1)
	// Free what the program's packages allocated before main.
	debug.SetGCPercent(10)
	debug.FreeOSMemory()
	grace, command, err := reaperArgs(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "toolkeep reaper:", err)
		return exitUsage
	}
	r := &reaper{grace: grace, parent: os.Getppid(), signals: make(chan os.Signal, 16), life: make(chan struct{})}
	return r.run(command)
}

func reaperArgs(args []string) (time.Duration, []string, error) {
	if len(args) < 3 || args[1] != "--" {
		return 0, nil, errors.New("this command is Toolkeep's own: -grace=DURATION -- COMMAND ARGS…")
	}
	text, ok := strings.CutPrefix(args[0], "-grace=")
	grace, err := time.ParseDuration(text)
	if !ok || err != nil || grace < 0 {
		return 0, nil, errors.New("the first argument must be -grace=DURATION")
	}
	return grace, args[2:], nil
}

type reaper struct {
	grace   time.Duration
	parent  int
	signals chan os.Signal
	life    chan struct{} // closed when Toolkeep's end closes
	pid     int           // of the command
	status  int           // its exit status, once ended
	ended   bool
}

func (r *reaper) run(command []string) int {
	if err := r.settle(); err != nil {
		return r.refuse(err)
	}
	if err := r.start(command); err != nil {
		return r.refuse(err)
	}
	r.report("pid " + strconv.Itoa(r.pid))
	for !r.stopWanted() {
	}
	r.endTree()
	return r.status
}

// settle makes the process a subreaper and connects it to Toolkeep.
func (r *reaper) settle() error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("the reaper cannot become a subreaper: %w", errno)
	}
	// Caught, not ignored: an ignored signal would stay ignored in the command.
	signal.Notify(r.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGCHLD)
	// The signal comes when the Toolkeep thread that started the reaper ends, which
	// need not be the end of Toolkeep; stopWanted checks.
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetDeathSignal, uintptr(syscall.SIGUSR1), 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("the reaper cannot learn of Toolkeep's end: %w", errno)
	}
	syscall.CloseOnExec(lifeline)
	if err := syscall.SetNonblock(lifeline, true); err != nil {
		return errors.New("file descriptor 3 is not Toolkeep's end")
	}
	line := os.NewFile(lifeline, "lifeline")
	go func() {
		var b [16]byte
		for {
			if _, err := line.Read(b[:]); err != nil {
				close(r.life)
				return
			}
		}
	}()
	return nil
}

// start runs the command with the reaper's stdin, stdout and stderr, and closes the
// reaper's copies of the first two, so that they close with the tree.
func (r *reaper) start(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		var e *exec.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return fmt.Errorf("the program %q cannot be run: %w", command[0], err)
	}
	r.pid, err = syscall.ForkExec(path, command, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return fmt.Errorf("the program %q cannot be run: %w", command[0], err)
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		_ = syscall.Close(0)
		_ = syscall.Close(1)
		return nil
	}
	_ = syscall.Dup3(null, 0, 0)
	_ = syscall.Dup3(null, 1, 0)
	_ = syscall.Close(null)
	return nil
}

// report writes one line to Toolkeep. An error means that Toolkeep is gone.
func (r *reaper) report(line string) {
	_, _ = syscall.Write(lifeline, []byte(line+"\n"))
}

func (r *reaper) refuse(err error) int {
	r.report("fail " + strings.ReplaceAll(err.Error(), "\n", " "))
	return exitNoStart
}

// stopWanted waits for the next event and reports whether the tree must end now.
func (r *reaper) stopWanted() bool {
	select {
	case <-r.life:
		return true
	case s := <-r.signals:
		switch s {
		case syscall.SIGTERM:
			return true
		case syscall.SIGUSR1:
			return os.Getppid() != r.parent
		case syscall.SIGCHLD:
			r.reap()
			return r.ended
		}
		return false // Toolkeep handles terminal signals
	}
}

// reap collects every child that has ended, and reports whether none is left. Then no
// descendant is left either: each is a child or below one.
func (r *reaper) reap() (none bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return true
		case pid == 0:
			return false
		}
		if pid == r.pid && !r.ended {
			r.ended = true
			if r.status = ws.ExitStatus(); ws.Signaled() {
				r.status = 128 + int(ws.Signal())
			}
		}
	}
}

// endTree ends every descendant.
func (r *reaper) endTree() {
	r.signal(syscall.SIGTERM)
	r.signal(syscall.SIGCONT) // a stopped process does not handle SIGTERM
	if r.gone(r.grace) {
		return
	}
	for began := time.Now(); time.Since(began) < unkillable; {
		// A stopped process starts no children while the list is read.
		for seen := -1; ; {
			n := r.signal(syscall.SIGSTOP)
			if n <= seen {
				break
			}
			seen = n
		}
		r.signal(syscall.SIGKILL)
		if r.gone(50 * time.Millisecond) {
			return
		}
	}
	fmt.Fprintln(os.Stderr, "toolkeep reaper: some processes cannot be ended")
}

// gone reaps for at most the given time, and reports whether no child is left.
func (r *reaper) gone(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	for {
		if r.reap() {
			return true
		}
		select {
		case <-t.C:
			return r.reap()
		case <-r.signals:
		}
	}
}

// signal sends s to every descendant and returns their number.
func (r *reaper) signal(s syscall.Signal) int {
	list, err := processes()
	if err != nil { // without /proc only the command's group is known
		_ = syscall.Kill(-r.pid, s)
		return 0
	}
	tree := below(os.Getpid(), list)
	for _, p := range tree {
		_ = syscall.Kill(p.pid, s)
	}
	return len(tree)
}
