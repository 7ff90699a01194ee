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

	// lifeline is the keeper's end of the socket to Toolkeep.
	lifeline = 3
	// unkillable is how long the keeper goes on with a tree that SIGKILL does not
	// end: a process that waits in the kernel, or one of another user.
	unkillable = 30 * time.Second

	exitUsage   = 125
	exitNoStart = 126
)

// Keep is the keeper: a small process between Toolkeep and one server's command,
// which it runs and whose whole tree it ends. The program calls it with what stands
// behind Config.Keeper, which is "-grace=DURATION -- COMMAND ARGS…", before it
// builds any state of its own, and exits with the result: the command's exit
// status, or 128 and the number of the signal that killed it, 126 where it could
// not be started.
//
// The keeper is the subreaper of the tree, so that a grandchild that lost its
// parent, also in a session of its own, becomes its child and cannot hide. The tree
// is ended when the command has ended, when the other end of file descriptor 3
// closes (Toolkeep closed it, or died in whatever way), on SIGTERM, and when
// Toolkeep is no longer the parent: first SIGTERM to every process, then, after
// the grace period, SIGKILL until none is left. The command itself dies with the
// keeper (parent-death signal) even if the keeper is killed.
func Keep(args []string) int {
	// The parent-death signal of the command follows the thread that starts it.
	runtime.LockOSThread()
	runtime.GOMAXPROCS(1)
	// What the packages of the whole program set up before main, we do not need.
	debug.SetGCPercent(10)
	debug.FreeOSMemory()
	grace, command, err := keeperArgs(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "toolkeep keeper:", err)
		return exitUsage
	}
	k := &keeper{grace: grace, parent: os.Getppid(), signals: make(chan os.Signal, 16), life: make(chan struct{})}
	return k.run(command)
}

func keeperArgs(args []string) (time.Duration, []string, error) {
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

type keeper struct {
	grace   time.Duration
	parent  int
	signals chan os.Signal
	life    chan struct{} // closed when Toolkeep's end is
	pid     int           // of the command
	status  int           // its exit status, once ended
	ended   bool
}

func (k *keeper) run(command []string) int {
	if err := k.settle(); err != nil {
		return k.refuse(err)
	}
	if err := k.start(command); err != nil {
		return k.refuse(err)
	}
	k.report("pid " + strconv.Itoa(k.pid))
	for !k.stopWanted() {
	}
	k.endTree()
	return k.status
}

// settle makes the keeper what it is, before there is a command.
func (k *keeper) settle() error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("the keeper cannot become a subreaper: %w", errno)
	}
	// Caught, not ignored: an ignored signal would stay ignored in the command.
	signal.Notify(k.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGCHLD)
	// The signal comes when the thread of Toolkeep that started us ends, which need
	// not be the end of Toolkeep: stopWanted looks.
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetDeathSignal, uintptr(syscall.SIGUSR1), 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("the keeper cannot learn of Toolkeep's end: %w", errno)
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
				close(k.life)
				return
			}
		}
	}()
	return nil
}

// start runs the command with our stdin, stdout and stderr, and lets go of the
// first two: their ends must mean the end of the tree.
func (k *keeper) start(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		var e *exec.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return fmt.Errorf("the program %q cannot be run: %w", command[0], err)
	}
	k.pid, err = syscall.ForkExec(path, command, &syscall.ProcAttr{
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

// report tells Toolkeep one line. A failure means that it is gone.
func (k *keeper) report(line string) {
	_, _ = syscall.Write(lifeline, []byte(line+"\n"))
}

func (k *keeper) refuse(err error) int {
	k.report("fail " + strings.ReplaceAll(err.Error(), "\n", " "))
	return exitNoStart
}

// stopWanted waits for the next thing to happen and tells whether the tree must
// end now.
func (k *keeper) stopWanted() bool {
	select {
	case <-k.life:
		return true
	case s := <-k.signals:
		switch s {
		case syscall.SIGTERM:
			return true
		case syscall.SIGUSR1:
			return os.Getppid() != k.parent
		case syscall.SIGCHLD:
			k.reap()
			return k.ended
		}
		return false // what a terminal sends is for Toolkeep to decide
	}
}

// reap takes the status of every child that has ended. It tells whether there is
// no child left, and so no descendant: each of them has a living ancestor that is
// our child, or is our child itself.
func (k *keeper) reap() (none bool) {
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
		if pid == k.pid && !k.ended {
			k.ended = true
			if k.status = ws.ExitStatus(); ws.Signaled() {
				k.status = 128 + int(ws.Signal())
			}
		}
	}
}

// endTree ends every descendant.
func (k *keeper) endTree() {
	k.signal(syscall.SIGTERM)
	k.signal(syscall.SIGCONT) // a stopped process gets no SIGTERM
	if k.gone(k.grace) {
		return
	}
	for began := time.Now(); time.Since(began) < unkillable; {
		// Stopped processes have no more children while the list is being read.
		for seen := -1; ; {
			n := k.signal(syscall.SIGSTOP)
			if n <= seen {
				break
			}
			seen = n
		}
		k.signal(syscall.SIGKILL)
		if k.gone(50 * time.Millisecond) {
			return
		}
	}
	fmt.Fprintln(os.Stderr, "toolkeep keeper: some processes cannot be ended")
}

// gone reaps until nothing is left or the time is over.
func (k *keeper) gone(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	for {
		if k.reap() {
			return true
		}
		select {
		case <-t.C:
			return k.reap()
		case <-k.signals:
		}
	}
}

// signal reaches every descendant and tells how many there are.
func (k *keeper) signal(s syscall.Signal) int {
	list, err := processes()
	if err != nil { // without /proc only the command's group can be found
		_ = syscall.Kill(-k.pid, s)
		return 0
	}
	tree := below(os.Getpid(), list)
	for _, p := range tree {
		_ = syscall.Kill(p.pid, s)
	}
	return len(tree)
}
