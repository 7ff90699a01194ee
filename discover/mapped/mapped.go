// Package mapped reads files that are mapped into memory. One that is cut, or whose
// disk fails, has pages that cannot be read any more, and reading them would end the
// process.
package mapped

import (
	"errors"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// ErrGone says that a part of a file cannot be read any more.
var ErrGone = errors.New("it was cut or written over while it was in use, or its disk fails")

// Read calls read, which may look at mapped bytes, but not in another goroutine. It is
// ErrGone if they are not there, and read ended where it looked at them: what it was
// writing is half done, and locks that it took without defer are held. holds tells whether
// an address is of the mapping; other panics go on.
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

// Holds tells whether an address is one of what b holds.
func Holds[T any](b []T, addr uintptr) bool {
	var one T
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return addr >= from && addr-from < uintptr(len(b))*unsafe.Sizeof(one)
}
