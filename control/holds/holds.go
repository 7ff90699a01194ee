// Package holds is what people decide about legal holds: what retention must not remove, why, and until when.
package holds

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Types of events.
const (
	eventAdded   = "ai.agent.audit.hold_added"
	eventRemoved = "ai.agent.audit.hold_removed"
)

const maxText = 1000 // bytes of a reason, an agent, a tool

// Store is what the package needs of a store.
type Store interface {
	toolkeep.Applier
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Holds does what people decide. Store is required.
type Holds struct {
	Store Store
	Clock func() time.Time
}

func need(p *toolkeep.Principal, permission, what string) error {
	if p.May(permission) {
		return nil
	}
	return toolkeep.NewError(toolkeep.PermissionDenied, "%s needs the permission %s, which none of your roles grants", what, permission).
		With("reason", "RBAC_DENIED").With("permission", permission)
}

// Add makes a legal hold of the principal's tenant; of h it takes From, Until, Agent, Tool and Reason. It holds from the next
// retention pass on, within a minute. It needs audit:hold.
//
// Errors: E3201, E3301 without a reason, with a time that is none, or beyond toolkeep.MaxLegalHolds or
// toolkeep.MaxTenantHolds; E3965.
func (s *Holds) Add(ctx context.Context, p *toolkeep.Principal, h toolkeep.LegalHold) (toolkeep.LegalHold, error) {
	if err := need(p, toolkeep.PermHold, "a legal hold"); err != nil {
		return h, err
	}
	switch {
	case h.Reason == "":
		return h, toolkeep.NewError(toolkeep.InvalidParameters, "a legal hold needs a reason")
	case len(h.Reason) > maxText || len(h.Agent) > maxText || len(h.Tool) > maxText:
		return h, toolkeep.NewError(toolkeep.InvalidParameters, "reason, agent and tool of a hold have %d bytes at most", maxText)
	case h.From.IsZero():
		return h, toolkeep.NewError(toolkeep.InvalidParameters, "a legal hold needs the time from which on it covers what was recorded")
	case !h.Until.IsZero() && !h.Until.After(h.From):
		return h, toolkeep.NewError(toolkeep.InvalidParameters, "the hold ends at %s, before it begins", h.Until.Format(time.RFC3339))
	}
	all, _, err := s.Store.Documents(ctx, toolkeep.LegalHoldKind)
	if err != nil {
		return h, unavailable(err)
	}
	if len(all) >= toolkeep.MaxLegalHolds {
		return h, toolkeep.NewError(toolkeep.InvalidParameters, "this installation has %d legal holds, which is the most; remove one that is over, or make one that covers several", len(all))
	}
	own := 0
	for _, d := range all {
		if d.Tenant == p.Tenant {
			own++
		}
	}
	if own >= toolkeep.MaxTenantHolds {
		return h, toolkeep.NewError(toolkeep.InvalidParameters, "your tenant has %d legal holds, which is the most; remove one that is over, or make one that covers several", own)
	}
	h.ID, h.Tenant, h.By, h.At, h.From, h.Until = newID(), p.Tenant, p.Subject, s.now(), h.From.UTC(), h.Until.UTC()
	body, err := json.Marshal(h)
	if err != nil {
		return h, toolkeep.NewError(toolkeep.InternalError, "the hold cannot be written").Because(err)
	}
	err = s.Store.Apply(ctx, toolkeep.PutDocument{Document: toolkeep.Document{Kind: toolkeep.LegalHoldKind, Tenant: p.Tenant, ID: h.ID, Body: body, UpdatedBy: p.Subject}, Expect: toolkeep.NoRevision},
		s.event(eventAdded, p, &h))
	if err != nil {
		return h, unavailable(err)
	}
	return h, nil
}

// List returns the holds of the principal's tenant, the oldest first. It needs invocations:read. E3201, E3965.
func (s *Holds) List(ctx context.Context, p *toolkeep.Principal) ([]toolkeep.LegalHold, error) {
	if err := need(p, toolkeep.PermInvocations, "the list of legal holds"); err != nil {
		return nil, err
	}
	all, _, err := s.Store.Documents(ctx, toolkeep.LegalHoldKind)
	if err != nil {
		return nil, unavailable(err)
	}
	list := []toolkeep.LegalHold{}
	for _, d := range all {
		if d.Tenant == p.Tenant {
			list = append(list, toolkeep.ReadLegalHold(d))
		}
	}
	slices.SortFunc(list, func(a, b toolkeep.LegalHold) int { return a.At.Compare(b.At) })
	return list, nil
}

// Remove ends a hold of the principal's tenant: retention may remove at once what is past its time. It needs audit:hold.
// E3201, E3013 there is none, E3965.
func (s *Holds) Remove(ctx context.Context, p *toolkeep.Principal, id string) (toolkeep.LegalHold, error) {
	if err := need(p, toolkeep.PermHold, "removing a legal hold"); err != nil {
		return toolkeep.LegalHold{}, err
	}
	d, err := s.Store.Document(ctx, toolkeep.LegalHoldKind, p.Tenant, id)
	h := toolkeep.ReadLegalHold(d)
	if err == nil {
		err = s.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: toolkeep.LegalHoldKind, Tenant: p.Tenant, ID: id, Expect: d.Revision, By: p.Subject}, s.event(eventRemoved, p, &h))
	}
	if errors.Is(err, toolkeep.ErrNotFound) {
		return h, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no legal hold %.60q; `toolkeep audit hold list` shows them", id)
	}
	if err != nil {
		return h, unavailable(err)
	}
	return h, nil
}

func (s *Holds) now() time.Time {
	if s.Clock == nil {
		return time.Now().UTC()
	}
	return s.Clock().UTC()
}

func (s *Holds) event(kind string, p *toolkeep.Principal, h *toolkeep.LegalHold) toolkeep.Change {
	data := map[string]any{"hold_id": h.ID, "agent_did": p.Subject, "tenant_id": h.Tenant, "from": h.From.Format(time.RFC3339Nano), "reason": h.Reason}
	for k, v := range map[string]string{"held_agent_did": h.Agent, "held_tool_id": h.Tool} {
		if v != "" {
			data[k] = v
		}
	}
	if !h.Until.IsZero() {
		data["until"] = h.Until.Format(time.RFC3339Nano)
	}
	return toolkeep.AppendEvent{Event: toolkeep.Event{ID: newID(), Type: kind, Tenant: h.Tenant, Time: s.now(), Data: canon.Append(nil, data)}}
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func unavailable(err error) error {
	return toolkeep.NewError(toolkeep.RecordUnavailable, "the store cannot be read or written now").Because(err)
}
