package invoke

import (
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/canon"
)

// need returns the approval that the call owes, nil if none: by its risk, its manifest, the
// caller's wish, the policy or a rule.
func (p *Pipeline) need(a *activeCall) *approval.Need {
	if a.needKnown {
		return a.owed
	}
	why, byRisk := access.NeedsApproval(a.tool, a.call, a.decision.Approval)
	switch {
	case p.Approvals != nil:
		a.owed = p.Approvals.Of(a.principal, a.tool, why, byRisk)
	case why != "":
		a.owed = &approval.Need{Why: why}
	}
	a.needKnown = true
	return a.owed
}

// approve parks a call that owes an approval, unless a standing one covers it. A worker runs what
// was approved and nothing else.
func (p *Pipeline) approve(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	if err := p.withCaller(a); err != nil {
		return nil, err
	}
	if a.row.Approved != "" {
		a.warnings = append(a.warnings, a.row.Warnings...) // a person has changed the arguments
		return nil, approved(a)
	}
	need := p.need(a)
	switch {
	case need == nil:
		return nil, nil
	case p.Approvals == nil:
		return nil, cannotAsk("%s needs a person's approval (%s) and no approval service is configured", a.tool.Ref(), need.Why)
	case a.mode == modeChild || a.instead:
		return nil, cannotAsk("%s needs a person's approval (%s), for which a tool that calls it cannot wait; call it by itself", a.tool.Ref(), need.Why)
	}
	if a.standing = p.Approvals.Standing(&a.row, need); a.standing != nil {
		return nil, nil // of a call that waits, a worker looks for it again
	}
	if err := p.withoutApproval(a, need.Why); err != nil {
		return nil, err
	}
	if a.mode == modeDryRun {
		a.parks = true
		return nil, nil
	}
	if err := p.Approvals.Room(a.row.Tenant, a.row.Subject); err != nil {
		return nil, err
	}
	if a.mode == modeWorker {
		return p.parkAgain(ctx, a)
	}
	return p.park(ctx, a)
}

func cannotAsk(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ApprovalUnavailable, format, args...).With("reason", "ESCALATION_ERROR")
}

// approved compares what was approved with what would run.
func approved(a *activeCall) error {
	if a.row.Approved == approval.Digest(a.tool, a.row.ArgsHash) {
		return nil
	}
	return toolkeep.NewError(toolkeep.ApprovalUnavailable,
		"what a person approved is not what would run now: the tool's version or the arguments differ; send the call again").With("reason", "ESCALATION_ERROR")
}

// park claims the call as one that waits for a person, and answers its caller: at once if it asked
// for that, else when the call has ended, or after ApprovalWait.
func (p *Pipeline) park(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	a.free() // a person may take hours
	a.row.Async = true
	var q *approval.Request
	res, err := p.insert(ctx, a, func() (changes []toolkeep.Change, err error) {
		if err := p.prepareWaiting(a, toolkeep.CallPendingApproval, a.owed.Expires); err != nil {
			return nil, err
		}
		q, changes = p.Approvals.Ask(a.owed, &a.row)
		return changes, nil
	})
	if err != nil || res.Replayed {
		return res, err
	}
	a.parked = true
	p.observe(a, nil)
	if a.call.Async {
		return res, nil
	}
	wait, cancel := context.WithTimeout(ctx, p.patience(a.call))
	defer cancel()
	if a.owed.Confirm {
		p.confirm(wait, a, q)
	}
	return p.awaitDecision(ctx, wait, a)
}

// patience is how long the caller of a parked call waits for a person.
func (p *Pipeline) patience(c *toolkeep.Call) time.Duration {
	patience := p.ApprovalWait
	for _, shorter := range [...]time.Duration{c.Timeout, c.ApprovalWait} {
		if shorter > 0 {
			patience = min(patience, shorter)
		}
	}
	return patience
}

// parkAgain parks a waiting call that owes an approval only now: its tool or the rules have
// changed since it was queued.
func (p *Pipeline) parkAgain(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	a.leave(StepApprove)
	a.noteSteps(int(StepApprove) + 1)
	row := a.row
	row.State, row.LeaseOwner, row.LeaseUntil = toolkeep.CallPendingApproval, "", time.Time{}
	row.Deadline = p.Clock().Add(a.owed.Expires)
	row.ExpiresAt = row.Deadline.Add(p.ResultLife)
	_, changes := p.Approvals.Ask(a.owed, &row)
	move := toolkeep.MoveCall{Invocation: copyRow(&row), From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: p.Node}
	err := p.apply(ctx, append([]toolkeep.Change{move}, changes...)...)
	if errors.Is(err, toolkeep.ErrStale) {
		return nil, takenOver()
	}
	if err != nil {
		return nil, recordUnavailable(err)
	}
	a.row, a.parked = row, true
	p.observe(a, nil)
	return p.Result(&row), nil
}

// parkedState is that of a call that nothing was decided about.
func parkedState(s toolkeep.CallState) bool { return s == toolkeep.CallPendingApproval }

// awaitDecision waits for the decision, at most until wait ends, and after an approval for the end of
// the call. A caller that leaves before it was told that its call waits does not know the call's id:
// unless it can find the call by its key, the call is cancelled. While the store cannot be read the
// caller is told what was last known: that its call waits, and where to ask.
func (p *Pipeline) awaitDecision(ctx, wait context.Context, a *activeCall) (*toolkeep.Result, error) {
	ref := a.row.Ref()
	row, err := p.awaitState(wait, ref, p.drain, func(s toolkeep.CallState) bool { return !parkedState(s) })
	if err == nil && !parkedState(row.State) && !row.State.Ended() {
		run, cancel := p.bound(ctx, a)
		defer cancel()
		row, err = p.awaitState(run, ref, p.drain, toolkeep.CallState.Ended)
	}
	if err != nil {
		p.Log.Warn("what became of a call that waits for a person cannot be read now; its caller was told to ask", "invocation_id", ref.ID, "error", err)
		return p.Result(&a.row), nil
	}
	if ctx.Err() != nil && row.Key == "" && !row.State.Ended() {
		row = p.abandon(ctx, row)
	}
	p.noteFetched(ctx, a.principal, row)
	row = told(&toolkeep.Principal{}, row)
	res := p.Result(row)
	if row.State.Ended() && row.Code != "" {
		return failed(res, res.Error)
	}
	return res, nil
}

// abandon cancels a parked call whose caller has left, and returns its row.
func (p *Pipeline) abandon(ctx context.Context, row *toolkeep.Invocation) *toolkeep.Invocation {
	ctx = context.WithoutCancel(ctx)
	caller := &toolkeep.Principal{Tenant: row.Tenant, Subject: row.Subject}
	if _, _, err := p.Cancel(ctx, caller, row.ID, "its caller left before a person decided"); err != nil {
		p.Log.Warn("a call whose caller left while it waited for a person could not be cancelled", "invocation_id", row.ID, "error", err)
	}
	if now, err := p.Invocations.Get(ctx, row.Ref()); err == nil {
		return now
	}
	return row
}

// maxConfirmation is how many bytes of arguments a person is shown in its client; of more, others
// decide, because people confirm only what they see.
const maxConfirmation = 4096

// confirm asks the caller's own person, where the rules let that one decide and the client can ask,
// until ctx ends or others have decided. Without an answer the call goes on waiting for others.
func (p *Pipeline) confirm(ctx context.Context, a *activeCall, q *approval.Request) {
	asker, ok := a.call.Caller.(toolkeep.Asker)
	args := canon.Append(nil, a.args)
	if !ok || !elicits(asker) || len(args) > maxConfirmation {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		defer cancel()
		_, _ = p.awaitState(ctx, a.row.Ref(), p.drain, func(s toolkeep.CallState) bool { return !parkedState(s) })
	}()
	answer, err := asker.Ask(ctx, "elicitation/create", confirmation(a, args))
	cancel()
	<-decided
	yes, said := confirmed(answer)
	if err != nil || !said {
		return
	}
	q.Revision++ // it was committed with the call
	if !q.Confirmed(a.principal, yes, p.Clock()) {
		return
	}
	changes := []toolkeep.Change{q.Put(a.principal.Person()), q.DecidedEvent(nil)}
	if yes {
		err = p.Release(ctx, copyRow(&a.row), nil, changes...)
	} else {
		err = p.Dismiss(ctx, copyRow(&a.row), q.Denial(), changes...)
	}
	if err != nil && !errors.Is(err, toolkeep.ErrStale) { // stale: others decided meanwhile
		p.Log.Warn("what a person confirmed in the caller's client could not be written; the call goes on waiting", "invocation_id", a.row.ID, "error", err)
	}
}

// elicits reports whether the client shows forms to its person.
func elicits(asker toolkeep.Asker) bool {
	c, ok := asker.(toolkeep.CapabilityReporter)
	if !ok {
		return false
	}
	caps, err := canon.ParseObject(c.Capabilities(), canon.Limits{})
	if err != nil {
		return false
	}
	_, has := caps["elicitation"]
	return has
}

// confirmation is the form that asks for it.
func confirmation(a *activeCall, args []byte) []byte {
	return canon.Append(nil, map[string]any{
		"message": "The agent wants to call " + a.tool.Ref() + ", which needs your approval: " + a.owed.Why + ". Arguments: " + string(args),
		"requestedSchema": map[string]any{"type": "object", "required": []any{"approve"}, "properties": map[string]any{
			"approve": map[string]any{"type": "boolean", "title": "Approve this call"},
		}},
	})
}

// confirmed reads the answer. A form that was closed without an answer decides nothing.
func confirmed(answer []byte) (yes, decided bool) {
	m, err := canon.ParseObject(answer, canon.Limits{})
	if err != nil {
		return false, false
	}
	switch m["action"] {
	case "decline":
		return false, true
	case "accept":
		content, _ := m["content"].(map[string]any)
		yes, decided = content["approve"].(bool)
		return yes, decided
	}
	return false, false
}

// Release queues a parked call that was approved, with the digest that was. args are the sealed
// arguments of Edit, nil for those that its caller sent. with is committed together with it.
// ErrStale if the call does not wait any more, or something of with has changed.
func (p *Pipeline) Release(ctx context.Context, row *toolkeep.Invocation, edited *approval.Arguments, with ...toolkeep.Change) error {
	wait := p.WaitLimit
	if row.Timeout > 0 {
		wait = min(wait, row.Timeout)
	}
	edited.Into(row)
	row.State, row.Approved = toolkeep.CallQueued, approval.DigestOf(row)
	row.Deadline = p.Clock().Add(wait)
	row.ExpiresAt = row.Deadline.Add(p.ResultLife)
	move := toolkeep.MoveCall{Invocation: row, From: []toolkeep.CallState{toolkeep.CallPendingApproval}}
	p.hook("release", row.ID)
	err := p.apply(ctx, append([]toolkeep.Change{move, toolkeep.Enqueue{Call: row.Ref(), Priority: row.Priority}}, with...)...)
	p.hook("released", row.ID)
	return err
}

// Keep replaces the arguments of a call that goes on waiting for more approvals; see Release.
func (p *Pipeline) Keep(ctx context.Context, row *toolkeep.Invocation, edited *approval.Arguments, with ...toolkeep.Change) error {
	if edited != nil {
		edited.Into(row)
		with = append([]toolkeep.Change{toolkeep.MoveCall{Invocation: row, From: []toolkeep.CallState{toolkeep.CallPendingApproval}}}, with...)
	}
	return p.apply(ctx, with...)
}

// Dismiss ends a parked call with e; see Release.
func (p *Pipeline) Dismiss(ctx context.Context, row *toolkeep.Invocation, e *toolkeep.Error, with ...toolkeep.Change) error {
	return p.finishWith(ctx, row, toolkeep.CallRefused, e, with...)
}

// Parked returns a call that waits for a person. The caller of it checks who may see it. E3013, E3965.
func (p *Pipeline) Parked(ctx context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	row, err := p.Invocations.Get(ctx, ref)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no invocation %q", ref.ID)
	}
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the record of calls cannot be read now").Because(err)
	}
	return row, nil
}

// Edit validates arguments as a call's own, for its version of the tool, and seals them. E3301 to
// E3330; E3001 to E3012 if the version cannot be called any more.
func (p *Pipeline) Edit(ctx context.Context, row *toolkeep.Invocation, raw []byte) (*approval.Arguments, error) {
	a := &activeCall{asked: asked{mode: modeDryRun, call: callOf(row), principal: callerOf(row), composition: &composition{}}, record: record{row: *row}}
	a.call.Range, a.call.Arguments = row.Version, raw
	if _, err := p.resolve(ctx, a); err != nil {
		return nil, err
	}
	var err error
	if a.arguments, err = canon.ParseObject(raw, p.Arguments); err != nil {
		return nil, err
	}
	if _, err := p.validate(ctx, a); err != nil {
		return nil, err
	}
	sealed, err := p.Sealer.Seal(raw, sealContext(row))
	if err != nil {
		return nil, recordUnavailable(err)
	}
	return &approval.Arguments{Sealed: sealed, Hash: a.row.ArgsHash, Size: len(raw)}, nil
}

// Unseal opens sealed arguments of a parked call for a person who decides about it. What the tool
// declares secret is left out of them.
func (p *Pipeline) Unseal(ctx context.Context, pr *toolkeep.Principal, row *toolkeep.Invocation, sealed []byte) (any, error) {
	raw, err := p.Sealer.Open(sealed, sealContext(row))
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.ResumeFailed, "the call's stored arguments cannot be opened; the key file may have been replaced").Because(err)
	}
	args, err := canon.ParseObject(raw, p.Arguments)
	if err != nil {
		return nil, err
	}
	v, _, err := p.Catalog.Resolve(ctx, callerOf(row), row.ToolID, row.Version, func(*toolkeep.Tool) bool { return true })
	if err != nil {
		return nil, err
	}
	return p.withSensitive(p.Redact.For(pr), v.Tool, args).CleanValue(args), nil
}
