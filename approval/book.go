package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Store is the part of a store that a Book uses.
type Store interface {
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
}

// Config sets up a Book. Store and Rules are required.
type Config struct {
	Store Store
	Rules *Rules
	// MaxPending is how many calls of one tenant may wait for a person, default 10,000; and
	// MaxPendingAgent how many of one agent, default 100.
	MaxPending, MaxPendingAgent int
	URL                         func() string // under which people reach the server; nil leaves decide_at out of events
	Clock                       func() time.Time
	Log                         *slog.Logger
}

// kept is how long a request is kept after it was decided.
const kept = 24 * time.Hour

// Book holds all requests and standing approvals. It follows the feed; it is safe for concurrent
// use.
type Book struct {
	c Config

	mu       sync.RWMutex
	requests map[toolkeep.CallRef]*Request // immutable
	pending  map[who]int                   // how many, by agent and by tenant
	grants   map[whose][]*Grant
	links    map[string]*Link // by id

	position toolkeep.FeedPosition
}

// who is an agent; without a subject, all of the tenant.
type who struct{ tenant, subject string }

// New creates a Book; call Start before using it.
func New(c Config) (*Book, error) {
	if c.Store == nil || c.Rules == nil {
		return nil, errors.New("approval: the store or the rules are missing")
	}
	if c.MaxPending <= 0 {
		c.MaxPending = 10_000
	}
	if c.MaxPendingAgent <= 0 {
		c.MaxPendingAgent = 100
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Book{c: c, requests: map[toolkeep.CallRef]*Request{}, pending: map[who]int{}, grants: map[whose][]*Grant{}, links: map[string]*Link{}}, nil
}

// Start reads what is stored and returns the feed position from which Follow must receive every
// change.
func (b *Book) Start(ctx context.Context) (int64, error) {
	var first int64
	// Links come first, since a link without a request is deleted: the request of each is stored before it.
	for i, kind := range [...]string{LinkKind, RequestKind, GrantKind} {
		list, seq, err := b.c.Store.Documents(ctx, kind)
		if err != nil {
			return 0, err
		}
		if i == 0 { // what the feed repeats of the others changes nothing
			first = seq
		}
		for _, d := range list {
			b.put(d)
		}
	}
	b.position.Reach(first)
	return first, nil
}

// Follow applies one change of the feed.
func (b *Book) Follow(c toolkeep.Committed) {
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		b.put(ch.Document)
	case toolkeep.DeleteDocument:
		b.drop(ch.Kind, ch.Tenant, ch.ID)
	}
	b.position.Reach(c.Seq)
}

// Applied and AwaitApplied make Book a toolkeep.FeedFollower.
func (b *Book) Applied() int64 { return b.position.Applied() }

func (b *Book) AwaitApplied(ctx context.Context, seq int64) error {
	return b.position.AwaitApplied(ctx, seq)
}

func (b *Book) put(d toolkeep.Document) {
	switch d.Kind {
	case RequestKind:
		q, err := decodeRequest(d)
		if err != nil {
			b.c.Log.Error("a stored approval request cannot be read; its call waits until its deadline", "tenant", d.Tenant, "invocation_id", d.ID, "error", err)
			return
		}
		b.putRequest(q)
	case LinkKind:
		b.putLink(d)
	case GrantKind:
		g := &Grant{}
		if err := json.Unmarshal(d.Body, g); err != nil || g.Tenant != d.Tenant || g.ID != d.ID {
			b.c.Log.Error("a stored standing approval cannot be read and approves nothing", "tenant", d.Tenant, "id", d.ID)
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		k := whose{g.Tenant, g.Subject, g.ToolID}
		b.grants[k] = append(without(b.grants[k], g.ID), g)
	}
}

func decodeRequest(d toolkeep.Document) (*Request, error) {
	q := &Request{}
	if err := json.Unmarshal(d.Body, q); err != nil {
		return nil, err
	}
	if q.Tenant != d.Tenant || q.ID != d.ID || len(q.Levels) == 0 || q.Needed < 1 {
		return nil, errors.New("it is incomplete, or that of another call")
	}
	q.Revision = d.Revision
	return q, nil
}

func (b *Book) putRequest(q *Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.requests[q.Ref()]
	if old != nil && old.Revision >= q.Revision {
		return
	}
	b.count(old, -1)
	b.count(q, 1)
	b.requests[q.Ref()] = q
}

// count adds a pending request to the counts, or removes it.
func (b *Book) count(q *Request, n int) {
	if q == nil || q.State != Pending {
		return
	}
	for _, k := range [...]who{{q.Tenant, q.Subject}, {q.Tenant, ""}} {
		if b.pending[k] += n; b.pending[k] == 0 {
			delete(b.pending, k)
		}
	}
}

func (b *Book) drop(kind, tenant, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch kind {
	case RequestKind:
		ref := toolkeep.CallRef{Tenant: tenant, ID: id}
		b.count(b.requests[ref], -1)
		delete(b.requests, ref)
	case LinkKind:
		delete(b.links, id)
	case GrantKind:
		for k, list := range b.grants {
			if k.tenant != tenant {
				continue
			}
			if list = without(list, id); len(list) == 0 {
				delete(b.grants, k)
			} else {
				b.grants[k] = list
			}
		}
	}
}

func without(list []*Grant, id string) []*Grant {
	return slices.DeleteFunc(slices.Clone(list), func(g *Grant) bool { return g.ID == id })
}

// Of returns the approval that the principal's call of the tool owes, see Rules.Of.
func (b *Book) Of(p *toolkeep.Principal, t *toolkeep.Tool, why string, byRisk bool) *Need {
	return b.c.Rules.Of(p, t, why, byRisk)
}

// Room is E3216 if no more calls of the agent, or of its tenant, may wait for a person.
func (b *Book) Room(tenant, subject string) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, limit := range [...]struct {
		of   who
		most int
		text string
	}{
		{who{tenant, subject}, b.c.MaxPendingAgent, "%d calls of this agent wait for a person's decision, which is the limit (approvals.max_pending_per_agent)"},
		{who{tenant, ""}, b.c.MaxPending, "%d calls of this tenant wait for a person's decision, which is the limit (approvals.max_pending)"},
	} {
		if n := b.pending[limit.of]; n >= limit.most {
			return toolkeep.NewError(toolkeep.ApprovalUnavailable, limit.text+"; wait until some are decided, or cancel them", n).
				With("reason", "ESCALATION_ERROR").After(time.Minute)
		}
	}
	return nil
}

// Ask returns the changes that begin the request of a call: they are committed with its row.
func (b *Book) Ask(n *Need, v *toolkeep.Invocation) (*Request, []toolkeep.Change) {
	q := newRequest(n, v)
	if b.c.URL != nil {
		q.DecideAt = b.c.URL() + "/api/v1/approvals/" + url.PathEscape(q.ID)
	}
	return q, []toolkeep.Change{q.Put(v.Subject), q.event(eventRequested, v.CreatedAt, map[string]any{"needed": q.Needed, "roles": canon.Strings(q.Roles())})}
}

// Put stores the request, which must not have changed since it was read.
func (q *Request) Put(by string) toolkeep.Change {
	body, err := json.Marshal(q)
	if err != nil {
		panic(err) // a struct of texts, numbers and times
	}
	return toolkeep.PutDocument{Document: toolkeep.Document{Kind: RequestKind, Tenant: q.Tenant, ID: q.ID, Body: body, UpdatedBy: by}, Expect: q.Revision}
}

// Put stores the grant.
func (g *Grant) Put() toolkeep.Change {
	body, err := json.Marshal(g)
	if err != nil {
		panic(err) // a struct of texts and times
	}
	return toolkeep.PutDocument{Document: toolkeep.Document{Kind: GrantKind, Tenant: g.Tenant, ID: g.ID, Body: body, UpdatedBy: g.By}, Expect: toolkeep.NoRevision}
}

// DecidedEvent says what the newest decision of the request did.
func (q *Request) DecidedEvent(g *Grant) toolkeep.Change {
	last := q.Decisions[len(q.Decisions)-1]
	more := map[string]any{"decision": verb(last.Approve), "decided_by": last.By, "have": len(q.approvals(last.Digest)), "needed": q.Needed, "edited": last.Edited}
	if last.OnBehalf != "" {
		more["decided_on_behalf_of"] = last.OnBehalf
	}
	if last.Service {
		more["decided_by_service"] = true
	}
	if last.Via != "" {
		more["decided_by_link_of"] = last.Via
	}
	if last.ViaFor != "" {
		more["link_on_behalf_of"] = last.ViaFor
	}
	if last.Link != "" {
		more["link"] = last.Link
	}
	if last.Reason != "" {
		more["reason"] = last.Reason
	}
	if g != nil {
		more["standing_until"] = g.Until.UTC().Format(time.RFC3339)
		more["standing_for"] = string(ForArguments)
		if g.Session != "" {
			more["standing_for"] = string(ForSession)
		}
	}
	return q.event(eventDecided, last.At, more)
}

// StandingEvent says that a standing approval let a call pass.
func StandingEvent(g *Grant, v *toolkeep.Invocation, at time.Time) toolkeep.Change {
	q := &Request{ID: v.ID, Tenant: v.Tenant, Subject: v.Subject, OnBehalf: v.OnBehalf, Chain: v.Chain, Session: v.Session, ToolID: v.ToolID, Version: v.Version,
		Digest: DigestOf(v), State: Approved, Rule: g.Rule, ExpiresAt: g.Until, Why: "a standing approval covers the call"}
	return q.event(eventDecided, at, map[string]any{"decision": verb(true), "decided_by": g.By, "standing_approval": g.ID})
}

// Escalate returns the request asked of the next level if its time has come, nil before, and the
// event of it.
func (q *Request) Escalate(now time.Time) (*Request, toolkeep.Change) {
	next := *q
	for next.Level+1 < len(q.Levels) && !now.Before(q.CreatedAt.Add(q.Levels[next.Level+1].After)) {
		next.Level++
	}
	if next.Level == q.Level {
		return nil, nil
	}
	return &next, next.event(eventEscalated, now, map[string]any{"level": next.Level, "roles": canon.Strings(next.Levels[next.Level].Roles)})
}

// List returns the requests of a tenant in a state, "" for all, the newest first.
func (b *Book) List(tenant string, state State) []*Request {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var all []*Request
	for _, q := range b.requests {
		if q.Tenant == tenant && (state == "" || q.State == state) {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(x, y *Request) int {
		if n := y.CreatedAt.Compare(x.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(x.ID, y.ID)
	})
	return all
}

// Waiting returns the pending requests of all tenants, the oldest first.
func (b *Book) Waiting() []*Request {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var all []*Request
	for _, q := range b.requests {
		if q.State == Pending {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(x, y *Request) int {
		return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), strings.Compare(x.ID, y.ID))
	})
	return all
}

// Pending is how many calls wait for a person.
func (b *Book) Pending() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	n := 0
	for k, count := range b.pending {
		if k.subject == "" {
			n += count
		}
	}
	return n
}

// Get returns a request as it is stored now; ErrNotFound.
func (b *Book) Get(ctx context.Context, ref toolkeep.CallRef) (*Request, error) {
	d, err := b.c.Store.Document(ctx, RequestKind, ref.Tenant, ref.ID)
	if err != nil {
		return nil, err
	}
	return decodeRequest(d)
}

// Close returns the changes by which the request of a call ends without a decision, none if there
// is no pending one. A request that was only asked and cancelled is not kept: its events are. One
// that cannot be read keeps no call from ending.
func (b *Book) Close(ctx context.Context, ref toolkeep.CallRef, as State, at time.Time) ([]toolkeep.Change, error) {
	d, err := b.c.Store.Document(ctx, RequestKind, ref.Tenant, ref.ID)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	drop := []toolkeep.Change{toolkeep.DeleteDocument{Kind: RequestKind, Tenant: ref.Tenant, ID: ref.ID, Expect: d.Revision}}
	q, err := decodeRequest(d)
	switch {
	case err != nil:
		b.c.Log.Error("an approval request that cannot be read is dropped, since its call ends", "tenant", ref.Tenant, "invocation_id", ref.ID, "error", err)
		return drop, nil
	case q.State != Pending:
		return nil, nil
	case as == Ended && len(q.Decisions) == 0:
		return drop, nil
	}
	q.State, q.DecidedAt = as, at
	changes := []toolkeep.Change{q.Put("")}
	if as == Expired {
		changes = append(changes, q.event(eventDecided, at, map[string]any{"decision": "expired", "have": q.Have(), "needed": q.Needed}))
	}
	return changes, nil
}

// Due returns what is to be done at a time: requests to ask the next level of, and to look after
// because their time is over; and changes that forget what nothing needs any more.
func (b *Book) Due(now time.Time) (escalate, over []*Request, forget []toolkeep.Change) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, q := range b.requests {
		switch {
		case q.State != Pending && now.Sub(q.DecidedAt) >= kept:
			forget = append(forget, toolkeep.DeleteDocument{Kind: RequestKind, Tenant: q.Tenant, ID: q.ID, Expect: q.Revision})
		case q.State != Pending:
		case !now.Before(q.ExpiresAt):
			over = append(over, q)
		default:
			if next, _ := q.Escalate(now); next != nil {
				escalate = append(escalate, q)
			}
		}
	}
	for _, list := range b.grants {
		for _, g := range list {
			if !now.Before(g.Until) {
				forget = append(forget, toolkeep.DeleteDocument{Kind: GrantKind, Tenant: g.Tenant, ID: g.ID, Expect: toolkeep.AnyRevision})
			}
		}
	}
	return escalate, over, append(forget, b.deadLinks(now)...)
}
