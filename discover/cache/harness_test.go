package cache

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// shelf is a document store with a feed, shared by several nodes.
type shelf struct {
	mu    sync.Mutex
	items map[string]toolkeep.Document
	feed  []toolkeep.Committed
	fail  error
	race  func() // runs once before the next Apply
}

func (s *shelf) Document(_ context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.items[kind+"\x00"+tenant+"\x00"+id]
	if !ok {
		return i, toolkeep.ErrNotFound
	}
	return i, s.fail
}

func (s *shelf) Apply(_ context.Context, changes ...toolkeep.Change) error {
	s.mu.Lock()
	race := s.race
	s.race = nil
	s.mu.Unlock()
	if race != nil {
		race()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	for _, c := range changes {
		put := c.(toolkeep.PutDocument)
		k := put.Document.Kind + "\x00" + put.Document.Tenant + "\x00" + put.Document.ID
		if s.items[k].Revision != put.Expect {
			return toolkeep.ErrStale
		}
		put.Document.Revision = put.Expect + 1
		if s.items == nil {
			s.items = map[string]toolkeep.Document{}
		}
		s.items[k] = put.Document
		s.feed = append(s.feed, toolkeep.Committed{Seq: int64(len(s.feed) + 1), Change: put})
	}
	return nil
}

// all returns the documents for a new node.
func (s *shelf) all() (items []toolkeep.Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.items {
		items = append(items, i)
	}
	return items
}

// cupboard is a Remote in memory.
type cupboard struct {
	mu     sync.Mutex
	values map[string][]byte
	gets   int
	puts   int
	err    error
	hang   bool // until the context ends
}

func (c *cupboard) wait(ctx context.Context) error {
	c.mu.Lock()
	hang, err := c.hang, c.err
	c.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (c *cupboard) Get(ctx context.Context, k string) ([]byte, error) {
	c.mu.Lock()
	c.gets++
	c.mu.Unlock()
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.values[k]), nil
}

func (c *cupboard) Put(ctx context.Context, k string, v []byte, _ time.Duration) error {
	c.mu.Lock()
	c.puts++
	c.mu.Unlock()
	if err := c.wait(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[string][]byte{}
	}
	c.values[k] = slices.Clone(v)
	return nil
}

func (c *cupboard) set(err error, hang bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.hang = err, hang
}

func (c *cupboard) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gets + c.puts
}

// tick is a clock that a test moves.
type tick struct {
	mu  sync.Mutex
	now time.Time
}

func (t *tick) Now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

func (t *tick) pass(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = t.now.Add(d)
}

// node is one of several, with its own index and cache.
type node struct {
	*Cache
	index *discover.Index
	seen  int // of the shelf's feed
	finds int // searches that reached the index
	mu    sync.Mutex
	after func() // runs once, after the index has answered
}

func (n *node) Find(ctx context.Context, q discover.Query, v func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report) {
	found, report := n.index.Find(ctx, q, v)
	n.mu.Lock()
	n.finds++
	after := n.after
	n.after = nil
	n.mu.Unlock()
	if after != nil {
		after()
	}
	return found, report
}
func (n *node) Tools(v func(*toolkeep.Tool) bool) []*toolkeep.Tool { return n.index.Tools(v) }
func (n *node) Snapshot(tenant string) discover.Snapshot           { return n.index.Snapshot(tenant) }

// system is what the nodes share.
type system struct {
	shelf  shelf
	remote *cupboard // nil: none
	clock  tick
	secret [32]byte
}

func newSystem(remote bool) *system {
	s := &system{clock: tick{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, secret: sha256.Sum256([]byte("a secret of a test"))}
	if remote {
		s.remote = &cupboard{}
	}
	return s
}

// node adds a node with these tools.
func (s *system) node(t testing.TB, tools []toolkeep.Version, change ...func(*Config)) *node {
	t.Helper()
	n := &node{index: discover.New(discover.Config{})}
	n.index.Update(slices.Values(tools))
	c := Config{Index: n, Store: &s.shelf, Clock: s.clock.Now, Ranking: "test", Secret: s.secret[:]}
	if s.remote != nil {
		c.Remote = s.remote
	}
	for _, f := range change {
		f(&c)
	}
	var err error
	if n.Cache, err = New(c); err != nil {
		t.Fatal(err)
	}
	n.Load(s.shelf.all())
	s.shelf.mu.Lock()
	n.seen = len(s.shelf.feed)
	s.shelf.mu.Unlock()
	t.Cleanup(n.Close)
	return n
}

// follow applies the feed to a node.
func (s *system) follow(n *node) {
	s.shelf.mu.Lock()
	feed := slices.Clone(s.shelf.feed)
	s.shelf.mu.Unlock()
	for _, c := range feed[n.seen:] {
		n.Follow(c)
	}
	n.seen = len(feed)
}

// tool is an active version; tenant "" is shared.
func tool(tenant, id, version, description string) toolkeep.Version {
	m := &toolkeep.Manifest{ToolID: id, Version: version, Description: description}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", id, version, description))
	return toolkeep.Version{Tool: &toolkeep.Tool{ID: id, Version: version, Tenant: tenant, Digest: fmt.Sprintf("sha256:%x", sum), Manifest: m},
		Life: toolkeep.Lifecycle{State: toolkeep.Active}}
}

func some() []toolkeep.Version {
	return []toolkeep.Version{
		tool("", "mail.send", "1.0.0", "Sends an e-mail message to somebody"),
		tool("", "mail.list", "1.0.0", "Lists the messages of a mailbox"),
		tool("", "weather.now", "1.0.0", "Tells the weather of a town"),
		tool("acme", "acme.letters", "1.0.0", "Sends a letter or message on paper"),
		tool("rival", "rival.secret", "1.0.0", "Sends a secret message"),
	}
}

// sees lets through shared tools and the tenant's own.
func sees(tenant string) func(*toolkeep.Tool) bool {
	return func(t *toolkeep.Tool) bool { return t.Tenant == "" || t.Tenant == tenant }
}

// ask returns a query of tenant acme.
func ask(text string) discover.Query {
	return discover.Query{Text: text, Limit: 5, Audience: "agents", Session: discover.Session{Tenant: "acme", Subject: "ann"}}
}

// find searches and returns the ids, and whether it was a hit.
func (n *node) find(t testing.TB, q discover.Query) (ids []string, hit bool) {
	t.Helper()
	found, report := n.Cache.Find(t.Context(), q, sees(q.Session.Tenant))
	for _, m := range found {
		ids = append(ids, m.Tool.ID)
	}
	return ids, report.CacheHit
}

// warm searches until the answer is cached.
func (n *node) warm(t testing.TB, q discover.Query) []string {
	t.Helper()
	for range 2 {
		if ids, hit := n.find(t, q); hit {
			return ids
		}
	}
	t.Fatalf("the answer to %q was not kept", q.Text)
	return nil
}

// wantHit searches once.
func (n *node) wantHit(t testing.TB, q discover.Query, want bool) []string {
	t.Helper()
	ids, hit := n.find(t, q)
	if hit != want {
		t.Fatalf("%q of %+v: hit %v, want %v", q.Text, q.Session, hit, want)
	}
	return ids
}
