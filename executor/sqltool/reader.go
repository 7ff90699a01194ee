package sqltool

import (
	"encoding/json"
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

// choice reads one of several words; the first is the default.
func (o *object) choice(name string, words ...string) string {
	s := o.text(name, false)
	if s == "" {
		return words[0]
	}
	if !slices.Contains(words, s) {
		o.fault(name, "enum", "%s must be one of %q, not %q", name, words, s)
		return words[0]
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

// whole reads a whole number between 1 and most; def where it is absent.
func (o *object) whole(name string, def, most int64) int64 {
	v, ok := o.member(name)
	if !ok {
		return def
	}
	n, _ := v.(json.Number)
	i, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil || i < 1 || i > most {
		o.fault(name, "range", "%s must be a whole number from 1 to %d", name, most)
		return def
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
	return o.object(o.pointer(name), tree), true
}

func (o *object) objects(name string) []*object {
	v, ok := o.member(name)
	list, isList := v.([]any)
	if ok && !isList {
		o.fault(name, "type", "%s must be an array", name)
	}
	out := make([]*object, 0, len(list))
	for i, v := range list {
		at := o.pointer(name) + "/" + strconv.Itoa(i)
		tree, ok := v.(map[string]any)
		if !ok {
			o.reader.fault(at, "type", "must be an object")
		}
		out = append(out, o.object(at, tree))
	}
	return out
}

// done refuses every member that nobody asked for.
func (o *object) done() {
	for _, name := range slices.Sorted(maps.Keys(o.tree)) {
		if !o.seen[name] {
			o.fault(name, "unknown", "%s is not a field that is known here", name)
		}
	}
}
