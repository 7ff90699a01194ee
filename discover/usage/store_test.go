package usage

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	json "github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main{M: m}) }

// memory is a store in memory with a feed, a journal, items and a fault.
type memory struct {
	mu      sync.Mutex
	clock   func() time.Time
	feed    []toolkeep.Committed
	journal map[int64][]toolkeep.Entry // by writer
	read    map[int64]int              // entries of others that were read, by writer
	changes []toolkeep.Change          // all, in order
	items   map[[3]string]toolkeep.Document
	more    chan struct{}
	applies []int // changes of each Apply
	refuse  error // what Apply answers
}

func newMemory(clock func() time.Time) *memory {
	return &memory{clock: clock, journal: map[int64][]toolkeep.Entry{}, read: map[int64]int{}, items: map[[3]string]toolkeep.Document{}, more: make(chan struct{})}
}

// member is the store as one of several processes has it.
type member struct {
	*memory
	writer int64
}

func (m *member) Apply(_ context.Context, changes ...toolkeep.Change) error {
	return m.apply(m.writer, changes)
}
func (m *member) JournalWriter() int64 { return m.writer }
func (m *member) WatchJournal(ctx context.Context, after int64) iter.Seq2[toolkeep.Entry, error] {
	return m.watch(ctx, m.writer, after)
}
func (m *member) ReadJournal(_ context.Context, after toolkeep.JournalPosition, limit int) ([]toolkeep.Entry, toolkeep.JournalPosition, error) {
	return m.readJournal(m.writer, after, limit)
}

func (m *memory) Apply(_ context.Context, changes ...toolkeep.Change) error {
	return m.apply(0, changes)
}
func (m *memory) JournalWriter() int64 { return 0 }
func (m *memory) WatchJournal(ctx context.Context, after int64) iter.Seq2[toolkeep.Entry, error] {
	return m.watch(ctx, 0, after)
}
func (m *memory) ReadJournal(_ context.Context, after toolkeep.JournalPosition, limit int) ([]toolkeep.Entry, toolkeep.JournalPosition, error) {
	return m.readJournal(0, after, limit)
}

func (m *memory) readJournal(reader int64, after toolkeep.JournalPosition, limit int) (out []toolkeep.Entry, next toolkeep.JournalPosition, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next = maps.Clone(after)
	for writer, entries := range m.journal {
		entries = following(entries, after[writer])
		for _, e := range entries[:min(len(entries), limit-len(out))] {
			if out = append(out, e); writer != reader {
				m.read[reader]++
			}
			next[writer] = e.Seq
		}
	}
	return out, next, nil
}

// following are the entries after a number.
func following(entries []toolkeep.Entry, seq int64) []toolkeep.Entry {
	i, found := slices.BinarySearchFunc(entries, seq, func(e toolkeep.Entry, seq int64) int { return cmp.Compare(e.Seq, seq) })
	if found {
		i++
	}
	return entries[i:]
}

func (m *memory) watch(ctx context.Context, writer, after int64) iter.Seq2[toolkeep.Entry, error] {
	return func(yield func(toolkeep.Entry, error) bool) {
		for ctx.Err() == nil {
			m.mu.Lock()
			entries, more := m.journal[writer], m.more
			m.mu.Unlock()
			entries = following(entries, after)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if len(entries) > 0 {
				continue
			}
			select {
			case <-ctx.Done():
			case <-more:
			}
		}
	}
}

func (m *memory) apply(writer int64, changes []toolkeep.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return m.refuse
	}
	for _, c := range changes { // all or none
		if err := m.check(c); err != nil {
			return err
		}
	}
	for _, c := range changes {
		switch ch := c.(type) {
		case toolkeep.PutDocument:
			key := [3]string{ch.Document.Kind, ch.Document.Tenant, ch.Document.ID}
			ch.Document.Revision = m.items[key].Revision + 1
			m.items[key] = ch.Document
			if ch.OmitBody {
				ch.Document.Body = nil
			}
			c = ch
		case toolkeep.DeleteDocument:
			delete(m.items, [3]string{ch.Kind, ch.Tenant, ch.ID})
		}
		m.changes = append(m.changes, c)
		e := toolkeep.Entry{Writer: writer, Seq: int64(3*len(m.changes) + 1), At: m.clock()} // with gaps
		switch ch := c.(type) {
		case toolkeep.RecordCall:
			e.Call = ch.Invocation
		case toolkeep.AppendEvent:
			e.Event = &ch.Event
		default:
			m.feed = append(m.feed, toolkeep.Committed{Seq: int64(len(m.feed) + 1), At: e.At, Change: c})
			continue
		}
		m.journal[writer] = append(m.journal[writer], e)
	}
	m.applies = append(m.applies, len(changes))
	close(m.more)
	m.more = make(chan struct{})
	return nil
}

func (m *memory) check(c toolkeep.Change) error {
	switch ch := c.(type) {
	case toolkeep.PutDocument:
		have := m.items[[3]string{ch.Document.Kind, ch.Document.Tenant, ch.Document.ID}].Revision
		if ch.Expect != toolkeep.AnyRevision && ch.Expect != have {
			return toolkeep.ErrStale
		}
		if len(ch.Document.Body) > toolkeep.MaxDocumentBody {
			return errors.New("the body is too big")
		}
	case toolkeep.DeleteDocument:
		have, ok := m.items[[3]string{ch.Kind, ch.Tenant, ch.ID}]
		if !ok {
			return toolkeep.ErrNotFound
		}
		if ch.Expect != toolkeep.AnyRevision && ch.Expect != have.Revision {
			return toolkeep.ErrStale
		}
	}
	return nil
}

func (m *memory) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		for ctx.Err() == nil {
			m.mu.Lock()
			rest, more := m.feed[min(after, int64(len(m.feed))):], m.more
			m.mu.Unlock()
			for _, c := range rest {
				if !yield(c, nil) {
					return
				}
				after = c.Seq
			}
			if len(rest) > 0 {
				continue
			}
			select {
			case <-ctx.Done():
			case <-more:
			}
		}
	}
}

func (m *memory) Head(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.feed)), nil
}

func (m *memory) Documents(_ context.Context, kind string) (out []toolkeep.Document, seq int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, it := range m.items {
		if key[0] == kind {
			out = append(out, it)
		}
	}
	return out, int64(len(m.feed)), nil
}

func (m *memory) refusing(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = err
}

// sizes are the changes of each Apply.
func (m *memory) sizes() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.applies)
}

// stored is how many items there are.
func (m *memory) stored() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.items)
}

func (m *memory) count(what func(toolkeep.Change) bool) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.changes {
		if what(c) {
			n++
		}
	}
	return n
}

// begin is when tests start.
var begin = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)

// folder folds entries without a store.
type folder struct {
	*Usage
	t   *testing.T
	now time.Time
	seq int64
}

func newFolder(t *testing.T) *folder {
	f := &folder{t: t, now: begin}
	f.Usage = New(Config{Store: newMemory(func() time.Time { return f.now }), Clock: func() time.Time { return f.now }})
	return f
}

func (f *folder) change(c toolkeep.Change) {
	f.seq++
	f.fold(*entryOf(f.t, f.seq, f.now, c))
}

// entryOf is a change as the journal has it.
func entryOf(t testing.TB, seq int64, at time.Time, c toolkeep.Change) *toolkeep.Entry {
	e := &toolkeep.Entry{Seq: seq, At: at}
	switch ch := c.(type) {
	case toolkeep.RecordCall:
		e.Call = ch.Invocation
	case toolkeep.AppendEvent:
		e.Event = &ch.Event
	default:
		t.Fatalf("%T is not in the journal", c)
	}
	return e
}

// after lets time pass.
func (f *folder) after(d time.Duration) *folder {
	f.now = f.now.Add(d)
	return f
}

// used is a call that took 20 ms.
func (f *folder) used(user, session, tool string, change ...func(*toolkeep.Invocation)) {
	f.change(toolkeep.RecordCall{Invocation: callOf(f.now, "t", user, session, tool, change...)})
}

func callOf(at time.Time, tenant, user, session, tool string, change ...func(*toolkeep.Invocation)) *toolkeep.Invocation {
	v := &toolkeep.Invocation{ID: "i", Tenant: tenant, Subject: user, Session: session, ToolID: tool, Version: "1.0.0", State: toolkeep.CallSucceeded,
		CreatedAt: at.Add(-20 * time.Millisecond), StartedAt: at.Add(-20 * time.Millisecond), EndedAt: at, ToolUS: 20_000}
	for _, c := range change {
		c(v)
	}
	return v
}

func failing(code toolkeep.Code) func(*toolkeep.Invocation) {
	return func(v *toolkeep.Invocation) { v.State, v.Code = toolkeep.CallFailed, code }
}

func arguments(b byte) func(*toolkeep.Invocation) {
	return func(v *toolkeep.Invocation) { v.ArgsHash[0] = b }
}

// searched is a search that gave the tools, the first with the best parts.
func (f *folder) searched(id, user, session, query string, tools ...string) {
	f.searchedAt(f.now, id, user, session, query, tools...)
}

func (f *folder) searchedAt(at time.Time, id, user, session, query string, tools ...string) {
	f.t.Helper()
	f.change(searchEvent(f.t, at, "t", id, user, session, query, tools...))
}

func searchEvent(t testing.TB, at time.Time, tenant, id, user, session, query string, tools ...string) toolkeep.AppendEvent {
	t.Helper()
	d := retrievedData{EventID: id, UserID: user, AgentDID: user, SessionID: session, Query: query, Strategy: "hybrid", Tools: tools, TookMS: 3}
	for i := range tools {
		d.Parts = append(d.Parts, [5]float64{1 / float64(i+1), 1 / float64(i+2)})
	}
	e, err := eventOf(EventRetrieved, tenant, id, at, d)
	if err != nil {
		t.Fatal(err)
	}
	return toolkeep.AppendEvent{Event: e}
}

func (f *folder) said(id, user, tool string, relevance float64) {
	f.t.Helper()
	d := feedbackData{EventID: id, UserID: user, Tool: tool}
	if relevance >= 0 {
		d.Relevance = &relevance
	}
	e, err := eventOf(EventFeedback, "t", "", f.now, d)
	if err != nil {
		f.t.Fatal(err)
	}
	f.change(toolkeep.AppendEvent{Event: e})
}

// success is the success rate of a tool, -1 if it was not called.
func (f *folder) success(tool string) float64 { return f.SuccessRates("t", []string{tool})[0] }

// longNumber is a number that fading has multiplied, whose last digits depend on in how many steps that was.
var longNumber = regexp.MustCompile(`\d+\.\d{9,}(e-?\d+)?`)

// dump is all that is known, as text.
func (u *Usage) dump(t testing.TB) string {
	t.Helper()
	u.folding.Lock()
	defer u.folding.Unlock()
	raw, err := json.Marshal(slices.Collect(u.state.tenants.all()), json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return longNumber.ReplaceAllStringFunc(string(raw), func(n string) string {
		v, err := strconv.ParseFloat(n, 64)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatFloat(v, 'g', 9, 64)
	})
}
