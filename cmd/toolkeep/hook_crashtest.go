//go:build crashtest

package main

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// crashHook kills the process at the step that TOOLKEEP_CRASH_AT names, as
// step or step:N for its N-th arrival there. The names are those of
// invoke.Config.Hook and node.Options.Hook. Only the crash tests build it.
func crashHook() func(step, id string) {
	at, nth, _ := strings.Cut(os.Getenv("TOOLKEEP_CRASH_AT"), ":")
	if at == "" {
		return nil
	}
	left := new(atomic.Int64)
	left.Store(1)
	if n, err := strconv.ParseInt(nth, 10, 64); err == nil {
		left.Store(n)
	}
	return func(step, _ string) {
		// The call is queued before these two are reached: a worker could have sent it by the time the process dies.
		if step == "lease" && (at == "answered" || at == "released") {
			select {}
		}
		if step == at && left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	}
}

// ignoredNames lists environment names that look like settings but are not.
func ignoredNames() []string { return []string{"TOOLKEEP_CRASH_AT"} }
