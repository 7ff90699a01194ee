package export

import (
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
	defs   map[string]*definition // by pointer into root
	names  map[string]bool        // of definitions
	active map[string]bool        // places of schemas that are being merged from their parts
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

// lossList returns the losses, each once.
func (c *converter) lossList() []Loss {
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

// spend counts one more schema.
func (c *converter) spend() bool {
	c.budget--
	return c.budget >= 0
}

const tooMuch = "its schema refers to too many others"

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

func outside(ref string) string {
	return "the reference " + toolkeep.Clip(ref, 100) + " leads out of the schema or to an anchor"
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
				c.lose("/"+k, k, "OpenAI refuses it at the top level")
				delete(out, k)
			}
		}
	}
	if f == Anthropic {
		if reason := c.anthropicNames(out); reason != "" {
			return nil, reason
		}
	}
	lost := ""
	schema.Walk(out, func(_ string, m map[string]any) bool {
		if ref, ok := m["$ref"].(string); ok && strings.HasPrefix(ref, "#/") {
			if _, _, ok := (&converter{root: out}).resolve(ref); !ok {
				lost = ref
			}
		}
		return lost == ""
	})
	if lost != "" {
		return nil, "its reference " + toolkeep.Clip(lost, 100) + " leads into alternatives that cannot stand at the top; move what it refers to into $defs"
	}
	return out, ""
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
		c.lose(under("/properties", name), "property", fmt.Sprintf("Anthropic accepts names that match %s", anthropicProperty))
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
	c.lose("/$schema", "$schema", "it is converted to JSON Schema 2020-12")
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
			var reason string
			if out, reason = c.flatten(s, "", nil); reason != "" {
				return nil, reason
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
	c.lose("/"+keyword, keyword, "alternatives are not allowed at the top level; their properties are merged, and which of them belong together is lost")
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
		flat, reason := c.flatten(m, at, nil)
		if reason != "" {
			c.lose(at, "alternative", reason)
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

// flatten merges a schema, its reference and the parts of its allOf into one. Of two parts that say different things
// of one keyword, the first is kept. seen lists the references followed so far.
func (c *converter) flatten(s map[string]any, at string, seen []string) (out map[string]any, reason string) {
	if !c.spend() || len(seen) > maxHops {
		return nil, tooMuch
	}
	out = map[string]any{}
	for k, v := range s {
		if k != "allOf" && k != "$ref" && (at == "" || !silent[k]) { // definitions of parts are found by their pointers
			out[k] = moved(k, v, at)
		}
	}
	var parts []located
	if ref, ok := s["$ref"].(string); ok {
		target, pointer, ok := c.resolve(ref)
		switch {
		case !ok:
			return nil, outside(ref)
		case slices.Contains(seen, pointer):
			return nil, "the schema is a part of itself"
		}
		seen = append(slices.Clone(seen), pointer)
		parts = append(parts, located{target, pointer})
	}
	list, _ := s["allOf"].([]any)
	for i, part := range list {
		parts = append(parts, located{part, under(at, "allOf", strconv.Itoa(i))})
	}
	for _, p := range parts {
		m, ok := p.v.(map[string]any)
		if !ok && p.v == true {
			continue
		}
		if !ok {
			return nil, "a part of its allOf allows nothing"
		}
		part, reason := c.flatten(m, p.at, seen)
		if reason == "" {
			reason = c.merge(out, part, p.at)
		}
		if reason != "" {
			return nil, reason
		}
	}
	return out, ""
}

// moved gives the schemas of a keyword their place.
func moved(k string, v any, at string) any {
	switch x := v.(type) {
	case map[string]any:
		switch k {
		case "items", "additionalProperties":
			return located{v, under(at, k)}
		case "properties":
			out := make(map[string]any, len(x))
			for name, p := range x {
				out[name] = located{p, under(at, k, name)}
			}
			return out
		}
	case []any:
		if k == "anyOf" || k == "oneOf" {
			out := make([]any, len(x))
			for i, e := range x {
				out[i] = located{e, under(at, k, strconv.Itoa(i))}
			}
			return out
		}
	}
	return v
}

// merge adds a part to the whole.
func (c *converter) merge(out, part map[string]any, at string) (reason string) {
	const taken = "another part has its own"
	closed := out["additionalProperties"] == false
	for _, k := range keys(part) {
		old, there := out[k]
		v := part[k]
		switch {
		case k == "properties":
			have, _ := old.(map[string]any)
			have = maps.Clone(have)
			if have == nil {
				have = map[string]any{}
			}
			add, _ := v.(map[string]any)
			for _, name := range keys(add) {
				before, ok := have[name]
				switch {
				case !c.spend():
					return tooMuch
				case !ok:
					have[name] = add[name]
				case !reflect.DeepEqual(plain(before), plain(add[name])):
					c.lose(under(at, k, name), "second schema", taken)
				}
			}
			before, _ := old.(map[string]any)
			if closed && len(have) > len(before) || len(have) > len(add) && part["additionalProperties"] == false {
				return "a part of its allOf takes no other properties than its own"
			}
			out[k] = have
		case !there || reflect.DeepEqual(plain(old), plain(v)):
			out[k] = v
		case k == "required":
			list, _ := old.([]any)
			list = slices.Clone(list)
			for _, name := range strs(v) {
				if !slices.Contains(list, any(name)) {
					list = append(list, name)
				}
			}
			out[k] = list
		case k == "type":
			both := slices.DeleteFunc(types(old), func(t string) bool { return !slices.Contains(types(v), t) })
			if len(both) == 0 {
				return "the parts of its allOf have different types"
			}
			out[k] = typeOf(both)
		case !descriptive[k]:
			c.lose(under(at, k), k, taken)
		}
	}
	return ""
}

// typeOf is the opposite of types.
func typeOf(kinds []string) any {
	if len(kinds) == 1 {
		return kinds[0]
	}
	list := make([]any, len(kinds))
	for i, k := range kinds {
		list[i] = k
	}
	return list
}

func types(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	return strs(v)
}

// freeName returns an unused name for the definition at pointer.
func freeName(taken map[string]bool, pointer string) string {
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
