package invoke

import (
	"context"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
)

// authorise decides. Then it returns the key's stored answer, which only callers that may still call get.
func (p *Pipeline) authorise(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	if err := p.decide(ctx, a); err != nil {
		return nil, err
	}
	if a.kept == nil {
		return nil, nil
	}
	if err := a.mayHave(a.kept); err != nil {
		return nil, err
	}
	if a.mode == modeDryRun {
		return nil, nil
	}
	if err := p.consultKept(ctx, a); err != nil {
		return nil, err
	}
	return p.answerKept(ctx, a)
}

// decide decides whether the principal may call the tool.
func (p *Pipeline) decide(ctx context.Context, a *activeCall) error {
	a.decision = p.Access.Authorise(a.principal, a.tool, a.call)
	p.narrow(a)
	if policy := p.Access.Policy(); policy != nil {
		if a.hidden && a.decision.Allowed && !policy.Sees(a.principal, a.tool) { // explained for another; as unseen does
			a.decision.Allowed, a.decision.Code, a.decision.Reason = false, toolkeep.PolicyDenied, hiddenByRule
			a.decision.Checks = append(slices.Clone(a.decision.Checks), access.Check{Name: access.CheckPolicy, Reason: hiddenByRule})
			return p.decided(a)
		}
		p.consult(ctx, a, policy, a.arguments)
		p.consultValidated(ctx, a) // of a call that is decided again
	}
	return p.decided(a)
}

// decided returns the decision's refusal, which counts unless the policy, or the store that has the
// key of the call's token, could not answer. After too many it is E3810; the record has the reason.
func (p *Pipeline) decided(a *activeCall) error {
	a.row.AllowedRole, a.row.AllowedPolicy = a.decision.AllowedBy()
	if a.decision.Allowed {
		return nil
	}
	switch a.decision.Code {
	case toolkeep.PolicyEngineUnavailable:
		p.seldom.Warn("the policy could not decide a call, which is denied", "cause", access.CauseOf(a.decision.Cause), "invocation_id", a.row.ID, "tool_id", a.row.ToolID, "error", a.decision.Cause)
	case toolkeep.RegistryUnavailable:
		p.seldom.Warn("the key of a capability token could not be looked up, so the call is not made", "invocation_id", a.row.ID, "tool_id", a.row.ToolID, "error", a.decision.Cause)
	default:
		var blocked error
		if a.mode != modeWorker { // the call was admitted before the block
			blocked = p.Access.Blocked(a.principal)
		}
		p.noteDenied(a)
		if blocked != nil {
			a.denied = denied(a.decision)
			return blocked
		}
	}
	return denied(a.decision)
}

// consult asks the policy about a call that the roles allow, in a dry run about every call.
func (p *Pipeline) consult(ctx context.Context, a *activeCall, policy access.Policy, arguments map[string]any) {
	if !a.decision.Allowed && a.mode != modeDryRun || arguments == nil { // nil: a dry run of arguments that cannot be read
		return
	}
	a.decision = p.ask(ctx, a, a.decision, policy, a.tool, arguments)
}

func (p *Pipeline) ask(ctx context.Context, a *activeCall, d access.Decision, policy access.Policy, t *toolkeep.Tool, arguments map[string]any) access.Decision {
	q := &access.Question{Principal: a.principal, Tool: t, Call: a.call, Arguments: arguments}
	return d.Consult(ctx, policy, q, func(text string) string { return p.withSensitive(p.clean(a), t, arguments).Clean(text) })
}

// consultKept asks the policy about the validated arguments of a call whose answer is kept:
// such a call does not reach validate.
func (p *Pipeline) consultKept(ctx context.Context, a *activeCall) error {
	policy := p.Access.Policy()
	if policy == nil || !policy.ReadsArguments() {
		return nil
	}
	s, err := p.Schemas.Get(a.tool.Digest, a.tool.Manifest.ParametersSchema)
	if err != nil {
		return err
	}
	args, faults := s.Prepare(ctx, a.arguments)
	if len(faults) > 0 { // of a newer version than the kept call's
		return nil
	}
	p.consult(ctx, a, policy, args)
	return p.decided(a)
}

// consultValidated asks the policy again about arguments that validation has changed by coercion
// or defaults, if it reads arguments: what is carried out is what it allowed.
func (p *Pipeline) consultValidated(ctx context.Context, a *activeCall) {
	policy := p.Access.Policy()
	if policy == nil || a.args == nil || !policy.ReadsArguments() || a.row.ArgsHash == canon.Hash(a.arguments) {
		return
	}
	before := a.decision
	p.consult(ctx, a, policy, a.args)
	if a.decision.Approval == nil {
		a.decision.Approval = before.Approval
	}
}

// noteDenied counts a refusal, except in a dry run.
func (p *Pipeline) noteDenied(a *activeCall) {
	if a.mode != modeDryRun {
		p.Access.NoteDenied(a.principal, a.row.ToolID)
	}
}

func denied(d access.Decision) *toolkeep.Error {
	e := toolkeep.NewError(d.Code, "%s", d.Reason)
	switch d.Code {
	case toolkeep.PermissionDenied:
		e.With("reason", "RBAC_DENIED")
	case toolkeep.PolicyDenied:
		e.With("reason", "ABAC_DENIED")
	case toolkeep.PolicyEngineUnavailable:
		e.With("reason", "ABAC_ERROR").Because(d.Cause)
	case toolkeep.TokenInvalid:
		e.Because(d.Cause)
	case toolkeep.RegistryUnavailable:
		e.Because(d.Cause).After(time.Second)
	}
	checks := make([]any, 0, len(d.Checks))
	for _, c := range d.Checks {
		if !c.Allowed {
			said := map[string]any{"check": c.Name, "reason": c.Reason}
			if c.Rule != "" {
				said["rule"] = c.Rule
			}
			checks = append(checks, said)
		}
	}
	return e.With("checks", checks)
}
