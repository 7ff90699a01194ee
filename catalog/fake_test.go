package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an in-memory store of versions and events.
type memory struct {
	mu      sync.Mutex
	log     []toolkeep.Committed
	digests map[string]string
	grown   chan struct{}
	closed  chan struct{}
	lives   map[string]toolkeep.Lifecycle
	meddle  func() // runs as another writer just before the next Apply
	refuse  error  // error of the next Apply
	broken  error  // error of the next Watch
	watches int
	applies int
}

func newMemory() *memory {
	return &memory{digests: map[string]string{}, lives: map[string]toolkeep.Lifecycle{}, grown: make(chan struct{}), closed: make(chan struct{})}
}

func versionKey(tenant, id, version string) string { return tenant + " " + id + "@" + version }

func (m *memory) Apply(_ context.Context, changes ...toolkeep.Change) error {
	m.mu.Lock()
	if other := m.meddle; other != nil {
		m.meddle = nil
		m.mu.Unlock()
		other()
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	m.applies++
	if err := m.refuse; err != nil {
		m.refuse = nil
		return err
	}
	published := map[string]string{}
	for _, c := range changes {
		switch c := c.(type) {
		case toolkeep.PublishVersion:
			k := versionKey(c.Version.Tool.Tenant, c.Version.Tool.ID, c.Version.Tool.Version)
			if d, ok := m.digests[k]; ok && d != c.Version.Tool.Digest {
				return toolkeep.ErrVersionExists
			}
			published[k] = c.Version.Tool.Digest
		case toolkeep.SetLifecycle:
			k := versionKey(c.Tenant, c.ToolID, c.Version)
			if m.digests[k] == "" && published[k] == "" {
				return toolkeep.ErrNotFound
			}
			if now, known := m.lives[k]; known && c.From != nil && !sameLife(*c.From, now) {
				return toolkeep.ErrStale
			}
		}
	}
	for k, d := range published {
		m.digests[k] = d
	}
	for _, c := range changes {
		switch c := c.(type) {
		case toolkeep.PublishVersion:
			if k := versionKey(c.Version.Tool.Tenant, c.Version.Tool.ID, c.Version.Tool.Version); m.lives[k].State == "" {
				m.lives[k] = c.Version.Life
			}
		case toolkeep.SetLifecycle:
			m.lives[versionKey(c.Tenant, c.ToolID, c.Version)] = c.Life
		}
		m.log = append(m.log, toolkeep.Committed{Seq: int64(len(m.log) + 1), Change: c})
	}
	close(m.grown)
	m.grown = make(chan struct{})
	return nil
}

func (m *memory) Head(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.log)), nil
}

func (m *memory) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		m.mu.Lock()
		m.watches++
		err := m.broken
		m.broken = nil
		m.mu.Unlock()
		if err != nil {
			yield(toolkeep.Committed{}, err)
			return
		}
		for {
			m.mu.Lock()
			batch, grown := m.log[min(after, int64(len(m.log))):], m.grown // a test may claim that it begins later
			m.mu.Unlock()
			for _, c := range batch {
				if ctx.Err() != nil || !yield(c, nil) {
					return
				}
				after = c.Seq
			}
			if len(batch) > 0 {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-grown:
			}
		}
	}
}

// events returns the types and data of the events applied so far.
func (m *memory) events(t *testing.T) (types []string, data []map[string]any) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.log {
		if e, ok := c.Change.(toolkeep.AppendEvent); ok {
			types = append(types, e.Event.Type)
			var d map[string]any
			if err := json.Unmarshal(e.Event.Data, &d); err != nil {
				t.Fatal(err)
			}
			data = append(data, d)
		}
	}
	return types, data
}

func (m *memory) applied() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applies
}

// clock is a manual clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const day = 24 * time.Hour

func allow(*toolkeep.Manifest) []toolkeep.Fault { return nil }

// open starts a catalogue on an empty store.
func open(t testing.TB, edit ...func(*Config)) (*Catalog, *memory, *clock) {
	t.Helper()
	store, now := newMemory(), newClock()
	cfg := Config{Store: store, Clock: now.Now, Log: slog.New(slog.DiscardHandler),
		Checkers: map[string]Checker{"builtin": allow, "http": allow}}
	for _, e := range edit {
		e(&cfg)
	}
	c := New(cfg)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c, store, now
}

func admin(tenant string) *toolkeep.Principal {
	return &toolkeep.Principal{Subject: "ada", Tenant: tenant, Permissions: []string{"*"}}
}

func publisher(tenant string) *toolkeep.Principal {
	return &toolkeep.Principal{Subject: "pub", Tenant: tenant, Permissions: []string{toolkeep.PermPublish}}
}

// manifest returns a valid manifest, with extra top-level members as JSON text.
func manifest(id, version string, extra ...string) []byte {
	m := map[string]json.RawMessage{
		"schema_version":    json.RawMessage(`1`),
		"description":       json.RawMessage(`"does something"`),
		"parameters_schema": json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`),
		"execution":         json.RawMessage(`{"kind":"builtin"}`),
		"side_effects":      json.RawMessage(`"none"`),
		"tool_id":           fmt.Appendf(nil, "%q", id),
		"version":           fmt.Appendf(nil, "%q", version),
	}
	for _, e := range extra {
		var add map[string]json.RawMessage
		if err := json.Unmarshal([]byte(e), &add); err != nil {
			panic(err)
		}
		for k, v := range add {
			m[k] = v
		}
	}
	out, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return out
}

// publish publishes versions of one tool, each with its own description.
func publish(t testing.TB, c *Catalog, id string, versions ...string) {
	t.Helper()
	var all [][]byte
	for _, v := range versions {
		all = append(all, manifest(id, v, fmt.Sprintf(`{"description":"version %s"}`, v)))
	}
	if _, err := c.Publish(t.Context(), admin("acme"), all, PublishOptions{}); err != nil {
		t.Fatal(err)
	}
}

func setState(t testing.TB, c *Catalog, id, version string, ch StateChange) toolkeep.Lifecycle {
	t.Helper()
	life, err := c.SetState(t.Context(), admin("acme"), id, version, ch)
	if err != nil {
		t.Fatal(err)
	}
	return life
}

func codeOf(err error) toolkeep.Code {
	var e *toolkeep.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func wantCode(t testing.TB, err error, code toolkeep.Code) *toolkeep.Error {
	t.Helper()
	if codeOf(err) != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	var e *toolkeep.Error
	errors.As(err, &e)
	return e
}
