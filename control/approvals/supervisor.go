package approvals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/canon"
)

// Supervisor is a service that decides about calls which wait for a person, besides those who are asked
// here. Each request to it is a POST of an Escalation, signed as package access/signing has it, and is
// repeated until the service has decided: the same id is the same question.
type Supervisor struct {
	URL    string
	Client *http.Client
	// Key returns the key that signs, of at least signing.MinKey bytes.
	Key func(ctx context.Context) (string, error)
	// Timeout bounds one request; default 5 s.
	Timeout time.Duration
	// DenyAfter refuses a call (E3216) about which the service gave no valid answer for that long since this
	// node first asked about it; 0 lets it wait for those who are asked here, until its deadline.
	DenyAfter time.Duration

	of map[toolkeep.CallRef]*asking // of one round at a time
}

// asking is what is known of one call.
type asking struct {
	last  time.Time // when the service was asked, zero for never
	next  time.Time // when to ask again
	heard time.Time // of the last valid answer, else when it was first asked
}

// Escalation is what the service is asked.
type Escalation struct {
	ID         string    `json:"invocation_id"`
	Tenant     string    `json:"tenant_id"`
	Agent      string    `json:"agent_id"`
	User       string    `json:"user_id,omitempty"`
	Session    string    `json:"session_id,omitempty"`
	Tool       string    `json:"tool_id"`
	Version    string    `json:"tool_version"`
	Digest     string    `json:"digest"`
	Why        string    `json:"why"`
	Rule       string    `json:"rule,omitempty"`
	Needed     int       `json:"needed"`
	Have       int       `json:"have"`
	Roles      []string  `json:"roles,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	Parameters any       `json:"parameters"`
}

// answer is what the service says.
type answer struct {
	decision, by, reason string
	again                time.Duration
}

const (
	supervisorBytes = 64 << 10
	supervisorRound = 4 * time.Second // in which questions of one round begin
	supervisorPause = 5 * time.Second // between two questions about one call
	supervisorLong  = time.Hour       // the longest pause that the service may ask for
)

// errAway is a service that cannot be reached or does not answer in time: others are not asked about in this round.
var errAway = errors.New("the approvals service cannot be reached")

// supervise asks the service about the calls that wait, those first that it was not asked about for the longest. A
// service that cannot be reached ends the round.
func (a *Approvals) supervise(ctx context.Context) {
	s := a.c.Supervisor
	if s == nil || !a.supervising.CompareAndSwap(false, true) {
		return
	}
	defer a.supervising.Store(false)
	now, began := a.c.Clock(), time.Now()
	waiting := a.c.Book.Waiting()
	of := make(map[toolkeep.CallRef]*asking, len(waiting))
	for _, q := range waiting {
		if of[q.Ref()] = s.of[q.Ref()]; of[q.Ref()] == nil {
			of[q.Ref()] = &asking{}
		}
	}
	s.of = of
	slices.SortStableFunc(waiting, func(x, y *approval.Request) int { return of[x.Ref()].last.Compare(of[y.Ref()].last) })
	away := false
	for _, q := range waiting {
		ref := q.Ref()
		c := of[ref]
		if c.next.After(now) || ctx.Err() != nil {
			continue
		}
		if !away {
			if time.Since(began) >= supervisorRound {
				return
			}
			err := a.escalate(ctx, s, ref, c)
			if err == nil {
				continue
			}
			away = errors.Is(err, errAway)
			c.next = now.Add(supervisorPause)
			a.seldom.Warn("the approvals service has no answer about a call that waits", "invocation_id", ref.ID, "error", err)
		}
		if s.DenyAfter > 0 && !c.last.IsZero() && a.c.Clock().Sub(c.heard) >= s.DenyAfter {
			a.giveUp(ctx, ref, s.DenyAfter)
		}
	}
}

// escalate asks about one call and carries out what the service decided.
func (a *Approvals) escalate(ctx context.Context, s *Supervisor, ref toolkeep.CallRef, c *asking) error {
	q, err := a.c.Book.Get(ctx, ref)
	if err != nil {
		return err
	}
	row, err := a.c.Calls.Parked(ctx, ref)
	if err != nil || q.State != approval.Pending || row.State != toolkeep.CallPendingApproval {
		return err
	}
	caller := &toolkeep.Principal{Tenant: q.Tenant, Subject: q.Subject, OnBehalf: q.OnBehalf}
	arguments, err := a.c.Calls.Unseal(ctx, caller, row, row.SealedArgs)
	if err != nil {
		return err
	}
	now := a.c.Clock()
	if c.last.IsZero() {
		c.heard = now
	}
	c.last = now
	got, err := s.ask(ctx, &Escalation{ID: q.ID, Tenant: q.Tenant, Agent: q.Subject, User: q.OnBehalf, Session: q.Session, Tool: q.ToolID, Version: q.Version,
		Digest: q.Digest, Why: q.Why, Rule: q.Rule, Needed: q.Needed, Have: q.Have(), Roles: q.Roles(), CreatedAt: q.CreatedAt.UTC(), ExpiresAt: q.ExpiresAt.UTC(),
		Parameters: arguments}, now)
	if err != nil {
		return err
	}
	if got.decision == "pending" {
		now = a.c.Clock()
		c.heard, c.next = now, now.Add(got.again)
		return nil
	}
	if a.c.Clean != nil {
		got.reason = a.c.Clean(caller, got.reason)
	}
	if err := q.Supervised(got.by, got.decision == "approve", got.reason, a.c.Clock()); err != nil {
		return err
	}
	c.heard = a.c.Clock()
	with := []toolkeep.Change{q.Put(approval.BySupervisor), q.DecidedEvent(nil)}
	if q.State == approval.Approved {
		err = a.c.Calls.Release(ctx, row, nil, with...)
	} else {
		err = a.c.Calls.Dismiss(ctx, row, q.Denial(), with...)
	}
	if errors.Is(err, toolkeep.ErrStale) || errors.Is(err, toolkeep.ErrNotFound) {
		return nil // decided or changed meanwhile
	}
	return err
}

// giveUp refuses a call about which the service did not answer.
func (a *Approvals) giveUp(ctx context.Context, ref toolkeep.CallRef, after time.Duration) {
	row, err := a.c.Calls.Parked(ctx, ref)
	if err != nil || row.State != toolkeep.CallPendingApproval {
		return
	}
	changes, err := a.c.Book.Close(ctx, ref, approval.Ended, a.c.Clock())
	if err == nil {
		err = a.c.Calls.Dismiss(ctx, row, toolkeep.NewError(toolkeep.ApprovalUnavailable, "the approvals service gave no answer within %s, so the call is refused", after).
			With("reason", "ESCALATION_ERROR"), changes...)
	}
	if err != nil && !errors.Is(err, toolkeep.ErrStale) {
		a.seldom.Warn("a call about which the approvals service does not answer could not be refused", "invocation_id", ref.ID, "error", err)
	}
}

// ask sends one question. Its errors have neither the address nor what was sent.
func (s *Supervisor) ask(ctx context.Context, e *Escalation, now time.Time) (answer, error) {
	limit := s.Timeout
	if limit <= 0 {
		limit = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	body, err := json.Marshal(e)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return answer{}, errors.New("the request to the approvals service cannot be made")
	}
	key, err := s.Key(ctx)
	if err != nil {
		return answer{}, fmt.Errorf("the key for the approvals service: %s", toolkeep.AsError(err).Code)
	}
	if len(key) < signing.MinKey {
		return answer{}, fmt.Errorf("the key for the approvals service has %d bytes; it needs %d", len(key), signing.MinKey)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if err := signing.Sign(&signing.Request{Method: req.Method, Target: req.URL.RequestURI(), Header: func(string) []string { return nil }}, []byte(key), body, now, req.Header.Set); err != nil {
		return answer{}, fmt.Errorf("the request to the approvals service cannot be signed: %w", err)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return answer{}, fmt.Errorf("%w: %w", errAway, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("the approvals service answered with status %d", resp.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, supervisorBytes+1))
	if err != nil {
		return answer{}, fmt.Errorf("%w: its answer ended early", errAway)
	}
	if len(raw) > supervisorBytes {
		return answer{}, fmt.Errorf("the approvals service answered with more than %d KiB", supervisorBytes>>10)
	}
	return readAnswer(raw, e)
}

// readAnswer reads what the service decided. It names the call that it is for, and an approval the digest.
func readAnswer(raw []byte, e *Escalation) (a answer, err error) {
	m, err := canon.ParseObject(raw, canon.Limits{Bytes: supervisorBytes, Depth: 20})
	if err != nil {
		return a, fmt.Errorf("the answer of the approvals service is not a JSON object (%s)", toolkeep.AsError(err).Code)
	}
	text := func(name string, most int) string {
		s, _ := m[name].(string)
		return toolkeep.ClipBytes(s, most)
	}
	a = answer{decision: text("decision", 20), by: text("decided_by", 256), reason: text("reason", MaxReason), again: supervisorPause}
	if m["invocation_id"] != e.ID {
		return a, errors.New("the approvals service answers about another invocation_id than that of the call, or none")
	}
	switch a.decision {
	case "approve":
		if m["digest"] != e.Digest {
			return a, errors.New("the approvals service approves another digest than what would run, or none")
		}
	case "deny":
	case "pending":
		if n, ok := m["retry_after_s"].(json.Number); ok {
			if seconds, err := n.Int64(); err == nil && seconds > 0 {
				a.again = max(time.Duration(min(seconds, int64(supervisorLong/time.Second)))*time.Second, supervisorPause)
			}
		}
	default:
		return a, errors.New("the answer of the approvals service has no decision, which is approve, deny or pending")
	}
	return a, nil
}
