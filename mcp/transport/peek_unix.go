//go:build unix

package transport

import "syscall"

const canPeek = true

// silent reports whether a socket has received nothing, not even its end.
func silent(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
}
