package resultcache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/sharedcache"
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
	// sendPatience is how long one request takes at most that no call waits for.
	sendPatience = time.Second
	// followAgain is the pause after the head of the feed could not be reached.
	followAgain = time.Second
	// askAgain is how long FetchOnce takes a key as absent, and maxAsked how many keys it asks for in that time.
	askAgain = time.Second
	maxAsked = 1000
)

// sharing is the state of what the nodes share.
type sharing struct {
	hits, unsent, oversize atomic.Int64
	queue                  chan unsent
	warms                  atomic.Bool // a result of a tool with cache.warm was stored
	position               toolkeep.FeedPosition

	mu     sync.Mutex // guards what follows
	ready  bool       // the feed was followed to its head
	breaks int        // times that the feed was lost
	behind chan struct{}
	floor  int64           // results of before this position are not taken
	last   map[scope]int64 // positions of the last changes

	asked      map[Key]bool // by FetchOnce, since askedSince
	askedSince time.Time
}

// scope is what a change drops: the results of a tenant, "" for all, of a tool, "" for all.
type scope struct{ tenant, tool string }

// unsent is a result that waits to be sent.
type unsent struct {
	key Key
	e   *entry
	seq int64
}

func (s *sharing) init() {
	s.queue, s.behind, s.last = make(chan unsent, maxUnsent), make(chan struct{}, 1), make(map[scope]int64)
	s.asked = make(map[Key]bool)
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
	return s.ready && seq <= applied && seq >= s.floor && seq >= s.last[scope{"", tool}] && seq >= s.last[scope{tenant, tool}] && seq >= s.last[scope{tenant, ""}] && seq >= s.last[scope{"", ""}]
}

// keepUp follows the feed to its head, at the start and each time that it was lost. Then, and when Config.Shared answers again,
// it reads the warm results.
func (c *Cache) keepUp(ctx context.Context) {
	var again <-chan time.Time
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.sharing.behind:
			if !c.follow(ctx) {
				return
			}
		case <-c.config.Shared.Back():
		case <-again:
		}
		again = nil
		switch err := c.warmUp(ctx); {
		case err == nil:
			failed = false
			select { // the answer that was waited for
			case <-c.config.Shared.Back():
			default:
			}
		case ctx.Err() == nil:
			again = time.After(followAgain)
			if !failed {
				c.config.Log.Warn("the result cache cannot be warmed yet; it is tried every second", "error", err)
			}
			failed = true
		}
	}
}

// follow waits until the feed was followed to its head; false once ctx ends.
func (c *Cache) follow(ctx context.Context) bool {
	s := &c.sharing
	for {
		s.mu.Lock()
		breaks := s.breaks
		s.mu.Unlock()
		if s.position.Await(ctx, c.config.Store) == nil {
			s.mu.Lock()
			s.ready = breaks == s.breaks // else there is a signal
			s.mu.Unlock()
			return true
		}
		if !toolkeep.Sleep(ctx, followAgain) {
			return false
		}
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
	Warnings              []toolkeep.Warning
	Truncated             bool
	Attachments           []toolkeep.Attachment
	Started, Ended        time.Time
	Output                []byte `json:"-"` // behind the rest, as it is
}

// pack returns the length of the JSON of v, the JSON, and v.Output.
func (v *sharedResult) pack() ([]byte, error) {
	head, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	plain := make([]byte, 0, 4+len(head)+len(v.Output))
	plain = append(binary.BigEndian.AppendUint32(plain, uint32(len(head))), head...)
	return append(plain, v.Output...), nil
}

// unpack reports whether plain is a result.
func (v *sharedResult) unpack(plain []byte) bool {
	if len(plain) < 4 {
		return false
	}
	n, rest := binary.BigEndian.Uint32(plain), plain[4:]
	if uint64(n) > uint64(len(rest)) || json.Unmarshal(rest[:n], v) != nil {
		return false
	}
	v.Output = rest[n:]
	return true
}

// Share gives the result that Put has just stored, in the shared run of k, to the other nodes, unless it is too large. It does
// not wait for that.
func (c *Cache) Share(k Key) {
	if c.config.Shared == nil {
		return
	}
	seq, ok := c.runSeq(k)
	e, there := c.store.GetEntryQuietly(k)
	if !ok || !there {
		return
	}
	if len(e.Value.result.Output) > sharedcache.MaxPlain {
		c.sharing.oversize.Add(1)
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
	v := sharedResult{Seq: u.seq, Tenant: e.tenant, Tool: e.tool, Version: r.ToolVersion, State: r.State, Stored: e.stored,
		TTL: int64(e.ttl), Stale: int64(e.stale), Warm: e.warm, Output: r.Output, Warnings: r.Warnings, Truncated: r.Truncated,
		Attachments: r.Attachments, Started: r.StartedAt, Ended: r.EndedAt}
	plain, err := v.pack()
	switch {
	case err != nil:
		c.config.Log.Warn("a result cannot be shared", "tool_id", e.tool, "error", err)
	case len(plain) > sharedcache.MaxPlain:
		c.sharing.oversize.Add(1)
	case !c.config.Shared.Write(ctx, c.config.Shared.Name(u.key[:]), plain, life, sendPatience):
		c.sharing.unsent.Add(1)
	}
}

// Fetch is Get for what is not in memory: it asks Config.Shared, for 50 ms at most, and keeps in memory what that has.
func (c *Cache) Fetch(ctx context.Context, k Key, tenant, toolID string) (*toolkeep.Result, bool) {
	if c.config.Shared == nil || c.config.Off {
		return nil, false
	}
	e := c.fetched(k, c.config.Shared.Get(ctx, c.config.Shared.Name(k[:])))
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

// FetchOnce is Fetch for a call that is refused, and looked in memory without Get. So that refusals are cheap, concurrent calls
// share one request, there is one for a key in a second, and for 1,000 keys.
func (c *Cache) FetchOnce(ctx context.Context, k Key, tenant, toolID string) (*toolkeep.Result, bool) {
	if c.config.Shared == nil || c.config.Off {
		return nil, false
	}
	run := Key(sha256.Sum256(append(k[:], "refused"...))) // that of k asks the tool
	r, _, _ := c.Do(ctx, run, func(ctx context.Context) (*toolkeep.Result, error) {
		if !c.sharing.mayAsk(k, c.config.Clock()) {
			return nil, nil
		}
		r, ok := c.Fetch(ctx, k, tenant, toolID)
		if ok {
			c.misses.Add(1) // in memory, see Stats
		}
		return r, nil
	})
	return r, r != nil
}

// mayAsk reports whether FetchOnce may ask for a key, which then counts as asked.
func (s *sharing) mayAsk(k Key, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := now.Sub(s.askedSince); since >= askAgain || since < 0 {
		clear(s.asked)
		s.askedSince = now
	}
	if s.asked[k] || len(s.asked) >= maxAsked {
		return false
	}
	s.asked[k] = true
	return true
}

// fetched returns the entry of k that Config.Shared had, nil for none that is of use, and keeps it in memory.
func (c *Cache) fetched(k Key, plain []byte) *entry {
	var v sharedResult
	if plain == nil || !v.unpack(plain) {
		return nil
	}
	e := &entry{tenant: v.Tenant, tool: v.Tool, stored: v.Stored, ttl: time.Duration(v.TTL), stale: time.Duration(v.Stale), warm: v.Warm,
		result: kept(&toolkeep.Result{ToolID: v.Tool, ToolVersion: v.Version, State: v.State, Output: v.Output, Warnings: v.Warnings,
			Truncated: v.Truncated, Attachments: v.Attachments, StartedAt: v.Started, EndedAt: v.Ended})}
	current := func() bool { return c.sharing.current(v.Tenant, v.Tool, v.Seq) }
	if e.left(c.config.Clock()) <= 0 || !current() {
		return nil
	}
	if have, ok := c.store.GetEntryQuietly(k); !ok || have.Value.stored.Before(e.stored) {
		c.keep(k, e, current)
	}
	return e
}
