package approval

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Kinds of the documents.
const (
	RequestKind = "approval"       // id: that of the call
	GrantKind   = "approval_grant" // id: that of the call whose decision made it
)

// State is the state of a Request.
type State string

const (
	Pending  State = "pending"
	Approved State = "approved"
	Denied   State = "denied"
	Expired  State = "expired"
	Ended    State = "ended" // its call ended otherwise, such as by a cancel
)

// Request is what a parked call waits for.
type Request struct {
	ID        string     `json:"id"` // of the call
	Tenant    string     `json:"tenant"`
	Subject   string     `json:"subject"`
	OnBehalf  string     `json:"on_behalf,omitempty"`
	Chain     []string   `json:"chain,omitempty"` // on whose behalf Subject acts, see toolkeep.Principal
	Actor     string     `json:"actor,omitempty"` // who sent the call as Subject
	KeyID     string     `json:"key_id,omitempty"`
	Session   string     `json:"session,omitempty"`
	ToolID    string     `json:"tool_id"`
	Version   string     `json:"version"`
	Reads     bool       `json:"reads,omitempty"` // the tool is known not to write
	Tool      string     `json:"tool_digest"`
	Digest    string     `json:"digest"` // of version and arguments, see Digest
	Why       string     `json:"why"`
	Risk      string     `json:"risk,omitempty"`         // of the tool
	Effects   string     `json:"side_effects,omitempty"` // of the tool
	DecideAt  string     `json:"decide_at,omitempty"`    // address where the approval is read and decided
	Rule      string     `json:"rule,omitempty"`
	Needed    int        `json:"needed"`
	Confirm   bool       `json:"confirm,omitempty"`
	Levels    []Level    `json:"levels"`
	Level     int        `json:"level,omitempty"` // the index of the last one that was asked
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	State     State      `json:"state"`
	DecidedAt time.Time  `json:"decided_at,omitzero"`
	Decisions []Decision `json:"decisions,omitempty"`
	// Asked are the arguments that the caller sent, and Edited those that a person put in their place,
	// both sealed as the call's; nil for none.
	Asked  []byte `json:"asked,omitempty"`
	Edited []byte `json:"edited,omitempty"`

	Revision int64 `json:"-"` // of the document
}

// Decision is what one person or a service decided.
type Decision struct {
	By       string `json:"by"`
	OnBehalf string `json:"on_behalf,omitempty"`
	KeyID    string `json:"key_id,omitempty"` // of the API key that it came with, or that the link it came by is for
	// Service marks a decision of the service that is asked besides persons. By is a name that keys can have too.
	Service bool `json:"service,omitempty"`
	// Link names the link that it came by, see Link.Name; "" without one.
	Link string `json:"link,omitempty"`
	// Via made the link for By that it came by, acting for ViaFor, with ViaKey; "" without one, or if By made it.
	// It counts as a decision of each of them.
	Via    string `json:"via,omitempty"`
	ViaFor string `json:"via_for,omitempty"`
	ViaKey string `json:"via_key,omitempty"`

	At      time.Time `json:"at"`
	Approve bool      `json:"approve"`
	Digest  string    `json:"digest"` // of what was approved
	Edited  bool      `json:"edited,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// Arguments are those that a person put in the place of what a caller sent.
type Arguments struct {
	Sealed []byte   // as the arguments of their call
	Hash   [32]byte // after coercion
	Size   int      // bytes as they were sent
}

// Into puts them into the row of their call; nil changes nothing.
func (e *Arguments) Into(v *toolkeep.Invocation) {
	if e == nil {
		return
	}
	v.SealedArgs, v.ArgsHash, v.ArgsSize = e.Sealed, e.Hash, e.Size
	v.Warnings = []toolkeep.Warning{{Code: toolkeep.ArgumentsEdited, Message: "the person who approved the call changed its arguments; this is the result of those"}}
}

// Digest names what an approval is for: a version of a tool and arguments, by the hash of them
// after coercion.
func Digest(t *toolkeep.Tool, args [32]byte) string { return digest(t.ID, t.Version, t.Digest, args) }

func digest(tool, version, manifest string, args [32]byte) string {
	h := sha256.New()
	for _, s := range [...]string{"toolkeep approval", tool, version, manifest} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
		h.Write([]byte(s))
	}
	h.Write(args[:])
	return hex.EncodeToString(h.Sum(nil))
}

// DigestOf is Digest for the call of a row.
func DigestOf(v *toolkeep.Invocation) string {
	return digest(v.ToolID, v.Version, v.Digest, v.ArgsHash)
}

// newRequest is the request of a call that is about to be parked.
func newRequest(n *Need, v *toolkeep.Invocation) *Request {
	return &Request{
		ID: v.ID, Tenant: v.Tenant, Subject: v.Subject, OnBehalf: v.OnBehalf, Chain: v.Chain, Actor: v.Actor, KeyID: v.KeyID, Session: v.Session,
		ToolID: v.ToolID, Version: v.Version, Reads: !v.Writes, Tool: v.Digest, Digest: DigestOf(v), Why: n.Why, Risk: n.Risk, Effects: n.Effects, Rule: n.Rule,
		Needed: n.Count, Confirm: n.Confirm, Levels: n.Levels, CreatedAt: v.CreatedAt, ExpiresAt: v.Deadline, State: Pending,
	}
}

// Ref names the call.
func (q *Request) Ref() toolkeep.CallRef { return toolkeep.CallRef{Tenant: q.Tenant, ID: q.ID} }

// Roles returns the roles of all levels that were asked, nil if those who hold the permission
// approvals:decide are among them.
func (q *Request) Roles() []string {
	var roles []string
	for i := range min(q.Level+1, len(q.Levels)) {
		if len(q.Levels[i].Roles) == 0 {
			return nil
		}
		roles = append(roles, q.Levels[i].Roles...)
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

// Asks reports whether the principal is one whom the request asks: of the tenant, with the tool in
// its scope, by one of the roles or the permission.
func (q *Request) Asks(p *toolkeep.Principal) bool {
	if p.Tenant != q.Tenant || p.Narrowed != nil || len(p.Scope) > 0 && !toolkeep.MatchesAny(p.Scope, q.ToolID) {
		return false
	}
	roles := q.Roles()
	if roles == nil {
		return p.May(toolkeep.PermApprove)
	}
	return slices.ContainsFunc(p.Roles, func(r string) bool { return slices.Contains(roles, r) })
}

// IsOwn reports whether the principal is one of those who ask, or acts for one of them: the agent,
// the person and the agents that it acts for, who sent the call as the agent, and who has the same key.
func (q *Request) IsOwn(p *toolkeep.Principal) bool {
	for _, asks := range append([]string{q.Subject, q.OnBehalf, q.Actor}, q.Chain...) {
		if asks != "" && (p.Subject == asks || p.OnBehalf == asks || slices.Contains(p.Chain, asks)) {
			return true
		}
	}
	return p.KeyID != "" && p.KeyID == q.KeyID
}

// Decide adds a decision of the principal, which made it for the digest. A denial decides the
// request; so does the last approval that is needed. E3201 for who is not asked or asks itself,
// E3014 for a request that was decided, E3963 for a person who approved already.
func (q *Request) Decide(p *toolkeep.Principal, d Decision) error {
	switch {
	case q.State != Pending:
		return Over(q)
	case !d.At.Before(q.ExpiresAt):
		return toolkeep.NewError(toolkeep.AlreadyDecided, "the time to decide about the call ended at %s", q.ExpiresAt.UTC().Format(time.RFC3339)).With("state", string(Expired))
	case q.IsOwn(p):
		return toolkeep.NewError(toolkeep.PermissionDenied, "you cannot decide about a call of your own; another person decides it").With("reason", "RBAC_DENIED")
	case !q.Asks(p):
		return q.NotAsked()
	case len(q.Decisions) >= MaxDecisions && d.Approve:
		return toolkeep.NewError(toolkeep.StateConflict, "the request has %d decisions; deny it, and have the call sent again", MaxDecisions)
	}
	d.By, d.OnBehalf, d.KeyID = p.Subject, p.OnBehalf, p.KeyID
	if d.Approve && slices.ContainsFunc(q.approvals(d.Digest), d.shares) {
		return toolkeep.NewError(toolkeep.StateConflict, "you have approved this already; %d of %d persons have", len(q.approvals(d.Digest)), q.Needed)
	}
	q.Decisions = append(q.Decisions, d)
	switch {
	case !d.Approve:
		q.State = Denied
	default:
		q.Digest = d.Digest
		if len(q.approvals(q.Digest)) < q.Needed {
			return nil
		}
		q.State = Approved
	}
	q.DecidedAt = d.At
	return nil
}

// Confirmed is the decision of the caller's own person in its client; false if the time for it is
// over.
func (q *Request) Confirmed(p *toolkeep.Principal, approve bool, at time.Time) bool {
	if !at.Before(q.ExpiresAt) {
		return false
	}
	q.Decisions = append(q.Decisions, Decision{By: p.Person(), At: at, Approve: approve, Digest: q.Digest, Reason: "confirmed in the caller's client"})
	q.State, q.DecidedAt = Approved, at
	if !approve {
		q.State = Denied
	}
	return true
}

// BySupervisor is By of decisions of a service that is asked besides persons here; Service tells them from those of a
// key with this subject.
const BySupervisor = "supervisor"

// Supervised is the decision of such a service, for a person that it names or "". It decides alone. E3201 for a person
// who asks; E3014 for a request that was decided or whose time is over.
func (q *Request) Supervised(person string, approve bool, reason string, at time.Time) error {
	switch {
	case q.State != Pending || !at.Before(q.ExpiresAt):
		return Over(q)
	case q.IsOwn(&toolkeep.Principal{OnBehalf: person}):
		return toolkeep.NewError(toolkeep.PermissionDenied, "the approvals service names as who decided one of those who ask").With("reason", "RBAC_DENIED")
	}
	q.Decisions = append(q.Decisions, Decision{By: BySupervisor, OnBehalf: person, Service: true, At: at, Approve: approve, Digest: q.Digest, Reason: reason})
	q.State, q.DecidedAt = Approved, at
	if !approve {
		q.State = Denied
	}
	return nil
}

// MaxDecisions bounds the decisions of a request.
const MaxDecisions = 50

// approvals are those for a digest.
func (q *Request) approvals(digest string) []Decision {
	var all []Decision
	for _, d := range q.Decisions {
		if d.Approve && d.Digest == digest {
			all = append(all, d)
		}
	}
	return all
}

// Have is how many persons have approved what would run.
func (q *Request) Have() int { return len(q.approvals(q.Digest)) }

// NotAsked is the refusal of who may not decide.
func (q *Request) NotAsked() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.PermissionDenied, "this approval is decided by others; it needs %s", q.Deciders()).With("reason", "RBAC_DENIED")
}

// Deciders says what one needs to decide.
func (q *Request) Deciders() string {
	if roles := q.Roles(); roles != nil {
		return "one of the roles [" + strings.Join(roles, ", ") + "]"
	}
	return "the permission " + toolkeep.PermApprove
}

// Over is the error for a request that was decided.
func Over(q *Request) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.AlreadyDecided, "the approval was decided already: it is %s", q.State).With("state", string(q.State))
	if n := len(q.Decisions); n > 0 && (q.State == Approved || q.State == Denied) {
		last := q.Decisions[n-1]
		e.Message = "the approval was decided already: " + last.By + " " + verb(last.Approve) + " it at " + last.At.UTC().Format(time.RFC3339)
	}
	return e
}

// person is whose decision it is.
func (d *Decision) person() string {
	if d.OnBehalf != "" {
		return d.OnBehalf
	}
	return d.By
}

// shares reports whether one of those who made the decision also made another.
func (d *Decision) shares(other Decision) bool {
	of := func(d *Decision) [6]string {
		return [...]string{"name " + d.By, "name " + d.person(), "name " + d.Via, "name " + d.ViaFor, "key " + d.KeyID, "key " + d.ViaKey}
	}
	theirs := of(&other)
	for _, one := range of(d) {
		if one != "name " && one != "key " && slices.Contains(theirs[:], one) {
			return true
		}
	}
	return false
}

// Verdict is approved or denied.
func (d *Decision) Verdict() string { return verb(d.Approve) }

func verb(approve bool) string {
	if approve {
		return "approved"
	}
	return "denied"
}

// Denial is how a denied call ends.
func (q *Request) Denial() *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.ApprovalDenied, "a person denied the call")
	if n := len(q.Decisions); n > 0 {
		if last := q.Decisions[n-1]; last.Reason != "" {
			e.Message += ": " + last.Reason
		}
	}
	return e.With("reason", "ESCALATION_DENIED")
}

// Expiry is how a call ends that no person decided about in time.
func Expiry(deadline time.Time) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ApprovalExpired, "no person decided before %s", deadline.UTC().Format(time.RFC3339))
}

// Types of the events.
const (
	eventRequested = "ai.agent.tool.approval.requested"
	eventEscalated = "ai.agent.tool.approval.escalated"
	eventDecided   = "ai.agent.tool.approval.decided"
)

// event is one of the request, with more members.
func (q *Request) event(kind string, at time.Time, more map[string]any) toolkeep.AppendEvent {
	data := map[string]any{
		"invocation_id": q.ID, "agent_did": q.Subject, "tool_id": q.ToolID, "tool_version": q.Version, "digest": q.Digest,
		"why": q.Why, "state": string(q.State), "expires_at": q.ExpiresAt.UTC().Format(time.RFC3339),
	}
	for name, v := range map[string]string{"on_behalf_of": q.OnBehalf, "session_id": q.Session, "rule": q.Rule, "risk": q.Risk, "decide_at": q.DecideAt} {
		if v != "" {
			data[name] = v
		}
	}
	if q.Chain != nil {
		data["caller_chain"] = canon.Strings(q.Chain)
	}
	for name, v := range more {
		data[name] = v
	}
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random source failed
	}
	return toolkeep.AppendEvent{Event: toolkeep.Event{ID: id.String(), Type: kind, Tenant: q.Tenant, Time: at, Person: cmp.Or(q.OnBehalf, q.Subject), Data: canon.Append(nil, data)}}
}
