package reload

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestFiles: a changed file is read again; one that cannot be taken leaves the last value, is told
// once and shows in health, and one failure alone, as of a renewal under way, is not told.
func TestFiles(t *testing.T) {
	now, path := time.Now(), filepath.Join(t.TempDir(), "value")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	write("one")
	f, err := Open(Config[string]{What: "the value", Paths: []string{path}, Now: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Read: func() (string, error) {
			raw, err := os.ReadFile(path)
			if err == nil && strings.HasPrefix(string(raw), "broken") {
				err = errors.New("it is broken")
			}
			return string(raw), err
		}})
	if err != nil {
		t.Fatal(err)
	}
	later := func() string { now = now.Add(Every); return f.Get() }
	write("number two")
	if got := f.Get(); got != "one" {
		t.Errorf("%q before it looked again", got)
	}
	if got := later(); got != "number two" {
		t.Errorf("%q after it looked again", got)
	}
	for name, spoil := range map[string]func(){"broken": func() { write("broken it is") }, "gone": func() { _ = os.Remove(path) }} {
		spoil()
		log.Reset()
		if got := later(); got != "number two" || log.Len() > 0 || f.Health(t.Context()) != nil {
			t.Errorf("%s, once: %q, the log %q", name, got, log.String())
		}
		later()
		if got := later(); got != "number two" || strings.Count(log.String(), "level=WARN") != 1 || f.Health(t.Context()) == nil {
			t.Errorf("%s: %q, the log %q", name, got, log.String())
		}
		write("number two")
		if later(); f.Health(t.Context()) != nil {
			t.Errorf("%s, mended: %v", name, f.Health(t.Context()))
		}
	}
	if none := (*Files[string])(nil); none.Health(t.Context()) != nil {
		t.Error("no files are not well")
	}
}

// While one caller reads the files, others get the last value without a wait, unless no caller has looked
// for twice the time.
func TestGetDoesNotWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	var now atomic.Pointer[time.Time]
	pass := func(d time.Duration) { at := now.Load().Add(d); now.Store(&at) }
	start := time.Now()
	now.Store(&start)
	reading, goOn := make(chan struct{}, 1), make(chan struct{})
	first := true
	f, err := Open(Config[string]{What: "the value", Paths: []string{path}, Now: func() time.Time { return *now.Load() },
		Read: func() (string, error) {
			if !first {
				reading <- struct{}{}
				<-goOn
			}
			first = false
			raw, err := os.ReadFile(path)
			return string(raw), err
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("number two"), 0o600); err != nil {
		t.Fatal(err)
	}
	pass(Every)
	got := make(chan string, 2)
	go func() { got <- f.Get() }()
	<-reading
	if v := f.Get(); v != "one" {
		t.Errorf("%q while the files are read", v)
	}
	pass(Every)
	go func() { got <- f.Get() }() // it waits, or comes after the read
	close(goOn)
	for range 2 {
		if v := <-got; v != "number two" {
			t.Errorf("%q after the read", v)
		}
	}
}
