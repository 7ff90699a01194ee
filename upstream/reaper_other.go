//go:build !linux

package upstream

import (
	"fmt"
	"os"
)

// RunReaper exists only on Linux. Other systems start a server's command without a
// reaper.
func RunReaper([]string) int {
	fmt.Fprintln(os.Stderr, "toolkeep reaper: there is no reaper on this system")
	return 125
}

// residentBytes is unknown here.
func residentBytes([]int) map[int]int64 { return nil }
