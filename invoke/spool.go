package invoke

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// spool stores records of reading calls, and ends of calls that have a row, while the store is
// down, one JSON document per line, bounded, and moves them to the store afterwards.
type spool struct {
	path  string
	limit int64
	mu    sync.Mutex   // of the file; calls wait for it, so nothing is asked of the store meanwhile
	move  sync.Mutex   // one drain at a time
	lines atomic.Int64 // not yet in the store, as far as this process knows
	lost  atomic.Int64 // dropped because the spool was full or could not be written
	// pending receives, for a spooled record, the outcome of a commit that was under way
	// when its call left, or that ended in doubt. An entry is made with its line and dropped once the outcome is known.
	// mu guards it.
	pending map[string]<-chan error
	// ends are the calls whose ends are spooled: nothing but their ends may happen to them. mu
	// guards it.
	ends map[toolkeep.CallRef]struct{}
	// ended is told of each end that left the spool; late means that another node decided the
	// call. nil in tests of the spool alone.
	ended func(v *toolkeep.Invocation, late bool)
	// doubted says that lines may be in the store already: an earlier process wrote them, or
	// a drain failed midway. move guards it.
	doubted bool
	// failing holds why the latest record was lost; nil once one could be stored again.
	failing atomic.Pointer[error]
}

const (
	// spoolBatch is how many changes one Apply writes, about.
	spoolBatch = 200
	// spoolLine bounds a record, so that every line can be read again.
	spoolLine = 1 << 20
	// spoolEnd bounds the end of a call, which may have an output.
	spoolEnd = 32 << 20
	// spoolTrial is how many bytes a spool that failed must take to count as working.
	spoolTrial = 64 << 10
	// spoolWait bounds one Apply.
	spoolWait = 5 * time.Second
)

func newSpool(path string) *spool {
	s := &spool{path: path, limit: 64 << 20}
	info, err := os.Stat(path)
	s.doubted = err == nil && info.Size() > 0
	if s.doubted {
		s.readEnds()
	}
	return s
}

// endMark begins the line of an ending; the line of a record begins with its JSON.
var endMark = []byte("end ")

// ending is the end of a call that has a row.
type ending struct {
	Call    *toolkeep.Invocation
	Owner   string // the node that had the lease
	FreeKey bool
}

// readEnding returns the ending that a line has, nil if it has none.
func readEnding(line []byte) *ending {
	rest, ok := bytes.CutPrefix(line, endMark)
	e := new(ending)
	if !ok || json.Unmarshal(rest, e) != nil || e.Call == nil {
		return nil
	}
	return e
}

// readEnds finds the ends that an earlier process left. What cannot be read is left to drain.
func (s *spool) readEnds() {
	file, err := os.Open(s.path)
	if err != nil {
		return
	}
	defer file.Close()
	for r := bufio.NewReader(file); err == nil; {
		var line []byte
		line, err = r.ReadBytes('\n')
		if e := readEnding(line); e != nil {
			s.hold(e.Call.Ref())
		}
	}
}

func (s *spool) hold(ref toolkeep.CallRef) {
	if s.ends == nil {
		s.ends = make(map[toolkeep.CallRef]struct{})
	}
	s.ends[ref] = struct{}{}
}

// holds reports whether the spool has the end of a call.
func (s *spool) holds(ref toolkeep.CallRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ends[ref]
	return ok
}

func (s *spool) holdsEnds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ends) > 0
}

func (s *spool) release(ref toolkeep.CallRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, ref)
}

// keepEnd spools the end of a call that has a row, which the store could not take because of why.
// Its caller gets the answer: what the call did is known.
func (p *Pipeline) keepEnd(a *activeCall, m toolkeep.MoveCall, pending <-chan error, why error) {
	p.Log.Warn("the end of a call waits in the spool for the store", "invocation_id", a.row.ID, "error", why)
	end := *m.Invocation
	end.SealedArgs, end.SealedCaller = nil, nil // the store erases them with this end
	p.kept(a, p.spool.addEnd(&ending{Call: &end, Owner: m.Owner, FreeKey: m.FreeKey}, pending))
}

// keepForLater spools the record of a call; see record for pending. If that fails too, the
// answer says that the record is lost.
func (p *Pipeline) keepForLater(a *activeCall, pending <-chan error) {
	p.kept(a, p.spool.add(&a.row, pending))
}

// kept is told whether the spool took what the store could not take.
func (p *Pipeline) kept(a *activeCall, err error) {
	if err == nil {
		p.spool.works()
		return
	}
	p.spool.lost.Add(1)
	p.spool.failing.Store(&err)
	did := "executed"
	if a.row.State == toolkeep.CallRefused {
		did = "refused"
	}
	a.row.Warnings = append(a.row.Warnings, toolkeep.Warning{Code: toolkeep.RecordUnavailable,
		Message: "the call was " + did + " and no record of it could be stored: neither the store nor the disk takes one now"})
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

func (s *spool) add(v *toolkeep.Invocation, pending <-chan error) error {
	line, err := lineOf(nil, v, spoolLine)
	if err != nil {
		return err
	}
	limit := s.limit
	if v.State == toolkeep.CallRefused { // callers that try again must not take the room of calls that were executed
		limit /= 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.append(v.ID, line, limit, pending)
}

func (s *spool) addEnd(e *ending, pending <-chan error) error {
	line, err := lineOf(endMark, e, spoolEnd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.append(e.Call.ID, line, s.limit, pending); err != nil {
		return err
	}
	s.hold(e.Call.Ref())
	return nil
}

// lineOf returns a line of fewer than limit bytes that begins with mark.
func lineOf(mark []byte, v any, limit int) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	line := slices.Concat(mark, text, []byte("\n"))
	if len(line) > limit {
		return nil, errors.New("the record is too long for the spool")
	}
	return line, nil
}

// append adds the line of a call, if the file then has at most limit bytes. It is called with mu held.
func (s *spool) append(id string, line []byte, limit int64, pending <-chan error) error {
	if s.path == "" {
		return errors.New("no spool is configured")
	}
	file, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size()+int64(len(line)) > limit {
		return errors.Join(err, errors.New("the spool is full"))
	}
	if _, err := file.Write(line); err != nil {
		return errors.Join(err, file.Truncate(info.Size())) // a partial line would spoil the next one
	}
	s.lines.Add(1)
	if pending != nil {
		if s.pending == nil {
			s.pending = make(map[string]<-chan error)
		}
		s.pending[id] = pending
	}
	return nil
}

// size returns the bytes of the spool's complete lines.
func (s *spool) size() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// drain moves the spool into the store. What cannot be moved stays, and so do records whose
// commit is under way. A record that may be in the store is looked for first: the journal
// would have it twice.
func (s *spool) drain(ctx context.Context, store toolkeep.Applier, calls toolkeep.Invocations) error {
	if s.path == "" {
		return nil
	}
	s.move.Lock()
	defer s.move.Unlock()
	size, err := s.size()
	if err != nil || size == 0 {
		return err
	}
	file, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer file.Close()
	d := &drain{s: s, store: store, calls: calls}
	err = d.lines(ctx, bufio.NewReader(io.NewSectionReader(file, 0, size)))
	err = errors.Join(err, s.cut(file, d.done, d.stay))
	s.doubted = err != nil
	return err
}

// drain is one pass over the spool.
type drain struct {
	s     *spool
	store toolkeep.Applier
	calls toolkeep.Invocations
	batch []toolkeep.Change
	read  int64  // bytes read
	wait  []byte // lines since the last flush whose commit is under way
	done  int64  // bytes whose records are in the store
	stay  []byte // lines among those whose commit is under way
}

func (d *drain) lines(ctx context.Context, r *bufio.Reader) error {
	for {
		line, err := r.ReadBytes('\n')
		d.read += int64(len(line))
		if err != nil && err != io.EOF {
			return fmt.Errorf("read the spool: %w", err)
		}
		if err := d.line(ctx, line); err != nil {
			return err
		}
		if err == io.EOF {
			return d.flush(ctx)
		}
		if len(d.batch) >= spoolBatch {
			if err := d.flush(ctx); err != nil {
				return err
			}
		}
	}
}

func (d *drain) line(ctx context.Context, line []byte) error {
	if e := readEnding(line); e != nil {
		return d.end(ctx, e, line)
	}
	v := new(toolkeep.Invocation)
	if json.Unmarshal(line, v) != nil {
		return nil // empty, or truncated by a crash
	}
	ended, err := d.s.outcome(v.ID)
	switch {
	case !ended:
		d.wait = append(d.wait, line...)
		return nil
	case err == nil:
		return nil
	case err != errNone || d.s.doubted:
		ctx, cancel := context.WithTimeout(ctx, spoolWait)
		defer cancel()
		if _, err := d.calls.Get(ctx, v.Ref()); !errors.Is(err, toolkeep.ErrNotFound) {
			return err
		}
	}
	d.batch = append(append(d.batch, toolkeep.RecordCall{Invocation: v}), accesses(v)...)
	return nil
}

// end commits the end of a call. It stays if its commit is under way.
func (d *drain) end(ctx context.Context, e *ending, line []byte) error {
	late := false
	ended, err := d.s.outcome(e.Call.ID)
	if !ended {
		d.wait = append(d.wait, line...)
		return nil
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(ctx, spoolWait)
		defer cancel()
		if late, err = d.commitEnd(ctx, e); err != nil {
			return err
		}
	}
	d.s.release(e.Call.Ref())
	if d.s.ended != nil {
		d.s.ended(e.Call, late)
	}
	return nil
}

// commitEnd commits the end of a call, unless the store has it. late says that another node has
// decided the call meanwhile; that is not overwritten.
func (d *drain) commitEnd(ctx context.Context, e *ending) (late bool, err error) {
	v := e.Call
	row, err := d.calls.Get(ctx, v.Ref())
	switch {
	case errors.Is(err, toolkeep.ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	case row.State == v.State && row.EndedAt.Equal(v.EndedAt):
		return false, nil
	case row.State != toolkeep.CallRunning, row.LeaseOwner != e.Owner, row.Requeued != v.Requeued:
		return true, nil
	}
	err = d.store.Apply(ctx, append([]toolkeep.Change{toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning},
		Owner: e.Owner, FreeKey: e.FreeKey}}, accesses(v)...)...)
	if errors.Is(err, toolkeep.ErrStale) {
		return true, nil
	}
	return false, err
}

// flush commits the batch.
func (d *drain) flush(ctx context.Context) error {
	if len(d.batch) > 0 {
		ctx, cancel := context.WithTimeout(ctx, spoolWait)
		defer cancel()
		if err := d.store.Apply(ctx, d.batch...); err != nil {
			return err
		}
	}
	d.stay = append(d.stay, d.wait...)
	d.done, d.batch, d.wait = d.read, d.batch[:0], d.wait[:0]
	return nil
}

// errNone means that a spooled record was in no commit when its call left.
var errNone = errors.New("no commit")

// outcome reports whether the commit that a spooled record was in has ended, and its error.
func (s *spool) outcome(id string) (ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.pending[id]
	if pending == nil {
		return true, errNone
	}
	select {
	case err = <-pending:
		delete(s.pending, id)
		return true, err
	default:
		return false, nil
	}
}

// cut replaces the first n bytes of the spool, which file reads, by the lines that stay.
// Calls wait only while what they added at the end is copied.
func (s *spool) cut(file *os.File, n int64, stay []byte) (err error) {
	if n == int64(len(stay)) {
		return nil // nothing moved
	}
	size, err := s.size()
	if err != nil {
		return err
	}
	path := s.path + ".new"
	defer os.Remove(path) // in case of an error
	next := &spoolFile{path: path}
	defer func() { err = errors.Join(err, next.close()) }()
	// What is there by now is copied first, so that calls do not wait for it.
	if err := errors.Join(next.write(bytes.NewReader(stay)), next.write(io.NewSectionReader(file, n, size-n)), next.sync()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := next.write(io.NewSectionReader(file, size, info.Size()-size)); err != nil {
		return err
	}
	if next.file == nil {
		err = os.Remove(s.path)
	} else {
		err = os.Rename(path, s.path)
	}
	if err == nil {
		s.lines.Store(next.lines)
	}
	return err
}

// spoolFile is made with its first byte: a spool that is empty needs no room on the disk.
type spoolFile struct {
	path  string
	file  *os.File
	lines int64
}

func (f *spoolFile) Write(b []byte) (int, error) {
	if f.file == nil {
		var err error
		if f.file, err = os.OpenFile(f.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
			return 0, err
		}
	}
	f.lines += int64(bytes.Count(b, []byte("\n")))
	return f.file.Write(b)
}

func (f *spoolFile) write(r io.Reader) error {
	_, err := io.Copy(f, r)
	return err
}

func (f *spoolFile) sync() error {
	if f.file == nil {
		return nil
	}
	return f.file.Sync()
}

func (f *spoolFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
