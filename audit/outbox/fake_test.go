package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
)

// fakeStore has the rules of a store's journal, cursors and documents; store/storetest shows that the real
// ones have them too.
type fakeStore struct {
	mu      sync.Mutex
	entries map[int64][]entry // by writer
	cursors map[string]map[int64]toolkeep.Cursor
	docs    map[string]toolkeep.Document
	keeps   time.Time
	away    bool
	applied int
	widest  int64 // span of a query for a part of the entries
	stamp   int64 // the newest that was drawn
}

type entry struct {
	toolkeep.Link
	e *toolkeep.Entry
}

func newStore() *fakeStore {
	return &fakeStore{entries: map[int64][]entry{}, cursors: map[string]map[int64]toolkeep.Cursor{}, docs: map[string]toolkeep.Document{}}
}

var errAway = errors.New("the store is away")

func (s *fakeStore) lock() (func(), error) {
	s.mu.Lock()
	if s.away {
		s.mu.Unlock()
		return nil, errAway
	}
	return s.mu.Unlock, nil
}

func (s *fakeStore) add(writer int64, e *toolkeep.Entry, tenant, ref string) {
	s.commit(writer, s.draw(), e, tenant, ref)
}

// draw draws the stamp of an entry, which commit makes visible.
func (s *fakeStore) draw() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamp++
	return s.stamp
}

func (s *fakeStore) commit(writer, stamp int64, e *toolkeep.Entry, tenant, ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.entries[writer]
	seq := int64(1)
	if len(list) > 0 {
		seq = list[len(list)-1].Seq + 1
	}
	e.Writer, e.Seq, e.At = writer, seq, time.Now()
	s.entries[writer] = append(list, entry{toolkeep.Link{Writer: writer, Seq: seq, Hash: []byte{1}, Stamp: stamp, Tenant: tenant, Ref: ref}, e})
}

// event records an event of tenant t.
func (s *fakeStore) event(writer int64, id, kind string) { s.eventOf("t", writer, id, kind) }

func (s *fakeStore) eventOf(tenant string, writer int64, id, kind string) {
	s.add(writer, &toolkeep.Entry{Event: &toolkeep.Event{ID: id, Type: kind, Tenant: tenant, Time: time.Now(), Data: []byte(`{}`)}}, tenant, id)
}

func (s *fakeStore) call(writer int64, id string) {
	s.add(writer, &toolkeep.Entry{Call: &toolkeep.Invocation{ID: id, Tenant: "t", State: toolkeep.CallSucceeded}}, "t", id)
}

func (s *fakeStore) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeStore) ChainWriters(_ context.Context, after toolkeep.JournalPosition) (list []toolkeep.ChainWriter, err error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		if n := s.entries[id][len(s.entries[id])-1].Seq; n > after[id] {
			list = append(list, toolkeep.ChainWriter{ID: id, Newest: n})
		}
	}
	return list, nil
}

func (s *fakeStore) Links(_ context.Context, q toolkeep.LinkQuery) (list []toolkeep.Link, read int64, err error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	if !q.All || q.Events {
		s.widest = max(s.widest, q.UpTo-q.After)
	}
	for _, e := range s.entries[q.Writer][q.After:q.UpTo] { // numbers without gaps, from 1
		if e.e == nil || !q.All && e.Tenant != q.Tenant || q.Events && e.e.Event == nil {
			continue
		}
		if list = append(list, e.Link); len(list) == q.Limit {
			return list, e.Seq, nil
		}
	}
	return list, q.UpTo, nil
}

func (s *fakeStore) Newest(context.Context, toolkeep.NewestQuery) ([]toolkeep.Link, []string, string, error) {
	panic("the outbox reads forwards")
}

func (s *fakeStore) Entry(l toolkeep.Link) (*toolkeep.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[l.Writer][l.Seq-1].e, nil
}

func (s *fakeStore) KeepsFrom() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeps
}

// trim removes a writer's entries before a number, as retention does.
func (s *fakeStore) trim(writer, before int64, keeps time.Time) {
	s.set(func() {
		s.keeps = keeps
		for i := range s.entries[writer] {
			if e := &s.entries[writer][i]; e.Seq < before {
				e.e = nil
			}
		}
	})
}

// trimCalls removes a writer's calls from before keeps alone.
func (s *fakeStore) trimCalls(writer int64, keeps time.Time) {
	s.set(func() {
		s.keeps = keeps
		for i := range s.entries[writer] {
			if e := &s.entries[writer][i]; e.e != nil && e.e.Call != nil && e.e.At.Before(keeps) {
				e.e = nil
			}
		}
	})
}

func (s *fakeStore) Cursors(_ context.Context, reader string) ([]toolkeep.Cursor, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return slices.Collect(maps.Values(s.cursors[reader])), nil
}

func (s *fakeStore) Document(_ context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	unlock, err := s.lock()
	if err != nil {
		return toolkeep.Document{}, err
	}
	defer unlock()
	d, ok := s.docs[kind+"/"+id]
	if !ok {
		return d, toolkeep.ErrNotFound
	}
	return d, nil
}

func (s *fakeStore) Apply(_ context.Context, changes ...toolkeep.Change) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, c := range changes {
		switch c := c.(type) {
		case toolkeep.MoveCursor:
			if s.cursors[c.Reader][c.To.Writer].Seq != c.From {
				return toolkeep.ErrStale
			}
		case toolkeep.PutDocument:
			if s.docs[c.Document.Kind+"/"+c.Document.ID].Revision != c.Expect {
				return toolkeep.ErrStale
			}
		default:
			return fmt.Errorf("the outbox applies %T", c)
		}
	}
	s.applied++
	for _, c := range changes {
		switch c := c.(type) {
		case toolkeep.MoveCursor:
			if s.cursors[c.Reader] == nil {
				s.cursors[c.Reader] = map[int64]toolkeep.Cursor{}
			}
			s.cursors[c.Reader][c.To.Writer] = c.To
		case toolkeep.PutDocument:
			d := c.Document
			d.Revision = c.Expect + 1
			s.docs[d.Kind+"/"+d.ID] = d
		}
	}
	return nil
}

// fakeSink takes events unless it is told otherwise.
type fakeSink struct {
	mu      sync.Mutex
	got     []string // ids, in order
	batches []int
	tries   int
	fail    func(events []outbox.Event) error
	closed  bool
}

func (s *fakeSink) Deliver(ctx context.Context, events []outbox.Event) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.fail != nil {
		if err := s.fail(events); err != nil {
			return 0, err
		}
	}
	s.batches = append(s.batches, len(events))
	for _, e := range events {
		var c struct {
			ID     string `json:"id"`
			Tenant string `json:"tenantid"`
		}
		if err := json.Unmarshal(e.JSON, &c); err != nil || c.ID != e.ID || c.Tenant != e.Tenant {
			panic(fmt.Sprintf("%s is no CloudEvent of %s: %v", e.JSON, e.ID, err))
		}
		s.got = append(s.got, e.ID)
	}
	return len(events), nil
}

func (s *fakeSink) Close() error { s.closed = true; return nil }

func (s *fakeSink) set(f func(events []outbox.Event) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

func (s *fakeSink) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// start runs an outbox with one sink until the test ends, or stop is called.
func start(t *testing.T, store outbox.Store, sink outbox.Sink, s outbox.Settings) (o *outbox.Outbox, stop func()) {
	t.Helper()
	return startIn(t, t.TempDir(), store, sink, s)
}

func startIn(t *testing.T, dir string, store outbox.Store, sink outbox.Sink, s outbox.Settings) (o *outbox.Outbox, stop func()) {
	t.Helper()
	if s.Name == "" {
		s.Name = "sink"
	}
	return startWith(t, outbox.Config{Sinks: []outbox.Settings{s}, Store: store, Dir: dir, Open: func(outbox.Settings) (outbox.Sink, error) { return sink, nil }})
}

func startWith(t *testing.T, c outbox.Config) (o *outbox.Outbox, stop func()) {
	t.Helper()
	o, err := outbox.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); o.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := o.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return o, stop
}

func names(prefix string, from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
