// Package bindings reads the bindings of manifests. Executors ask an Object for the
// members that they know; what is missing, of another type or not asked for becomes a
// fault with its place in the manifest.
package bindings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// At is where a manifest has its binding, as a JSON Pointer.
const At = "/execution/binding"

// Reader gathers the faults of a binding while it is read. The zero value is ready.
type Reader struct{ Faults []toolkeep.Fault }

// Fault notes what is wrong at a place of the manifest.
func (r *Reader) Fault(pointer, rule, format string, args ...any) {
	r.Faults = append(r.Faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// Read reads a manifest's binding; false, with a fault, where it is no JSON object.
func (r *Reader) Read(m *toolkeep.Manifest) (*Object, bool) {
	tree, err := canon.ParseObject(m.Execution.Binding, canon.Limits{})
	if err != nil {
		r.Fault(At, "json", "the binding is not a JSON object: %s", toolkeep.AsError(err).Message)
		return nil, false
	}
	return r.object(At, tree), true
}

// Auth checks every entry of a manifest's auth, and those that go with it.
func (r *Reader) Auth(m *toolkeep.Manifest, check func(at string, s toolkeep.AuthSpec)) {
	for i, spec := range m.Auth {
		at := AuthAt(i)
		check(at, spec)
		more, ok := r.Also(at, spec)
		if !ok {
			continue
		}
		for j, s := range more {
			check(AlsoAt(at, j), s)
		}
	}
}

// Also gives the entries of auth that a tool sends with the one that stands at a
// pointer; false, with a fault and what could be read, where settings.also is no list
// of them.
func (r *Reader) Also(at string, s toolkeep.AuthSpec) (more []toolkeep.AuthSpec, ok bool) {
	also, ok := s.Settings["also"]
	if !ok {
		return nil, true
	}
	if err := xjson.Unmarshal(canon.Append(nil, also), &more, xjson.RejectUnknownMembers(true)); err != nil {
		r.Fault(at+"/settings/also", "type", "also must be a list of auth entries")
		return more, false
	}
	return more, true
}

// AuthAt is the place of an entry of auth.
func AuthAt(i int) string { return "/auth/" + strconv.Itoa(i) }

// AlsoAt is the place of one that Also gives.
func AlsoAt(at string, i int) string { return at + "/settings/also/" + strconv.Itoa(i) }

func (r *Reader) object(at string, tree map[string]any) *Object {
	return &Object{Reader: r, Tree: tree, at: at, asked: make(map[string]bool)}
}

// Object is one JSON object that knows which of its members were asked for. Tree is as
// package canon reads it; looking there does not count as asking.
type Object struct {
	*Reader
	Tree  map[string]any
	at    string
	asked map[string]bool
}

// Pointer is the place of a member.
func (o *Object) Pointer(name string) string { return o.at + canon.Pointer(name) }

// Fault notes what is wrong with a member.
func (o *Object) Fault(name, rule, format string, args ...any) {
	o.Reader.Fault(o.Pointer(name), rule, format, args...)
}

// Member gives a member of any type.
func (o *Object) Member(name string) (any, bool) {
	o.asked[name] = true
	v, ok := o.Tree[name]
	return v, ok
}

// Text gives a string, "" where there is none; an empty one is no more than none.
func (o *Object) Text(name string, required bool) string {
	v, ok := o.Member(name)
	s, isText := v.(string)
	switch {
	case ok && !isText:
		o.Fault(name, "type", "%s must be a string", name)
	case required && s == "":
		o.Fault(name, "required", "%s is required", name)
	}
	return s
}

// Choice gives one of several words; the first is the default.
func (o *Object) Choice(name string, words ...string) string {
	s := o.Text(name, false)
	if s == "" {
		return words[0]
	}
	if !slices.Contains(words, s) {
		o.Fault(name, "enum", "%s must be one of %q, not %q", name, words, s)
		return words[0]
	}
	return s
}

// Flag gives true or false, which is the default.
func (o *Object) Flag(name string) bool {
	v, ok := o.Member(name)
	b, isBool := v.(bool)
	if ok && !isBool {
		o.Fault(name, "type", "%s must be true or false", name)
	}
	return b
}

// Whole gives a whole number from least to most, false where there is none.
func (o *Object) Whole(name string, least, most int64) (int64, bool) {
	v, ok := o.Member(name)
	if !ok {
		return 0, false
	}
	n, _ := v.(json.Number)
	i, err := n.Int64()
	if err != nil || i < least || i > most {
		o.Fault(name, "range", "%s must be a whole number from %d to %d", name, least, most)
		return 0, false
	}
	return i, true
}

// Count gives a whole number from 1 to most; otherwise where there is none.
func (o *Object) Count(name string, otherwise, most int64) int64 {
	if n, ok := o.Whole(name, 1, most); ok {
		return n
	}
	return otherwise
}

// Sub gives an object, false where there is none.
func (o *Object) Sub(name string) (*Object, bool) {
	v, ok := o.Member(name)
	if !ok {
		return nil, false
	}
	tree, isObject := v.(map[string]any)
	if !isObject {
		o.Fault(name, "type", "%s must be an object", name)
		return nil, false
	}
	return o.object(o.Pointer(name), tree), true
}

// List gives an array, nil where there is none.
func (o *Object) List(name string) []any {
	v, ok := o.Member(name)
	list, isList := v.([]any)
	if ok && !isList {
		o.Fault(name, "type", "%s must be an array", name)
	}
	return list
}

// Objects gives an array of objects. What is no object there is read as an empty one,
// so that positions hold.
func (o *Object) Objects(name string) []*Object {
	list := o.List(name)
	out := make([]*Object, 0, len(list))
	for i, v := range list {
		at := o.Pointer(name) + "/" + strconv.Itoa(i)
		tree, ok := v.(map[string]any)
		if !ok {
			o.Reader.Fault(at, "type", "must be an object")
		}
		out = append(out, o.object(at, tree))
	}
	return out
}

// Names lists the members in order.
func (o *Object) Names() []string { return slices.Sorted(maps.Keys(o.Tree)) }

// Done refuses every member that nobody asked for.
func (o *Object) Done() {
	for _, name := range o.Names() {
		if !o.asked[name] {
			o.Fault(name, "unknown", "%s is not a field that is known here", name)
		}
	}
}
