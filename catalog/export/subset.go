package export

import (
	"fmt"
	"maps"

	"github.com/toolkeep/toolkeep/schema"
)

// definition is a referenced schema.
type definition struct {
	name   string
	out    map[string]any
	busy   bool
	reason string // why it cannot be converted
}

// subset converts the schema by the rules.
func (c *converter) subset(r *rules) (map[string]any, string) {
	c.rules = r
	c.modernise()
	c.defs, c.names, c.active = map[string]*definition{}, map[string]bool{}, map[string]bool{}
	s, reason := c.top()
	if reason != "" {
		return nil, reason
	}
	if r.limitNames {
		if reason := c.anthropicNames(s); reason != "" {
			return nil, reason
		}
	}
	for _, k := range []string{"enum", "const"} {
		if has(s, k) {
			c.lose("/"+k, k, "arguments are described by their properties")
			delete(s, k)
		}
	}
	out, reason := c.object(s, "")
	if c.budget < 0 {
		return nil, tooMuch
	}
	if reason != "" {
		return nil, reason
	}
	c.finish(out, s, "", "object")
	defs := map[string]any{}
	for _, d := range c.defs {
		if d.reason == "" {
			defs[d.name] = d.out
		}
	}
	out["$defs"] = defs
	prune(out)
	if c.shut > 0 {
		c.lose("", "additionalProperties", fmt.Sprintf("%s closes every object; %d that said nothing of other properties take none now", r.who, c.shut))
	}
	if c.absent > 0 {
		c.lose("", "required", fmt.Sprintf("%s requires every property; %d optional ones are null where they are absent: leave those nulls out before you call the tool", r.who, c.absent))
	}
	return out, ""
}

// prune drops unreferenced definitions.
func prune(out map[string]any) {
	defs, _ := out["$defs"].(map[string]any)
	used := map[string]bool{}
	var follow func(s map[string]any)
	follow = func(s map[string]any) {
		schema.Walk(s, func(_ string, m map[string]any) bool {
			if ref, ok := m["$ref"].(string); ok && len(ref) > len("#/$defs/") {
				name := ref[len("#/$defs/"):]
				if d, ok := defs[name].(map[string]any); ok && !used[name] {
					used[name] = true
					follow(d)
				}
			}
			return true
		})
	}
	body := maps.Clone(out)
	delete(body, "$defs")
	follow(body)
	maps.DeleteFunc(defs, func(name string, _ any) bool { return !used[name] })
	if len(defs) == 0 {
		delete(out, "$defs")
	}
}
