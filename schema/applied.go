package schema

import (
	"strings"

	"github.com/toolkeep/toolkeep/canon"
)

// Limits of Applied: schemas visited, and the length of a chain of schemas for one value.
const (
	maxApplied = 200_000
	maxChain   = 64
)

// Applied calls visit for v and each of its parts with every schema of the document root that may apply to it. It
// does not evaluate alternatives or conditions: all of them count. It returns false if it stopped early at a limit.
func Applied(root, v any, visit func(v any, s map[string]any)) bool {
	a := applied{root: root, left: maxApplied, visit: visit}
	a.look(v, root, maxChain)
	return a.left > 0
}

type applied struct {
	root  any
	left  int
	visit func(any, map[string]any)
}

func (a *applied) look(v, schema any, chain int) {
	m, ok := schema.(map[string]any)
	if a.left--; !ok || a.left <= 0 || chain == 0 {
		return
	}
	a.visit(v, m)
	for _, name := range [...]string{"$ref", "$dynamicRef", "$recursiveRef"} {
		if ref, ok := m[name].(string); ok {
			if to, ok := canon.Lookup(a.root, strings.TrimPrefix(ref, "#")); ok {
				a.look(v, to, chain-1)
			}
		}
	}
	for _, name := range [...]string{"allOf", "anyOf", "oneOf"} {
		list, _ := m[name].([]any)
		for _, one := range list {
			a.look(v, one, chain-1)
		}
	}
	for _, name := range [...]string{"if", "then", "else"} {
		a.look(v, m[name], chain-1)
	}
	switch v := v.(type) {
	case map[string]any:
		a.members(v, m, chain)
	case []any:
		a.elements(v, m)
	}
}

// members iterates over the object's names, which are fewer than the schema's.
func (a *applied) members(obj, m map[string]any, chain int) {
	named, _ := m["properties"].(map[string]any)
	matched, _ := m["patternProperties"].(map[string]any)
	for name, el := range obj {
		a.look(el, named[name], maxChain)
		for _, one := range matched {
			a.look(el, one, maxChain)
		}
		for _, k := range [...]string{"additionalProperties", "unevaluatedProperties"} {
			a.look(el, m[k], maxChain)
		}
		for _, k := range [...]string{"dependentSchemas", "dependencies"} {
			dependent, _ := m[k].(map[string]any)
			a.look(obj, dependent[name], chain-1)
		}
	}
}

func (a *applied) elements(list []any, m map[string]any) {
	first, ok := m["prefixItems"].([]any)
	if !ok {
		first, _ = m["items"].([]any)
	}
	for i, el := range list {
		if i < len(first) {
			a.look(el, first[i], maxChain)
		}
		for _, k := range [...]string{"items", "additionalItems", "contains", "unevaluatedItems"} {
			a.look(el, m[k], maxChain)
		}
	}
}
