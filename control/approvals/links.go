package approvals

import (
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
)

// DecisionLink is a link that was made. The token is shown this once.
type DecisionLink struct {
	Token     string    `json:"token" doc:"decides once; a person who has it decides as the approver"`
	Path      string    `json:"path" doc:"of this server, with the token"`
	Approver  string    `json:"approver"`
	ExpiresAt time.Time `json:"expires_at"`
}

// LinkPath is the path of decision links; the token follows as a parameter of the query.
const LinkPath = "/api/v1/approvals/decide"

// MakeLink makes a link by which the approver named decides the call, "" for the principal itself, at most until a
// time; zero is the call's deadline. Both must be asked about the call, and neither be one of those who ask: who makes
// a link can use it, so it is for nothing that its maker could not decide, and its decision counts as one of both.
// Both need API keys, since a link ends with the keys: who came with a token, a certificate or through a proxy cannot be
// looked up again (E3201). E3013, E3014, E3201, E3301, E3965.
func (a *Approvals) MakeLink(ctx context.Context, p *toolkeep.Principal, id, approver string, until time.Time) (*DecisionLink, error) {
	q, err := a.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	now := a.c.Clock()
	switch {
	case q.State != approval.Pending:
		return nil, approval.Over(q)
	case q.IsOwn(p):
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "you cannot make a link to decide about a call of your own").With("reason", "RBAC_DENIED")
	case !q.Asks(p):
		return nil, q.NotAsked()
	case p.KeyID == "":
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "only the holder of an API key makes a link, since the link ends with that key; make it with an API key, or decide here").
			With("reason", "RBAC_DENIED")
	case a.c.Book.Links(q.Ref()) >= approval.MaxLinks:
		return nil, toolkeep.NewError(toolkeep.StateConflict, "the call has %d links that were not used, which is the limit", approval.MaxLinks)
	}
	if until.IsZero() {
		until = q.ExpiresAt
	}
	if !until.After(now) {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the link would be over at once")
	}
	decider := p
	if approver != "" && approver != p.Subject {
		if decider = a.decider(q, approver); decider == nil {
			return nil, toolkeep.NewError(toolkeep.InvalidParameters,
				"%q has no valid API key that may decide about this call; name an approver whose key has %s", toolkeep.ClipBytes(approver, 200), q.Deciders())
		}
	}
	token, l, changes := q.Link(p, decider, until, now)
	if err := a.c.Store.Apply(ctx, changes...); err != nil {
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the link could not be stored; make another").Because(err)
	}
	return &DecisionLink{Token: token, Path: LinkPath + "?token=" + token, Approver: decider.Subject, ExpiresAt: l.Until.UTC()}, nil
}

// decider returns a holder of the subject's keys who may decide about the request, nil for none.
func (a *Approvals) decider(q *approval.Request, subject string) *toolkeep.Principal {
	if a.c.Callers == nil {
		return nil
	}
	for _, d := range a.c.Callers.Holders(q.Tenant, subject) {
		if q.Asks(d) && !q.IsOwn(d) {
			return d
		}
	}
	return nil
}

// ByLink returns what a link decides about, as its approver sees it, and when the link is over. It changes nothing.
// E3013 for a link that was used, is over or was never made; E3214 if its approver is none any more; E3965.
func (a *Approvals) ByLink(ctx context.Context, token string) (Approval, time.Time, error) {
	l, p, _, err := a.open(ctx, token)
	if err != nil {
		return Approval{}, time.Time{}, err
	}
	one, err := a.Get(ctx, p, l.Call)
	return one, l.Until.UTC(), err
}

// DecideByLink decides as the approver of a link, which ends with it. Of v it takes Approve, Reason and Digest.
// Errors: ByLink's and Decide's.
func (a *Approvals) DecideByLink(ctx context.Context, token string, v Verdict) (Approval, error) {
	l, p, maker, err := a.open(ctx, token)
	if err != nil {
		return Approval{}, err
	}
	v.Parameters, v.Remember, v.link, v.maker = nil, nil, l, maker
	one, err := a.Decide(ctx, p, l.Call, v)
	if e := toolkeep.AsError(err); err != nil && e.Code == toolkeep.StateConflict && v.link != nil {
		if _, _, _, gone := a.open(ctx, token); gone != nil { // it was used meanwhile
			return Approval{}, gone
		}
	}
	return one, err
}

// open returns a link with those whose it is as they are now. maker is nil if the approver made it.
func (a *Approvals) open(ctx context.Context, token string) (l *approval.Link, decider, maker *toolkeep.Principal, err error) {
	if a.c.Callers == nil {
		return nil, nil, nil, noLink()
	}
	l, err = a.c.Book.Link(ctx, token)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return nil, nil, nil, noLink()
	}
	if err != nil {
		return nil, nil, nil, unreadable(err)
	}
	if decider, err = a.again(ctx, l, &l.Decider); err == nil && l.Maker != nil {
		maker, err = a.again(ctx, l, l.Maker)
	}
	return l, decider, maker, err
}

// again returns one of those whose link it is as their API key is now. E3214 without a valid key, E3201 for a key that
// may no longer act for the person it acted for.
func (a *Approvals) again(ctx context.Context, l *approval.Link, party *approval.Party) (*toolkeep.Principal, error) {
	if party.KeyID == "" {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the link was made without an API key, so it decides nothing; look at the approval with your own key")
	}
	p, err := a.c.Callers.Refresh(ctx, party.Principal(l.Tenant))
	if err == nil && p.OnBehalf != "" && !p.May(toolkeep.PermActAs) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "the link was made on behalf of another person, and its API key does not have the permission %s any more", toolkeep.PermActAs).
			With("reason", "RBAC_DENIED")
	}
	if err == nil && !p.Until.IsZero() && !a.c.Clock().Before(p.Until) {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the API key with which the link was made has expired; look at the approval with your own key")
	}
	return p, err
}

func noLink() error {
	return toolkeep.NewError(toolkeep.ResourceNotFound, "this link decides nothing: it was used, is over, or was never made; look at the approval with your own key")
}
