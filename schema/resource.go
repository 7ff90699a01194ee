package schema

import (
	"maps"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// resource is a part of a schema that has an address of its own.
type resource struct {
	anchors   map[string]*jsonschema.Schema // $dynamicAnchor
	recursive *jsonschema.Schema            // its root, if that has $recursiveAnchor
}

// scope are the targets of dynamic references: of each anchor that of the outermost resource on the way.
type scope struct {
	anchors   map[string]*jsonschema.Schema
	recursive *jsonschema.Schema
	next      map[*resource]*scope
}

// enter returns the scope within a resource, always the same for the same.
func (s *scope) enter(res *resource) *scope {
	if res == nil {
		return s
	}
	if to := s.next[res]; to != nil {
		return to
	}
	to := &scope{anchors: maps.Clone(res.anchors), recursive: s.recursive}
	maps.Copy(to.anchors, s.anchors)
	if to.recursive == nil {
		to.recursive = res.recursive
	}
	if len(to.anchors) == len(s.anchors) && to.recursive == s.recursive {
		to = s
	}
	if s.next == nil {
		s.next = map[*resource]*scope{}
	}
	s.next[res] = to
	return to
}

// dynamic reports whether a reference among the schemas may lead to several places.
func dynamic(all map[string]*jsonschema.Schema) bool {
	for _, s := range all {
		if s.RecursiveRef != nil && s.RecursiveRef.RecursiveAnchor ||
			s.DynamicRef != nil && s.DynamicRef.Anchor != "" && s.DynamicRef.Ref.DynamicAnchor == s.DynamicRef.Anchor {
			return true
		}
	}
	return false
}

// named returns where in a document schemas have an $id or a $dynamicAnchor.
func named(doc any) (at []string) {
	Walk(doc, func(pointer string, s map[string]any) bool {
		_, id := s["$id"].(string)
		_, anchor := s["$dynamicAnchor"].(string)
		if id || anchor {
			at = append(at, pointer)
		}
		return true
	})
	return at
}

// findResources returns the resource of each schema; nil if only one has anchors of dynamic references, which then
// lead where they would without.
func findResources(all map[string]*jsonschema.Schema) map[*jsonschema.Schema]*resource {
	byRoot := map[*jsonschema.Schema]*resource{}
	out := map[*jsonschema.Schema]*resource{}
	for _, s := range all {
		root := rootOf(all, s)
		res := byRoot[root]
		if res == nil {
			res = &resource{anchors: map[string]*jsonschema.Schema{}}
			if root.RecursiveAnchor {
				res.recursive = root
			}
			byRoot[root] = res
		}
		if s.DynamicAnchor != "" {
			res.anchors[s.DynamicAnchor] = s
		}
		out[s] = res
	}
	several := 0
	for _, res := range byRoot {
		if res.recursive != nil || len(res.anchors) > 0 {
			several++
		}
	}
	if several < 2 {
		return nil
	}
	return out
}

// rootOf returns the nearest schema at or above s that has an $id, or the highest above it.
func rootOf(all map[string]*jsonschema.Schema, s *jsonschema.Schema) *jsonschema.Schema {
	root := s
	document, pointer, _ := strings.Cut(s.Location, "#")
	for root.ID == "" {
		i := strings.LastIndexByte(pointer, '/')
		if i < 0 {
			break
		}
		pointer = pointer[:i]
		if above := all[document+"#"+pointer]; above != nil {
			root = above
		}
	}
	return root
}

// findCycles returns the schemas that lead back to themselves for one value: the strongly connected components of
// more than one schema, and those that name themselves, found with Tarjan's algorithm.
func findCycles(all map[string]*jsonschema.Schema) map[*jsonschema.Schema]bool {
	var (
		cyclic  map[*jsonschema.Schema]bool
		order   = map[*jsonschema.Schema]int{}
		low     = map[*jsonschema.Schema]int{}
		open    = map[*jsonschema.Schema]bool{}
		stack   []*jsonschema.Schema
		connect func(s *jsonschema.Schema)
	)
	connect = func(s *jsonschema.Schema) {
		order[s] = len(order) + 1
		low[s] = order[s]
		stack = append(stack, s)
		open[s] = true
		self := false
		for _, next := range combined(s) {
			switch {
			case next == nil:
			case next == s:
				self = true
			case order[next] == 0:
				connect(next)
				low[s] = min(low[s], low[next])
			case open[next]:
				low[s] = min(low[s], order[next])
			}
		}
		if low[s] != order[s] {
			return
		}
		for first := true; ; first = false {
			member := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			open[member] = false
			if member != s || !first || self {
				if cyclic == nil {
					cyclic = map[*jsonschema.Schema]bool{}
				}
				cyclic[member] = true
			}
			if member == s {
				return
			}
		}
	}
	for _, location := range sortedKeys(all) {
		if s := all[location]; order[s] == 0 {
			connect(s)
		}
	}
	return cyclic
}
