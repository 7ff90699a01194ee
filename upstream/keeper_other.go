//go:build !linux

package upstream

import (
	"fmt"
	"os"
)

// Keep exists on Linux alone; elsewhere a server's command is started without a
// keeper.
func Keep([]string) int {
	fmt.Fprintln(os.Stderr, "toolkeep keeper: there is no keeper on this system")
	return 125
}

// residentBytes is not known here.
func residentBytes([]int) map[int]int64 { return nil }
