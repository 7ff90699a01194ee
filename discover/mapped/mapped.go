// Package mapped reads memory-mapped files safely. If a file is truncated or its disk fails,
// reading the affected pages would otherwise end the process.
package mapped

import (
	"errors"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// ErrGone reports that a part of a file can no longer be read.
var ErrGone = errors.New("it was cut or written over while it was in use, or its disk fails")

// Read calls read, which may access mapped bytes, but not from another goroutine. It returns
// ErrGone if they are missing; read then stopped at the access: its writes are incomplete, and
// locks taken without defer are still held. holds reports whether an address belongs to the
// mapping; other panics propagate.
func Read(holds func(addr uintptr) bool, read func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface {
			runtime.Error
			Addr() uintptr
		})
		if !ok || !holds(fault.Addr()) {
			panic(r)
		}
		err = ErrGone
	}()
	read()
	return nil
}

// Holds reports whether an address lies within b.
func Holds[T any](b []T, addr uintptr) bool {
	var one T
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return addr >= from && addr-from < uintptr(len(b))*unsafe.Sizeof(one)
}
