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
	maxElement = 255
	maxBinding = 64 << 10

	defaultContent = 1 << 20  // bytes that one call reads or writes
	mostContent    = 64 << 20 //
	defaultFile    = 64 << 20 // size of a file after an append, in bytes
	mostFile       = 1 << 40
	defaultPage    = 200 // entries
	mostPage       = 1000
	defaultMode    = 0o600
)

const at = bindings.At

// pointerTo returns the JSON Pointer of a member.
func pointerTo(name string) string { return canon.Pointer(name) }

type faults []toolkeep.Fault

func (f *faults) add(pointer, rule, message string) {
	*f = append(*f, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: message})
}

// parse reads a manifest's binding and folders.
func parse(m *toolkeep.Manifest) (*binding, []toolkeep.Fault) {
	var f faults
	tree, err := canon.ParseObject(m.Execution.Binding, canon.Limits{Bytes: maxBinding})
	if err != nil {
		f.add(at, "json", "the binding is not a JSON object: "+toolkeep.AsError(err).Message)
		return nil, f
	}
	b := &binding{maxFile: defaultFile, newMode: defaultMode}
	b.operation(&f, tree)
	b.folders(&f, m, tree)
	if b.op != "" {
		b.members(&f, tree)
		b.mapping(&f, m, tree)
	}
	if len(m.Auth) > 0 {
		f.add("/auth", "file", "a tool of kind file sends nothing and accepts no credentials; leave auth out")
	}
	return b, f
}

func (b *binding) operation(f *faults, tree map[string]any) {
	op, _ := tree["operation"].(string)
	if inputs[op] == nil {
		f.add(at+"/operation", "enum", "operation must be one of "+strings.Join(slices.Sorted(maps.Keys(inputs)), ", "))
		return
	}
	b.op = op
}

// writes reports whether the operation changes files.
func (b *binding) writes() bool { return b.op == opWrite || b.op == opDelete }

func (b *binding) folders(f *faults, m *toolkeep.Manifest, tree map[string]any) {
	const list = "/permissions/filesystem"
	if m.Permissions == nil || len(m.Permissions.Filesystem) == 0 {
		f.add(list, "required", "a tool of kind file must list the folders that it uses under permissions.filesystem")
		return
	}
	for i, p := range m.Permissions.Filesystem {
		if why := checkRoot(p.Path, false); why != "" {
			f.add(list+"/"+strconv.Itoa(i)+"/path", "format", why)
		}
		b.roots = append(b.roots, Root{Path: p.Path, Write: p.Mode == "rw"})
	}
	for i, r := range b.roots {
		for _, outer := range b.roots {
			if !r.Write && outer.Write && path.IsAbs(r.Path) == path.IsAbs(outer.Path) && within(path.Join("/", r.Path), path.Join("/", outer.Path)) {
				f.add(list+"/"+strconv.Itoa(i), "mode", outer.Path+" is rw, and that holds for all below it; "+r.Path+" cannot be ro")
			}
		}
	}
	b.root = b.roots[0].Path
	if v, ok := tree["root"]; ok {
		b.root, _ = v.(string)
	}
	i := slices.IndexFunc(b.roots, func(r Root) bool { return r.Path == b.root })
	switch {
	case i < 0:
		f.add(at+"/root", "enum", "root must be a path of permissions.filesystem")
	case b.writes() && !slices.ContainsFunc(b.roots, func(r Root) bool { return r.Write }):
		f.add(list, "mode", b.op+" needs a folder with the mode rw")
	}
	if b.writes() && m.SideEffects != "writes" {
		f.add("/side_effects", "const", b.op+" changes files; side_effects must be writes")
	}
}

// members reads the remaining members of the binding.
func (b *binding) members(f *faults, tree map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		here, v := at+pointerTo(key), tree[key]
		whole := func(least, most int64) int64 {
			n, ok := integer(v)
			if !ok || n < least || n > most {
				f.add(here, "range", key+" must be a whole number from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
				return least
			}
			return n
		}
		switch {
		case key == "operation", key == "root", key == "arguments", key == "fixed":
		case key == "max_bytes" && (b.op == opRead || b.op == opWrite):
			b.max = whole(1, mostContent)
		case key == "max_entries" && b.op == opList:
			b.max = whole(1, mostPage)
		case key == "max_file_bytes" && b.op == opWrite:
			b.maxFile = whole(1, mostFile)
		case key == "make_dirs" && b.op == opWrite:
			var ok bool
			if b.makeDirs, ok = v.(bool); !ok {
				f.add(here, "type", "make_dirs must be true or false")
			}
		case key == "new_mode" && b.op == opWrite:
			text, _ := v.(string)
			n, err := strconv.ParseUint(text, 8, 32)
			if err != nil || n > 0o777 || n&0o600 != 0o600 {
				f.add(here, "format", `new_mode must be permissions in octal that let the owner read and write, such as "0640"`)
			}
			b.newMode = uint32(n)
		default:
			f.add(here, "unknown", key+" is not a known field")
		}
	}
	if b.max == 0 {
		b.max = defaultContent
		if b.op == opList {
			b.max = mostPage
		}
	}
}

// mapping reads arguments and fixed, and checks them against the schema.
func (b *binding) mapping(f *faults, m *toolkeep.Manifest, tree map[string]any) {
	known := inputs[b.op]
	b.names, b.fixed = map[string]string{}, map[string]any{}
	each := func(member string, do func(input, here string, v any)) {
		v, ok := tree[member]
		if !ok {
			return
		}
		object, ok := v.(map[string]any)
		if !ok {
			f.add(at+"/"+member, "type", member+" must be an object")
			return
		}
		for _, input := range slices.Sorted(maps.Keys(object)) {
			here := at + "/" + member + pointerTo(input)
			if _, ok := known[input]; !ok {
				f.add(here, "enum", b.op+" takes "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
				continue
			}
			do(input, here, object[input])
		}
	}
	each("arguments", func(input, here string, v any) {
		name, _ := v.(string)
		if name == "" {
			f.add(here, "type", "an argument is named by a text")
		}
		b.names[input] = name
	})
	each("fixed", func(input, here string, v any) {
		_, isText := v.(string)
		_, isNumber := integer(v)
		if numbers[input] && !isNumber || !numbers[input] && !isText {
			f.add(here, "type", input+" has another type")
		}
		if b.names[input] != "" {
			f.add(here, "conflict", input+" is fixed and cannot be an argument too")
		}
		b.fixed[input] = v
	})
	b.compare(f, m, known)
}

// compare requires the named and the required arguments in the schema.
func (b *binding) compare(f *faults, m *toolkeep.Manifest, known map[string]bool) {
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
		if !mapped {
			name = input
		}
		if _, ok := properties[name]; !ok && name != "" {
			here := at + "/arguments" + pointerTo(input)
			if !mapped {
				here = "/parameters_schema/properties"
			}
			f.add(here, "argument", b.op+" needs "+input+", and parameters_schema has no property "+strconv.Quote(name))
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
