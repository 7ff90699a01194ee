package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// unseenTime is how long each call takes whose tool does not exist for the caller: more than it takes to decide and tell of
// one that exists for others, so that the time says nothing.
const unseenTime = 2 * time.Millisecond

// hiddenByRule is why a call is refused whose tool the policy alone hides.
const hiddenByRule = "the policy's rule visible hides the tool"

// unseen counts a call that err refuses because its tool does not exist for the caller. If the tool exists all the same,
// the call is a denied one like any other: its record has the reason, and what the caller is told, which is err.
func (p *Pipeline) unseen(ctx context.Context, a *activeCall, tool, rng string, err error) {
	if a.mode == modeDryRun || !slices.Contains(unresolved, toolkeep.AsError(err).Code) {
		return
	}
	began := time.Now()
	defer func() { toolkeep.Sleep(ctx, unseenTime-time.Since(began)) }()
	v, _, missing := p.Catalog.Find(a.principal, tool, rng, nil) // which asks no store, so that it takes as long for either
	if missing != nil {
		// The range fits no version, or is none: then the tool says.
		if v, _, missing = p.Catalog.Find(a.principal, tool, "", nil); missing == nil && p.Access.Visible(a.principal, v.Tool) {
			missing = err
		}
	}
	if missing != nil {
		p.Access.NoteUnknown(a.principal)
		return
	}
	d := p.Access.Authorise(a.principal, v.Tool, a.call)
	if d.Grant != nil { // as narrow does
		own := *a.call
		own.Token, own.Grant = "", d.Grant
		a.call = &own
	}
	if policy := p.Access.Policy(); policy != nil && d.Allowed {
		if !policy.Sees(a.principal, v.Tool) {
			d.Allowed, d.Code, d.Reason = false, toolkeep.PolicyDenied, hiddenByRule
			d.Checks = append(slices.Clone(d.Checks), access.Check{Name: access.CheckPolicy, Reason: d.Reason})
		} else {
			d = p.ask(ctx, a, d, policy, v.Tool, a.arguments)
		}
	}
	if d.Allowed { // what hid it has changed, or a face alone does
		p.Access.NoteUnknown(a.principal)
		return
	}
	switch d.Code {
	case toolkeep.PolicyEngineUnavailable, toolkeep.RegistryUnavailable: // no denial, as in decided
		p.Access.NoteUnknown(a.principal)
	default:
		p.Access.NoteDenied(a.principal, v.Tool.ID)
	}
	m := v.Tool.Manifest
	a.row.Version, a.row.Digest, a.row.Category = v.Tool.Version, v.Tool.Digest, m.Category
	a.row.Kind, a.row.Writes = m.Execution.Kind, v.Tool.Writes()
	a.denied = denied(d).With("tool_id", v.Tool.ID)
	if a.row.KeyID != "" {
		a.denied.With("key_id", a.row.KeyID)
	}
}

// reason returns what the record says of an error: of a tool that the caller does not see, and of one that it may not call
// during a block, why it was refused.
func (a *activeCall) reason(e *toolkeep.Error) *toolkeep.Error {
	if a.denied == nil || e == nil || e.Code != toolkeep.AuthFailuresLimited && !slices.Contains(unresolved, e.Code) {
		return e
	}
	return a.denied
}

// answer is what the caller was told of a call whose reason it is not told, as the record has it beside the reason: in the member
// answered of its details.
type answer struct {
	Code    toolkeep.Code  `json:"error_code"`
	Message string         `json:"message"`
	Details jsontext.Value `json:"details,omitzero"`
	RetryS  int            `json:"retry_after_s,omitzero"`
}

// beside returns the details of a record with what the caller was told.
func (said answer) beside(details json.RawMessage) json.RawMessage {
	all := map[string]jsontext.Value{}
	told, err := jsonv2.Marshal(said)
	if len(details) > 0 {
		err = errors.Join(err, jsonv2.Unmarshal(details, &all))
	}
	all["answered"] = told
	raw, err2 := jsonv2.Marshal(all, jsonv2.Deterministic(true))
	if errors.Join(err, err2) != nil { // impossible: all of it was made here
		return told
	}
	return raw
}

// told returns a record as the principal may read it: of a call whose reason its caller is not told, who may not read
// the calls of all is shown what the caller was told.
func told(pr *toolkeep.Principal, row *toolkeep.Invocation) *toolkeep.Invocation {
	if row.State != toolkeep.CallRefused || len(row.Details) == 0 || pr.May(toolkeep.PermInvocations) {
		return row
	}
	var details struct {
		Answered *answer `json:"answered"`
	}
	if jsonv2.Unmarshal(row.Details, &details) != nil || details.Answered == nil {
		return row
	}
	own, said := *row, details.Answered
	own.Code, own.Message, own.Details, own.Retryable, own.RetryS = said.Code, said.Message, json.RawMessage(said.Details), said.Code.Info().Retryable, said.RetryS
	if said.Code == toolkeep.AuthFailuresLimited { // the caller sees the tool
		return &own
	}
	own.Version, own.Digest, own.Category, own.Kind, own.Writes = "", "", "", "", false
	return &own
}
