package catalog

import (
	"encoding/json"
	"math/big"
	"net/url"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep/canon"
)

// schemaDoc is one schema document with its derived nodes. They are cached, so that the same node is always the
// same map and recursion is detected.
type schemaDoc struct {
	root   any
	empty  map[string]any // the keys of true, false and a node that refers to itself
	flats  map[uintptr]flatSchema
	busy   map[uintptr]bool
	joined map[[2]uintptr]map[string]any
	all    map[uintptr][]flatSchema
}

// flatSchema is a node with references resolved and allOf merged.
type flatSchema struct {
	keys  map[string]any // never nil
	never bool           // the schema false
}

func newSchemaDoc(root any) *schemaDoc {
	if root == nil {
		root = true
	}
	return &schemaDoc{root: root, empty: map[string]any{}, flats: map[uintptr]flatSchema{}, busy: map[uintptr]bool{}, joined: map[[2]uintptr]map[string]any{}, all: map[uintptr][]flatSchema{}}
}

func (d *schemaDoc) flat(node any) flatSchema {
	m, ok := node.(map[string]any)
	if !ok {
		return flatSchema{keys: d.empty, never: node == false}
	}
	id := identity(m)
	if f, ok := d.flats[id]; ok {
		return f
	}
	if d.busy[id] {
		// A self-reference adds nothing.
		return flatSchema{keys: d.empty}
	}
	d.busy[id] = true
	f := d.flatten(m)
	delete(d.busy, id)
	d.flats[id] = f
	return f
}

func (d *schemaDoc) flatten(m map[string]any) flatSchema {
	target, followed := d.target(m)
	parts, _ := m["allOf"].([]any)
	if !followed && len(parts) == 0 {
		return flatSchema{keys: m}
	}
	if followed && len(m) == 1 {
		return d.flat(target)
	}
	out := flatSchema{keys: make(map[string]any, len(m))}
	for k, v := range m {
		if k == "allOf" || k == "$ref" && followed || k == "$defs" || k == "definitions" {
			continue
		}
		out.keys[k] = v
	}
	if followed {
		parts = append([]any{target}, parts...)
	}
	for _, p := range parts {
		f := d.flat(p)
		out.never = out.never || f.never
		d.join(out.keys, f.keys)
	}
	return out
}

// target resolves $ref within the document.
func (d *schemaDoc) target(m map[string]any) (any, bool) {
	ref, ok := m["$ref"].(string)
	if !ok {
		return nil, false
	}
	if root, ok := d.root.(map[string]any); ok && !strings.HasPrefix(ref, "#") {
		id, _ := root["$id"].(string)
		rest, found := strings.CutPrefix(ref, id)
		if id == "" || !found || !strings.HasPrefix(rest, "#") {
			return nil, false
		}
		ref = rest
	}
	if !strings.HasPrefix(ref, "#") {
		return nil, false
	}
	return atFragment(d.root, ref[1:])
}

// join adds the constraints of from to those of into.
func (d *schemaDoc) join(into, from map[string]any) {
	for k, v := range from {
		have, ok := into[k]
		if !ok {
			into[k] = v
			continue
		}
		switch k {
		case "properties", "patternProperties":
			into[k] = d.joinProperties(have, v)
		case "required":
			into[k] = union(have, v)
		case "type":
			into[k] = commonTypes(have, v)
		case "title", "description", "default", "examples", "example", "$comment", "$id", "$schema", "$anchor", "deprecated", "readOnly", "writeOnly":
			// The nearer schema's limit wins.
		case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
			if x, ok := number(have); ok {
				if y, ok := number(v); ok && y.Cmp(x) > 0 {
					into[k] = v
				}
			}
		case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
			if x, ok := number(have); ok {
				if y, ok := number(v); ok && y.Cmp(x) < 0 {
					into[k] = v
				}
			}
		case "additionalProperties", "unevaluatedProperties":
			if v == false {
				into[k] = false
			} else if have != false && !sameTree(have, v) {
				into[k] = d.both(have, v)
			}
		case "items", "propertyNames":
			if !sameTree(have, v) {
				into[k] = d.both(have, v)
			}
		default:
			if !sameTree(have, v) {
				// Two constraints of one keyword cannot merge: they stay side by side and are compared as text.
				rest, _ := into["allOf"].([]any)
				into["allOf"] = append(slices.Clone(rest), map[string]any{k: v})
			}
		}
	}
}

func (d *schemaDoc) joinProperties(a, b any) any {
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if !okX || !okY {
		return a
	}
	out := make(map[string]any, len(x)+len(y))
	for k, v := range x {
		out[k] = v
	}
	for k, v := range y {
		if have, ok := out[k]; ok && !sameTree(have, v) {
			v = d.both(have, v)
		}
		out[k] = v
	}
	return out
}

// both returns the schema that requires a and b.
func (d *schemaDoc) both(a, b any) any {
	if a == false || b == false {
		return false
	}
	if a == true {
		return b
	}
	if b == true {
		return a
	}
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if !okX || !okY {
		return a // not a schema; publishing has refused it
	}
	pair := [2]uintptr{identity(x), identity(y)}
	if m, ok := d.joined[pair]; ok {
		return m
	}
	m := map[string]any{"allOf": []any{a, b}}
	d.joined[pair] = m
	return m
}

func union(a, b any) any {
	x, _ := a.([]any)
	y, _ := b.([]any)
	out := slices.Clone(x)
	for _, v := range y {
		if !slices.ContainsFunc(out, func(w any) bool { return sameTree(v, w) }) {
			out = append(out, v)
		}
	}
	return out
}

func commonTypes(a, b any) any {
	x, y := typesOf(map[string]any{"type": a}), typesOf(map[string]any{"type": b})
	out := []any{}
	for _, t := range x {
		if accepts(y, t) {
			out = append(out, t)
		} else if t == "number" && slices.Contains(y, "integer") {
			out = append(out, "integer")
		}
	}
	return out
}

// variants expands anyOf or oneOf: each branch joined with its sibling keywords. A node without either is its only
// variant.
func (d *schemaDoc) variants(f flatSchema) []flatSchema {
	id := identity(f.keys)
	if known, ok := d.all[id]; ok {
		return known
	}
	out := d.expand(f, nil, 0)
	if len(out) == 0 {
		out = []flatSchema{{keys: d.empty, never: true}}
	}
	d.all[id] = out
	return out
}

// expand goes a few levels deep; a deeper or recursive variant stays unexpanded and is compared as text.
func (d *schemaDoc) expand(f flatSchema, out []flatSchema, depth int) []flatSchema {
	key := "anyOf"
	branches, ok := f.keys[key].([]any)
	if !ok {
		key = "oneOf"
		branches, ok = f.keys[key].([]any)
	}
	if !ok || len(branches) == 0 || depth > 4 {
		return append(out, f)
	}
	for _, b := range branches {
		part := d.flat(b)
		if part.never {
			continue
		}
		if len(out) > maxVariants {
			break
		}
		keys := make(map[string]any, len(f.keys)+len(part.keys))
		for k, v := range part.keys {
			keys[k] = v
		}
		rest := make(map[string]any, len(f.keys))
		for k, v := range f.keys {
			if k != key && !annotation(k) {
				rest[k] = v
			}
		}
		d.join(keys, rest)
		out = d.expand(flatSchema{keys: keys}, out, depth+1)
	}
	return out
}

func annotation(k string) bool {
	switch k {
	case "title", "description", "default", "examples", "example", "$comment", "deprecated", "discriminator":
		return true
	}
	return false
}

// requires reports whether a property must be sent, or is always returned. A default makes an argument optional.
func (d *schemaDoc) requires(m map[string]any, name string, dir direction) bool {
	if !slices.Contains(requiredNames(m), name) {
		return false
	}
	if dir == output {
		return true
	}
	properties, _ := m["properties"].(map[string]any)
	_, has := d.flat(properties[name]).keys["default"]
	return !has
}

// number parses a number exactly enough to order it, without allocating memory for huge exponents.
func number(v any) (*big.Float, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	f, _, err := big.ParseFloat(string(n), 10, 256, big.ToNearestEven)
	return f, err == nil
}

// divides reports whether v is a multiple of by.
func divides(by, v any) bool {
	x, okX := number(by)
	y, okY := number(v)
	if !okX || !okY || x.Sign() == 0 || y.MantExp(nil)-x.MantExp(nil) > 200 {
		return false
	}
	q := new(big.Float).SetPrec(512).Quo(y, x)
	nearest := new(big.Float).SetPrec(512).Add(q, big.NewFloat(0.5))
	whole, _ := nearest.Int(nil)
	// Decimal fractions are not exact in binary: 0.3 is a multiple of 0.1.
	rest := new(big.Float).SetPrec(512).Sub(q, new(big.Float).SetInt(whole))
	return rest.Abs(rest).Cmp(big.NewFloat(1e-30)) < 0
}

func written(v any) string { return string(canon.Append(nil, v)) }

// atFragment resolves the fragment of a reference within one document: a JSON Pointer, percent-encoded or not.
func atFragment(root any, fragment string) (any, bool) {
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	return canon.Lookup(root, fragment)
}
