// Package reload keeps what files hold, and reads them again when they change.
package reload

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Every is how often Get looks whether the files changed, unless Config says otherwise.
const Every = 10 * time.Second

// Config says what is read. What, Paths and Read are required.
type Config[T any] struct {
	What  string   // in the log and in health, such as "the TLS certificate"
	Paths []string // read together
	// Read reads the files. An error leaves the last value in place, because a renewal writes one
	// file after the other, and a mistake must not end what works.
	Read func() (T, error)
	// About is what the log adds of a value that was taken, in pairs; nil adds nothing.
	About func(T) []any
	Now   func() time.Time // default time.Now
	Every time.Duration    // default Every
	Log   *slog.Logger     // default discards
}

// Files holds the value of files. Open makes one.
type Files[T any] struct {
	c    Config[T]
	last atomic.Pointer[look[T]]

	mu     sync.Mutex // of who looks
	stamps []stamp    // of the files that the last value was read from
	failed int        // looks in a row at which the files could not be taken
	told   string     // why, as the log was told
	err    error
}

// look is the value, and when the files were looked at last.
type look[T any] struct {
	value T
	at    time.Time
}

type stamp struct {
	changed time.Time
	size    int64
}

func stampsOf(paths []string) []stamp {
	all := make([]stamp, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil {
			all[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return all
}

// Open reads the files for the first time. Its error is Read's.
func Open[T any](c Config[T]) (*Files[T], error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Every == 0 {
		c.Every = Every
	}
	f := &Files[T]{c: c}
	f.last.Store(&look[T]{})
	return f, f.load()
}

func (f *Files[T]) load() error {
	now := f.c.Now()
	f.stamps = stampsOf(f.c.Paths)
	v, err := f.c.Read()
	if err != nil {
		v = f.last.Load().value
	}
	f.last.Store(&look[T]{v, now})
	return err
}

// Get returns the value. The first caller after Config.Every looks at the files before; others get the last
// value meanwhile, and wait only where no caller has looked for twice as long.
func (f *Files[T]) Get() T {
	last, now := f.last.Load(), f.c.Now()
	age := now.Sub(last.at)
	if age < f.c.Every {
		return last.value
	}
	if !f.mu.TryLock() {
		if age < 2*f.c.Every {
			return last.value
		}
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	if last = f.last.Load(); now.Sub(last.at) < f.c.Every {
		return last.value
	}
	if slices.Equal(f.stamps, stampsOf(f.c.Paths)) {
		f.last.Store(&look[T]{last.value, now})
		return last.value
	}
	err := f.load()
	if err != nil {
		f.stamps = nil // half written, or not valid yet; look again
	}
	f.tell(err)
	return f.last.Load().value
}

// Health is why changed files cannot be taken, while the last value goes on; nil while there are
// none. It looks at the files as Get does. A nil Files is well.
func (f *Files[T]) Health(context.Context) error {
	if f == nil {
		return nil
	}
	f.Get()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed > 1 {
		return fmt.Errorf("%s was changed and cannot be taken, the last one goes on: %w", f.c.What, f.err)
	}
	return nil
}

// tell logs what became of changed files. One failure is not told: a renewal may have written some
// of the files.
func (f *Files[T]) tell(err error) {
	var about []any
	if f.c.About != nil {
		about = f.c.About(f.last.Load().value)
	}
	files := strings.Join(f.c.Paths, ", ")
	if f.err = err; err == nil {
		f.failed, f.told = 0, ""
		f.c.Log.Info(f.c.What+" has changed", append([]any{"files", files}, about...)...)
		return
	}
	if f.failed++; f.failed > 1 && f.told != err.Error() {
		f.told = err.Error()
		f.c.Log.Warn(f.c.What+" was changed and cannot be taken, the last one goes on",
			append([]any{"files", files, "error", err}, about...)...)
	}
}
