//go:build unix

package discover

import (
	"os"
	"syscall"
)

const mapsFiles = true

// mapPart shows a part of a file, and what is written to it later.
func mapPart(f *os.File, at int64, n int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), at, n, syscall.PROT_READ, syscall.MAP_SHARED)
}

func unmap(b []byte) error { return syscall.Munmap(b) }
