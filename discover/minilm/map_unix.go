//go:build unix

package minilm

import (
	"errors"
	"os"
	"syscall"
)

// mapFile gives the bytes of a file, which are read when they are looked at.
func mapFile(path string) ([]byte, func() error, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > 1<<30 {
		return nil, nil, errors.New(path + " is not the file of the weights")
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return readWhole(path)
	}
	return b, func() error { return syscall.Munmap(b) }, nil
}
