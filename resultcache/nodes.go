package resultcache

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Store is what Drop and shared results need of the store.
type Store interface {
	toolkeep.Applier
	// Head returns the number of the feed's newest change.
	Head(ctx context.Context) (int64, error)
}

// DropKind is the kind of the documents by which Drop reaches all nodes: the last order of each tenant, "" for all, and tool.
const DropKind = "cache_drop"

// everyTool is the id of an order for all tools.
const everyTool = "*"

// Drop is Invalidate on every node: on this one at once, on the others when they follow the feed,
// within a second. What Config.Shared has of before is ignored from then on. It returns the number of those of this node. The
// log and the order's document say by whom.
// The error is that of the store, and then results of this node alone are dropped; or that this node does not follow the
// feed, and then shared results can still be given here.
func (c *Cache) Drop(ctx context.Context, tenant, toolID, by string) (int, error) {
	n := c.Invalidate(tenant, toolID)
	c.config.Log.Info("cached results were dropped", "tenant", tenant, "tool_id", toolID, "by", by, "results", n)
	if c.config.Store == nil {
		return n, nil
	}
	err := c.config.Store.Apply(ctx, toolkeep.PutDocument{Expect: toolkeep.AnyRevision, Document: toolkeep.Document{
		Kind: DropKind, Tenant: tenant, ID: cmp.Or(toolID, everyTool), Body: fmt.Appendf(nil, `{"at":%d}`, c.config.Clock().UnixMilli()), UpdatedBy: by}})
	if err == nil && c.config.Shared != nil {
		err = c.sharing.position.Await(ctx, c.config.Store)
	}
	return n, err
}

// Follow drops the results of a tool whose versions or lifecycle changed, and what Drop on another node asks for. Pass it
// every change of the feed.
func (c *Cache) Follow(change toolkeep.Committed) {
	drop := func(tenant, toolID string) {
		c.sharing.changed(tenant, toolID, change.Seq) // first, see current
		c.Invalidate(tenant, toolID)
	}
	switch ch := change.Change.(type) {
	case toolkeep.PublishVersion:
		if ch.Version.Tool != nil {
			drop("", ch.Version.Tool.ID)
		}
	case toolkeep.SetLifecycle:
		drop("", ch.ToolID)
	case toolkeep.PutDocument:
		if d := ch.Document; d.Kind == DropKind {
			drop(d.Tenant, strings.TrimPrefix(d.ID, everyTool))
		}
	}
	c.sharing.position.Reach(change.Seq)
}

// Broke says that the feed broke: all results of this node are dropped, and shared ones are not used until Follow has had
// everything that is in the feed by then.
func (c *Cache) Broke() {
	c.sharing.lost()
	c.Invalidate("", "")
}

// lookBack is how many changes before the start are followed, so that results which were shared before it are of use: what
// was dropped since is known.
const lookBack = 2000

// Start starts the sweeping of expired entries, and returns the change after which Follow is to begin. With Config.Shared
// that is some way back; its results are used once Follow has come to the head of the feed. The error is that of the
// store's head.
func (c *Cache) Start(ctx context.Context) (after int64, err error) {
	if c.config.Store != nil {
		if after, err = c.config.Store.Head(ctx); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.stopped {
		return after, nil
	}
	c.started = true
	c.running.Go(c.sweep)
	if c.config.Shared != nil {
		after = max(0, after-lookBack)
		c.sharing.from(after)
		run, cancel := context.WithCancel(context.Background())
		c.running.Go(func() { <-c.stop; cancel() })
		c.running.Go(func() { c.send(run) })
		c.running.Go(func() { c.keepUp(run) })
	}
	return after, nil
}

// sweep removes expired entries until Stop.
func (c *Cache) sweep() {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-t.C:
			c.store.CleanUp()
		}
	}
}
