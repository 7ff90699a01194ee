//go:build unix

package egress

import "syscall"

// maxDescriptors is the process's own limit; 0 if it is unknown.
func maxDescriptors() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return uint64(l.Cur)
}
