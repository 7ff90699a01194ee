//go:build unix

package mapped_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"github.com/toolkeep/toolkeep/discover/mapped"
)

func mapping(t *testing.T) (*os.File, []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(1 << 17); err != nil {
		t.Fatal(err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, 1<<17, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	return f, b
}

func TestRead(t *testing.T) {
	f, b := mapping(t)
	holds := func(addr uintptr) bool { return mapped.Holds(b, addr) }
	sum := 0
	look := func() {
		for _, x := range b {
			sum += int(x) + 1
		}
	}
	if err := mapped.Read(holds, look); err != nil || sum != len(b) {
		t.Fatalf("%v, %d bytes", err, sum)
	}
	if err := f.Truncate(10); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := mapped.Read(holds, look); !errors.Is(err, mapped.ErrGone) {
			t.Fatalf("%v", err)
		}
	}
	if was := debug.SetPanicOnFault(false); was {
		t.Error("faults stay panics")
	}
	// The file is complete again.
	if err := f.Truncate(1 << 17); err != nil {
		t.Fatal(err)
	}
	if err := mapped.Read(holds, look); err != nil {
		t.Error(err)
	}
}

// TestOtherPanics: other panics propagate, including faults in other memory.
func TestOtherPanics(t *testing.T) {
	f, b := mapping(t)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	var nothing *int
	sum := byte(0)
	for name, read := range map[string]func(){
		"a fault elsewhere": func() { sum += b[0] },
		"no pointer":        func() { *nothing = 1 },
		"a word":            func() { panic("a word") },
	} {
		panicked := func() (r any) {
			defer func() { r = recover() }()
			_ = mapped.Read(func(addr uintptr) bool { return mapped.Holds(b[:0], addr) }, read)
			return nil
		}()
		if panicked == nil {
			t.Errorf("%s was swallowed", name)
		}
		if was := debug.SetPanicOnFault(false); was {
			t.Errorf("%s: faults stay panics", name)
		}
	}
	if sum != 0 {
		t.Error("what is not there was read")
	}
}

func TestHolds(t *testing.T) {
	_, b := mapping(t)
	inside := b[16:32]
	for i, want := range map[int]bool{15: false, 16: true, 31: true, 32: false} {
		if got := mapped.Holds(inside, uintptr(unsafe.Pointer(&b[i]))); got != want {
			t.Errorf("byte %d: %v", i, got)
		}
	}
	if mapped.Holds[float32](nil, 0) {
		t.Error("nothing holds something")
	}
}
