package usage

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	json "github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store in memory with a feed, items and a fault.
type memory struct {
	mu      sync.Mutex
	clock   func() time.Time
	feed    []toolkeep.Committed
	items   map[[3]string]toolkeep.Document
	more    chan struct{}
	applies []int // changes of each Apply
	refuse  error // what Apply answers
}

func newMemory(clock func() time.Time) *memory {
	return &memory{clock: clock, items: map[[3]string]toolkeep.Document{}, more: make(chan struct{})}
}

func (m *memory) Apply(_ context.Context, changes ...toolkeep.Change) error {
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
		m.feed = append(m.feed, toolkeep.Committed{Seq: int64(len(m.feed) + 1), At: m.clock(), Change: c})
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
	for _, c := range m.feed {
		if what(c.Change) {
			n++
		}
	}
	return n
}

// begin is when tests start.
var begin = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)

// folder folds changes without a store.
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
	f.fold(toolkeep.Committed{Seq: f.seq, At: f.now, Change: c})
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

// calls are the calls of a tool that are known.
func (f *folder) calls(tool string) int {
	a, _ := f.Analytics("t", tool)
	return a.TotalExecutions
}

// state is all that is known, as text.
func (u *Usage) state(t testing.TB) string {
	t.Helper()
	u.folding.Lock()
	defer u.folding.Unlock()
	raw, err := json.Marshal(slices.Collect(u.tenants.all()), json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
