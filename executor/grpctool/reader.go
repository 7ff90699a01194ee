package grpctool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const bindingPointer = "/execution/binding"

// reader gathers the faults of a binding while its members are read.
type reader struct{ faults []toolkeep.Fault }

func (r *reader) fault(pointer, rule, format string, args ...any) {
	r.faults = append(r.faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// object is one JSON object that knows which members were asked for.
type object struct {
	*reader
	at   string
	tree map[string]any
	seen map[string]bool
}

func (r *reader) object(at string, tree map[string]any) *object {
	return &object{reader: r, at: at, tree: tree, seen: make(map[string]bool)}
}

func (o *object) fault(name, rule, format string, args ...any) {
	o.reader.fault(o.at+canon.Pointer(name), rule, format, args...)
}

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

// number reads a whole number from 1 to most; absent it is otherwise.
func (o *object) number(name string, otherwise, most int64) int64 {
	v, ok := o.member(name)
	if !ok {
		return otherwise
	}
	n, isNumber := v.(json.Number)
	i, err := n.Int64()
	if !isNumber || err != nil || i < 1 || i > most {
		o.fault(name, "range", "%s must be a whole number from 1 to %d", name, most)
		return otherwise
	}
	return i
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
	return o.reader.object(o.at+canon.Pointer(name), tree), true
}

func (o *object) names() []string { return slices.Sorted(maps.Keys(o.tree)) }

// done refuses every member that nobody asked for.
func (o *object) done() {
	for _, name := range o.names() {
		if !o.seen[name] {
			o.fault(name, "unknown", "%s is not a field that is known here", name)
		}
	}
}
