package resultcache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// How results are shared. A result is of use only if nothing that drops it was committed since its run began. So it is
// stored with the position in the feed that its node had followed then, and a node that reads it compares that with the
// last changes of the tool that it has followed itself. No message is needed for that, and a node that is slow, and stores
// a result after it was dropped, stores one that no node takes.

const (
	// maxShared is how long a shared result is kept, whatever its rule says.
	maxShared = MaxTTL
	// maxChanged bounds the tools whose last change is remembered.
	maxChanged = 20_000
	// maxUnsent bounds the results that wait to be sent.
	maxUnsent = 256
	// lastSend is how long Stop takes for what waits to be sent.
	lastSend = time.Second
	// followAgain is the pause after the head of the feed could not be reached.
	followAgain = time.Second
)

// sharing is the state of what the nodes share.
type sharing struct {
	hits, unsent atomic.Int64
	queue        chan unsent
	warms        atomic.Bool // a result of a tool with cache.warm was stored
	position     toolkeep.FeedPosition

	mu     sync.Mutex // guards what follows
	ready  bool       // the feed was followed to its head
	breaks int        // times that the feed was lost
	behind chan struct{}
	floor  int64           // results of before this position are not taken
	last   map[scope]int64 // positions of the last changes
}

// scope is what a change drops: a tool's results of all tenants or one, or a tenant's of all tools.
type scope struct{ tenant, tool string }

// unsent is a result that waits to be sent.
type unsent struct {
	key Key
	e   *entry
	seq int64
}

func (s *sharing) init() {
	s.queue, s.behind, s.last = make(chan unsent, maxUnsent), make(chan struct{}, 1), make(map[scope]int64)
}

// from is the start of following.
func (s *sharing) from(after int64) {
	s.position.Reach(after)
	s.mu.Lock()
	s.floor = after
	s.mu.Unlock()
	s.lost()
}

// lost has keepUp wait until the feed was followed to its head.
func (s *sharing) lost() {
	s.mu.Lock()
	s.ready = false
	s.breaks++
	s.mu.Unlock()
	select {
	case s.behind <- struct{}{}:
	default:
	}
}

// changed records a change that drops results.
func (s *sharing) changed(tenant, tool string, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.last) >= maxChanged {
		clear(s.last)
		s.floor = seq
	}
	s.last[scope{tenant, tool}] = seq
}

// current reports whether a result whose run began at seq was not dropped since. A change is recorded before it drops what
// is in memory: what is put there, and current afterwards, is dropped with it or was stored after it.
func (s *sharing) current(tenant, tool string, seq int64) bool {
	applied := s.position.Applied()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready && seq <= applied && seq >= s.floor && seq >= s.last[scope{"", tool}] && seq >= s.last[scope{tenant, tool}] && seq >= s.last[scope{tenant, ""}]
}

// keepUp follows the feed to its head, at the start and each time that it was lost. Then it reads the warm results.
func (c *Cache) keepUp(ctx context.Context) {
	s := &c.sharing
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.behind:
		}
		for reached := false; !reached; {
			s.mu.Lock()
			breaks := s.breaks
			s.mu.Unlock()
			if s.position.Await(ctx, c.config.Store) == nil {
				s.mu.Lock()
				s.ready = breaks == s.breaks // else there is a signal
				s.mu.Unlock()
				reached = true
			} else if !toolkeep.Sleep(ctx, followAgain) {
				return
			}
		}
		c.warmUp(ctx)
	}
}

// sharedResult is a result as it is shared.
type sharedResult struct {
	Seq                   int64 // position of its run in the feed
	Tenant, Tool, Version string
	State                 toolkeep.CallState
	Stored                time.Time
	TTL, Stale            int64 // ns
	Warm                  bool
	Output                []byte
	Warnings              []toolkeep.Warning
	Truncated             bool
	Attachments           []toolkeep.Attachment
	Started, Ended        time.Time
}

// Share gives the result that Put has just stored, in the shared run of k, to the other nodes. It does not wait for that.
func (c *Cache) Share(k Key) {
	if c.config.Shared == nil {
		return
	}
	seq, ok := c.runSeq(k)
	e, there := c.store.GetEntryQuietly(k)
	if !ok || !there {
		return
	}
	select {
	case c.sharing.queue <- unsent{k, e.Value, seq}:
	default:
		c.sharing.unsent.Add(1)
	}
}

// send sends results until ctx ends, and keeps the list of warm ones. What waits then is sent within lastSend.
func (c *Cache) send(ctx context.Context) {
	list := time.NewTicker(listEvery)
	defer list.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSend)
			defer cancel()
			for len(c.sharing.queue) > 0 && last.Err() == nil {
				c.sendOne(last, <-c.sharing.queue)
			}
			c.sendWarm(last)
			return
		case u := <-c.sharing.queue:
			c.sendOne(ctx, u)
		case <-list.C:
			c.sendWarm(ctx)
		}
	}
}

func (c *Cache) sendOne(ctx context.Context, u unsent) {
	e, r := u.e, &u.e.result
	life := min(e.left(c.config.Clock()), maxShared)
	if life <= 0 {
		return
	}
	plain, err := json.Marshal(sharedResult{Seq: u.seq, Tenant: e.tenant, Tool: e.tool, Version: r.ToolVersion, State: r.State, Stored: e.stored,
		TTL: int64(e.ttl), Stale: int64(e.stale), Warm: e.warm, Output: r.Output, Warnings: r.Warnings, Truncated: r.Truncated,
		Attachments: r.Attachments, Started: r.StartedAt, Ended: r.EndedAt})
	if err != nil {
		c.config.Log.Warn("a result cannot be shared", "tool_id", e.tool, "error", err)
		return
	}
	c.config.Shared.Put(ctx, c.config.Shared.Name(u.key[:]), plain, life)
}

// Fetch is Get for what is not in memory: it asks Config.Shared, for 50 ms at most, and keeps in memory what that has.
func (c *Cache) Fetch(ctx context.Context, k Key, tenant, toolID string) (*toolkeep.Result, bool) {
	e := c.fetch(ctx, k)
	if e == nil || e.tenant != tenant || e.tool != toolID {
		return nil, false
	}
	age := max(0, c.config.Clock().Sub(e.stored))
	if age >= e.ttl { // it is there for Stale
		return nil, false
	}
	c.sharing.hits.Add(1)
	return e.copy(age), true
}

// fetch returns the shared entry of k, nil for none that is of use.
func (c *Cache) fetch(ctx context.Context, k Key) *entry {
	if c.config.Shared == nil || c.config.Off {
		return nil
	}
	plain := c.config.Shared.Get(ctx, c.config.Shared.Name(k[:]))
	var v sharedResult
	if plain == nil || json.Unmarshal(plain, &v) != nil { // another build's
		return nil
	}
	e := &entry{tenant: v.Tenant, tool: v.Tool, stored: v.Stored, ttl: time.Duration(v.TTL), stale: time.Duration(v.Stale), warm: v.Warm,
		result: toolkeep.Result{ToolID: v.Tool, ToolVersion: v.Version, State: v.State, Output: v.Output, Warnings: v.Warnings, Cached: true,
			Truncated: v.Truncated, Attachments: v.Attachments, StartedAt: v.Started, EndedAt: v.Ended}}
	current := func() bool { return c.sharing.current(v.Tenant, v.Tool, v.Seq) }
	if e.left(c.config.Clock()) <= 0 || !current() {
		return nil
	}
	if have, ok := c.store.GetEntryQuietly(k); !ok || have.Value.stored.Before(e.stored) {
		c.keep(k, e, current)
	}
	return e
}
