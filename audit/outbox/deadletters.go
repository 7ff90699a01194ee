package outbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// letter is a line of a file of dead letters.
type letter struct {
	At    time.Time       `json:"at"`
	Error string          `json:"error"`
	Event json.RawMessage `json:"event"`
}

// errFull means that a file of dead letters has no room.
var errFull = errors.New("the file of dead letters is full")

// deadLetters is the file of one sink, in JSON Lines. It is for one goroutine at a time.
type deadLetters struct {
	path  string
	most  int64
	size  int64 // of the file when it was last read or written
	count int
}

// holdFolder claims a folder of dead letters for this process until release is called: two processes that write one
// file lose each other's letters.
func holdFolder(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".outbox.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the folder of dead letters cannot be locked: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the folder of dead letters %s is in use by another node; give each node its own (outbox.dead_letters)", dir)
		}
		return nil, fmt.Errorf("the folder of dead letters cannot be locked: %w", err)
	}
	return func() {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // a child process may have the file open still
		f.Close()
	}, nil
}

// open counts what is there, and removes a line that a crash cut off: its entry was not left behind, and
// comes again.
func (d *deadLetters) open() error {
	d.size, d.count = 0, 0
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	whole, err := eachLine(f, func([]byte) error { d.count++; return nil })
	if err != nil {
		return err
	}
	d.size = whole
	return f.Truncate(whole)
}

// eachLine passes each line that is whole, and returns how many bytes they have.
func eachLine(r io.Reader, each func(line []byte) error) (whole int64, err error) {
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := b.ReadBytes('\n')
		if err == io.EOF {
			return whole, nil
		}
		if err != nil {
			return whole, err
		}
		whole += int64(len(line))
		if err := each(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return whole, err
		}
	}
}

// add appends an event, synced to the disk. errFull: there is no room.
func (d *deadLetters) add(at time.Time, e *Event, cause error) error {
	line, err := json.Marshal(letter{at.UTC(), cause.Error(), e.JSON})
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if err := d.look(); err != nil {
		return err
	}
	if d.size+int64(len(line)) > d.most {
		return fmt.Errorf("%w: %s has %d of %d bytes; replay it, or move it away", errFull, d.path, d.size, d.most)
	}
	f, err := os.OpenFile(d.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(line); err != nil {
		return errors.Join(err, f.Truncate(d.size))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if d.size == 0 {
		if err := syncDir(filepath.Dir(d.path)); err != nil {
			return err
		}
	}
	d.size += int64(len(line))
	d.count++
	return nil
}

// look reads the file again if an operator has moved it away or changed it.
func (d *deadLetters) look() error {
	size := int64(0)
	switch info, err := os.Stat(d.path); {
	case err == nil:
		size = info.Size()
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if size == d.size {
		return nil
	}
	return d.open()
}

// replay passes each event to send, and keeps those that it returns an error for, with that error. Where stop is true
// the rest is kept as it is, with that event if there is no error.
func (d *deadLetters) replay(send func(*Event) (stop bool, err error)) (sent int, err error) {
	from, err := os.Open(d.path)
	if errors.Is(err, os.ErrNotExist) {
		d.size, d.count = 0, 0
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer from.Close()
	rest, err := os.OpenFile(filepath.Join(filepath.Dir(d.path), ".replay-"+filepath.Base(d.path)), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer os.Remove(rest.Name())
	defer rest.Close()
	to, stopped := bufio.NewWriter(rest), false
	_, err = eachLine(from, func(line []byte) error {
		var l letter
		if !stopped && json.Unmarshal(line, &l) == nil {
			if e, err := readEvent(l.Event); err == nil {
				stop, err := send(&e)
				if stopped = stop; err == nil && !stop {
					sent++
					return nil
				}
				if err != nil {
					l.Error = err.Error()
					if line, err = json.Marshal(l); err != nil {
						return err
					}
				}
			}
		}
		_, err := to.Write(append(line, '\n'))
		return err
	})
	// What was sent and is still in the file after an error is sent again by the next replay.
	if err = errors.Join(err, to.Flush(), rest.Sync()); err == nil {
		err = os.Rename(rest.Name(), d.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(d.path))
	}
	return sent, errors.Join(err, d.open())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
