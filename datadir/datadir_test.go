package datadir_test

import (
	"os/exec"
	"sync"
	"testing"

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
