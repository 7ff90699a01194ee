package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"unsafe"

	"github.com/toolkeep/toolkeep/canon"
)

// edit is the coercion of an object or array by a branch; edited is its result.
type edit struct {
	node *node
	at   unsafe.Pointer
	n    int
	fill bool
}

type edited struct {
	out     any
	changed bool
}

// apply coerces v and, with fill, fills defaults. It never modifies v; changed reports whether out is a new value.
func (r *run) apply(n *node, v any, fill bool) (out any, changed bool) {
	r.spend(1)
	if s, ok := v.(string); ok && n.coerce != 0 {
		v, changed = coerce(s, r.to.of(n.coerce))
	} else if ok && n.date != "" && r.to.dates {
		v, changed = dated(s, n.date)
	}
	if number, ok := v.(json.Number); ok && n.whole {
		if w, ok := canon.Whole(number); ok {
			v, changed = w, true
		}
	}
	for _, part := range n.parts {
		if w, ok := r.apply(part, v, fill); ok {
			v, changed = w, true
		}
	}
	switch t := v.(type) {
	case map[string]any:
		if w, ok := r.applyObject(n, t, fill); ok {
			v, changed = w, true
		}
	case []any:
		if w, ok := r.applyArray(n, t, fill); ok {
			v, changed = w, true
		}
	default:
		return v, changed
	}
	for _, c := range n.choices {
		if w, ok := r.choose(c, v, fill); ok {
			v, changed = w, true
		}
	}
	return v, changed
}

func (r *run) applyObject(n *node, obj map[string]any, fill bool) (map[string]any, bool) {
	out, owned := obj, false
	put := func(name string, v any) {
		if !owned {
			out, owned = maps.Clone(obj), true
		}
		out[name] = v
	}
	if fill {
		// A strict export makes an optional property nullable, and models then write null for it.
		for _, name := range n.absent {
			if v, there := obj[name]; there && v == nil {
				if !owned {
					out, owned = maps.Clone(obj), true
				}
				delete(out, name)
			}
		}
		for _, d := range n.defaults {
			if _, there := out[d.name]; !there {
				put(d.name, d.value)
			}
		}
	}
	for _, p := range n.props {
		if v, there := out[p.name]; there {
			if w, ok := r.apply(p.node, v, fill); ok {
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
			if w, ok := r.apply(p.node, out[name], fill); ok {
				put(name, w)
			}
		}
		if _, known := n.known[name]; known || matched || n.additional == nil {
			continue
		}
		if w, ok := r.apply(n.additional, v, fill); ok {
			put(name, w)
		}
	}
	return out, owned
}

func (r *run) applyArray(n *node, list []any, fill bool) ([]any, bool) {
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
		if w, ok := r.apply(sub, v, fill); ok {
			if !owned {
				out, owned = slices.Clone(list), true
			}
			out[i] = w
		}
	}
	return out, owned
}

// choose takes the first branch that accepts v as is, else the first that accepts it coerced.
func (r *run) choose(c choice, v any, fill bool) (any, bool) {
	for _, b := range c {
		if !r.child(b.schema, v) {
			continue
		}
		if w, ok := r.applyBranch(b.node, v, fill); ok && r.child(b.schema, w) {
			return w, true
		}
		return v, false
	}
	for _, b := range c {
		if w, ok := r.applyBranch(b.node, v, fill); ok && r.child(b.schema, w) {
			return w, true
		}
	}
	return v, false
}

// applyBranch is apply that remembers: within a branch that is refused in the end, each part would be coerced again
// for every branch around it.
func (r *run) applyBranch(n *node, v any, fill bool) (any, bool) {
	key := edit{node: n, fill: fill}
	if key.at, key.n = identity(v); key.at == nil {
		return r.apply(n, v, fill)
	}
	if e, known := r.edits[key]; known {
		return e.out, e.changed
	}
	out, changed := r.apply(n, v, fill)
	if len(r.edits) < maxMemo {
		if r.edits == nil {
			r.edits = map[edit]edited{}
		}
		r.edits[key] = edited{out, changed}
	}
	return out, changed
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
