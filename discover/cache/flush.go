package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// DocumentKind and itemID locate a tenant's flushes in the store.
const (
	DocumentKind = "search_flush"
	itemID       = "flushes"
)

// Scope selects the answers to flush.
type Scope string

// Scopes of a tenant's flush.
const (
	All      Scope = "all"
	User     Scope = "user"     // answers to one subject
	Tool     Scope = "tool"     // answers with one tool
	Strategy Scope = "strategy" // answers of one strategy
)

// Limits of a flush and of the flushes stored per tenant. Above them, all answers from before the
// oldest are dropped.
const (
	maxMarks = 200
	maxID    = 512 // bytes
)

// flushes are those of one tenant. They are immutable.
type flushes struct {
	rev   int64 // of the document; 0: none yet
	base  int64 // answers made under an earlier revision are dropped
	marks []mark
	gone  int64 // for all tenants: the revisions of documents that were deleted, and their number
}

// mark drops the answers of a scope built under an earlier revision.
type mark struct {
	Rev   int64     `json:"rev"`
	Scope Scope     `json:"scope"`
	ID    string    `json:"id,omitempty"`
	At    time.Time `json:"at"`
}

// flushBody is the document's body.
type flushBody struct {
	Base  int64  `json:"base,omitempty"`
	Marks []mark `json:"marks"`
}

var none = &flushes{}

func (c *Cache) flushes(tenant string) *flushes {
	if f := (*c.flushed.Load())[tenant]; f != nil {
		return f
	}
	return none
}

// everyTenant is the tenant of a flush of all tenants' answers. Its revision, and those of deleted documents, are in each key.
const everyTenant = ""

// Flush drops answers of a tenant, or with scope all and tenant "" of every tenant, on every node: on this node when it returns, on the others when
// the feed reaches them. id is the subject, tool or strategy of the scope; "" for all. E3301; E3965
// if the store failed, and nothing was dropped.
func (c *Cache) Flush(ctx context.Context, tenant, by string, scope Scope, id string) error {
	switch {
	case (scope == All) != (id == ""):
		return toolkeep.NewError(toolkeep.InvalidParameters, "a flush of scope %s needs to say which one, and one of scope all must not", scope)
	case scope != All && scope != User && scope != Tool && scope != Strategy:
		return toolkeep.NewError(toolkeep.InvalidParameters, "there is no scope %q; use all, user, tool or strategy", scope)
	case tenant == everyTenant && scope != All:
		return toolkeep.NewError(toolkeep.InvalidParameters, "a flush for all tenants is of scope all, not %s", scope)
	case len(id) > maxID:
		return toolkeep.NewError(toolkeep.InvalidParameters, "the name of what to flush has over %d bytes", maxID)
	}
	const tries = 20
	var err error
	for range tries {
		if err = c.flush(ctx, tenant, by, scope, id); !errors.Is(err, toolkeep.ErrStale) {
			break
		}
	}
	if err != nil {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the flush could not be stored; nothing was dropped, try again").Because(err)
	}
	return nil
}

// flush is one attempt; ErrStale if another flush came between.
func (c *Cache) flush(ctx context.Context, tenant, by string, scope Scope, id string) error {
	old := none
	item, err := c.config.Store.Document(ctx, DocumentKind, tenant, itemID)
	switch {
	case err == nil:
		if old, err = readFlushes(item); err != nil {
			old = &flushes{rev: item.Revision, base: item.Revision} // unreadable: drop all earlier answers
		}
	case !errors.Is(err, toolkeep.ErrNotFound):
		return err
	}
	now := c.config.Clock()
	next := flushBody{Base: old.base, Marks: []mark{}}
	for _, m := range old.marks {
		// Answers older than an old mark have expired.
		if now.Sub(m.At) > 2*max(c.config.Life, c.config.RemoteLife) {
			next.Base = max(next.Base, m.Rev)
			continue
		}
		next.Marks = append(next.Marks, m)
	}
	if n := len(next.Marks) - maxMarks + 1; n > 0 {
		next.Base = max(next.Base, next.Marks[n-1].Rev)
		next.Marks = next.Marks[n:]
	}
	next.Marks = append(next.Marks, mark{Rev: old.rev + 1, Scope: scope, ID: id, At: now.UTC().Truncate(time.Second)})
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	put := toolkeep.PutDocument{Expect: old.rev, Document: toolkeep.Document{Kind: DocumentKind, Tenant: tenant, ID: itemID, Body: body, UpdatedBy: by}}
	if err := c.config.Store.Apply(ctx, put); err != nil {
		return err
	}
	put.Document.Revision = old.rev + 1
	c.take(put.Document)
	return nil
}

func readFlushes(i toolkeep.Document) (*flushes, error) {
	var b flushBody
	if err := json.Unmarshal(i.Body, &b); err != nil {
		return nil, fmt.Errorf("the flushes of tenant %q: %w", i.Tenant, err)
	}
	return &flushes{rev: i.Revision, base: b.Base, marks: b.Marks}, nil
}

// Load applies the flushes in the store, given as the documents of DocumentKind.
func (c *Cache) Load(items []toolkeep.Document) {
	for _, i := range items {
		c.take(i)
	}
}

// Follow applies flushes of other nodes. Call it with every change of the feed after Load;
// duplicates are harmless.
func (c *Cache) Follow(change toolkeep.Committed) {
	switch ch := change.Change.(type) {
	case toolkeep.PutDocument:
		if ch.Document.Kind == DocumentKind {
			c.take(ch.Document)
		}
	case toolkeep.DeleteDocument:
		// Only a person deletes it, to have all answers computed again.
		if ch.Kind == DocumentKind {
			c.put(ch.Tenant, nil)
		}
	}
}

func (c *Cache) take(i toolkeep.Document) {
	if i.ID != itemID {
		return
	}
	f, err := readFlushes(i)
	if err != nil {
		c.config.Log.Warn("flushes cannot be read; all cached results of the tenant are dropped", "tenant", i.Tenant, "error", err)
		f = &flushes{rev: i.Revision, base: i.Revision}
	}
	c.put(i.Tenant, f)
}

// put replaces the flushes of a tenant unless they are newer.
func (c *Cache) put(tenant string, f *flushes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.flushed.Load()
	o := old[tenant]
	if f != nil && o != nil && o.rev >= f.rev {
		return
	}
	next := maps.Clone(old)
	switch {
	case f == nil && tenant == everyTenant && o != nil: // the next begins at 1 again, with which there may be answers
		next[tenant] = &flushes{gone: o.gone + o.rev + 1}
	case f == nil:
		delete(next, tenant)
	default:
		if o != nil {
			f.gone = o.gone
		}
		next[tenant] = f
	}
	c.flushed.Store(&next)
}

// allow reports whether an answer has not been flushed since it was built.
func (f *flushes) allow(a *answer, ask discover.Query) bool {
	if a.Rev == f.rev {
		return true
	}
	if a.Rev > f.rev || a.Rev < f.base {
		return false
	}
	for i := range f.marks {
		m := &f.marks[i]
		if m.Rev > a.Rev && m.hits(a, ask) {
			return false
		}
	}
	return true
}

func (m *mark) hits(a *answer, ask discover.Query) bool {
	switch m.Scope {
	case User:
		return m.ID == ask.Session.Subject
	case Strategy:
		return m.ID == string(ask.Strategy) || ask.Strategy == "" && m.ID == string(discover.Hybrid)
	case Tool:
		return slices.ContainsFunc(a.Found, func(k kept) bool { return k.ID == m.ID })
	}
	return true // all, and scopes of newer builds
}
