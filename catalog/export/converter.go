package export

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

// Limits of the work per tool.
const (
	maxNodes  = 200_000 // schemas visited, repeats included
	maxLosses = 200     // reported in full
	maxHops   = 50      // length of a chain of references and parts
)

// converter converts the schema of one tool.
type converter struct {
	tool   string
	root   any // the published schema
	budget int
	losses []Loss
	more   int // losses that are only counted
	rules  *rules
	defs   map[string]*definition // by key, which is usually a pointer into root
	names  map[string]bool        // of definitions
	failed map[string]bool        // pointers that cannot be converted; found in an earlier round
	active map[string]bool        // places of schemas that are being merged from their parts
	enter  string                 // the place of the definition being started
	clash  string                 // the contradiction in an allOf
	shut   int                    // open objects that were closed
	absent int                    // optional properties that became nullable
}

// located is a schema that was moved, with its original place.
type located struct {
	v  any
	at string
}

func (c *converter) lose(at, lost, why string) {
	if len(c.losses) >= maxLosses {
		c.more++
		return
	}
	c.losses = append(c.losses, Loss{c.tool, at, lost, why})
}

// told returns the losses, each once.
func (c *converter) told() []Loss {
	out := slices.Clone(c.losses)
	slices.SortStableFunc(out, func(a, b Loss) int {
		if d := strings.Compare(a.Pointer, b.Pointer); d != 0 {
			return d
		}
		return strings.Compare(a.Lost, b.Lost)
	})
	out = slices.Compact(out)
	if c.more > 0 {
		out = append(out, Loss{c.tool, "", fmt.Sprintf("%d things more", c.more), "they are counted and not listed"})
	}
	return out
}

// placeOf returns the original place of a schema, or otherwise the given place.
func placeOf(v any, otherwise string) string {
	if l, ok := v.(located); ok {
		return l.at
	}
	return otherwise
}

// spend counts one more schema.
func (c *converter) spend() bool {
	c.budget--
	return c.budget >= 0
}

const tooMuch = "its schema leads to too many others"

// unflat explains why flatten gave up.
func (c *converter) unflat() string {
	why := cmp.Or(c.clash, tooMuch)
	c.clash = ""
	return why
}

// resolve finds the target of a reference within the schema.
func (c *converter) resolve(ref string) (v any, pointer string, ok bool) {
	rest, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, "", false
	}
	pointer, err := url.PathUnescape(rest)
	if err != nil {
		return nil, "", false
	}
	v, ok = lookup(c.root, pointer)
	return v, pointer, ok
}

// lookup follows a JSON Pointer.
func lookup(v any, pointer string) (any, bool) {
	tokens, ok := canon.Tokens(pointer)
	if !ok {
		return nil, false
	}
	for _, token := range tokens {
		switch x := v.(type) {
		case map[string]any:
			if v, ok = x[token]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(x) || strconv.Itoa(i) != token {
				return nil, false
			}
			v = x[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func keys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func under(at string, names ...string) string { return at + canon.Pointer(names...) }

// object0 makes the minimum for forms that take any JSON Schema: an object with an explicit type.
func (c *converter) object0() (map[string]any, string) {
	switch s := c.root.(type) {
	case bool:
		if s {
			return map[string]any{"type": "object"}, ""
		}
	case map[string]any:
		if s["type"] == "object" {
			return s, ""
		}
		out := maps.Clone(s)
		out["type"] = "object" // arguments are always an object
		return out, ""
	}
	return nil, "its parameters_schema allows no call"
}

// verbatim keeps the schema except for what the form refuses at the top.
func (c *converter) verbatim(f Form) (map[string]any, string) {
	c.modernise()
	s, reason := c.top()
	if reason != "" {
		return nil, reason
	}
	out, _ := plain(s).(map[string]any)
	if f == OpenAI || f == Responses {
		for _, k := range []string{"enum", "const", "not"} {
			if _, ok := out[k]; ok {
				c.lose("/"+k, k, "OpenAI refuses it at the top")
				delete(out, k)
			}
		}
	}
	if f == Anthropic {
		if reason := c.anthropicNames(out); reason != "" {
			return nil, reason
		}
	}
	return out, c.repair(out)
}

// anthropicNames drops properties whose name Anthropic refuses. Renaming is no option: the tool is called with the
// same arguments.
func (c *converter) anthropicNames(s map[string]any) string {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	var kept map[string]any
	for _, name := range keys(properties) {
		if anthropicProperty.MatchString(name) {
			continue
		}
		if slices.Contains(required, any(name)) {
			return fmt.Sprintf("Anthropic refuses the name of its required argument %q; names match %s", toolkeep.Clip(name, 80), anthropicProperty)
		}
		if kept == nil {
			kept = maps.Clone(properties)
		}
		delete(kept, name)
		c.lose(under("/properties", name), "property", fmt.Sprintf("Anthropic takes names that match %s", anthropicProperty))
	}
	if kept != nil {
		s["properties"] = kept
	}
	return ""
}

// modernise converts a schema of an older draft to 2020-12.
func (c *converter) modernise() {
	s, ok := c.root.(map[string]any)
	if !ok {
		return
	}
	named, _ := s["$schema"].(string)
	if named == "" || strings.Contains(named, "2020-12") {
		return
	}
	out, _ := modern(s).(map[string]any)
	delete(out, "$schema")
	c.root = out
	c.lose("/$schema", "$schema", "it is written in JSON Schema 2020-12 now")
}

// modern converts what changed since draft-07: lists of items, and dependencies.
func modern(v any) any {
	s, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := schema.Replace(s, func(_ schema.Place, v any) any { return modern(v) })
	switch items := out["items"].(type) {
	case nil:
	case []any:
		out["prefixItems"] = items
		delete(out, "items")
		if rest, ok := out["additionalItems"]; ok {
			out["items"] = rest
		}
		delete(out, "additionalItems")
	default:
		delete(out, "additionalItems")
	}
	if deps, ok := out["dependencies"].(map[string]any); ok {
		names, schemas := map[string]any{}, map[string]any{}
		for k, d := range deps {
			if list, ok := d.([]any); ok {
				names[k] = list
			} else {
				schemas[k] = d
			}
		}
		delete(out, "dependencies")
		if len(names) > 0 {
			out["dependentRequired"] = names
		}
		if len(schemas) > 0 {
			out["dependentSchemas"] = schemas
		}
	}
	return out
}

// top returns the schema as an object without references and alternatives at the top. Properties from elsewhere are
// located.
func (c *converter) top() (map[string]any, string) {
	switch s := c.root.(type) {
	case bool:
		if s {
			return map[string]any{"type": "object", "properties": map[string]any{}}, ""
		}
	case map[string]any:
		out := s
		if has(s, "$ref", "allOf", "anyOf", "oneOf") {
			var ok bool
			if out, ok = c.flatten(s, "", nil); !ok {
				return nil, c.unflat()
			}
			for _, k := range []string{"anyOf", "oneOf"} {
				if alternatives, ok := out[k].([]any); ok {
					c.gather(out, k, alternatives)
				}
			}
		} else {
			out = maps.Clone(s)
		}
		if t, ok := out["type"]; ok && t != "object" {
			if list, ok := t.([]any); !ok || !slices.Contains(list, any("object")) {
				return nil, "its parameters_schema allows no object"
			}
		}
		out["type"] = "object" // arguments are always an object
		if _, ok := out["properties"].(map[string]any); !ok {
			out["properties"] = map[string]any{}
		}
		return out, ""
	}
	return nil, "its parameters_schema allows no call"
}

func has(m map[string]any, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { _, ok := m[n]; return ok })
}

// gather merges the properties of alternatives, required if every alternative requires them.
func (c *converter) gather(s map[string]any, keyword string, alternatives []any) {
	delete(s, keyword)
	c.lose("/"+keyword, keyword, "no alternatives may stand at the top; their properties stand side by side, and which of them go together is told no more")
	properties := map[string]any{}
	if p, ok := s["properties"].(map[string]any); ok {
		properties = maps.Clone(p)
	}
	closed := s["additionalProperties"] == false
	own := maps.Clone(properties)
	var required map[string]bool
	for i, a := range alternatives {
		m, ok := a.(map[string]any)
		at := under("", keyword, strconv.Itoa(i))
		if l, moved := a.(located); moved {
			m, ok = l.v.(map[string]any)
			at = l.at
		}
		if !ok {
			required = map[string]bool{}
			continue
		}
		flat, ok := c.flatten(m, at, nil)
		if !ok {
			c.lose(at, "alternative", c.unflat())
			continue
		}
		if t, ok := flat["type"].(string); ok && t != "object" {
			continue // it never applies, because arguments are an object
		}
		for _, k := range []string{"anyOf", "oneOf"} {
			if has(flat, k) {
				c.lose(under(at, k), k, "alternatives within an alternative are left out")
			}
		}
		p, _ := flat["properties"].(map[string]any)
		for _, name := range keys(p) {
			if _, ok := own[name]; !ok && !closed {
				properties[name] = beside(properties[name], p[name])
			}
		}
		need := map[string]bool{}
		for _, name := range strs(flat["required"]) {
			if required == nil || required[name] {
				need[name] = true
			}
		}
		required = need
	}
	s["properties"] = properties
	for _, name := range slices.Sorted(maps.Keys(required)) {
		if list, _ := s["required"].([]any); !slices.Contains(list, any(name)) && properties[name] != nil {
			s["required"] = append(slices.Clone(list), name)
		}
	}
}

// beside returns a schema that allows what either allows.
func beside(a, b any) any {
	if a == nil || reflect.DeepEqual(plain(a), plain(b)) {
		return b
	}
	if m, ok := a.(map[string]any); ok && len(m) == 1 {
		if list, ok := m["anyOf"].([]any); ok {
			for _, e := range list {
				if reflect.DeepEqual(plain(e), plain(b)) {
					return a
				}
			}
			return map[string]any{"anyOf": append(slices.Clone(list), b)}
		}
	}
	return map[string]any{"anyOf": []any{a, b}}
}

func strs(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// plain drops the original places of schemas.
func plain(v any) any {
	switch v := v.(type) {
	case located:
		return plain(v.v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	}
	return v
}

// flatten merges a schema, its references and the parts of its allOf into one. ok is false if they are too many or
// contradict each other; unflat says which. seen lists the references followed so far.
func (c *converter) flatten(s map[string]any, at string, seen []string) (map[string]any, bool) {
	if !c.spend() || len(seen) > maxHops {
		return nil, false
	}
	out := map[string]any{}
	for _, k := range keys(s) {
		if k != "allOf" && k != "$ref" {
			if !c.merge(out, k, s[k], at) {
				return nil, false
			}
		}
	}
	var shut []map[string]any // the properties of each closed part
	closes := func(part map[string]any) {
		if part["additionalProperties"] == false && part["patternProperties"] == nil {
			p, _ := part["properties"].(map[string]any)
			shut = append(shut, p)
		}
	}
	closes(s)
	var parts []located
	if ref, ok := s["$ref"].(string); ok {
		target, pointer, ok := c.resolve(ref)
		switch {
		case !ok:
			c.lose(under(at, "$ref"), "$ref", "the reference leads out of the schema or to an anchor")
		case slices.Contains(seen, pointer):
			c.lose(under(at, "$ref"), "$ref", "the schema is a part of itself")
		default:
			seen = append(slices.Clone(seen), pointer)
			parts = append(parts, located{target, pointer})
		}
	}
	list, _ := s["allOf"].([]any)
	for i, part := range list {
		if l, ok := part.(located); ok {
			parts = append(parts, l)
		} else {
			parts = append(parts, located{part, under(at, "allOf", strconv.Itoa(i))})
		}
	}
	for _, p := range parts {
		m, ok := p.v.(map[string]any)
		if !ok {
			if p.v == false {
				c.lose(p.at, "allOf", "a part of it allows nothing")
			}
			continue
		}
		flat, ok := c.flatten(m, p.at, seen)
		if !ok {
			return nil, false
		}
		closes(flat)
		for _, k := range keys(flat) {
			if !c.merge(out, k, flat[k], p.at) {
				return nil, false
			}
		}
	}
	return out, c.shutOut(out, shut, at)
}

// shutOut removes the properties that a closed part does not have.
func (c *converter) shutOut(out map[string]any, shut []map[string]any, at string) bool {
	p, _ := out["properties"].(map[string]any)
	for _, name := range keys(p) {
		for _, has := range shut {
			if _, ok := has[name]; ok {
				continue
			}
			if slices.Contains(strs(out["required"]), name) {
				c.clash = "the parts of its allOf contradict each other"
				return false
			}
			c.lose(placeOf(p[name], under(at, "properties", name)), "property", "a part of the allOf takes no other properties than its own")
			delete(p, name) // merge made the map
			break
		}
	}
	return true
}

// merge adds a keyword of a part to the whole. ok is false if the schema is too large.
func (c *converter) merge(out map[string]any, k string, v any, at string) bool {
	if !c.spend() {
		return false
	}
	old, there := out[k]
	switch k {
	case "$schema", "$id", "$comment", "$anchor":
		if at == "" {
			out[k] = v
		}
	case "$defs", "definitions":
		if at == "" { // definitions of parts are found by their pointers
			out[k] = v
		}
	case "properties":
		have, ok := c.mergeProperties(old, v, at)
		if !ok {
			return false
		}
		out[k] = have
	case "required":
		list, _ := old.([]any)
		list = slices.Clone(list)
		for _, name := range strs(v) {
			if !slices.Contains(list, any(name)) {
				list = append(list, name)
			}
		}
		out[k] = list
	case "type":
		out[k] = v
		if there {
			if out[k] = narrower(old, v); out[k] == nil {
				c.clash = "the parts of its allOf have different types"
				return false
			}
		}
	case "items", "additionalProperties":
		if there {
			out[k] = both(old, v, under(at, k))
		} else if _, ok := v.(map[string]any); ok {
			out[k] = located{v, under(at, k)}
		} else {
			out[k] = v
		}
	case "anyOf", "oneOf":
		list, ok := v.([]any)
		if !ok {
			return true
		}
		if there {
			c.lose(under(at, k), k, "the whole has alternatives already")
			return true
		}
		moved := make([]any, len(list))
		for i, e := range list {
			moved[i] = placed(e, under(at, k, strconv.Itoa(i)))
		}
		out[k] = moved
	case "enum":
		if list, ok := old.([]any); ok && there {
			allowed, _ := v.([]any)
			v = slices.DeleteFunc(slices.Clone(list), func(e any) bool {
				return !slices.ContainsFunc(allowed, func(x any) bool { return reflect.DeepEqual(x, e) })
			})
		}
		out[k] = v
	case "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly":
		if !there {
			out[k] = v
		} else if k == "default" && !reflect.DeepEqual(old, v) {
			c.lose(under(at, k), k, "another part has its own")
		}
	default:
		switch {
		case !there:
			out[k] = v
		case !reflect.DeepEqual(plain(old), plain(v)):
			c.lose(under(at, k), k, "another part has its own")
		}
	}
	return true
}

// mergeProperties merges two sets of properties; a property in both must fit both. False means that the schema is
// too large.
func (c *converter) mergeProperties(old, v any, at string) (map[string]any, bool) {
	add, _ := v.(map[string]any)
	have, _ := old.(map[string]any)
	if have = maps.Clone(have); have == nil {
		have = make(map[string]any, len(add))
	}
	for _, name := range keys(add) {
		if !c.spend() {
			return nil, false
		}
		p := placed(add[name], under(at, "properties", name))
		switch before, ok := have[name]; {
		case !ok:
			have[name] = p
		case !reflect.DeepEqual(plain(before), plain(p)):
			have[name] = located{map[string]any{"allOf": []any{before, p}}, placeOf(before, under(at, "properties", name))}
		}
	}
	return have, true
}

// placed records the original place of a schema, unless it is known.
func placed(v any, at string) any {
	if _, ok := v.(located); ok {
		return v
	}
	return located{v, at}
}

// both returns the schema that requires both schemas, the second from at.
func both(old, v any, at string) any {
	switch {
	case reflect.DeepEqual(plain(old), plain(v)), v == true:
		return old
	case old == false || v == false:
		return false
	case old == true:
		return v
	}
	return map[string]any{"allOf": []any{old, located{v, at}}}
}

// narrower returns the type that both allow, nil if there is none.
func narrower(a, b any) any {
	as, bs := types(a), types(b)
	var both []any
	for _, t := range as {
		if slices.Contains(bs, t) || t == "integer" && slices.Contains(bs, "number") {
			both = append(both, t)
		} else if t == "number" && slices.Contains(bs, "integer") {
			both = append(both, "integer")
		}
	}
	switch len(both) {
	case 0:
		return nil
	case 1:
		return both[0]
	}
	return both
}

func types(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	return strs(v)
}

// repair adds definitions for references into schemas that were taken apart.
func (c *converter) repair(out map[string]any) string {
	names := map[string]string{} // pointer -> new reference
	for range maxHops {
		missing := ""
		schema.Walk(out, func(_ string, m map[string]any) bool {
			ref, _ := m["$ref"].(string)
			if rest, ok := strings.CutPrefix(ref, "#"); ok && missing == "" {
				pointer, err := url.PathUnescape(rest)
				if err != nil || strings.HasPrefix(pointer, "/") && !found(out, pointer) {
					missing = ref
				}
			}
			return missing == ""
		})
		if missing == "" {
			return ""
		}
		target, pointer, ok := c.resolve(missing)
		if !ok {
			return "its reference " + toolkeep.Clip(missing, 100) + " leads nowhere"
		}
		defs, _ := out["$defs"].(map[string]any)
		defs = maps.Clone(defs)
		if defs == nil {
			defs = map[string]any{}
		}
		name := freeName(defs, pointer)
		defs[name] = plain(target)
		out["$defs"] = defs
		names[missing] = "#" + canon.Pointer("$defs", name)
		schema.Walk(out, func(_ string, m map[string]any) bool {
			if ref, ok := m["$ref"].(string); ok && names[ref] != "" {
				m["$ref"] = names[ref] // out is a copy
			}
			return true
		})
	}
	return "its references lead into each other"
}

func found(root any, pointer string) bool { _, ok := lookup(root, pointer); return ok }

// freeName returns an unused name for the definition at pointer.
func freeName[V any](taken map[string]V, pointer string) string {
	base := pointer[strings.LastIndexByte(pointer, '/')+1:]
	base = strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '_' || r == '-' || r == '.' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z') {
			return r
		}
		return '_'
	}, base)
	base = base[:min(len(base), 64)]
	if base == "" {
		base = "part"
	}
	name := base
	for i := 2; ; i++ {
		if _, ok := taken[name]; !ok {
			return name
		}
		name = base + "_" + strconv.Itoa(i)
	}
}
