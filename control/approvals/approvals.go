// Package approvals is what people decide about calls that wait for them: they list what waits,
// approve it as it is or with other arguments, deny it, and take standing approvals back. Its
// sweep asks the next approvers where the first did not decide.
package approvals

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
)

// Book holds what waits; *approval.Book does.
type Book interface {
	List(tenant string, state approval.State) []*approval.Request
	Get(ctx context.Context, ref toolkeep.CallRef) (*approval.Request, error)
	Grants(tenant string) []*approval.Grant
	Due(now time.Time) (escalate, over []*approval.Request, forget []toolkeep.Change)
	Close(ctx context.Context, ref toolkeep.CallRef, as approval.State, at time.Time) ([]toolkeep.Change, error)
	Link(ctx context.Context, token string) (*approval.Link, error)
	Links(ref toolkeep.CallRef) int
	Waiting() []*approval.Request
}

// Callers knows those who decide by links; *access.Access does.
type Callers interface {
	// Holders returns who the valid API keys of a subject are for.
	Holders(tenant, subject string) []*toolkeep.Principal
	// Refresh looks a stored principal up again. E3214.
	Refresh(ctx context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error)
}

// Calls does to a parked call what was decided; *invoke.Pipeline does. Release, Keep and Dismiss
// commit with together with it, and are ErrStale if the call does not wait any more or something
// of with has changed.
type Calls interface {
	Parked(ctx context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error)
	Unseal(ctx context.Context, p *toolkeep.Principal, row *toolkeep.Invocation, sealed []byte) (any, error)
	Edit(ctx context.Context, row *toolkeep.Invocation, raw []byte) (*approval.Arguments, error)
	Release(ctx context.Context, row *toolkeep.Invocation, edited *approval.Arguments, with ...toolkeep.Change) error
	Keep(ctx context.Context, row *toolkeep.Invocation, edited *approval.Arguments, with ...toolkeep.Change) error
	Dismiss(ctx context.Context, row *toolkeep.Invocation, e *toolkeep.Error, with ...toolkeep.Change) error
}

// Config is what Approvals asks. Book, Calls and Store are required.
type Config struct {
	Book  Book
	Calls Calls
	Store toolkeep.Applier
	// Callers are asked about decision links; nil: there are none.
	Callers Callers
	// Supervisor is a service that decides too; nil for none.
	Supervisor *Supervisor
	// Clean removes secrets from the reason of a decision.
	Clean func(p *toolkeep.Principal, text string) string
	Clock func() time.Time // default time.Now
	Log   *slog.Logger     // default discards
}

// Approvals decides. It is safe for concurrent use.
type Approvals struct {
	c           Config
	seldom      *slog.Logger
	supervising atomic.Bool
}

// New makes one.
func New(c Config) *Approvals {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Approvals{c: c, seldom: toolkeep.Seldom(c.Log, 1, nil)}
}

// Approval is a request as people see it.
type Approval struct {
	InvocationID string     `json:"invocation_id"`
	State        string     `json:"state" doc:"pending, approved, denied, expired or ended"`
	ToolID       string     `json:"tool_id"`
	ToolVersion  string     `json:"tool_version"`
	AgentID      string     `json:"agent_id"`
	UserID       string     `json:"user_id,omitempty" doc:"the person that the agent acts for"`
	SessionID    string     `json:"session_id,omitempty"`
	Why          string     `json:"why" doc:"what asks for the approval"`
	Risk         string     `json:"risk,omitempty" doc:"of the tool version: low, medium or high"`
	SideEffects  string     `json:"side_effects,omitempty" doc:"of the tool version: none, reads or writes; absent for requests of older programs"`
	Rule         string     `json:"rule,omitempty" doc:"the approval rule that says who decides; absent for the default"`
	Digest       string     `json:"digest" doc:"of tool version and arguments: what is approved"`
	Needed       int        `json:"needed" doc:"how many persons must approve"`
	Have         int        `json:"have" doc:"how many have approved what would run"`
	Roles        []string   `json:"roles,omitempty" doc:"roles that may decide now; absent for those with the permission approvals:decide"`
	YouDecide    bool       `json:"you_decide" doc:"you are asked, and the call is not your own"`
	Level        int        `json:"level" doc:"how often further approvers were asked"`
	CreatedAt    time.Time  `json:"created_at"`
	ExpiresAt    time.Time  `json:"expires_at" doc:"then the call is refused (E3213)"`
	DecidedAt    *time.Time `json:"decided_at,omitempty"`
	Decisions    []Decision `json:"decisions"`
	// Parameters and Asked are left out of lists.
	Parameters any `json:"parameters,omitempty" doc:"what would run; what the tool declares secret is left out. Only for those who decide and for the caller"`
	Asked      any `json:"asked_parameters,omitempty" doc:"what the caller sent, where a person edited it"`
}

// Decision is one of a person or a service.
type Decision struct {
	By      string    `json:"by"`
	Service bool      `json:"by_service,omitempty" doc:"the service of approvals.endpoint decided it, for on_behalf_of; by is supervisor then, which can be the subject of a key too"`
	For     string    `json:"on_behalf_of,omitempty"`
	At      time.Time `json:"at"`
	Verdict string    `json:"verdict" doc:"approved or denied"`
	Edited  bool      `json:"edited,omitempty" doc:"with other arguments than before"`
	Digest  string    `json:"digest" doc:"of what was approved"`
	Reason  string    `json:"reason,omitempty"`
	Link    string    `json:"link_made_by,omitempty" doc:"who made the link for the approver by which it came"`
}

// view is the request as p sees it, without arguments.
func view(p *toolkeep.Principal, q *approval.Request) Approval {
	v := Approval{
		InvocationID: q.ID, State: string(q.State), ToolID: q.ToolID, ToolVersion: q.Version, AgentID: q.Subject, UserID: q.OnBehalf,
		SessionID: q.Session, Why: q.Why, Risk: q.Risk, SideEffects: q.Effects, Rule: q.Rule, Digest: q.Digest, Needed: q.Needed, Have: q.Have(), Roles: q.Roles(),
		YouDecide: q.State == approval.Pending && q.Asks(p) && !q.IsOwn(p), Level: q.Level, CreatedAt: q.CreatedAt.UTC(), ExpiresAt: q.ExpiresAt.UTC(),
		Decisions: make([]Decision, len(q.Decisions)),
	}
	if !q.DecidedAt.IsZero() {
		at := q.DecidedAt.UTC()
		v.DecidedAt = &at
	}
	for i, d := range q.Decisions {
		v.Decisions[i] = Decision{By: d.By, Service: d.Service, For: d.OnBehalf, At: d.At.UTC(), Verdict: d.Verdict(), Edited: d.Edited, Digest: d.Digest, Reason: d.Reason, Link: d.Via}
	}
	return v
}

// sees reports whether p may know of the request: it is asked, it is its own, or it sees all calls. A capability
// token shows none of a tool that it does not allow.
func sees(p *toolkeep.Principal, q *approval.Request) bool {
	return q.Tenant == p.Tenant && (q.Asks(p) || q.Subject == p.Subject || p.May(toolkeep.PermInvocations)) && p.Shows(q.ToolID, q.Version, !q.Reads)
}

// List returns the requests that the principal may know of, in a state or, with "", in any, the
// newest first.
func (a *Approvals) List(p *toolkeep.Principal, state approval.State) []Approval {
	var all []Approval
	for _, q := range a.c.Book.List(p.Tenant, state) {
		if sees(p, q) {
			all = append(all, view(p, q))
		}
	}
	return all
}

// Get returns one request, with its arguments for its caller and those who may decide. E3013,
// E3965.
func (a *Approvals) Get(ctx context.Context, p *toolkeep.Principal, id string) (Approval, error) {
	q, err := a.find(ctx, p, id)
	if err != nil {
		return Approval{}, err
	}
	v := view(p, q)
	if !q.Asks(p) && q.Subject != p.Subject {
		return v, nil
	}
	row, err := a.c.Calls.Parked(ctx, q.Ref())
	if err != nil {
		return v, err
	}
	runs := q.Edited // nil unless a person edited them; then both stay with the request
	if runs == nil && row.State == toolkeep.CallPendingApproval {
		runs = row.SealedArgs
	}
	if runs != nil {
		v.Parameters, err = a.c.Calls.Unseal(ctx, p, row, runs)
	}
	if err == nil && q.Asked != nil {
		v.Asked, err = a.c.Calls.Unseal(ctx, p, row, q.Asked)
	}
	return v, err
}

// find returns a request that the principal may know of, as it is stored now.
func (a *Approvals) find(ctx context.Context, p *toolkeep.Principal, id string) (*approval.Request, error) {
	q, err := a.c.Book.Get(ctx, toolkeep.CallRef{Tenant: p.Tenant, ID: id})
	switch {
	case errors.Is(err, toolkeep.ErrNotFound) || err == nil && !sees(p, q):
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no approval %q that you may see", id)
	case err != nil:
		return nil, unreadable(err)
	}
	return q, nil
}

func unreadable(err error) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.RecordUnavailable, "the approvals cannot be read now; nothing was decided").Because(err)
}

// Verdict is what a person decides.
type Verdict struct {
	Approve bool
	Reason  string // for the caller and the record; at most MaxReason bytes
	// Parameters are arguments to run instead of those that were sent, nil for those.
	Parameters []byte
	// Digest, if set, must be that of what would run: else the person saw something else.
	Digest string
	// Remember makes a standing approval; nil for none.
	Remember *Remember

	link  *approval.Link      // by which it came; nil for none
	maker *toolkeep.Principal // of the link, nil if that is the approver
}

// Remember says what a standing approval is for, and how long.
type Remember struct {
	For   approval.Scope
	Until time.Time
}

// MaxReason bounds the reason of a decision, in bytes.
const MaxReason = 4096

// tries bounds how often a decision is made again because the request changed meanwhile.
const tries = 10

// Decide decides. What was decided is committed together with what it does to the call, once.
// E3013 for a request that is not known, E3201 for who is not asked or asks itself, E3301 to E3330
// for arguments that do not fit, E3014 for a request that was decided before, E3963 for one that
// has changed, E3965.
func (a *Approvals) Decide(ctx context.Context, p *toolkeep.Principal, id string, v Verdict) (Approval, error) {
	if len(v.Reason) > MaxReason {
		return Approval{}, toolkeep.NewError(toolkeep.RequestTooLarge, "the reason has %d bytes; at most %d are allowed", len(v.Reason), MaxReason)
	}
	if a.c.Clean != nil {
		v.Reason = a.c.Clean(p, v.Reason)
	}
	for range tries {
		q, err := a.decide(ctx, p, id, v)
		if err == nil {
			return view(p, q), nil
		}
		if errors.Is(err, toolkeep.ErrStale) || errors.Is(err, toolkeep.ErrNotFound) {
			continue // decided, cancelled or escalated meanwhile
		}
		if toolkeep.AsError(err).Code == toolkeep.InternalError { // of the store, in the commit
			return Approval{}, toolkeep.NewError(toolkeep.RecordUnavailable,
				"the decision could not be written, or it is not known whether it was; look at the approval before you decide again").Because(err)
		}
		return Approval{}, err
	}
	return Approval{}, toolkeep.NewError(toolkeep.StateConflict, "the request changed while it was decided; look at it again")
}

func (a *Approvals) decide(ctx context.Context, p *toolkeep.Principal, id string, v Verdict) (*approval.Request, error) {
	q, err := a.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	row, err := a.c.Calls.Parked(ctx, q.Ref())
	if err != nil {
		return nil, err
	}
	if q.State == approval.Pending && row.State != toolkeep.CallPendingApproval {
		q.State = approval.Ended // the call was lost from under its request
	}
	if v.Digest != "" && v.Digest != q.Digest && q.State == approval.Pending {
		return nil, toolkeep.NewError(toolkeep.StateConflict, "what would run has changed: its digest is %s; look at it again", q.Digest).With("digest", q.Digest)
	}
	d := approval.Decision{At: a.c.Clock(), Approve: v.Approve, Digest: q.Digest, Reason: v.Reason}
	if v.link != nil {
		d.Link = v.link.Name()
	}
	if m := v.maker; m != nil {
		if !q.Asks(m) || q.IsOwn(m) {
			return nil, toolkeep.NewError(toolkeep.PermissionDenied, "who made the link may not decide about the call any more, so it decides nothing").With("reason", "RBAC_DENIED")
		}
		d.Via, d.ViaFor, d.ViaKey = m.Subject, m.OnBehalf, m.KeyID
	}
	var edited *approval.Arguments
	if v.Approve && v.Parameters != nil && q.State == approval.Pending && q.Asks(p) && !q.IsOwn(p) {
		if edited, err = a.c.Calls.Edit(ctx, row, v.Parameters); err != nil {
			return nil, err
		}
		if q.Asked == nil {
			q.Asked = row.SealedArgs
		}
		q.Edited = edited.Sealed
		run := *row
		edited.Into(&run)
		d.Digest, d.Edited = approval.DigestOf(&run), true
	}
	if err := q.Decide(p, d); err != nil {
		return nil, err
	}
	var grant *approval.Grant
	if v.Remember != nil && q.State == approval.Approved {
		hash := row.ArgsHash
		if edited != nil {
			hash = edited.Hash
		}
		if grant, err = q.Remember(v.Remember.For, v.Remember.Until, d.At, hash); err != nil {
			return nil, err
		}
	}
	with := []toolkeep.Change{q.Put(p.Subject), q.DecidedEvent(grant)}
	if grant != nil {
		with = append(with, grant.Put())
	}
	if v.link != nil {
		with = append(with, v.link.Used())
	}
	switch q.State {
	case approval.Approved:
		err = a.c.Calls.Release(ctx, row, edited, with...)
	case approval.Denied:
		err = a.c.Calls.Dismiss(ctx, row, q.Denial(), with...)
	default:
		err = a.c.Calls.Keep(ctx, row, edited, with...)
	}
	return q, err
}

// Grant is a standing approval as people see it.
type Grant struct {
	ID          string    `json:"id"`
	ToolID      string    `json:"tool_id"`
	ToolVersion string    `json:"tool_version"`
	AgentID     string    `json:"agent_id"`
	UserID      string    `json:"user_id,omitempty"`
	For         string    `json:"for" doc:"arguments: the same ones; session: any in the session"`
	SessionID   string    `json:"session_id,omitempty"`
	By          string    `json:"by"`
	At          time.Time `json:"at"`
	Until       time.Time `json:"until"`
}

// Grants returns the standing approvals that the principal may know of: with approvals:decide or
// invocations:read those of the tenant, else its own and those that it gave.
func (a *Approvals) Grants(p *toolkeep.Principal) []Grant {
	var all []Grant
	for _, g := range a.c.Book.Grants(p.Tenant) {
		if !p.May(toolkeep.PermApprove) && !p.May(toolkeep.PermInvocations) && g.By != p.Subject && g.Subject != p.Subject {
			continue
		}
		one := Grant{ID: g.ID, ToolID: g.ToolID, ToolVersion: g.Version, AgentID: g.Subject, UserID: g.OnBehalf, For: string(approval.ForArguments),
			SessionID: g.Session, By: g.By, At: g.At.UTC(), Until: g.Until.UTC()}
		if g.Session != "" {
			one.For = string(approval.ForSession)
		}
		all = append(all, one)
	}
	return all
}

// Revoke ends a standing approval. The person who gave it may, and those with approvals:decide. E3013,
// E3201, E3965.
func (a *Approvals) Revoke(ctx context.Context, p *toolkeep.Principal, id string) error {
	for _, g := range a.Grants(p) {
		if g.ID != id {
			continue
		}
		if g.By != p.Subject && !p.May(toolkeep.PermApprove) {
			return toolkeep.NewError(toolkeep.PermissionDenied, "this standing approval is taken back by %s, or with the permission %s", g.By, toolkeep.PermApprove).
				With("reason", "RBAC_DENIED")
		}
		err := a.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: approval.GrantKind, Tenant: p.Tenant, ID: id, Expect: toolkeep.AnyRevision, By: p.Subject})
		if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
			return unreadable(err)
		}
		return nil
	}
	return toolkeep.NewError(toolkeep.ResourceNotFound, "there is no standing approval %q that you may see", id)
}

// Sweep asks the next approvers of requests whose time has come, and the Supervisor; ends requests whose call ended
// otherwise, and forgets what was decided a day ago. One node of all does it.
func (a *Approvals) Sweep(ctx context.Context) error {
	now := a.c.Clock()
	escalate, over, forget := a.c.Book.Due(now)
	var failed error
	apply := func(changes ...toolkeep.Change) {
		err := a.c.Store.Apply(ctx, changes...)
		if err != nil && !errors.Is(err, toolkeep.ErrStale) && !errors.Is(err, toolkeep.ErrNotFound) {
			failed = errors.Join(failed, err)
		}
	}
	for _, q := range escalate {
		if next, event := q.Escalate(now); next != nil {
			a.c.Log.Info("a call waits for further approvers", "invocation_id", q.ID, "tool_id", q.ToolID, "level", next.Level, "roles", next.Roles())
			apply(next.Put(""), event)
		}
	}
	for _, q := range over { // the sweep of calls refuses those that still wait
		row, err := a.c.Calls.Parked(ctx, q.Ref())
		if err == nil && row.State == toolkeep.CallPendingApproval {
			continue
		}
		if err != nil && toolkeep.AsError(err).Code != toolkeep.ResourceNotFound {
			failed = errors.Join(failed, err)
			continue
		}
		changes, err := a.c.Book.Close(ctx, q.Ref(), approval.Ended, now)
		if err != nil || len(changes) == 0 {
			failed = errors.Join(failed, err)
			continue
		}
		apply(changes...)
	}
	for _, c := range forget {
		apply(c)
	}
	a.supervise(ctx)
	return failed
}
