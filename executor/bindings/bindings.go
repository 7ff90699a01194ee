// Package bindings reads the bindings of manifests. Executors read the members that
// they know from an Object; a missing, mistyped or unknown member becomes a fault with
// its place in the manifest.
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

// At is the JSON Pointer of a manifest's binding.
const At = "/execution/binding"

// Reader collects the faults of a binding. The zero value is ready to use.
type Reader struct {
	Faults   []toolkeep.Fault
	MaxBytes int64 // of a binding that Read accepts; 0 is 1 MiB
}

// Fault records a fault at a place of the manifest.
func (r *Reader) Fault(pointer, rule, format string, args ...any) {
	r.Faults = append(r.Faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// Read reads a manifest's binding; it returns false, with a fault, if that is not a
// JSON object or has more than MaxBytes.
func (r *Reader) Read(m *toolkeep.Manifest) (*Object, bool) {
	tree, err := canon.ParseObject(m.Execution.Binding, canon.Limits{Bytes: r.MaxBytes})
	if err != nil {
		r.Fault(At, "json", "the binding is not a JSON object: %s", toolkeep.AsError(err).Message)
		return nil, false
	}
	return r.object(At, tree), true
}

// Auth checks every entry of a manifest's auth, including those in settings.also.
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

// Also returns the entries in settings.also of the auth entry at the pointer; false,
// with a fault and the readable entries, if it is not a list of them.
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

// AuthAt returns the pointer of an auth entry.
func AuthAt(i int) string { return "/auth/" + strconv.Itoa(i) }

// AlsoAt returns the pointer of an entry returned by Also.
func AlsoAt(at string, i int) string { return at + "/settings/also/" + strconv.Itoa(i) }

func (r *Reader) object(at string, tree map[string]any) *Object {
	return &Object{Reader: r, Tree: tree, at: at, asked: make(map[string]bool)}
}

// Object is one JSON object that tracks which of its members were read. Tree is its
// parsed form, as of package canon; using Tree does not count as reading.
type Object struct {
	*Reader
	Tree  map[string]any
	at    string
	asked map[string]bool
}

// Pointer returns the pointer of a member.
func (o *Object) Pointer(name string) string { return o.at + canon.Pointer(name) }

// Fault records a fault of a member.
func (o *Object) Fault(name, rule, format string, args ...any) {
	o.Reader.Fault(o.Pointer(name), rule, format, args...)
}

// Member returns a member of any type.
func (o *Object) Member(name string) (any, bool) {
	o.asked[name] = true
	v, ok := o.Tree[name]
	return v, ok
}

// Text returns a string, "" if absent; an empty string counts as absent.
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

// Choice returns one of several words; the first is the default.
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

// Flag returns a boolean; default false.
func (o *Object) Flag(name string) bool {
	v, ok := o.Member(name)
	b, isBool := v.(bool)
	if ok && !isBool {
		o.Fault(name, "type", "%s must be true or false", name)
	}
	return b
}

// Whole returns an integer from least to most; false if absent.
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

// Count returns an integer from 1 to most; otherwise if absent.
func (o *Object) Count(name string, otherwise, most int64) int64 {
	if n, ok := o.Whole(name, 1, most); ok {
		return n
	}
	return otherwise
}

// Sub returns an object; false if absent.
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

// List returns an array; nil if absent.
func (o *Object) List(name string) []any {
	v, ok := o.Member(name)
	list, isList := v.([]any)
	if ok && !isList {
		o.Fault(name, "type", "%s must be an array", name)
	}
	return list
}

// Objects returns an array of objects. Other elements are read as empty objects, to
// keep positions.
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

// Names returns the sorted member names.
func (o *Object) Names() []string { return slices.Sorted(maps.Keys(o.Tree)) }

// Done refuses every member that was not read.
func (o *Object) Done() {
	for _, name := range o.Names() {
		if !o.asked[name] {
			o.Fault(name, "unknown", "%s is not a known field", name)
		}
	}
}
