package policies

import (
	"context"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/canon"
)

// Limits of a replay.
const (
	MaxReplay  = 1000 // calls
	replayTime = 10 * time.Second
	replayPage = 200
	// MaxReplayBytes bounds the files of a policy that is tried: compiling cannot be ended, and takes time and memory in
	// proportion to them.
	MaxReplayBytes = 1 << 20
)

// Replay is what a policy would have decided about recorded calls.
type Replay struct {
	Digest   string        `json:"digest" doc:"of the policy that was tried"`
	Reads    []string      `json:"reads,omitempty" doc:"what of the input it reads"`
	Calls    int           `json:"calls" doc:"that were looked at, the newest first"`
	Same     int           `json:"same" doc:"that it decides as they were decided"`
	NotAsked int           `json:"not_asked" doc:"that were refused before a policy is asked"`
	Changed  []Changed     `json:"changed"`
	Unknown  []NotReplayed `json:"not_replayed" doc:"that cannot be decided again, since something that the policy reads was not kept"`
	TimedOut bool          `json:"timed_out,omitempty" doc:"the time for a replay ended before the last call"`
}

// Changed is a call that the policy decides otherwise than it was decided.
type Changed struct {
	InvocationID string    `json:"invocation_id"`
	At           time.Time `json:"at"`
	AgentID      string    `json:"agent_id"`
	ToolID       string    `json:"tool_id"`
	ToolVersion  string    `json:"tool_version"`
	Was          string    `json:"was" enum:"allowed,needs_approval,denied,undecided"`
	Would        string    `json:"would" enum:"allowed,needs_approval,denied,hidden,undecided"`
	Reason       string    `json:"reason,omitempty"`
	Rule         string    `json:"rule,omitempty"`
}

// NotReplayed is a call that cannot be decided again.
type NotReplayed struct {
	InvocationID string   `json:"invocation_id"`
	ToolID       string   `json:"tool_id"`
	Missing      []string `json:"missing" doc:"what the policy reads and was not kept: members of the input, or tool where the version is not in the catalogue any more"`
}

// Replay decides the newest n calls of the tenant again by a policy that is sent, with what was recorded
// of them. Arguments are recorded as a hash alone, addresses for the audit only; roles and what follows from
// them are those that the call's key has now. It runs no test of the policy. It needs invocations:read
// and, since a policy runs in the server, what List needs. E3201; E3008 for a policy that cannot be
// used; E3802 while another replay runs; E3965.
func (s *Policies) Replay(ctx context.Context, p *toolkeep.Principal, texts map[string]string, n int) (*Replay, error) {
	if err := operates(p); err != nil {
		return nil, err
	}
	if !p.May(toolkeep.PermInvocations) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "a replay reads the calls of all callers; it needs the permission %s", toolkeep.PermInvocations).With("permission", toolkeep.PermInvocations)
	}
	if n < 1 || n > MaxReplay {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "last is from 1 to %d", MaxReplay)
	}
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	if size > MaxReplayBytes {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the files of the policy have %d bytes; a replay takes at most %d", size, MaxReplayBytes)
	}
	if !s.replaying.CompareAndSwap(false, true) {
		return nil, toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "another replay of a policy runs on this node; try again when it has ended").After(replayTime)
	}
	defer s.replaying.Store(false)
	ctx, cancel := context.WithTimeout(ctx, replayTime)
	defer cancel()
	files, err := policy.Collect(texts)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the policy cannot be used: %s", err)
	}
	var at time.Time
	engine, err := policy.Trial(ctx, policy.Config{Timeout: s.c.Timeout, Clock: func() time.Time { return at }}, files)
	if err != nil {
		return nil, err
	}
	r := &replay{s: s, ctx: ctx, p: p, engine: engine, at: &at, out: Replay{Digest: engine.State().Digest, Reads: engine.State().Reads,
		Changed: []Changed{}, Unknown: []NotReplayed{}}}
	if r.keys, err = s.keysByID(ctx, p.Tenant); err != nil {
		return nil, err
	}
	until := s.c.Clock() // pages stay the same while calls come
	for r.out.Calls < n && !r.out.TimedOut {
		page, _, err := s.c.Calls.List(ctx, toolkeep.InvocationFilter{Tenant: p.Tenant, Until: until, Offset: r.out.Calls, Limit: min(replayPage, n-r.out.Calls)})
		if err != nil && ctx.Err() == nil {
			return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the record of calls cannot be read now").Because(err)
		}
		for _, v := range page {
			if ctx.Err() != nil {
				break
			}
			r.call(v)
		}
		if r.out.TimedOut = ctx.Err() != nil; len(page) < replayPage {
			break
		}
	}
	return &r.out, nil
}

// keysByID returns all keys of a tenant, revoked ones too: the calls are of the past.
func (s *Policies) keysByID(ctx context.Context, tenant string) (map[string]*toolkeep.APIKey, error) {
	list, err := s.c.Access.ListKeys(ctx, &toolkeep.Principal{Tenant: tenant, Permissions: []string{toolkeep.PermKeys}})
	if err != nil {
		return nil, err
	}
	keys := make(map[string]*toolkeep.APIKey, len(list))
	for i := range list {
		keys[list[i].ID] = &list[i]
	}
	return keys, nil
}

type replay struct {
	s      *Policies
	ctx    context.Context
	p      *toolkeep.Principal
	engine *policy.Engine
	at     *time.Time // what the engine takes for now
	keys   map[string]*toolkeep.APIKey
	out    Replay
}

// call decides one recorded call again.
func (r *replay) call(v *toolkeep.Invocation) {
	r.out.Calls++
	if !asked(v) {
		r.out.NotAsked++
		return
	}
	q, missing := r.question(v)
	if len(missing) > 0 {
		r.out.Unknown = append(r.out.Unknown, NotReplayed{InvocationID: v.ID, ToolID: v.ToolID, Missing: missing})
		return
	}
	*r.at = v.CreatedAt
	was, would := r.was(v, q), Changed{InvocationID: v.ID, At: v.CreatedAt.UTC(), AgentID: v.Subject, ToolID: v.ToolID, ToolVersion: v.Version}
	r.decide(q, &would)
	if r.ctx.Err() != nil { // the time for the replay is over, and not that for the policy
		r.out.Calls--
		return
	}
	if would.Was = was; was == would.Would {
		r.out.Same++
		return
	}
	r.out.Changed = append(r.out.Changed, would)
}

// decide asks the policy that is tried. A call owes an approval by its tool or a rule too.
func (r *replay) decide(q *access.Question, to *Changed) {
	if !r.engine.Sees(q.Principal, q.Tool) {
		to.Would, to.Reason = Hidden, "the policy does not let the caller see the tool"
		return
	}
	d := access.Decision{Allowed: true}.Consult(r.ctx, r.engine, q, func(text string) string { return text })
	check := d.Checks[len(d.Checks)-1]
	to.Would, to.Reason, to.Rule = Allowed, check.Reason, check.Rule
	switch {
	case d.Code == toolkeep.PolicyEngineUnavailable:
		to.Would = Undecided
		if d.Cause != nil {
			to.Reason = d.Cause.Error()
		}
	case !d.Allowed:
		to.Would = Denied
	default:
		if need := r.s.need(q.Principal, q.Tool, d.Approval); need != nil {
			to.Would, to.Reason = NeedsApproval, need.Why
		}
	}
}

// asked reports whether a policy would be asked about the call, or would have been: it was not refused
// before by what comes first.
func asked(v *toolkeep.Invocation) bool {
	if v.Version == "" {
		return false
	}
	if v.State != toolkeep.CallRefused {
		return true
	}
	switch v.Code {
	case toolkeep.PolicyDenied, toolkeep.PolicyEngineUnavailable, toolkeep.ApprovalDenied, toolkeep.ApprovalExpired, toolkeep.ApprovalUnavailable:
		return true
	}
	return v.Code.Info().BC6 != "UNAUTHORIZED"
}

// was is how the call was decided.
func (r *replay) was(v *toolkeep.Invocation, q *access.Question) string {
	switch {
	case v.Code == toolkeep.PolicyDenied:
		return Denied
	case v.Code == toolkeep.PolicyEngineUnavailable:
		return Undecided
	case v.Approved != "", v.State == toolkeep.CallPendingApproval, v.Code == toolkeep.ApprovalDenied, v.Code == toolkeep.ApprovalExpired,
		v.Code == toolkeep.ApprovalUnavailable, r.s.need(q.Principal, q.Tool, nil) != nil:
		return NeedsApproval
	}
	return Allowed
}

// question is what the policy was or would have been asked, with what it reads and was not kept.
func (r *replay) question(v *toolkeep.Invocation) (*access.Question, []string) {
	var missing []string
	reads := func(names ...string) {
		for _, name := range names {
			if slices.Contains(r.out.Reads, name) && !slices.Contains(missing, name) {
				missing = append(missing, name)
			}
		}
	}
	if v.Withheld != "" { // the address and the arguments are looked at below
		reads("caller.on_behalf_of", "caller.chain")
	}
	p := &toolkeep.Principal{Subject: v.Subject, Tenant: v.Tenant}
	if k := r.keys[v.KeyID]; k != nil {
		p = r.s.c.Access.PrincipalOf(k)
		p.Subject = v.Subject
	} else {
		reads("caller.roles", "caller.permissions", "caller.workspace", "caller.claims", "caller.session")
		if v.Method == "" {
			reads("caller.method")
		}
		if v.Chain == nil && (v.Method == "" || v.Method == access.MethodProxy) { // older programs recorded none
			reads("caller.chain")
		}
	}
	if v.Method != "" {
		p.Method = v.Method
	}
	p.OnBehalf, p.Chain, p.KeyID = v.OnBehalf, v.Chain, v.KeyID
	if p.Addr = v.Addr; v.Addr == "" {
		reads("caller.address")
	}
	const none = len("{}")
	arguments := map[string]any{}
	if v.ArgsSize > none {
		if arguments = sentWith(v); arguments == nil {
			reads("arguments")
		}
	}
	reads("call.token") // no record has it
	found, _, err := r.s.c.Catalog.Find(r.p, v.ToolID, v.Version, nil)
	if err != nil || found.Tool.Digest != v.Digest {
		return nil, append(missing, "tool")
	}
	c := &toolkeep.Call{Tool: v.ToolID, Range: v.Range, Session: v.Session, Plan: v.Plan, Task: v.Task, Parent: v.Parent, Face: v.Face,
		Async: v.Async, Priority: v.Priority}
	return &access.Question{Principal: p, Tool: found.Tool, Call: c, Arguments: arguments}, missing
}

// sentWith returns the arguments of a call if they were recorded and nothing was taken out of them, else nil.
func sentWith(v *toolkeep.Invocation) map[string]any {
	tree, err := canon.ParseObject(v.Input, canon.Limits{Bytes: 64 << 10, Depth: 1000, Properties: 64 << 10, Elements: 64 << 10})
	if err != nil || canon.Hash(tree) != v.ArgsHash {
		return nil
	}
	return tree
}
