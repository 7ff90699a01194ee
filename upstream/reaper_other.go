//go:build !linux

package upstream

import (
	"fmt"
	"os"
)

// RunReaper exists only on Linux. Elsewhere a server's command is started without a
// reaper.
func RunReaper([]string) int {
	fmt.Fprintln(os.Stderr, "toolkeep reaper: there is no reaper on this system")
	return 125
}

// residentBytes is not known here.
func residentBytes([]int) map[int]int64 { return nil }
