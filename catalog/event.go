package catalog

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Event types of the catalogue.
const (
	eventRegistered = "ai.agent.tool.registered" // the first version of a tool
	eventChanged    = "ai.agent.tool.changed"    // another version, or another state
	eventDefinition = "ai.agent.tool.definition.changed"
	eventAbout      = "ai.agent.tool.about.changed" // what the server or API behind a namespace says of itself
)

func appendEvent(kind, tenant string, at time.Time, data map[string]any) (toolkeep.AppendEvent, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return toolkeep.AppendEvent{}, toolkeep.AsError(err)
	}
	return toolkeep.AppendEvent{Event: toolkeep.Event{
		ID: id.String(), Type: kind, Tenant: tenant, Time: at, Data: canon.Append(nil, data),
	}}, nil
}

func publishData(v *version, r Published, by string) map[string]any {
	data := map[string]any{
		"tool_id": v.Tool.ID, "version": v.Tool.Version, "digest": v.Tool.Digest, "by": by,
		"state": string(v.state()), "bump": r.Bump, "forced": v.Life.Forced, "shared": v.Tool.Tenant == "",
	}
	if len(r.Breaking) > 0 {
		breaking := make([]any, len(r.Breaking))
		for i, d := range r.Breaking {
			breaking[i] = map[string]any{"pointer": d.Pointer, "kind": d.Kind, "message": d.Message}
		}
		data["breaking"] = breaking
	}
	if len(r.Deprecated) > 0 {
		deprecated := make([]any, len(r.Deprecated))
		for i, d := range r.Deprecated {
			deprecated[i] = d
		}
		data["deprecated"] = deprecated
	}
	return data
}

func stateData(v *version, from toolkeep.VersionState, by string) map[string]any {
	data := map[string]any{
		"tool_id": v.Tool.ID, "version": v.Tool.Version, "digest": v.Tool.Digest, "by": by,
		"state": string(v.state()), "previous_state": string(from), "shared": v.Tool.Tenant == "",
	}
	if v.Life.Cause != "" {
		data["cause"] = string(v.Life.Cause)
	}
	if v.Life.Reason != "" {
		data["reason"] = v.Life.Reason
	}
	if v.Life.Successor != "" {
		data["successor"] = v.Life.Successor
	}
	for name, t := range map[string]time.Time{"deprecated_at": v.Life.DeprecatedAt, "sunset_at": v.Life.SunsetAt, "remove_after": v.Life.RemoveAfter} {
		if !t.IsZero() {
			data[name] = stamp(t)
		}
	}
	if n := len(v.Life.Reason); n > maxReasonLength {
		data["reason"] = v.Life.Reason[:maxReasonLength] + "… (" + strconv.Itoa(n) + " bytes)"
	}
	return data
}

func holdData(v *version, before *toolkeep.Hold, by string) map[string]any {
	data := map[string]any{
		"tool_id": v.Tool.ID, "version": v.Tool.Version, "digest": v.Tool.Digest, "by": by,
		"state": string(v.state()), "shared": v.Tool.Tenant == "", "server": serverOf(v.Tool), "held": v.Life.Held != nil,
	}
	if src := v.Tool.Manifest.Source; src != nil && src.Digest != "" {
		data["pinned_digest"] = toolkeep.ClipBytes(src.Digest, 200)
	}
	h := v.Life.Held
	if h == nil {
		h = before // the lifted hold
	}
	data["cause"], data["reason"], data["held_at"] = string(h.Cause), h.Why, stamp(h.At)
	if h.Digest != "" {
		data["seen_digest"] = h.Digest
	}
	return data
}
