package httptool

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const bindingPointer = "/execution/binding"

// reader gathers the faults of a binding while it is read.
type reader struct{ faults []toolkeep.Fault }

func (r *reader) fault(pointer, rule, format string, args ...any) {
	r.faults = append(r.faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

func paramPointer(i int) string {
	return bindingPointer + "/parameters/" + strconv.Itoa(i)
}

// object reads the members of one JSON object and knows which were asked for.
type object struct {
	*reader
	at   string
	tree map[string]any
	seen map[string]bool
}

func (r *reader) object(at string, tree map[string]any) *object {
	return &object{reader: r, at: at, tree: tree, seen: make(map[string]bool)}
}

func (o *object) pointer(name string) string { return o.at + canon.Pointer(name) }

func (o *object) fault(name, rule, format string, args ...any) {
	o.reader.fault(o.pointer(name), rule, format, args...)
}

// member gives the value of a property and marks it as known.
func (o *object) member(name string) (any, bool) {
	o.seen[name] = true
	v, ok := o.tree[name]
	return v, ok
}

func (o *object) text(name string, required bool) string {
	v, ok := o.member(name)
	s, isText := v.(string)
	switch {
	case ok && !isText:
		o.fault(name, "type", "%s must be a string", name)
	case required && s == "":
		o.fault(name, "required", "%s is required", name)
	}
	return s
}

func (o *object) flag(name string) bool {
	v, ok := o.member(name)
	b, isBool := v.(bool)
	if ok && !isBool {
		o.fault(name, "type", "%s must be true or false", name)
	}
	return b
}

func (o *object) sub(name string) (*object, bool) {
	v, ok := o.member(name)
	if !ok {
		return nil, false
	}
	tree, isObject := v.(map[string]any)
	if !isObject {
		o.fault(name, "type", "%s must be an object", name)
		return nil, false
	}
	return o.object(o.pointer(name), tree), true
}

func (o *object) list(name string) []any {
	v, ok := o.member(name)
	list, isList := v.([]any)
	if ok && !isList {
		o.fault(name, "type", "%s must be an array", name)
	}
	return list
}

func (o *object) objects(name string) []*object {
	list := o.list(name)
	out := make([]*object, 0, len(list))
	for i, v := range list {
		at := o.pointer(name) + "/" + strconv.Itoa(i)
		tree, ok := v.(map[string]any)
		if !ok {
			o.reader.fault(at, "type", "must be an object")
		}
		// A member that is no object is read as an empty one, so that positions hold.
		out = append(out, o.object(at, tree))
	}
	return out
}

func (o *object) texts(name string) []string {
	var out []string
	for i, v := range o.list(name) {
		s, ok := v.(string)
		if !ok || !validHeaderValue(s) || s == "" {
			o.reader.fault(o.pointer(name)+"/"+strconv.Itoa(i), "type", "must be a content type")
		}
		out = append(out, s)
	}
	return out
}

// names lists the object's members in order.
func (o *object) names() []string { return slices.Sorted(maps.Keys(o.tree)) }

// done refuses every member that nobody asked for.
func (o *object) done() {
	for _, name := range o.names() {
		if !o.seen[name] {
			o.fault(name, "unknown", "%s is not a field that is known here", name)
		}
	}
}
