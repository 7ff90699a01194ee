package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
)

// answerKept returns the result of the call that holds the key. It waits for a call
// that still runs until this caller's own deadline.
func (p *Pipeline) answerKept(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	kept := a.kept
	if err := a.mayHave(kept); err != nil {
		return nil, err
	}
	if !kept.State.Ended() && !a.call.Async && !kept.Async {
		wait, cancel := p.bound(ctx, a)
		defer cancel()
		var err error
		if kept, err = p.await(wait, kept.Ref()); err != nil {
			return nil, recordUnavailable(err)
		}
		if kept.State == toolkeep.CallRefused && kept.Key == "" { // the key was freed: nothing was done under it
			a.kept = nil
			return nil, nil
		}
	}
	a.row.ID, a.row.CallID = kept.ID, kept.CallID
	a.stored = true // the record exists; end must not make another
	return p.answerOf(kept)
}

// answerOf is the answer that a record has for its caller.
func (p *Pipeline) answerOf(row *toolkeep.Invocation) (*toolkeep.Result, error) {
	row = told(&toolkeep.Principal{}, row)
	res := p.Result(row)
	res.Replayed = true
	if row.State.Ended() && row.Code != "" {
		return failed(res, res.Error)
	}
	return res, nil
}

// mayHave refuses a kept answer to another request, and one of a call that was not narrowed by the
// same permissions as this one is: what that call reached is not known here. E3215, E3908.
func (a *activeCall) mayHave(kept *toolkeep.Invocation) error {
	if kept.Withheld != "" {
		return toolkeep.NewError(toolkeep.IdempotencyConflict, "the idempotency key was used for a call whose data is %s; use a new key", kept.Withheld).
			With("invocation_id", kept.ID)
	}
	if kept.AskHash != a.row.AskHash {
		return keyConflict(kept)
	}
	if g := a.call.Grant; g.Permissions() && !g.SamePermissions(kept.Grant) {
		return toolkeep.NewError(toolkeep.TokenScopeMismatch,
			"the idempotency key belongs to a call whose capability token had not the same permissions on files, network and secrets; send the token of that call, or a new key").
			With("invocation_id", kept.ID)
	}
	return nil
}

func keyConflict(kept *toolkeep.Invocation) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.IdempotencyConflict,
		"the idempotency key was used for another request; use a new key or send the same tool, version and arguments, from the same workspace and for the same person").
		With("invocation_id", kept.ID)
}

// await follows a call until it or ctx ends, and returns its latest row.
func (p *Pipeline) await(ctx context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	return p.awaitState(ctx, ref, nil, toolkeep.CallState.Ended)
}

// awaitState follows a call until its state is one that is waited for, ctx ends or leave is closed.
func (p *Pipeline) awaitState(ctx context.Context, ref toolkeep.CallRef, leave <-chan struct{}, reached func(toolkeep.CallState) bool) (*toolkeep.Invocation, error) {
	w := p.watchers.join(ref)
	defer w.leave()
	for {
		row, err := p.Invocations.Get(context.WithoutCancel(ctx), ref)
		if err != nil || reached(row.State) {
			return row, err
		}
		w.saw(row)
		select {
		case <-w.changed:
		case <-ctx.Done():
			return row, nil
		case <-leave:
			return row, nil
		}
	}
}
