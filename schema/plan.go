package schema

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// kinds is a set of JSON types.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBoolean
	kindInteger
	kindNumber
	kindString
	kindArray
	kindObject

	anyKind     = kindNull | kindBoolean | kindInteger | kindNumber | kindString | kindArray | kindObject
	coercedKind = kindBoolean | kindInteger | kindNumber
)

// node describes what Prepare may have to do at one place. Nodes form the same graph as the schemas, with cycles
// through properties and items, but none through parts and choices, and without branches that cannot change
// anything.
type node struct {
	coerce  kinds    // what a string converts to; 0 keeps it
	date    string   // the format date or date-time of a text; "" for none
	whole   bool     // a number is an integer, and is written as one
	parts   []*node  // $ref and allOf: all apply to the same value
	choices []choice // anyOf and oneOf: one branch each applies to the same value

	props      []propNode
	defaults   []defaultValue
	absent     []string // optional properties that refuse null: null is taken as absent
	patterns   []patternNode
	additional *node
	known      map[string]*jsonschema.Schema // properties outside additional

	prefix []*node
	items  *node

	busy bool // something can change here or below
}

type propNode struct {
	name string
	node *node
}

type patternNode struct {
	re   jsonschema.Regexp
	node *node
}

type defaultValue struct {
	name  string
	value any // shared by all results, never modified
}

type choice []branch

type branch struct {
	schema *jsonschema.Schema
	node   *node
}

// makePlan returns nil if no value can need coercion or defaults.
func makePlan(s *Schema) *node {
	p := planner{schema: s, nodes: map[*jsonschema.Schema]*node{}, kinds: map[*jsonschema.Schema]kinds{}}
	n := p.node(s.compiled)
	p.breakCycles()
	p.dropDefaults()
	p.findBusy()
	if !n.busy {
		return nil
	}
	for _, n := range p.order {
		n.prune()
	}
	return n
}

type planner struct {
	schema *Schema
	nodes  map[*jsonschema.Schema]*node
	order  []*node
	source []*jsonschema.Schema // schema of each node in order
	kinds  map[*jsonschema.Schema]kinds
}

func (p *planner) node(s *jsonschema.Schema) *node {
	if s == nil {
		return nil
	}
	if n, ok := p.nodes[s]; ok {
		return n
	}
	n := &node{}
	p.nodes[s] = n
	p.order = append(p.order, n)
	p.source = append(p.source, s)

	k := p.allowed(s)
	if k&kindString == 0 {
		n.coerce = k & coercedKind
	}
	if s.Format != nil && k&kindString != 0 && (s.Format.Name == "date" || s.Format.Name == "date-time") {
		n.date = s.Format.Name
	}
	n.whole = k&kindInteger != 0 && k&kindNumber == 0
	for _, part := range sameValue(s) {
		n.parts = append(n.parts, p.node(part))
	}
	for _, list := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		var c choice
		for _, b := range list {
			c = append(c, branch{b, p.node(b)})
		}
		if c != nil {
			n.choices = append(n.choices, c)
		}
	}
	p.object(n, s)
	p.array(n, s)
	return n
}

func (p *planner) object(n *node, s *jsonschema.Schema) {
	n.known = s.Properties
	for _, name := range sortedKeys(s.Properties) {
		sub := s.Properties[name]
		n.props = append(n.props, propNode{name, p.node(sub)})
		if p.allowed(sub)&kindNull == 0 && !slices.Contains(s.Required, name) {
			n.absent = append(n.absent, name)
		}
		if v, ok := defaultOf(sub); ok {
			n.defaults = append(n.defaults, defaultValue{name, v})
		}
	}
	for re, sub := range s.PatternProperties {
		n.patterns = append(n.patterns, patternNode{re, p.node(sub)})
	}
	if sub, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		n.additional = p.node(sub)
	}
}

func (p *planner) array(n *node, s *jsonschema.Schema) {
	prefix, items := s.PrefixItems, s.Items2020
	if s.DraftVersion < 2020 {
		switch i := s.Items.(type) {
		case *jsonschema.Schema:
			items = i
		case []*jsonschema.Schema:
			prefix = i
			items, _ = s.AdditionalItems.(*jsonschema.Schema)
		}
	}
	for _, sub := range prefix {
		n.prefix = append(n.prefix, p.node(sub))
	}
	n.items = p.node(items)
}

// sameValue returns the schemas that must hold for the same value as s. A dynamic reference whose target depends on
// the path to it is left out.
func sameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	var out []*jsonschema.Schema
	if s.Ref != nil {
		out = append(out, s.Ref)
	}
	if r := s.RecursiveRef; r != nil && !r.RecursiveAnchor {
		out = append(out, r)
	}
	if d := s.DynamicRef; d != nil && (d.Anchor == "" || d.Ref.DynamicAnchor != d.Anchor) {
		out = append(out, d.Ref)
	}
	return append(out, s.AllOf...)
}

// allowed returns the types that s allows, as far as is known without the value. A schema that refers to itself
// here allows any.
func (p *planner) allowed(s *jsonschema.Schema) kinds {
	if k, ok := p.kinds[s]; ok {
		return k
	}
	p.kinds[s] = anyKind
	k := anyKind
	if s.Bool != nil && !*s.Bool {
		k = 0
	}
	if s.Types != nil && !s.Types.IsEmpty() {
		k &= namedKinds(s.Types.ToStrings())
	}
	if s.Enum != nil {
		k &= valueKinds(s.Enum.Values)
	}
	if s.Const != nil {
		k &= valueKinds([]any{*s.Const})
	}
	for _, part := range sameValue(s) {
		k &= p.allowed(part)
	}
	for _, list := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if len(list) == 0 {
			continue
		}
		var union kinds
		for _, b := range list {
			union |= p.allowed(b)
		}
		k &= union
	}
	p.kinds[s] = k
	return k
}

func namedKinds(names []string) kinds {
	var k kinds
	for _, n := range names {
		switch n {
		case "null":
			k |= kindNull
		case "boolean":
			k |= kindBoolean
		case "integer":
			k |= kindInteger
		case "number":
			k |= kindNumber | kindInteger
		case "string":
			k |= kindString
		case "array":
			k |= kindArray
		case "object":
			k |= kindObject
		}
	}
	return k
}

func valueKinds(values []any) kinds {
	var k kinds
	for _, v := range values {
		switch v.(type) {
		case nil:
			k |= kindNull
		case bool:
			k |= kindBoolean
		case json.Number:
			k |= kindNumber | kindInteger
		case string:
			k |= kindString
		case []any:
			k |= kindArray
		case map[string]any:
			k |= kindObject
		}
	}
	return k
}

// defaultOf returns the default of a property, from its schema or its $ref target.
func defaultOf(s *jsonschema.Schema) (any, bool) {
	for range 16 {
		if s.Default != nil {
			return *s.Default, true
		}
		if s.Ref == nil {
			break
		}
		s = s.Ref
	}
	return nil, false
}

// breakCycles removes every part and branch that leads back to its own value; the validator reports those as a
// cycle of references.
func (p *planner) breakCycles() {
	const fresh, open, done = 0, 1, 2
	state := map[*node]int{}
	var visit func(n *node)
	visit = func(n *node) {
		state[n] = open
		parts := n.parts[:0:0]
		for _, part := range n.parts {
			if state[part] == open {
				continue
			}
			if state[part] == fresh {
				visit(part)
			}
			parts = append(parts, part)
		}
		n.parts = parts
		for i, c := range n.choices {
			var kept choice
			for _, b := range c {
				if state[b.node] == open {
					continue
				}
				if state[b.node] == fresh {
					visit(b.node)
				}
				kept = append(kept, b)
			}
			n.choices[i] = kept
		}
		state[n] = done
	}
	for _, n := range p.order {
		if state[n] == fresh {
			visit(n)
		}
	}
}

// dropDefaults coerces each default and drops those that their schema refuses.
func (p *planner) dropDefaults() {
	for i, n := range p.order {
		kept := n.defaults[:0]
		for _, d := range n.defaults {
			sub := p.source[i].Properties[d.name]
			if v, ok := p.schema.fitDefault(sub, p.nodes[sub], d.value); ok {
				kept = append(kept, defaultValue{d.name, v})
			}
		}
		n.defaults = kept
	}
}

func (s *Schema) fitDefault(sub *jsonschema.Schema, n *node, v any) (fitted any, ok bool) {
	parts, faults := checkNumbers(v)
	if faults != nil {
		return v, false
	}
	defer recoverLimits(&faults)
	r := s.newRun(context.Background(), parts)
	fitted, _ = r.apply(n, v, false)
	return fitted, r.child(sub, fitted)
}

// findBusy marks the nodes that can change something, until a fixed point.
func (p *planner) findBusy() {
	for changed := true; changed; {
		changed = false
		for _, n := range p.order {
			if !n.busy && n.hasWork() {
				n.busy, changed = true, true
			}
		}
	}
}

func (n *node) hasWork() bool {
	busy := n.coerce != 0 || n.date != "" || n.whole || len(n.defaults) > 0 || len(n.absent) > 0 || isBusy(n.additional) || isBusy(n.items)
	for _, x := range n.parts {
		busy = busy || x.busy
	}
	for _, c := range n.choices {
		busy = busy || c.hasWork()
	}
	for _, x := range n.props {
		busy = busy || x.node.busy
	}
	for _, x := range n.patterns {
		busy = busy || x.node.busy
	}
	for _, x := range n.prefix {
		busy = busy || x.busy
	}
	return busy
}

func (c choice) hasWork() bool {
	for _, b := range c {
		if b.node.busy {
			return true
		}
	}
	return false
}

func isBusy(n *node) bool { return n != nil && n.busy }

// prune removes the branches that cannot change anything.
func (n *node) prune() {
	parts := n.parts[:0]
	for _, x := range n.parts {
		if x.busy {
			parts = append(parts, x)
		}
	}
	n.parts = parts
	choices := n.choices[:0]
	for _, c := range n.choices {
		if c.inside() {
			choices = append(choices, c)
		}
	}
	n.choices = choices
	props := n.props[:0]
	for _, x := range n.props {
		if x.node.busy {
			props = append(props, x)
		}
	}
	n.props = props
	patterns := n.patterns[:0]
	for _, x := range n.patterns {
		if x.node.busy {
			patterns = append(patterns, x)
		}
	}
	n.patterns = patterns
	if !isBusy(n.additional) {
		n.additional = nil
	}
	if !isBusy(n.items) {
		n.items = nil
	}
	last := 0
	for i, x := range n.prefix {
		if x.busy {
			last = i + 1
		}
	}
	if n.items == nil {
		n.prefix = n.prefix[:last]
	}
}

// inside reports whether a branch can change something within an object or an array. The types of the whole choice
// already cover strings.
func (c choice) inside() bool {
	for _, b := range c {
		if b.node.busy && (len(b.node.defaults) > 0 || b.node.reachesInside()) {
			return true
		}
	}
	return false
}

func (n *node) reachesInside() bool {
	if isBusy(n.additional) || isBusy(n.items) || len(n.defaults) > 0 || len(n.absent) > 0 {
		return true
	}
	for _, x := range n.props {
		if x.node.busy {
			return true
		}
	}
	for _, x := range n.patterns {
		if x.node.busy {
			return true
		}
	}
	for _, x := range n.prefix {
		if x.busy {
			return true
		}
	}
	for _, x := range n.parts {
		if x.reachesInside() {
			return true
		}
	}
	for _, c := range n.choices {
		if c.inside() {
			return true
		}
	}
	return false
}
