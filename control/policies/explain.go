package policies

import (
	"context"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// eventExplained is the record of a look at what another subject's call would do.
const eventExplained = "ai.agent.auth.explained"

// Explained says what a call would do that is made with one key of a subject.
type Explained struct {
	KeyID       string   `json:"key_id"`
	Subject     string   `json:"subject" doc:"whom the key is for"`
	Roles       []string `json:"roles"`
	Scope       []string `json:"scope" doc:"tool id patterns; empty does not narrow"`
	Explanation any      `json:"explanation" doc:"as that of a dry run"`
}

// Explain says what a call would do that a subject makes with each of its valid API keys, the oldest first, or with keyID alone. Of c it
// reads Tool, Range and Arguments. A tool that the subject does not see is explained all the same; p must see it. It needs
// keys:admin, whose holders can make such keys. An event says that p looked, and without it there is no answer.
// E3201; E3013 if there is no such key; E3301 for more keys than MaxKeys; E3802 and E3901 as Who; E3965; and those of
// Catalog.Describe.
func (s *Policies) Explain(ctx context.Context, p *toolkeep.Principal, subject, keyID string, c toolkeep.Call) ([]Explained, error) {
	keys, err := s.keysOf(ctx, p, subject, keyID)
	if err != nil {
		return nil, err
	}
	v, _, err := s.c.Catalog.Describe(ctx, p, c.Tool, c.Range, func(t *toolkeep.Tool) bool { return s.c.Access.Visible(p, t) })
	if err != nil {
		return nil, err
	}
	ctx, end, err := s.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	id, err := uuid.NewV7()
	if err == nil {
		data := map[string]any{"by": p.Subject, "subject": subject, "tool_id": v.Tool.ID, "tool_version": v.Tool.Version, "ip_address": p.Addr}
		err = s.c.Store.Apply(ctx, toolkeep.AppendEvent{Event: toolkeep.Event{ID: id.String(), Type: eventExplained, Tenant: p.Tenant, Time: s.c.Clock().UTC(), Data: canon.Append(nil, data)}})
	}
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the event that says who looked cannot be written now; nothing is told").Because(err)
	}
	out := make([]Explained, len(keys))
	for i := range keys {
		k := &keys[i]
		x, err := s.c.Explainer.ExplainAs(ctx, p, s.c.Access.PrincipalOf(k), &toolkeep.Call{Tool: v.Tool.ID, Range: c.Range, Arguments: c.Arguments, Face: c.Face})
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		out[i] = Explained{KeyID: k.ID, Subject: k.Subject, Roles: append([]string{}, k.Roles...), Scope: append([]string{}, k.Scope...), Explanation: x}
	}
	return out, nil
}
