package invoke

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// Explanation is the predicted outcome of a call, step by step.
type Explanation struct {
	// Caller is whose rights decide, OnBehalf and Chain for whom it acts; see toolkeep.Principal.
	Caller   string             `json:"caller"`
	OnBehalf string             `json:"on_behalf_of,omitempty"`
	Chain    []string           `json:"caller_chain,omitempty"`
	Tool     string             `json:"tool"`
	Version  string             `json:"version,omitempty"`
	Digest   string             `json:"digest,omitempty"`
	Execute  bool               `json:"would_execute"` // every step passes
	Steps    []StepVerdict      `json:"steps"`
	Warnings []toolkeep.Warning `json:"warnings,omitempty"`
	Fallback *FallbackVerdict   `json:"fallback,omitempty"` // nil if the tool has none, or none may be asked

	full   string // the bulkhead for whose place the call would wait
	hedge  time.Duration
	broken bool // a breaker refuses the tool, and its fallback would be asked
	held   bool // a breaker refuses the tool, and a cached result would be returned
}

// StepVerdict is the outcome of one step.
type StepVerdict struct {
	Step    string         `json:"step"`
	Verdict string         `json:"verdict"` // pass, wait (for a person), refuse, unknown, not_run
	Code    toolkeep.Code  `json:"code,omitempty"`
	Name    string         `json:"name,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Checks  []any          `json:"checks,omitempty"` // of authorise
	Details map[string]any `json:"details,omitempty"`
}

// Explain runs the call through the steps without taking, claiming or sending anything,
// and continues after a refusal as far as possible. A call whose signature is not known to be right is
// not explained: the error is that of admit.
func (p *Pipeline) Explain(ctx context.Context, pr *toolkeep.Principal, c *toolkeep.Call) (any, error) {
	x, err := p.explain(ctx, &activeCall{asked: asked{mode: modeDryRun, principal: pr, call: c, began: p.Clock(), composition: &composition{}}, record: record{explained: newExplanation(c.Tool)}})
	if err != nil {
		return nil, err
	}
	return x, nil
}

// ExplainAs is Explain of a call that another principal of the tenant would make, for asker, to whom the tool must be visible: nothing
// of the principal's limits is taken, and where the tool does not exist for the principal the explanation goes on and says why.
func (p *Pipeline) ExplainAs(ctx context.Context, asker, pr *toolkeep.Principal, c *toolkeep.Call) (any, error) {
	x, err := p.explain(ctx, &activeCall{asked: asked{mode: modeDryRun, principal: pr, asker: asker, call: c, began: p.Clock(), composition: &composition{}}, record: record{explained: newExplanation(c.Tool)}})
	if err != nil {
		return nil, err
	}
	return x, nil
}

func newExplanation(tool string) *Explanation {
	x := &Explanation{Tool: tool, Steps: make([]StepVerdict, stepCount)}
	for s := range stepCount {
		x.Steps[s] = StepVerdict{Step: s.String(), Verdict: "unknown", Reason: "an earlier step's refusal leaves this open"}
	}
	return x
}

func (p *Pipeline) explain(ctx context.Context, a *activeCall) (*Explanation, error) {
	x := a.explained
	if _, err := p.carry(ctx, a); err != nil {
		return nil, err
	}
	x.Caller, x.OnBehalf, x.Chain = a.principal.Subject, a.principal.OnBehalf, a.principal.Chain
	if t := a.tool; t != nil {
		x.Tool, x.Version, x.Digest = t.ID, t.Version, t.Digest
	}
	x.Warnings = a.warnings
	x.Execute = true
	for s := range StepExecute {
		x.Execute = x.Execute && x.Steps[s].Verdict == "pass"
	}
	if x.Execute && x.Fallback == nil && p.mayFallBack(a) {
		x.Fallback = p.fallbackFor(ctx, a)
	}
	for s := StepExecute; s < stepCount; s++ {
		x.Steps[s] = StepVerdict{Step: s.String(), Verdict: "not_run"}
	}
	return x, nil
}

// verdict reports whether the call ends at this step. A dry run records the step's
// outcome, and ends only if nothing further can be known.
func (a *activeCall) verdict(s Step, res *toolkeep.Result, err error) bool {
	if a.mode != modeDryRun {
		return err != nil || res != nil
	}
	v := &a.explained.Steps[s]
	if err == nil {
		*v = StepVerdict{Step: s.String(), Verdict: "pass", Reason: a.passReason(s)}
		if s == StepApprove && a.parks {
			v.Verdict = "wait"
		}
	} else {
		e := toolkeep.AsError(err)
		*v = StepVerdict{Step: s.String(), Verdict: "refuse", Code: e.Code, Name: e.Code.Info().Name, Reason: e.Message, Details: e.Details}
	}
	if s == StepAuthorise && (v.Code != toolkeep.AuthFailuresLimited || a.asker != nil) {
		v.Details = nil // the checks have all details
		for _, c := range a.decision.Checks {
			check := map[string]any{"check": c.Name, "allowed": c.Allowed, "reason": c.Reason}
			if c.Rule != "" {
				check["rule"] = c.Rule
			}
			v.Checks = append(v.Checks, check)
		}
	}
	return err != nil && (s == StepResolve && !a.hidden || s == StepAdmit && (a.unverified() || a.arguments == nil && a.call.Fault != nil))
}

// passReason describes why a step passes.
func (a *activeCall) passReason(s Step) string {
	switch s {
	case StepAdmit:
		if a.kept != nil && a.kept.AskHash == a.row.AskHash {
			return "the idempotency key belongs to invocation " + a.kept.ID + " (" + string(a.kept.State) + "), whose answer would be returned"
		}
	case StepLimit:
		if a.explained.held {
			return "a circuit breaker refuses the tool (E3903); a cached result would be returned"
		}
		if a.explained.broken {
			return "a circuit breaker refuses the tool (E3903); its fallback " + a.explained.Fallback.Tool + " would be asked"
		}
		var all []string
		if a.explained.full != "" {
			all = append(all, "the bulkhead "+a.explained.full+" of this node is full, so the call would wait for a place")
		}
		if a.explained.hedge > 0 {
			all = append(all, fmt.Sprintf("if the tool does not answer within %s it would be asked a second time (calls.hedge_after)", a.explained.hedge.Round(time.Millisecond)))
		}
		if notes := a.overlay.Notes(a.tool.Manifest, retryOf(a.tool).attempts); len(notes) > 0 {
			all = append(all, "the agent's context: "+strings.Join(notes, "; "))
		}
		return strings.Join(all, "; ")
	case StepRecall:
		switch {
		case !a.cache.on():
			return "results of this call are not cached"
		case a.cache.hit || a.explained.held:
			return "a cached result would be returned"
		}
		return "no cached result"
	case StepApprove:
		switch {
		case a.standing != nil:
			return "a standing approval of " + a.standing.By + " covers the call until " + a.standing.Until.UTC().Format(time.RFC3339)
		case a.parks:
			return a.owed.Reason()
		}
		return "the call needs no person's approval"
	case StepClaim:
		switch {
		case a.call.Async:
			return "the call would be queued"
		case a.row.Writes || a.row.Key != "":
			return "a row would be committed before anything is sent"
		}
		return "no row is needed before the end"
	}
	return ""
}

// explainSecrets is equip in a dry run.
func (p *Pipeline) explainSecrets(ctx context.Context, a *activeCall) error {
	v := &a.explained.Steps[StepEquip]
	*v = StepVerdict{Step: StepEquip.String(), Verdict: "pass"}
	auth := a.tool.Manifest.Auth
	if len(auth) == 0 {
		v.Reason = "the tool needs no secret"
		return nil
	}
	var first *toolkeep.Error
	for _, spec := range auth {
		scope, err := p.checkAlternative(ctx, a, spec)
		if err == nil {
			v.Reason = "secrets are available for " + spec.Type
			if scope != "" && (scope == secret.User || a.decision.Allowed) {
				v.Reason += ", from the scope " + string(scope)
			}
			return nil
		}
		if first == nil {
			first = err
		}
		if takesCaller(a.principal, spec) {
			first = err
			break
		}
	}
	*v = StepVerdict{Step: StepEquip.String(), Verdict: "refuse", Code: first.Code, Name: first.Code.Info().Name, Reason: first.Message}
	return nil
}

// checkAlternative also returns the owner of the first secret.
func (p *Pipeline) checkAlternative(ctx context.Context, a *activeCall, spec toolkeep.AuthSpec) (scope secret.Scope, fault *toolkeep.Error) {
	for i, s := range secret.Entries(spec) {
		if s.Type == "none" {
			continue
		}
		if s.Secret == "" {
			return "", noSecretNamed(s)
		}
		if s.NeedsCaller() && a.principal.Token == nil {
			return "", callerUnknown(a.tool.Ref())
		}
		var err error
		if s.Secret, err = a.overlay.Fill(a.tool.Manifest, s.Secret); err != nil {
			return "", toolkeep.AsError(err)
		}
		if err := secret.Allowed(a.tool.Manifest, s.Secret); err != nil {
			return "", toolkeep.AsError(err)
		}
		if err := tokenAllows(a.call.Grant, s.Secret); err != nil {
			return "", toolkeep.AsError(err)
		}
		if err := p.Secrets.Check(ctx, a.principal, s.Secret); err != nil {
			return "", toolkeep.AsError(err)
		}
		if st, err := p.Secrets.Look(ctx, a.principal, s.Secret); err == nil && i == 0 {
			scope = st.Scope
		}
	}
	return scope, nil
}
