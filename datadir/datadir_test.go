package datadir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep/datadir"
)

// TestLockIsFreeWhenReleased: a process that starts others meanwhile, each of which has
// every open file for a moment, gets a released lock again at once.
func TestLockIsFreeWhenReleased(t *testing.T) {
	dir := t.TempDir()
	over := make(chan struct{})
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					if err := exec.Command("/bin/true").Run(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	defer starting.Wait()
	defer close(over)
	for range 300 {
		release, err := datadir.Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
}

// TestLockWaitsForALook: Holder shares the lock for a moment, which refuses no start.
func TestLockWaitsForALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		release, err := datadir.Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		release()
		look, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(look.Fd()), syscall.LOCK_SH); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(15*time.Millisecond, func() { look.Close() })
		if release, err = datadir.Lock(dir); err != nil {
			t.Fatal(err)
		}
		defer release()
		if _, err := datadir.Lock(dir); err == nil {
			t.Error("a lock that is held was given")
		}
	})
}
