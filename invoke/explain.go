package invoke

import (
	"context"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// Explanation says what would become of a call, step by step.
type Explanation struct {
	Tool     string             `json:"tool"`
	Version  string             `json:"version,omitempty"`
	Digest   string             `json:"digest,omitempty"`
	Execute  bool               `json:"would_execute"` // every step lets it pass
	Steps    []StepVerdict      `json:"steps"`
	Warnings []toolkeep.Warning `json:"warnings,omitempty"`
}

// StepVerdict is what one step says.
type StepVerdict struct {
	Step    string         `json:"step"`
	Verdict string         `json:"verdict"` // pass, refuse, unknown, not_run
	Code    toolkeep.Code  `json:"code,omitempty"`
	Name    string         `json:"name,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Checks  []any          `json:"checks,omitempty"` // of authorise
	Details map[string]any `json:"details,omitempty"`
}

// note adds a reason to the step about to be judged.
func (x *Explanation) note(s Step, reason string) {
	x.Steps[s].Reason = reason
}

// Explain carries the call through the steps without taking, claiming or sending
// anything, and goes on after a refusal as far as can be known.
func (p *Pipeline) Explain(ctx context.Context, pr *toolkeep.Principal, c *toolkeep.Call) (any, error) {
	x := &Explanation{Tool: c.Tool, Steps: make([]StepVerdict, stepCount)}
	for s := range stepCount {
		x.Steps[s] = StepVerdict{Step: s.String(), Verdict: "unknown", Reason: "an earlier step's refusal leaves this open"}
	}
	f := &flight{p: p, gate: looking{p}, principal: pr, call: c, began: p.Clock(), root: &composition{}, explained: x}
	_, err := p.carry(ctx, f)
	if err != nil {
		return nil, err
	}
	if t := f.tool(); t != nil {
		x.Version, x.Digest = t.Version, t.Digest
	}
	x.Warnings = f.warnings
	x.Execute = true
	for s := range StepExecute {
		x.Execute = x.Execute && x.Steps[s].Verdict == "pass"
	}
	for s := StepExecute; s < stepCount; s++ {
		x.Steps[s] = StepVerdict{Step: s.String(), Verdict: "not_run"}
	}
	return x, nil
}

// verdict tells whether the call ends at this step. While looking it notes what
// the step says, and ends only where nothing further can be known.
func (f *flight) verdict(s Step, res *toolkeep.Result, err error) bool {
	if !f.looks() {
		return err != nil || res != nil
	}
	v := &f.explained.Steps[s]
	if v.Verdict == "unknown" && v.Reason != "" && err == nil && s != StepRecall {
		v.Reason = ""
	}
	if err == nil {
		v.Verdict = "pass"
		f.pass(s, v)
		return false
	}
	e := toolkeep.AsError(err)
	*v = StepVerdict{Step: s.String(), Verdict: "refuse", Code: e.Code, Name: e.Code.Info().Name, Reason: e.Message, Details: e.Details}
	if s == StepAuthorise {
		f.pass(s, v)
		v.Details = nil
	}
	switch s {
	case StepAdmit:
		return f.asked == nil && f.call.Fault != nil
	case StepResolve:
		return true
	case StepValidate:
		return false
	}
	return false
}

// pass adds what a step has to say beyond its verdict.
func (f *flight) pass(s Step, v *StepVerdict) {
	switch s {
	case StepAdmit:
		if f.kept != nil && f.kept.AskHash == f.row.AskHash {
			v.Reason = "the idempotency key belongs to invocation " + f.kept.ID + " (" + string(f.kept.State) + "), whose answer would be given"
		}
	case StepAuthorise:
		for _, c := range f.decision.Checks {
			v.Checks = append(v.Checks, map[string]any{"check": c.Name, "allowed": c.Allowed, "reason": c.Reason})
		}
	case StepLimit:
		if notes := f.contextNotes(); notes != "" {
			v.Reason = notes
		}
	case StepRecall:
		if !f.cacheable {
			v.Reason = "results of this call are not cached"
		} else if v.Reason == "an earlier step's refusal leaves this open" {
			v.Reason = "no cached result"
		}
	case StepClaim:
		v.Reason = "no row is needed before the end"
		if f.call.Async {
			v.Reason = "the call would be queued"
		} else if f.row.Writes || f.row.Key != "" {
			v.Reason = "a row would be committed before anything is sent"
		}
	}
}

// lookAtSecrets is equip's looking twin.
func (p *Pipeline) lookAtSecrets(ctx context.Context, f *flight) error {
	v := &f.explained.Steps[StepEquip]
	*v = StepVerdict{Step: StepEquip.String(), Verdict: "pass"}
	auth := f.tool().Manifest.Auth
	if len(auth) == 0 {
		v.Reason = "the tool needs no secret"
		return nil
	}
	var first *toolkeep.Error
	for _, spec := range auth {
		scope, err := p.checkAlternative(ctx, f, spec)
		if err == nil {
			v.Reason = "secrets are at hand for " + spec.Type
			if scope != "" && (scope == secret.User || f.decision.Allowed) {
				v.Reason += ", from the scope " + string(scope)
			}
			return nil
		}
		if first == nil {
			first = err
		}
	}
	*v = StepVerdict{Step: StepEquip.String(), Verdict: "refuse", Code: first.Code, Name: first.Code.Info().Name, Reason: first.Message}
	return nil
}

// checkAlternative also tells whose the first secret is.
func (p *Pipeline) checkAlternative(ctx context.Context, f *flight, spec toolkeep.AuthSpec) (scope secret.Scope, fault *toolkeep.Error) {
	for i, s := range secret.Entries(spec) {
		if s.Type == "none" {
			continue
		}
		if s.Secret == "" {
			return "", noSecretNamed(s)
		}
		var err error
		if s.Secret, err = f.context.Fill(f.tool().Manifest, s.Secret); err != nil {
			return "", toolkeep.AsError(err)
		}
		if err := secret.Allowed(f.tool().Manifest, s.Secret); err != nil {
			return "", toolkeep.AsError(err)
		}
		if err := p.Secrets.Check(ctx, f.principal, s.Secret); err != nil {
			return "", toolkeep.AsError(err)
		}
		if st, err := p.Secrets.Look(ctx, f.principal, s.Secret); err == nil && i == 0 {
			scope = st.Scope
		}
	}
	return scope, nil
}

// contextNotes is what explain says of the context.
func (f *flight) contextNotes() string {
	notes := f.context.Notes(f.tool().Manifest, retryOf(f.tool()).attempts)
	if len(notes) == 0 {
		return ""
	}
	return "the agent's context: " + strings.Join(notes, "; ")
}
