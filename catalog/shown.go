package catalog

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
)

// Describer looks up the tools that a manifest names; Catalog implements it.
type Describer interface {
	Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
}

// Shown returns a tool's manifest without those tool names, in its relationships and its fallback, that do not
// exist for the principal. Names of no tool are removed as well, so that the manifest does not reveal which tools
// exist. Principals with catalog:admin keep those, or they would lose them when republishing the manifest they
// read.
//
// If nothing is removed, which is the usual case, it is the published manifest, which the tool's digest covers;
// otherwise it is in canonical form, and the digest stays that of the published one.
func Shown(c Describer, p *toolkeep.Principal, t *toolkeep.Tool, visible func(*toolkeep.Tool) bool) []byte {
	m := t.Manifest
	if m == nil || len(m.Relationships) == 0 && m.Fallback == "" {
		return t.Raw
	}
	hidden := false
	gone := func(ref string) bool {
		id, _, _ := strings.Cut(ref, "@")
		if there(c, p, id, visible) || p.May(toolkeep.PermLifecycle) && !there(c, p, id, func(*toolkeep.Tool) bool { return true }) {
			return false
		}
		hidden = true
		return true
	}
	var all map[string]jsontext.Value
	if json.Unmarshal(t.Raw, &all) != nil {
		return []byte("{}") // impossible: it was published
	}
	if raw := all["relationships"]; len(raw) > 0 {
		if raw = related(raw, gone); hidden {
			all["relationships"] = raw
		}
	}
	if m.Fallback != "" && !strings.HasPrefix(m.Fallback, CapabilityPrefix) && gone(m.Fallback) {
		delete(all, "fallback")
	}
	if !hidden {
		return t.Raw
	}
	raw, err := json.Marshal(all, json.Deterministic(true))
	if err != nil {
		return []byte("{}") // impossible: it was made from valid values
	}
	return raw
}

// there reports whether a tool exists for the principal, in any state.
func there(c Describer, p *toolkeep.Principal, id string, visible func(*toolkeep.Tool) bool) bool {
	_, _, err := c.Find(p, id, "", visible)
	return err == nil || !toolkeep.IsCode(err, toolkeep.ToolNotFound)
}

// related returns the manifest's object of that name without the missing tools.
func related(raw jsontext.Value, gone func(ref string) bool) jsontext.Value {
	var own map[string][]jsontext.Value
	if json.Unmarshal(raw, &own) != nil {
		return jsontext.Value("{}") // impossible: the catalogue checked it
	}
	for kind, list := range own {
		own[kind] = slices.DeleteFunc(list, func(entry jsontext.Value) bool {
			var id string
			if entry.Kind() == '{' {
				var pairing struct {
					ToolID string `json:"tool_id"`
				}
				return json.Unmarshal(entry, &pairing) != nil || gone(pairing.ToolID)
			}
			return json.Unmarshal(entry, &id) != nil || gone(id)
		})
		if len(own[kind]) == 0 {
			delete(own, kind)
		}
	}
	out, err := json.Marshal(own, json.Deterministic(true))
	if err != nil {
		return jsontext.Value("{}")
	}
	return out
}
