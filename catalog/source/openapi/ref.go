package openapi

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// markResources sets each object's schema resource, so that "#/…" inside a schema with an $id
// resolves correctly.
func markResources(f *file) {
	root, ok := f.root.(*object)
	if !ok {
		return
	}
	lists := map[*any]bool{} // an alias is the same list again
	var mark func(v any, res *object, depth int)
	mark = func(v any, res *object, depth int) {
		if depth > maxDepth {
			return
		}
		switch v := v.(type) {
		case *object:
			if v.res != nil {
				return // an alias: marked at its first occurrence
			}
			if id, ok := v.vals["$id"].(string); ok && !strings.HasPrefix(id, "#") {
				res = v
			}
			v.res = res
			for _, k := range v.keys {
				mark(v.vals[k], res, depth+1)
			}
		case []any:
			if again(lists, v) {
				return
			}
			for _, e := range v {
				mark(e, res, depth+1)
			}
		}
	}
	mark(root, root, 0)
}

// again reports whether a list was seen before, and records it.
func again(met map[*any]bool, list []any) bool {
	if len(list) == 0 || met[&list[0]] {
		return true
	}
	met[&list[0]] = true
	return false
}

// index finds the anchors and ids of a file, at first use.
func (f *file) index() {
	if f.anchors != nil {
		return
	}
	f.anchors, f.ids = map[string]any{}, map[string]*object{}
	seen, lists := map[*object]bool{}, map[*any]bool{}
	var walk func(v any, depth int)
	walk = func(v any, depth int) {
		if depth > maxDepth {
			return
		}
		switch v := v.(type) {
		case *object:
			if seen[v] {
				return
			}
			seen[v] = true
			f.indexOne(v)
			for _, k := range v.keys {
				walk(v.vals[k], depth+1)
			}
		case []any:
			if again(lists, v) {
				return
			}
			for _, e := range v {
				walk(e, depth+1)
			}
		}
	}
	walk(f.root, 0)
}

func (f *file) indexOne(o *object) {
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if a, ok := o.vals[key].(string); ok {
			if _, dup := f.anchors[a]; !dup {
				f.anchors[a] = o
			}
		}
	}
	for _, key := range []string{"$id", "id", "$self"} {
		id, ok := o.vals[key].(string)
		if !ok || id == "" {
			continue
		}
		if a, ok := strings.CutPrefix(id, "#"); ok {
			if _, dup := f.anchors[a]; !dup && a != "" {
				f.anchors[a] = o
			}
		} else if _, dup := f.ids[id]; !dup && key != "id" {
			f.ids[id] = o
		}
	}
}

// metaSchema replaces the meta-schemas of JSON Schema, which need no fetching: a valid value is an
// object or a boolean.
var metaSchema = &object{keys: []string{"type"}, vals: map[string]any{"type": []any{"object", "boolean"}}}

// lookup resolves a reference of object from. It follows exactly one reference; the result may be a
// reference again.
func (d *document) lookup(from *object, ref string) (any, string) {
	filePart, fragment, _ := strings.Cut(ref, "#")
	if strings.HasPrefix(filePart, "http://json-schema.org/") || strings.HasPrefix(filePart, "https://json-schema.org/") {
		return metaSchema, ""
	}
	f, res, reason := d.refFile(from, filePart)
	if reason != "" {
		return nil, unresolved(from, ref, reason)
	}
	v, reason := d.inFile(f, res, fragment)
	if reason != "" {
		return nil, unresolved(from, ref, reason)
	}
	return v, ""
}

// refFile finds the file of a reference, and the resource in which its fragment is looked up first.
func (d *document) refFile(from *object, filePart string) (*file, *object, string) {
	if from.src == nil {
		return d.main, nil, ""
	}
	if filePart == "" {
		return from.src, from.res, ""
	}
	for _, f := range []*file{from.src, d.main} {
		f.index()
		if o, ok := f.ids[filePart]; ok {
			return f, o, ""
		}
	}
	f, reason := d.files.load(from.src, filePart)
	if reason != "" {
		return nil, nil, reason
	}
	root, _ := f.root.(*object)
	return f, root, ""
}

func unresolved(from *object, ref, reason string) string {
	return fmt.Sprintf("the reference %q at %s cannot be resolved: %s", toolkeep.Clip(ref, 200), from.location(), toolkeep.Clip(reason, 600))
}

// inFile evaluates a fragment: empty, a JSON Pointer or an anchor.
func (d *document) inFile(f *file, res *object, fragment string) (any, string) {
	if fragment == "" || fragment == "/" {
		if res != nil {
			return res, ""
		}
		return f.root, ""
	}
	if !strings.HasPrefix(fragment, "/") {
		f.index()
		name := fragment
		if dec, err := url.PathUnescape(fragment); err == nil {
			name = dec
		}
		if v, ok := f.anchors[name]; ok {
			return v, ""
		}
		if strings.Contains(fragment, "/") {
			// A pointer without its first slash.
			if v, reason := d.pointer(f.root, "/"+fragment); reason == "" {
				return v, ""
			}
		}
		return nil, fmt.Sprintf("%s has no anchor %q", f.name, toolkeep.Clip(name, 80))
	}
	if res != nil && any(res) != f.root {
		if v, reason := d.pointer(res, fragment); reason == "" {
			return v, ""
		}
	}
	return d.pointer(f.root, fragment)
}

// pointer walks a JSON Pointer and follows references on its way.
func (d *document) pointer(v any, pointer string) (any, string) {
	for _, raw := range strings.Split(pointer[1:], "/") {
		var reason string
		if v, reason = d.step(v, raw); reason != "" {
			return nil, reason
		}
	}
	return v, ""
}

func (d *document) step(v any, raw string) (any, string) {
	for range maxRefChain {
		switch t := v.(type) {
		case *object:
			for _, token := range tokens(raw) {
				if next, ok := t.vals[token]; ok {
					return next, ""
				}
			}
			if t.ref() == "" {
				return nil, fmt.Sprintf("there is no %q in it", toolkeep.Clip(raw, 80))
			}
			next, reason := d.enter(t)
			if reason != "" {
				return nil, reason
			}
			v = next
		case []any:
			i, err := strconv.Atoi(raw)
			if err != nil || i < 0 || i >= len(t) {
				return nil, fmt.Sprintf("there is no element %q in it", toolkeep.Clip(raw, 80))
			}
			return t[i], ""
		default:
			return nil, fmt.Sprintf("there is no %q in it", toolkeep.Clip(raw, 80))
		}
	}
	return nil, "references lead in a circle"
}

// enter follows a reference in the middle of a pointer. References whose pointers depend on each
// other would never end, so their nesting is limited.
func (d *document) enter(o *object) (any, string) {
	if d.entered >= maxRefChain {
		return nil, "references lead in a circle"
	}
	d.entered++
	defer func() { d.entered-- }()
	return d.next(o)
}

// looked is the cached result of one reference.
type looked struct {
	v      any
	reason string
}

// next resolves the $ref of o, and caches the result: pointers across references would otherwise be
// walked repeatedly.
func (d *document) next(o *object) (any, string) {
	if l, ok := d.looked[o]; ok {
		return l.v, l.reason
	}
	if d.looked == nil {
		d.looked = map[*object]looked{}
	}
	d.looked[o] = looked{reason: "references at " + o.location() + " lead in a circle"}
	v, reason := d.lookup(o, o.ref())
	d.looked[o] = looked{v, reason}
	return v, reason
}

// tokens returns the readings of a pointer token: decoded as a URI fragment, and unchanged.
func tokens(raw string) []string {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	plain := unescape.Replace(raw)
	if dec, err := url.PathUnescape(raw); err == nil && dec != raw {
		return []string{unescape.Replace(dec), plain}
	}
	return []string{plain}
}

// follow follows references until a value that is not one.
func (d *document) follow(v any) (any, string) {
	for range maxRefChain {
		o, ok := v.(*object)
		if !ok || o.ref() == "" {
			return v, ""
		}
		next, reason := d.next(o)
		if reason != "" {
			return nil, reason
		}
		v = next
	}
	return nil, fmt.Sprintf("references at %s lead in a circle", v.(*object).location())
}

// object follows references to a mapping. what names it in the reason.
func (d *document) object(v any, what string) (*object, string) {
	v, reason := d.follow(v)
	if reason != "" {
		return nil, reason
	}
	o, ok := v.(*object)
	if !ok {
		return nil, what + " is not a mapping"
	}
	return o, ""
}
