// Package file appends events to a file as JSON Lines: one CloudEvent 1.0 a line, synced to the disk after each batch.
// A file that was renamed or removed, as by logrotate, is made again with the next batch.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/toolkeep/toolkeep/audit/outbox"
)

// Sink is a file.
type Sink struct {
	path string
	f    *os.File
}

// New makes a Sink for an absolute path, whose folder must be there.
func New(path string) *Sink { return &Sink{path: path} }

// Deliver appends the events and syncs the file.
func (s *Sink) Deliver(_ context.Context, events []outbox.Event) (int, error) {
	if err := s.open(); err != nil {
		return 0, err
	}
	var lines []byte
	for i := range events {
		lines = append(append(lines, events[i].JSON...), '\n')
	}
	info, err := s.f.Stat()
	if err != nil {
		return 0, errors.Join(err, s.Close())
	}
	if _, err = s.f.Write(lines); err == nil {
		err = s.f.Sync()
	}
	if err != nil { // some of the lines may be there; they come again
		return 0, errors.Join(err, s.f.Truncate(info.Size()), s.Close())
	}
	return len(events), nil
}

// open opens the file of the path, unless it is the open one.
func (s *Sink) open() error {
	if s.f != nil {
		now, err := os.Stat(s.path)
		was, err2 := s.f.Stat()
		if err == nil && err2 == nil && os.SameFile(now, was) {
			return nil
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	size, err := whole(f)
	if err == nil && size == 0 { // it may be new
		err = syncDir(filepath.Dir(s.path))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.f = f
	return nil
}

// whole returns the length of the lines that have an end, and cuts off what follows them: a part of a
// batch that was not confirmed, and comes again.
func whole(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", f.Name())
	}
	end := info.Size()
	buf := make([]byte, 4096)
	for end > 0 {
		n := min(int64(len(buf)), end)
		if _, err := f.ReadAt(buf[:n], end-n); err != nil && err != io.EOF {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] == '\n' {
				end -= n - 1 - i
				if end == info.Size() {
					return end, nil
				}
				return end, f.Truncate(end)
			}
		}
		end -= n
	}
	if info.Size() == 0 {
		return 0, nil
	}
	first := buf[:min(2, info.Size())]
	if _, err := f.ReadAt(first, 0); err != nil {
		return 0, err
	}
	if strings.HasPrefix(`{"`, string(first)) { // of an event that was not confirmed
		return 0, f.Truncate(0)
	}
	return 0, fmt.Errorf("%s has no end of a line; it is no file of events", f.Name())
}

// Close closes the file.
func (s *Sink) Close() error {
	if s.f == nil {
		return nil
	}
	err := s.f.Close()
	s.f = nil
	return err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
