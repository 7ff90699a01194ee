package filetool

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// Operations of a binding.
const (
	opRead   = "read"
	opWrite  = "write"
	opList   = "list"
	opStat   = "stat"
	opDelete = "delete"
)

// inputs of each operation, from arguments or fixed; true means required.
var inputs = map[string]map[string]bool{
	opRead:   {"path": true, "offset": false, "limit": false, "encoding": false},
	opWrite:  {"path": true, "content": true, "encoding": false, "mode": false},
	opList:   {"path": false, "cursor": false, "limit": false},
	opStat:   {"path": true},
	opDelete: {"path": true},
}

// numbers are the integer inputs; the others are strings.
var numbers = map[string]bool{"offset": true, "limit": true}

// binding is a checked execution.binding with the manifest's folders.
type binding struct {
	op       string
	root     string            // one of roots, base of relative paths
	names    map[string]string // input -> argument, if they differ
	fixed    map[string]any    // input -> fixed value
	max      int64             // bytes of content, or entries of a page
	maxFile  int64             // maximum file size after an append, in bytes
	newMode  uint32
	makeDirs bool
	roots    []Root
}

// Bounds and defaults.
const (
	maxPath    = 4096
	maxBinding = 64 << 10

	defaultContent = 1 << 20  // bytes that one call reads or writes
	mostContent    = 64 << 20 //
	defaultFile    = 64 << 20 // size of a file after an append, in bytes
	mostFile       = 1 << 40
	defaultPage    = 200 // entries
	mostPage       = 1000
	defaultMode    = 0o600
)

// parse reads a manifest's binding and folders.
func parse(m *toolkeep.Manifest) (*binding, []toolkeep.Fault) {
	r := bindings.Reader{MaxBytes: maxBinding}
	o, ok := r.Read(m)
	if !ok {
		return nil, r.Faults
	}
	b := &binding{maxFile: defaultFile, newMode: defaultMode}
	b.operation(o)
	b.folders(o, m)
	if b.op != "" {
		b.members(o)
		b.mapping(o, m)
		o.Done()
	}
	if len(m.Auth) > 0 {
		r.Fault("/auth", "file", "a tool of kind file sends nothing and accepts no credentials; leave auth out")
	}
	return b, r.Faults
}

func (b *binding) operation(o *bindings.Object) {
	v, _ := o.Member("operation")
	op, _ := v.(string)
	if inputs[op] == nil {
		o.Fault("operation", "enum", "operation must be one of %s", strings.Join(slices.Sorted(maps.Keys(inputs)), ", "))
		return
	}
	b.op = op
}

// writes reports whether the operation changes files.
func (b *binding) writes() bool { return b.op == opWrite || b.op == opDelete }

func (b *binding) folders(o *bindings.Object, m *toolkeep.Manifest) {
	const list = "/permissions/filesystem"
	r := o.Reader
	named, ok := o.Member("root")
	if m.Permissions == nil || len(m.Permissions.Filesystem) == 0 {
		r.Fault(list, "required", "a tool of kind file must list the folders that it uses under permissions.filesystem")
		return
	}
	for i, p := range m.Permissions.Filesystem {
		if why := checkRoot(p.Path, false); why != "" {
			r.Fault(list+"/"+strconv.Itoa(i)+"/path", "format", "%s", why)
		}
		b.roots = append(b.roots, Root{Path: p.Path, Write: p.Mode == "rw"})
	}
	for i, root := range b.roots {
		for _, outer := range b.roots {
			if !root.Write && outer.Write && path.IsAbs(root.Path) == path.IsAbs(outer.Path) && within(path.Join("/", root.Path), path.Join("/", outer.Path)) {
				r.Fault(list+"/"+strconv.Itoa(i), "mode", "%s is rw, and that holds for all below it; %s cannot be ro", outer.Path, root.Path)
			}
		}
	}
	b.root = b.roots[0].Path
	if ok {
		b.root, _ = named.(string)
	}
	i := slices.IndexFunc(b.roots, func(r Root) bool { return r.Path == b.root })
	switch {
	case i < 0:
		o.Fault("root", "enum", "root must be a path of permissions.filesystem")
	case b.writes() && !slices.ContainsFunc(b.roots, func(r Root) bool { return r.Write }):
		r.Fault(list, "mode", "%s needs a folder with the mode rw", b.op)
	}
	if b.writes() && m.SideEffects != "writes" {
		r.Fault("/side_effects", "const", "%s changes files; side_effects must be writes", b.op)
	}
}

// members reads what the operation has besides its inputs.
func (b *binding) members(o *bindings.Object) {
	switch b.op {
	case opRead:
		b.max = o.Count("max_bytes", defaultContent, mostContent)
	case opList:
		b.max = o.Count("max_entries", mostPage, mostPage)
	case opWrite:
		b.max = o.Count("max_bytes", defaultContent, mostContent)
		b.maxFile = o.Count("max_file_bytes", defaultFile, mostFile)
		b.makeDirs = o.Flag("make_dirs")
		if v, ok := o.Member("new_mode"); ok {
			text, _ := v.(string)
			n, err := strconv.ParseUint(text, 8, 32)
			if err != nil || n > 0o777 || n&0o600 != 0o600 {
				o.Fault("new_mode", "format", `new_mode must be permissions in octal that let the owner read and write, such as "0640"`)
			}
			b.newMode = uint32(n)
		}
	}
}

// mapping reads arguments and fixed, and checks them against the schema.
func (b *binding) mapping(o *bindings.Object, m *toolkeep.Manifest) {
	known := inputs[b.op]
	b.names, b.fixed = map[string]string{}, map[string]any{}
	each := func(member string, do func(o *bindings.Object, input string, v any)) {
		sub, ok := o.Sub(member)
		if !ok {
			return
		}
		for _, input := range sub.Names() {
			if _, ok := known[input]; !ok {
				sub.Fault(input, "enum", "%s takes %s", b.op, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
				continue
			}
			do(sub, input, sub.Tree[input])
		}
	}
	each("arguments", func(o *bindings.Object, input string, v any) {
		name, _ := v.(string)
		if name == "" {
			o.Fault(input, "type", "an argument is named by a text")
		}
		b.names[input] = name
	})
	each("fixed", func(o *bindings.Object, input string, v any) {
		_, isText := v.(string)
		_, isNumber := integer(v)
		if numbers[input] && !isNumber || !numbers[input] && !isText {
			o.Fault(input, "type", "%s has another type", input)
		}
		if b.names[input] != "" {
			o.Fault(input, "conflict", "%s is fixed and cannot be an argument too", input)
		}
		b.fixed[input] = v
	})
	b.compare(o.Reader, m, known)
}

// compare requires the named and the required arguments in the schema.
func (b *binding) compare(r *bindings.Reader, m *toolkeep.Manifest, known map[string]bool) {
	schema, err := canon.ParseObject(m.ParametersSchema, canon.Limits{Bytes: 4 << 20})
	if err != nil {
		return // reported by the schema's own check
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, input := range slices.Sorted(maps.Keys(known)) {
		name, mapped := b.names[input]
		if _, fixed := b.fixed[input]; fixed || !mapped && !known[input] {
			continue
		}
		here := bindings.At + "/arguments" + canon.Pointer(input)
		if !mapped {
			name, here = input, "/parameters_schema/properties"
		}
		if _, ok := properties[name]; !ok && name != "" {
			r.Fault(here, "argument", "%s needs %s, and parameters_schema has no property %q", b.op, input, name)
		}
	}
}

// check requires every required input, and the right type of each, before anything is
// touched: the schema may not check either. null is a value, but no input's type.
func (b *binding) check(args map[string]any) *toolkeep.Error {
	for _, input := range slices.Sorted(maps.Keys(inputs[b.op])) {
		v, given := b.value(args, input)
		name := b.name(input)
		if !given {
			if inputs[b.op][input] {
				return badArgument(toolkeep.MissingParameter, name, "required", "the argument %s is needed to %s a file and must be given", name, b.op)
			}
			continue
		}
		if numbers[input] {
			if _, ok := integer(v); !ok {
				return badInput(name, "type", "%s must be a whole number", name)
			}
		} else if _, ok := v.(string); !ok {
			return badInput(name, "type", "%s must be a text", name)
		}
	}
	return nil
}

// text returns a checked string input; fallback if absent.
func (b *binding) text(args map[string]any, input, fallback string) string {
	if v, ok := b.value(args, input); ok {
		return v.(string)
	}
	return fallback
}

// number returns a checked integer input of at least least.
func (b *binding) number(args map[string]any, input string, fallback, least int64) (int64, *toolkeep.Error) {
	v, ok := b.value(args, input)
	if !ok {
		return fallback, nil
	}
	n, ok := integer(v)
	if !ok || n < least {
		return 0, badInput(b.name(input), "minimum", "%s must be a whole number of at least %d", b.name(input), least)
	}
	return n, nil
}

// value returns an input, and whether it is present.
func (b *binding) value(args map[string]any, input string) (any, bool) {
	if v, ok := b.fixed[input]; ok {
		return v, true
	}
	v, ok := args[b.name(input)]
	return v, ok
}

// name returns the argument of an input.
func (b *binding) name(input string) string {
	if n := b.names[input]; n != "" {
		return n
	}
	return input
}

func integer(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	if err == nil {
		return i, true
	}
	f, err := n.Float64() // 5.0 and 5e3 are integers too
	if err != nil || f != float64(int64(f)) || f > 1<<53 || f < -1<<53 {
		return 0, false
	}
	return int64(f), true
}

func number(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }
