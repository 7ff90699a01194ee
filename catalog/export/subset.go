package export

import (
	"fmt"
	"maps"
	"slices"

	"github.com/toolkeep/toolkeep/schema"
)

// definition is a referenced schema.
type definition struct {
	name   string
	out    map[string]any
	busy   bool
	reason string // why it cannot be converted
}

// subset converts the schema by the rules. It works in rounds, because a definition may turn out to be
// inconvertible after a reference to it was written.
func (c *converter) subset(r *rules) (map[string]any, string) {
	c.rules = r
	c.modernise()
	kept := slices.Clone(c.losses)
	c.failed = map[string]bool{}
	for range maxHops {
		c.losses, c.more, c.shut, c.absent = slices.Clone(kept), 0, 0, 0
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
		if has(s, "enum", "const") {
			for _, k := range []string{"enum", "const"} {
				if has(s, k) {
					c.lose("/"+k, k, "arguments are described by their properties")
					delete(s, k)
				}
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
		again := false
		for _, pointer := range slices.Sorted(maps.Keys(c.defs)) {
			d := c.defs[pointer]
			if d.reason != "" {
				again = again || !c.failed[pointer] && c.met(out, d.name)
				c.failed[pointer] = true
				continue
			}
			defs[d.name] = d.out
		}
		if again {
			continue
		}
		if len(defs) > 0 {
			out["$defs"] = defs
			prune(out)
		}
		if r.lazy {
			if name := requiredCycle(out); name != "" && !c.fail(name) {
				return nil, "its arguments lead back to themselves by required properties"
			} else if name != "" {
				continue
			}
		}
		if c.shut > 0 {
			c.lose("", "additionalProperties", fmt.Sprintf("%s closes every object; %d that said nothing of other properties take none now", r.who, c.shut))
		}
		if c.absent > 0 {
			c.lose("", "required", fmt.Sprintf("%s requires every property; %d optional ones are null where they are absent: leave those nulls out before you call the tool", r.who, c.absent))
		}
		return out, ""
	}
	return nil, tooMuch
}

// met reports whether anything refers to a definition.
func (c *converter) met(out map[string]any, name string) bool {
	for _, d := range c.defs {
		if d.out != nil && refersTo(d.out, name) {
			return true
		}
	}
	return refersTo(out, name)
}

func refersTo(s map[string]any, name string) bool {
	return !schema.Walk(s, func(_ string, m map[string]any) bool { return m["$ref"] != defRef(name) })
}

// fail marks the definition of a name as failed.
func (c *converter) fail(name string) bool {
	for pointer, d := range c.defs {
		if d.name == name && !c.failed[pointer] {
			c.failed[pointer] = true
			return true
		}
	}
	return false
}

func defRef(name string) string { return "#/$defs/" + name }

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
