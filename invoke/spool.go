package invoke

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// spool stores records of reading calls while the store is down, one JSON document per
// line, bounded, and moves them to the store afterwards.
type spool struct {
	path  string
	limit int64
	mu    sync.Mutex   // of the file; calls wait for it, so nothing is asked of the store meanwhile
	move  sync.Mutex   // one drain at a time
	lines atomic.Int64 // not yet in the store, as far as this process knows
	lost  atomic.Int64 // dropped because the spool was full or could not be written
	// stored has the ids of spooled records whose commit succeeded after all.
	stored sync.Map
	// failing holds why the latest record was lost; nil once one could be stored again.
	failing atomic.Pointer[error]
}

const (
	// spoolBatch is how many changes one Apply writes, about.
	spoolBatch = 200
	// spoolLine bounds a record, so that every line can be read again.
	spoolLine = 1 << 20
	// spoolTrial is how many bytes a spool that failed must take to count as working.
	spoolTrial = 64 << 10
	// spoolWait bounds one Apply.
	spoolWait = 5 * time.Second
)

// keepForLater spools the record of a call. If that fails too, the answer says that the
// record is lost.
func (p *Pipeline) keepForLater(a *activeCall) {
	err := p.spool.add(&a.row)
	if err == nil {
		p.spool.works()
		return
	}
	p.spool.lost.Add(1)
	p.spool.failing.Store(&err)
	a.row.Warnings = append(a.row.Warnings, toolkeep.Warning{Code: toolkeep.RecordUnavailable,
		Message: "the call was executed and no record of it could be stored: neither the store nor the disk takes one now"})
	p.Log.Error("a call's record is lost: the spool cannot take it", "invocation_id", a.row.ID, "error", err)
}

// works notes that a record was stored.
func (s *spool) works() {
	if s.failing.Load() != nil {
		s.failing.Store(nil)
	}
}

// RecordHealth returns why records wait for the store or are being lost, nil if neither.
func (p *Pipeline) RecordHealth() error {
	waiting, lost := p.Spooled()
	switch why := p.spool.failing.Load(); {
	case why != nil:
		return fmt.Errorf("records of calls are being lost, %d since the start: %w", lost, *why)
	case waiting > 0:
		return fmt.Errorf("%d records wait for the store, %d are lost since the start", waiting, lost)
	}
	return nil
}

// retry looks whether a spool that lost a record can be written again.
func (s *spool) retry() {
	if s.failing.Load() == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() > s.limit-spoolLine {
		return // full until it is drained
	}
	// Empty lines are no records, should the process end here.
	_, err = file.Write(bytes.Repeat([]byte("\n"), spoolTrial))
	if errors.Join(err, file.Sync(), file.Truncate(info.Size())) == nil {
		s.failing.Store(nil)
	}
}

// Spooled returns how many records wait for the store and how many were lost.
func (p *Pipeline) Spooled() (waiting, lost int64) { return p.spool.lines.Load(), p.spool.lost.Load() }

func (s *spool) add(v *toolkeep.Invocation) error {
	if s.path == "" {
		return errors.New("no spool is configured")
	}
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(line) >= spoolLine {
		return errors.New("the record is too long for the spool")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size()+int64(len(line)) > s.limit {
		return errors.Join(err, errors.New("the spool is full"))
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		return errors.Join(err, file.Truncate(info.Size())) // a partial line would spoil the next one
	}
	s.lines.Add(1)
	return nil
}

// drain moves the spool into the store; what cannot be moved stays. The store's unique
// ids skip a record that it already has (after a crash between commit and removal).
func (s *spool) drain(ctx context.Context, store toolkeep.Applier) error {
	s.move.Lock()
	defer s.move.Unlock()
	s.mu.Lock()
	raw, err := os.ReadFile(s.path)
	s.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) || len(raw) == 0 && err == nil {
		return nil
	}
	if err != nil {
		return err
	}
	var batch []toolkeep.Change
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		defer func() { batch = batch[:0] }()
		ctx, cancel := context.WithTimeout(ctx, spoolWait)
		defer cancel()
		return store.Apply(ctx, batch...)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, spoolLine+1)
	for lines.Scan() {
		v := new(toolkeep.Invocation)
		if json.Unmarshal(lines.Bytes(), v) != nil {
			continue // a line truncated by a crash
		}
		if _, there := s.stored.LoadAndDelete(v.ID); there {
			continue
		}
		batch = append(append(batch, toolkeep.RecordCall{Invocation: v}), accesses(v)...)
		if len(batch) >= spoolBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(lines.Err(), flush()); err != nil {
		return err
	}
	return s.cut(len(raw))
}

// cut removes the first n bytes, whose records are in the store.
func (s *spool) cut(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	rest := raw[min(n, len(raw)):]
	s.lines.Store(int64(bytes.Count(rest, []byte("\n"))))
	switch {
	case len(rest) == 0:
		return os.Remove(s.path)
	case len(rest) > n:
		return nil // they would overwrite themselves; the next drain writes all again, which the store skips
	}
	file, err := os.OpenFile(s.path, os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(rest, 0)
	if err == nil {
		err = file.Truncate(int64(len(rest)))
	}
	return errors.Join(err, file.Close())
}
