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
	"time"
)

// Every is how often Get looks whether the files changed.
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
	Log   *slog.Logger     // default discards
}

// Files holds the value of files. Open makes one.
type Files[T any] struct {
	c Config[T]

	mu     sync.Mutex
	value  T
	stamps []stamp // of the files that value was read from
	looked time.Time
	failed int    // looks in a row at which the files could not be taken
	told   string // why, as the log was told
	err    error
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
	f := &Files[T]{c: c}
	return f, f.load()
}

func (f *Files[T]) load() error {
	f.stamps, f.looked = stampsOf(f.c.Paths), f.c.Now()
	v, err := f.c.Read()
	if err == nil {
		f.value = v
	}
	return err
}

// Get returns the value. It looks at the files first, at most every Every.
func (f *Files[T]) Get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.c.Now(); now.Sub(f.looked) >= Every {
		f.looked = now
		if !slices.Equal(f.stamps, stampsOf(f.c.Paths)) {
			err := f.load()
			if err != nil {
				f.stamps = nil // half written, or not valid yet; look again
			}
			f.tell(err)
		}
	}
	return f.value
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
		about = f.c.About(f.value)
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
