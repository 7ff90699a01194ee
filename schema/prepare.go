package schema

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/toolkeep/toolkeep/canon"
)

// apply coerces v and, with fill, fills defaults. It never modifies v; changed reports whether out is a new value.
func (n *node) apply(v any, fill bool) (out any, changed bool) {
	if s, ok := v.(string); ok && n.coerce != 0 {
		v, changed = coerce(s, n.coerce)
	}
	for _, part := range n.parts {
		if w, ok := part.apply(v, fill); ok {
			v, changed = w, true
		}
	}
	switch t := v.(type) {
	case map[string]any:
		if w, ok := n.applyObject(t, fill); ok {
			v, changed = w, true
		}
	case []any:
		if w, ok := n.applyArray(t, fill); ok {
			v, changed = w, true
		}
	default:
		return v, changed
	}
	for _, c := range n.choices {
		if w, ok := c.apply(v, fill); ok {
			v, changed = w, true
		}
	}
	return v, changed
}

func (n *node) applyObject(obj map[string]any, fill bool) (map[string]any, bool) {
	out, owned := obj, false
	put := func(name string, v any) {
		if !owned {
			out, owned = maps.Clone(obj), true
		}
		out[name] = v
	}
	if fill {
		for _, d := range n.defaults {
			if _, there := obj[d.name]; !there {
				put(d.name, d.value)
			}
		}
	}
	for _, p := range n.props {
		if v, there := out[p.name]; there {
			if w, ok := p.node.apply(v, fill); ok {
				put(p.name, w)
			}
		}
	}
	if n.additional == nil && len(n.patterns) == 0 {
		return out, owned
	}
	for name, v := range obj {
		matched := false
		for _, p := range n.patterns {
			if !p.re.MatchString(name) {
				continue
			}
			matched = true
			if w, ok := p.node.apply(out[name], fill); ok {
				put(name, w)
			}
		}
		if _, known := n.known[name]; known || matched || n.additional == nil {
			continue
		}
		if w, ok := n.additional.apply(v, fill); ok {
			put(name, w)
		}
	}
	return out, owned
}

func (n *node) applyArray(list []any, fill bool) ([]any, bool) {
	if n.items == nil && len(n.prefix) == 0 {
		return list, false
	}
	out, owned := list, false
	for i, v := range list {
		sub := n.items
		if i < len(n.prefix) {
			sub = n.prefix[i]
		}
		if sub == nil {
			break
		}
		if w, ok := sub.apply(v, fill); ok {
			if !owned {
				out, owned = slices.Clone(list), true
			}
			out[i] = w
		}
	}
	return out, owned
}

// apply takes the first branch that accepts v as is, else the first that accepts it coerced.
func (c choice) apply(v any, fill bool) (any, bool) {
	for _, b := range c {
		if b.schema.Validate(v) != nil {
			continue
		}
		if w, ok := b.node.apply(v, fill); ok && b.schema.Validate(w) == nil {
			return w, true
		}
		return v, false
	}
	for _, b := range c {
		if w, ok := b.node.apply(v, fill); ok && b.schema.Validate(w) == nil {
			return w, true
		}
	}
	return v, false
}

// coerce parses the whole text as one of the wanted types. A number keeps its text.
func coerce(s string, want kinds) (any, bool) {
	switch {
	case want&kindBoolean != 0 && s == "true":
		return true, true
	case want&kindBoolean != 0 && s == "false":
		return false, true
	case want&kindNumber != 0 && canon.IsNumber(s) && canon.Bounded(json.Number(s)),
		want&kindInteger != 0 && canon.IsInteger(s) && canon.Bounded(json.Number(s)):
		return json.Number(s), true
	}
	return s, false
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
