package sharedcache

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// shelf is a Remote in memory.
type shelf struct {
	values map[string][]byte
	asked  int
	err    error
	hangs  bool
}

func (s *shelf) answer(ctx context.Context) error {
	s.asked++
	if s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.err
}

func (s *shelf) Get(ctx context.Context, name string) ([]byte, error) {
	return s.values[name], s.answer(ctx)
}

func (s *shelf) Put(ctx context.Context, name string, value []byte, _ time.Duration) error {
	if s.values == nil {
		s.values = map[string][]byte{}
	}
	err := s.answer(ctx)
	if err == nil {
		s.values[name] = value
	}
	return err
}

func open(t *testing.T, s *shelf, secret byte, use string) *Cache {
	t.Helper()
	c, err := New(Config{Remote: s, Secret: append(make([]byte, 31), secret), Use: use})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSealed: a value opens under its name, secret and use alone.
func TestSealed(t *testing.T) {
	s := &shelf{}
	a := open(t, s, 1, "results")
	name := a.Name([]byte("key"))
	a.Put(t.Context(), name, []byte("value"), time.Minute)
	sealed := s.values[name]
	if got := a.Get(t.Context(), name); string(got) != "value" {
		t.Fatalf("%q", got)
	}
	if b := open(t, s, 1, "results"); b.Name([]byte("key")) != name || string(b.Get(t.Context(), name)) != "value" {
		t.Error("another node has another name or cannot open the value")
	}
	upgraded, err := New(Config{Remote: s, Secret: append(make([]byte, 31), 1), Use: "results", Build: Build("2.0.0", struct{ Strict bool }{true})})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]*Cache{"secret": open(t, s, 2, "results"), "use": open(t, s, 1, "search"), "build": upgraded} {
		if c.Name([]byte("key")) == name || c.Get(t.Context(), name) != nil || c.Foreign() != 1 {
			t.Errorf("another %s has the same name or opens the value", what)
		}
	}
	s.values["moved"] = sealed
	for i := range sealed {
		bad := append([]byte(nil), sealed...)
		bad[i] ^= 1
		s.values["bad"+name], s.values[name] = bad, bad
		if a.Get(t.Context(), name) != nil {
			t.Errorf("it opens with a changed byte %d", i)
		}
	}
	for bad, v := range map[string][]byte{"moved": sealed, "empty": {}, "plain": []byte("value"), "large": make([]byte, MaxBytes+1)} {
		s.values[bad] = v
		if a.Get(t.Context(), bad) != nil {
			t.Errorf("%s opens", bad)
		}
	}
	if want := int64(len(sealed) + 4); a.Foreign() != want {
		t.Errorf("%d foreign values were counted, want %d", a.Foreign(), want)
	}
	asked := s.asked
	if a.Put(t.Context(), "large", make([]byte, MaxBytes), time.Minute); s.asked != asked {
		t.Error("a value that is too large was sent")
	}
	for _, c := range []Config{{}, {Remote: s, Use: "x"}, {Remote: s, Use: "x", Secret: []byte("short")}, {Remote: s, Secret: make([]byte, 32)}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// TestKeyOfTheDay: a value is sealed with the key of its day, and opens on the next.
func TestKeyOfTheDay(t *testing.T) {
	s, now := &shelf{}, time.Unix(1_700_000_000, 0)
	c, err := New(Config{Remote: s, Secret: make([]byte, 32), Use: "results", Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	c.Put(t.Context(), "a", []byte("one"), time.Hour)
	now = now.Add(24 * time.Hour)
	c.Put(t.Context(), "b", []byte("two"), time.Hour)
	if string(c.Get(t.Context(), "a")) != "one" || string(c.Get(t.Context(), "b")) != "two" {
		t.Error("a value does not open on the next day")
	}
	copy(s.values["b"][1:header], s.values["a"][1:header])
	if c.Get(t.Context(), "b") != nil {
		t.Error("a value opens with the key of another day")
	}
}

// TestBuild: another version or another setting is another build.
func TestBuild(t *testing.T) {
	type settings struct{ Strict bool }
	one := Build("1.0.0", settings{})
	if one != Build("1.0.0", settings{}) || one == Build("1.0.1", settings{}) || one == Build("1.0.0", settings{true}) {
		t.Error(one)
	}
}

// TestAway: a store that fails or hangs is asked once a second, and for its patience.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{hangs: true}
		c := open(t, s, 1, "results")
		began := time.Now()
		for range 3 {
			c.Get(t.Context(), "a")
			if _, err := c.Read(t.Context(), "a", time.Minute); err == nil || c.Write(t.Context(), "a", nil, time.Minute, time.Minute) {
				t.Error("it is not told that the store does not answer")
			}
		}
		if took := time.Since(began); s.asked != 1 || took != 50*time.Millisecond || c.Err() == nil || c.Failures() != 1 {
			t.Errorf("asked %d times for %s, %v", s.asked, took, c.Err())
		}
		s.hangs, s.err = false, errors.New("refused")
		<-time.After(time.Second)
		c.Get(t.Context(), "a")
		c.Get(t.Context(), "a")
		if s.asked != 2 || c.Failures() != 2 {
			t.Errorf("asked %d times", s.asked)
		}
		s.err = nil
		<-time.After(time.Second)
		c.Put(t.Context(), "a", []byte("x"), time.Minute)
		if got := c.Get(t.Context(), "a"); string(got) != "x" || c.Err() != nil {
			t.Errorf("%q, %v", got, c.Err())
		}
		select {
		case <-c.Back():
		default:
			t.Error("it is not told that the store answers again")
		}
		// The end of a caller says nothing about the store.
		s.hangs = true
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if c.Get(gone, "a"); c.Err() != nil {
			t.Error(c.Err())
		}
	})
}

// documents are a store's.
type documents struct {
	of    map[string]toolkeep.Document
	first func() // runs once, before the next Apply
}

func (d *documents) Document(_ context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	doc, ok := d.of[kind+tenant+id]
	if !ok {
		return doc, toolkeep.ErrNotFound
	}
	return doc, nil
}

func (d *documents) Apply(_ context.Context, changes ...toolkeep.Change) error {
	if first := d.first; first != nil {
		d.first = nil
		first()
	}
	put := changes[0].(toolkeep.PutDocument)
	k := put.Document.Kind + put.Document.Tenant + put.Document.ID
	if d.of[k].Revision != put.Expect {
		return toolkeep.ErrStale
	}
	put.Document.Revision++
	d.of[k] = put.Document
	return nil
}

// mark seals by a byte; another one does not open.
type mark byte

func (m mark) Seal(plain, _ []byte) ([]byte, error) { return append([]byte{byte(m)}, plain...), nil }
func (m mark) Open(sealed, _ []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != byte(m) {
		return nil, errors.New("another key")
	}
	return sealed[1:], nil
}

// TestSecret: all nodes of a store have one secret, also those that start at the same moment.
func TestSecret(t *testing.T) {
	d := &documents{of: map[string]toolkeep.Document{}}
	log := slog.New(slog.DiscardHandler)
	secret := func(m mark) string {
		s, err := Secret(t.Context(), d, m, "node", log)
		if err != nil || len(s) != secretBytes {
			t.Fatalf("%d bytes, %v", len(s), err)
		}
		return string(s)
	}
	var other string
	d.first = func() { other = secret(1) }
	one := secret(1)
	if one != other || secret(1) != one {
		t.Error("two nodes have two secrets")
	}
	if replaced := secret(2); replaced == one || secret(2) != replaced {
		t.Error("a secret that cannot be opened was not replaced")
	}
}
