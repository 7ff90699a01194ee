package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
)

// Get returns one call that the principal may see: its own, or any of the tenant with
// the permission invocations:read. Reading the answer of a waiting call marks it as
// fetched. E3013, E3965.
func (p *Pipeline) Get(ctx context.Context, pr *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
	row, err := p.find(ctx, pr, id)
	if err != nil {
		return nil, err
	}
	p.noteFetched(ctx, pr, row)
	return row, nil
}

// noteFetched records that the caller of a waiting call got its answer.
func (p *Pipeline) noteFetched(ctx context.Context, pr *toolkeep.Principal, row *toolkeep.Invocation) {
	if !row.Async || !row.State.Ended() || !row.FetchedAt.IsZero() || row.Subject != pr.Subject {
		return
	}
	row.FetchedAt = p.Clock()
	if err := p.apply(ctx, toolkeep.MarkFetched{Call: row.Ref(), At: row.FetchedAt}); err != nil {
		p.Log.Warn("a fetch could not be recorded", "invocation_id", row.ID, "error", err)
	}
}

func (p *Pipeline) find(ctx context.Context, pr *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
	row, err := p.Invocations.Get(ctx, toolkeep.CallRef{Tenant: pr.Tenant, ID: id})
	if err == nil {
		row = told(pr, row)
	}
	if err == nil && (row.Subject == pr.Subject || pr.May(toolkeep.PermInvocations)) && pr.Shows(row.ToolID, row.Version, row.Writes) {
		return row, nil
	}
	if err == nil || errors.Is(err, toolkeep.ErrNotFound) {
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no invocation %q that you may see", id)
	}
	return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the record of calls cannot be read now").Because(err)
}

// List returns a page of calls that the principal may see, newest first.
func (p *Pipeline) List(ctx context.Context, pr *toolkeep.Principal, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
	f.Tenant = pr.Tenant
	if !pr.May(toolkeep.PermInvocations) {
		if f.Subject != "" && f.Subject != pr.Subject {
			return nil, 0, nil
		}
		f.Subject = pr.Subject
	}
	list := p.Invocations.List
	if f.Code != "" && f.State == "" && len(f.States) == 0 { // of which there are fewer
		f.States = []toolkeep.CallState{toolkeep.CallFailed, toolkeep.CallRefused, toolkeep.CallCancelled, toolkeep.CallExpired, toolkeep.CallUnknown}
	}
	if pr.Narrowed != nil || f.Looks() {
		list = func(ctx context.Context, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
			return p.listShown(ctx, pr, f)
		}
	}
	rows, n, err := list(ctx, f)
	if err != nil {
		return nil, 0, toolkeep.NewError(toolkeep.RecordUnavailable, "the record of calls cannot be read now").Because(err)
	}
	for i, row := range rows {
		rows[i] = told(pr, row)
	}
	return rows, n, nil
}

// MaxNarrowed is how many calls are looked through, newest first, for the list of a caller with a
// capability token, and by what stores pass over. It is counted within them.
const MaxNarrowed = 2000

// listShown is a page of those calls that the principal's capability token shows, and that the whole filter selects.
func (p *Pipeline) listShown(ctx context.Context, pr *toolkeep.Principal, f toolkeep.InvocationFilter) (page []*toolkeep.Invocation, total int, err error) {
	from, most := f.Offset, f.Limit
	f.Limit = 200
	for f.Offset = 0; f.Offset < MaxNarrowed; f.Offset += f.Limit {
		rows, _, err := p.Invocations.List(ctx, f)
		if err != nil {
			return nil, 0, err
		}
		for _, row := range rows {
			row = told(pr, row)
			if !pr.Shows(row.ToolID, row.Version, row.Writes) || f.Looks() && !f.Selects(row) {
				continue
			}
			if total >= from && len(page) < most {
				page = append(page, row)
			}
			total++
		}
		if len(rows) < f.Limit {
			break
		}
	}
	return page, total, nil
}

// Cancel ends a waiting call, or asks the node that runs it to stop. cancelled is false
// if the call had already ended. E3013, E3201, E3965.
func (p *Pipeline) Cancel(ctx context.Context, pr *toolkeep.Principal, id, why string) (cancelled bool, message string, err error) {
	for {
		row, err := p.find(ctx, pr, id)
		if err != nil {
			return false, "", err
		}
		if row.Subject != pr.Subject && !pr.May(toolkeep.PermCancel) {
			return false, "", toolkeep.NewError(toolkeep.PermissionDenied, "only the caller of %s or an operator may cancel it", id)
		}
		switch {
		case row.State == toolkeep.CallCancelled:
			return true, "Already cancelled", nil
		case row.State.Ended():
			return false, "Already completed", nil
		case row.State == toolkeep.CallRunning:
			err := p.apply(ctx, toolkeep.RequestCancel{Call: row.Ref(), By: pr.Subject, Why: p.cleanedReason(ctx, pr, row, why)})
			if err != nil {
				return false, "", recordUnavailable(err)
			}
			return true, "Cancellation in progress", nil
		}
		var closing []toolkeep.Change
		if row.State == toolkeep.CallPendingApproval && p.Approvals != nil {
			if closing, err = p.Approvals.Close(ctx, row.Ref(), approval.Ended, p.Clock()); err != nil {
				return false, "", recordUnavailable(err)
			}
		}
		from := row.State
		end := *row
		end.State, end.EndedAt, end.CancelBy, end.CancelWhy = toolkeep.CallCancelled, p.Clock(), pr.Subject, p.cleanedReason(ctx, pr, row, why)
		e := toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled before it ran")
		end.Code, end.Message, end.Key = e.Code, e.Message, "" // nothing was sent: the key is free
		err = p.apply(ctx, append([]toolkeep.Change{
			toolkeep.RequestCancel{Call: row.Ref(), By: pr.Subject, Why: end.CancelWhy},
			toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{from}, FreeKey: true}}, closing...)...)
		if errors.Is(err, toolkeep.ErrStale) {
			continue // a worker took it meanwhile, or a person decided
		}
		if err != nil {
			return false, "", recordUnavailable(err)
		}
		p.called(&end, nil, e, nil)
		return true, "Cancelled", nil
	}
}

// cleanedReason removes the secrets of the called tool's upstream from the reason of a cancel,
// which may quote what the tool answered to those who see it.
func (p *Pipeline) cleanedReason(ctx context.Context, pr *toolkeep.Principal, row *toolkeep.Invocation, why string) string {
	clean := p.Redact.For(pr)
	v, _, err := p.Catalog.Resolve(ctx, pr, row.ToolID, row.Version, func(t *toolkeep.Tool) bool { return p.Access.Visible(pr, t) })
	if err == nil {
		clean = clean.From(p.upstreamOf(pr, v.Tool))
	}
	return clean.Clean(why)
}

// Watch yields the call now and after every change, until the call or ctx ends. Changes
// faster than the consumer are skipped. Yielding the end of a waiting call counts as
// fetching it.
func (p *Pipeline) Watch(ctx context.Context, pr *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error] {
	return func(yield func(*toolkeep.Invocation, error) bool) {
		w := p.watchers.join(toolkeep.CallRef{Tenant: pr.Tenant, ID: id})
		defer w.leave()
		for {
			row, err := p.find(ctx, pr, id)
			if err != nil {
				if ctx.Err() == nil {
					yield(nil, err)
				}
				return
			}
			w.saw(row)
			p.noteFetched(ctx, pr, row)
			if !yield(row, nil) || row.State.Ended() {
				return
			}
			select {
			case <-w.changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Result converts a row to a result.
func (p *Pipeline) Result(v *toolkeep.Invocation) *toolkeep.Result {
	res := &toolkeep.Result{
		InvocationID: v.ID, CallID: v.CallID, ToolID: v.ToolID, ToolVersion: v.Version, State: v.State,
		Output: v.Output, Warnings: append([]toolkeep.Warning(nil), v.Warnings...), Cached: v.Cached, Truncated: v.Truncated,
		Attachments: v.Attachments, Secrets: v.Secrets, Attempts: v.Attempts, StartedAt: v.StartedAt, EndedAt: v.EndedAt,
		ToolTime: time.Duration(v.ToolUS) * time.Microsecond, Overhead: time.Duration(v.TotalUS-v.ToolUS) * time.Microsecond,
		BytesSent: v.BytesSent, BytesRecv: v.BytesRecv, CostUSD: v.CostUSD, Progress: v.Progress, Fallback: v.Fallback,
	}
	res.NoOutcome = v.Withheld != "" || len(v.Output) == 0 && v.OutputSize > 0
	if v.Withheld != "" {
		res.Warnings = append(res.Warnings, toolkeep.Warning{Code: toolkeep.HandleExpired, Message: "what was recorded of this call is " + string(v.Withheld),
			Details: map[string]any{string(v.Withheld): true}})
	}
	if v.StartedAt.IsZero() {
		res.StartedAt = v.CreatedAt
	}
	if v.Code != "" {
		res.Error = &toolkeep.Error{Code: v.Code, Message: v.Message, Retryable: v.Retryable,
			RetryAfter: time.Duration(v.RetryS) * time.Second, InvocationID: v.ID}
		if len(v.Details) > 0 {
			var d map[string]any
			if json.Unmarshal(v.Details, &d) == nil {
				res.Error.Details = d
			}
		}
	}
	return res
}
