package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/schema"
)

// made is a schema that is not from the document and already is JSON Schema.
type made map[string]any

// direction says whether a schema is for requests or responses: read-only properties are not part
// of a request, write-only ones not of a response.
type direction bool

const (
	request  direction = false
	response direction = true
)

// maxNodes bounds the schemas in one definition, with aliases expanded.
const maxNodes = 100_000

// A converted schema is a tree of map[string]any, []any and JSON scalars in which "$ref" holds a
// *def; bundle.go names the definitions.

// def is one referenced schema, converted once for the document.
type def struct {
	frag any
	err  string
	refs []link // every definition it refers to, in order of appearance
	same []*def // those that apply to the same value: a cycle of them would never end

	known [4]bool // by how far its text is squeezed
	size  [4]measure
}

// link is a reference to a definition. The name is stored with the reference: in the definition,
// the first operation that refers to it would name it for all others.
type link struct {
	to   *def
	name string
}

type defKey struct {
	obj  *object
	dir  direction
	drop string // required names to leave out, see wrongWayNames
	base bool   // without its subtypes, see polymorphic
}

// converter holds a document's converted definitions.
type converter struct {
	defs  map[defKey]*def
	queue []defKey
}

// conversion is the state of converting one schema.
type conversion struct {
	d     *document
	dir   direction
	out   *def
	nodes int
	lost  int // keywords left out

	linked map[*def]int
}

// refused is a panic value that ends a conversion; convertInto recovers it.
type refused string

// convert turns a schema of the document into a definition, whose frag is usable if err is empty.
// Definitions it refers to are converted too.
func (d *document) convert(v any, dir direction) *def {
	out := &def{}
	d.convertInto(out, v, dir, nil, false)
	for len(d.schemas.queue) > 0 {
		k := d.schemas.queue[0]
		d.schemas.queue = d.schemas.queue[1:]
		var drop []string
		if k.drop != "" {
			drop = strings.Split(k.drop, "\x00")
		}
		d.convertInto(d.schemas.defs[k], k.obj, k.dir, drop, k.base)
	}
	return out
}

func (d *document) convertInto(out *def, v any, dir direction, drop []string, base bool) {
	c := &conversion{d: d, dir: dir, out: out}
	defer func() {
		if p := recover(); p != nil {
			r, ok := p.(refused)
			if !ok {
				panic(p)
			}
			out.frag, out.err = nil, string(r)
		}
	}()
	out.frag = c.schema(v, where{same: true, drop: drop, base: base}, nil)
}

// where is the position of a schema in its definition.
type where struct {
	same  bool     // it applies to the same value as the definition
	depth int      //
	drop  []string // names to leave out of required
	// strict is set below not and if, where accepting more inside would refuse more outside.
	strict bool
	// base is set for a part of an allOf: it is what the part itself says, without its subtypes.
	base bool
}

// child is the position of a schema for a part of the value.
func (w where) child() where { return where{depth: w.depth + 1, strict: w.strict} }

// under is the position of a schema that is a keyword's value.
func (w where) under(keyword string) where {
	return where{same: w.same && schema.Find(keyword).InPlace, depth: w.depth + 1, strict: w.strict}
}

// beside is the position of a schema that applies together with the one around it.
func (w where) beside() where {
	return where{same: w.same, depth: w.depth + 1, drop: w.drop, strict: w.strict}
}

func (c *conversion) fail(at *object, format string, args ...any) {
	panic(refused(fmt.Sprintf("the schema at %s cannot be used: %s", at.location(), fmt.Sprintf(format, args...))))
}

// leaveOut warns about a keyword that is not converted.
func (c *conversion) leaveOut(at *object, format string, args ...any) {
	c.lost++
	c.d.warn("%s: %s", at.location(), fmt.Sprintf(format, args...))
}

func (c *conversion) count(at *object, w where) {
	c.nodes++
	if c.nodes > maxNodes {
		c.fail(at, "it holds more than %d schemas", maxNodes)
	}
	if c.nodes%1024 == 0 && c.d.ctx.Err() != nil {
		c.fail(at, "the time for reading is over")
	}
	if w.depth > maxDepth {
		c.fail(at, "it is nested deeper than %d levels", maxDepth)
	}
}

// schema converts one schema; parent is only used in messages.
func (c *conversion) schema(v any, w where, parent *object) any {
	switch v := v.(type) {
	case nil:
		return map[string]any{}
	case bool:
		return v
	case made:
		return map[string]any(maps.Clone(v))
	case *object:
		c.count(v, w)
		if v.ref() != "" {
			return c.reference(v, w)
		}
		return c.body(v, w)
	}
	c.fail(parent, "a schema is expected here, not %s", describe(v))
	return nil
}

func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("the text %q", toolkeep.Clip(v, 60))
	case json.Number, bool:
		s, _ := scalarText(v)
		return s
	case []any:
		return "a list"
	}
	return "a mapping"
}

// reference converts a $ref into a reference to a definition. From 3.1 on other keywords next to a
// $ref count; before, only the description is kept.
func (c *conversion) reference(v *object, w where) any {
	out := map[string]any{}
	if c.d.dialect >= v31 && len(v.keys) > 1 {
		out = c.body(v, w).(map[string]any)
	} else if s := v.text("description"); s != "" {
		out["description"] = clean(s)
	}
	target := c.target(v)
	obj, ok := target.(*object)
	if !ok {
		b, isBool := target.(bool)
		if !isBool && target != nil {
			c.fail(v, "the reference %q leads to %s", toolkeep.Clip(v.ref(), 200), describe(target))
		}
		if isBool && !b {
			out["not"] = map[string]any{}
		}
		return out
	}
	to := c.d.definition(obj, c.dir, union(w.drop, c.d.wrongWayNames(v, c.dir)), w.base)
	name := defName(v.ref(), obj)
	if w.base && c.d.isPolymorphic(obj, c.dir) {
		name += "_base"
	}
	c.link(to, name, w)
	if _, taken := out["$ref"]; taken {
		out = map[string]any{"allOf": []any{out}}
	}
	out["$ref"] = to
	if v.flag("nullable") || v.flag("x-nullable") {
		return orNull(out)
	}
	return out
}

// target follows the reference of v; a chain of bare references counts as one.
func (c *conversion) target(v *object) any {
	var seen int
	for {
		next, reason := c.d.next(v)
		if reason != "" {
			if alt := c.d.bareName(v); alt != nil {
				return alt
			}
			panic(refused(reason))
		}
		o, ok := next.(*object)
		if !ok || o.ref() == "" || len(o.keys) > 1 {
			return next
		}
		if seen++; seen > maxRefChain {
			c.fail(v, "its references lead in a circle")
		}
		v = o
	}
}

// bareName reads `$ref: Pet`, an old form of a reference to a component.
func (d *document) bareName(v *object) any {
	ref := v.ref()
	if strings.ContainsAny(ref, "#/.") {
		return nil
	}
	if d.dialect == v20 {
		if o, ok := d.root.get("definitions").(*object); ok && o.has(ref) {
			return o.vals[ref]
		}
		return nil
	}
	if comps, ok := d.root.get("components").(*object); ok {
		if o, ok := comps.get("schemas").(*object); ok && o.has(ref) {
			return o.vals[ref]
		}
	}
	return nil
}

func (c *conversion) link(to *def, name string, w where) {
	const referred, same = 1, 2
	if c.linked == nil {
		c.linked = map[*def]int{}
	}
	if c.linked[to]&referred == 0 {
		c.out.refs = append(c.out.refs, link{to, name})
	}
	if w.same && c.linked[to]&same == 0 {
		c.linked[to] |= same
		c.out.same = append(c.out.same, to)
	}
	c.linked[to] |= referred
}

// isPolymorphic reports whether a definition of obj lists its subtypes, unless it is a part of one.
func (d *document) isPolymorphic(obj *object, dir direction) bool {
	if dir != request || !obj.has("discriminator") {
		return false
	}
	_, subs := d.subtypes(obj)
	return len(subs) > 0
}

// definition returns the definition of obj and queues it if it is new.
func (d *document) definition(obj *object, dir direction, drop []string, base bool) *def {
	if len(drop) > 0 {
		drop = d.relevant(obj, dir, drop)
	}
	base = base && d.isPolymorphic(obj, dir)
	k := defKey{obj, dir, strings.Join(drop, "\x00"), base}
	if d.schemas.defs == nil {
		d.schemas.defs = map[defKey]*def{}
	}
	if known, ok := d.schemas.defs[k]; ok {
		return known
	}
	out := &def{}
	d.schemas.defs[k] = out
	d.schemas.queue = append(d.schemas.queue, k)
	return out
}

// defName returns the last token of the reference, or the file's name.
func defName(ref string, obj *object) string {
	filePart, fragment, _ := strings.Cut(ref, "#")
	name := fragment[strings.LastIndexByte(fragment, '/')+1:]
	if name != "" {
		all := tokens(name)
		name = all[0]
	} else {
		if filePart == "" && obj.src != nil {
			filePart = obj.src.name
		}
		name = filePart[strings.LastIndexByte(filePart, '/')+1:]
		if i := strings.IndexByte(name, '.'); i > 0 {
			name = name[:i]
		}
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		}
		return '_'
	}, name)
	if name == "" {
		name = "schema"
	}
	if len(name) > 64 {
		name = name[:64]
	}
	return name
}
