//go:build unix

package discover

import (
	"os"
	"syscall"
)

const mapsFiles = true

// mapPart maps a part of a file, shared, so that later writes are visible.
func mapPart(f *os.File, at int64, n int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), at, n, syscall.PROT_READ, syscall.MAP_SHARED)
}

func unmap(b []byte) error { return syscall.Munmap(b) }
