package invoke

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// fallbackKey ends the idempotency key of the call of a fallback, where other children have their ordinal.
const fallbackKey = "fallback"

// mayFallBack reports whether the fallback of the call's tool may be asked if the tool fails. A fallback has none itself,
// and what a person approves is one tool.
func (p *Pipeline) mayFallBack(a *activeCall) bool {
	return a.tool.Manifest.Fallback != "" && !a.instead && a.row.Approved == "" && p.need(a) == nil
}

// mends reports whether another tool may do what this one failed to do: its breaker is open, or it counts as failed. A write
// that may have been carried out is not done again elsewhere.
func mends(t *toolkeep.Tool, e *toolkeep.Error) bool {
	if t.Writes() && !e.NothingSent {
		return false
	}
	failed, _ := breaker.Counts(e)
	return failed || e.Code == toolkeep.CircuitBreakerOpen
}

// fallBack asks the fallback of a tool that failed, once, as a call below this one: with its rights, its arguments and
// what is left of its time. Cached for the tool, and kept under the key, is what the call itself ends with. E3904 if both failed.
// A fallback that cannot be asked changes nothing but the details of the tool's own error. One that was sent and then
// cancelled, or broken off, ends the call in the same way: it may have taken effect.
func (p *Pipeline) fallBack(ctx context.Context, a *activeCall, res *toolkeep.Result, err error) (*toolkeep.Result, error) {
	why := failure(res, toolkeep.AsError(err))
	if why == nil || ctx.Err() != nil || !p.mayFallBack(a) || !mends(a.tool, why) {
		return res, err
	}
	x := p.fallbackFor(ctx, a)
	if !x.Execute {
		return notMended(res, why, x)
	}
	defer func() {
		a.slots.Await(ctx)
		a.within.Retake()
	}()
	b := p.below(a, modeChild, x.Tool, x.Version)
	began := time.Now()
	got, refused := p.carry(ctx, b)
	out := toolkeep.Result{ToolID: a.tool.ID, ToolVersion: a.tool.Version}
	if res != nil {
		out = *res
	}
	out.Error, out.Cached = nil, false
	out.Tries = slices.Clone(out.Tries) // others may share the error
	asked := failure(got, toolkeep.AsError(refused))
	noteTry(&out, began.Add(-a.steps.Durations[StepExecute]), began, time.Since(began), asked, x.Tool)
	if refused != nil {
		e := toolkeep.AsError(refused)
		// An earlier run of a call that waits may hold the key.
		sent := b.kept != nil || b.claimed && !e.NothingSent
		if !sent && ctx.Err() == nil { // something has changed since it was looked at
			x.Code, x.Reason = e.Code, e.Message
			return notMended(res, why, x)
		}
		own := *e
		own.NothingSent = !sent && why.NothingSent
		if sent {
			out.Fallback = &toolkeep.Fallback{Tool: x.Tool, Version: x.Version, InvocationID: b.row.ID, Reason: why.Code}
		}
		if ctx.Err() != nil {
			return &out, ended(ctx, a.row.ID, &own, false)
		}
		return &out, &own
	}
	out.BytesSent, out.BytesRecv, out.CostUSD, out.ToolTime = out.BytesSent+got.BytesSent, out.BytesRecv+got.BytesRecv, out.CostUSD+got.CostUSD, out.ToolTime+got.ToolTime
	out.Fallback = &toolkeep.Fallback{Tool: got.ToolID, Version: got.ToolVersion, InvocationID: got.InvocationID, Reason: why.Code}
	failed := got.Error
	if failed == nil {
		failed = p.fits(ctx, a, got)
	}
	if failed != nil {
		out.Error = bothFailed(why, failed, got)
		return &out, nil
	}
	out.Output, out.Truncated, out.Attachments = got.Output, got.Truncated, got.Attachments
	out.Warnings = append(slices.Clone(out.Warnings), got.Warnings...)
	return &out, nil
}

// notMended is the tool's own error, which says of a fallback that the caller may see why it was not asked. Others may
// share the error.
func notMended(res *toolkeep.Result, why *toolkeep.Error, x *FallbackVerdict) (*toolkeep.Result, error) {
	own := *why
	if x.Tool != "" {
		own.Details = maps.Clone(why.Details)
		said := map[string]any{"tool_id": x.Tool, "reason": x.Reason}
		if x.Code != "" {
			said["error_code"] = string(x.Code)
		}
		own.With("fallback", said)
	}
	if res == nil || res.Error == nil {
		return res, &own
	}
	out := *res
	out.Error = &own
	return &out, nil
}

// bothFailed is E3904.
func bothFailed(why, failed *toolkeep.Error, got *toolkeep.Result) *toolkeep.Error {
	said := func(e *toolkeep.Error) map[string]any {
		d := map[string]any{"error_code": string(e.Code), "message": e.Message}
		if len(e.Details) > 0 {
			d["details"] = e.Details
		}
		return d
	}
	second := said(failed)
	second["tool_id"], second["tool_version"], second["invocation_id"] = got.ToolID, got.ToolVersion, got.InvocationID
	e := toolkeep.NewError(toolkeep.FallbackFailed, "the tool failed (%s), and so did its fallback %s (%s): %s", why.Code, got.ToolID, failed.Code, failed.Message).
		With("primary", said(why)).With("fallback", second)
	e.NothingSent = why.NothingSent && failed.NothingSent
	return e
}

// fits returns E3501 if what the fallback brought breaks the strict result schema of the tool that was asked: its callers
// rely on that.
func (p *Pipeline) fits(ctx context.Context, a *activeCall, got *toolkeep.Result) *toolkeep.Error {
	m := a.tool.Manifest
	if len(m.ResultSchema) == 0 || !m.StrictResult() || got.Truncated {
		return nil
	}
	s, err := p.Schemas.Get(a.tool.Digest+" result", m.ResultSchema)
	if err != nil {
		return nil // the result of the tool itself would fail
	}
	v, err := canon.Parse(got.Output, resultLimits)
	if err == nil && len(s.ValidateSecret(ctx, v)) == 0 {
		return nil
	}
	return toolkeep.NewError(toolkeep.ResultSchemaViolation, "the result of %s does not match the result schema of %s, in whose place it was asked", got.ToolID, a.tool.ID)
}

// FallbackVerdict says which tool would be asked if the call's own tool failed, or why none would.
type FallbackVerdict struct {
	Tool    string        `json:"tool,omitempty"` // none if the caller sees none
	Version string        `json:"version,omitempty"`
	Execute bool          `json:"would_execute"`
	Code    toolkeep.Code `json:"code,omitempty"`
	Reason  string        `json:"reason,omitempty"`
}

// fallbackFor returns the first tool of those that the manifest's fallback names whose call would go through, else what
// the first one that the caller sees is refused for.
func (p *Pipeline) fallbackFor(ctx context.Context, a *activeCall) *FallbackVerdict {
	none := &FallbackVerdict{Reason: "there is no other tool for it that you may see"}
	for _, ref := range p.substitutes(a) {
		tool, rng, _ := strings.Cut(ref, "@")
		b := p.below(a, modeDryRun, tool, rng)
		x, err := p.explain(ctx, b)
		if err != nil || x.Version == "" || tool == a.tool.ID || a.asker != nil && !p.Access.Visible(a.asker, b.tool) {
			continue
		}
		v := &FallbackVerdict{Tool: x.Tool, Version: x.Version, Execute: true}
		if b.tool.Writes() && !a.tool.Writes() { // who may repeat a read does not expect that it writes twice
			v.Execute, v.Reason = false, "it writes, and the tool that was called only reads"
		}
		for s := range StepExecute {
			if step := x.Steps[s]; v.Execute && step.Verdict != "pass" {
				v.Execute, v.Code, v.Reason = false, step.Code, step.Reason
				break
			}
		}
		if v.Execute {
			return v
		}
		if none.Tool == "" {
			none = v
		}
	}
	return none
}

// substitutes are the references of the tools that a manifest's fallback names: one, or by id those that the caller may call
// and that have the capability.
func (p *Pipeline) substitutes(a *activeCall) []string {
	name, ok := strings.CutPrefix(a.tool.Manifest.Fallback, catalog.CapabilityPrefix)
	if !ok {
		return []string{a.tool.Manifest.Fallback}
	}
	seen := p.Access.Sees(a.principal, a.call)
	return p.Catalog.Offering(a.principal, name, func(t *toolkeep.Tool) bool { return p.Access.Callable(seen, t) })
}

// below is the call of a fallback: that of the call itself, to another tool, with the rights of the same principal. As a dry
// run it counts for nothing.
func (p *Pipeline) below(a *activeCall, m mode, tool, rng string) *activeCall {
	own := *a.call
	own.Tool, own.Range = tool, rng
	own.Parent, own.Ordinal, own.Face = a.row.ID, 0, "child"
	own.ID, own.Key, own.Async, own.Fault, own.Signature, own.Token = "", "", false, nil, nil, ""
	own.Subject, own.Tenant, own.User, own.Told = "", "", "", nil
	b := &activeCall{asked: asked{mode: m, instead: true, principal: a.principal, call: &own, from: a.from, began: p.Clock(),
		composition: a.composition, above: a.slots, within: a.within, ancestors: append(slices.Clone(a.ancestors), a.tool.ID), cleaner: p.clean(a).Below()}}
	if m == modeDryRun {
		b.composition, b.explained = &composition{}, newExplanation(tool)
	} else if a.stored { // a run that another node goes on with gets what this one got
		own.Key = childKey + own.Parent + ":" + fallbackKey
	}
	return b
}
