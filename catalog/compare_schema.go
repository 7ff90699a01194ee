package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// direction says which way a schema must stay compatible: an input schema must still accept what it accepted, an
// output schema must still give what it promised.
type direction int

const (
	input direction = iota
	output
)

// Limits of one comparison; beyond them counts as breaking.
const (
	maxCompareSteps = 20_000
	maxCompareDepth = 200
	maxVariants     = 64
)

// schemaComparer compares two schemas. It skips a pair of nodes that was already met: this ends recursion, and a
// shared definition is reported where it is met first.
type schemaComparer struct {
	out      *comparer
	dir      direction
	old, new *schemaDoc
	seen     *pairs
	spent    *budget
	depth    int
}

// pairs are the nodes compared so far; a trial's additions are dropped with the trial.
type pairs struct {
	here  map[[2]uintptr]bool
	above *pairs
}

func (p *pairs) has(pair [2]uintptr) bool {
	for ; p != nil; p = p.above {
		if p.here[pair] {
			return true
		}
	}
	return false
}

type budget struct {
	steps     int
	exhausted bool
}

func newSchemaComparer(out *comparer, before, after any, dir direction) *schemaComparer {
	return &schemaComparer{out: out, dir: dir, old: newSchemaDoc(before), new: newSchemaDoc(after), seen: &pairs{here: map[[2]uintptr]bool{}}, spent: &budget{}}
}

func (s *schemaComparer) compare(pointer string) {
	if sameTree(s.old.root, s.new.root) {
		return
	}
	before := len(s.out.found)
	s.node(pointer, s.old.root, s.new.root)
	if s.spent.exhausted {
		s.add(pointer, KindBreaking, "the schemas are too large to be compared as a whole, so the change counts as breaking")
	}
	if len(s.out.found) == before {
		// Another text with the same meaning, such as another order of variants.
		s.add(pointer, KindPatch, "the schema is written differently")
	}
}

func sameTree(a, b any) bool {
	return reflect.DeepEqual(a, b)
}

func (s *schemaComparer) add(pointer, kind, format string, args ...any) {
	s.out.add(pointer, kind, format, args...)
}

// narrowed reports that the new schema accepts less; widened that it accepts more.
func (s *schemaComparer) narrowed(pointer, format string, args ...any) {
	kind := KindBreaking
	if s.dir == output {
		kind = KindAdditive
	}
	s.add(pointer, kind, format, args...)
}

func (s *schemaComparer) widened(pointer, format string, args ...any) {
	s.add(pointer, KindAdditive, format, args...)
}

// opened reports that a value may now be one that was excluded by what readers know it by, such as its list of values
// or its format: what reads a result may not know it.
func (s *schemaComparer) opened(pointer, format string, args ...any) {
	kind := KindAdditive
	if s.dir == output {
		kind = KindBreaking
	}
	s.add(pointer, kind, format, args...)
}

func (s *schemaComparer) node(pointer string, a, b any) {
	if s.spent.steps++; s.spent.steps > maxCompareSteps || s.depth > maxCompareDepth {
		s.spent.exhausted = true
		return
	}
	x, y := s.old.flat(a), s.new.flat(b)
	if x.never || y.never {
		s.never(pointer, x.never, y.never)
		return
	}
	pair := [2]uintptr{identity(x.keys), identity(y.keys)}
	if s.seen.has(pair) {
		return
	}
	s.seen.here[pair] = true
	s.depth++
	defer func() { s.depth-- }()

	xs, ys := s.old.variants(x), s.new.variants(y)
	if len(xs) > 1 || len(ys) > 1 {
		s.variants(pointer, xs, ys)
		s.annotations(pointer, x.keys, y.keys)
		return
	}
	s.keywords(pointer, xs[0].keys, ys[0].keys)
}

// identity identifies a node of a document. It is valid while the document and its schemaDoc keep the node alive.
func identity(m map[string]any) uintptr { return reflect.ValueOf(m).Pointer() }

func (s *schemaComparer) never(pointer string, before, after bool) {
	switch {
	case before && !after:
		s.widened(pointer, "a value is now accepted here")
	case !before && after:
		s.narrowed(pointer, "no value is accepted here any more")
	}
}

// keywords compares two nodes without references, allOf and variants.
func (s *schemaComparer) keywords(pointer string, a, b map[string]any) {
	s.types(pointer, a, b)
	s.enums(pointer, a, b)
	s.bounds(pointer, a, b)
	s.patterns(pointer, a, b)
	s.properties(pointer, a, b)
	s.closed(pointer, a, b)
	s.arrays(pointer, a, b)
	s.opaque(pointer, a, b)
	s.annotations(pointer, a, b)
}

var allTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

func typesOf(m map[string]any) []string {
	switch t := m["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var out []string
		for _, e := range t {
			if s, ok := e.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	// Without type, enum and const determine the types.
	list, ok := m["enum"].([]any)
	if v, is := m["const"]; is {
		list, ok = []any{v}, true
	}
	if !ok {
		return allTypes
	}
	var out []string
	for _, v := range list {
		if t := typeOf(v); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case json.Number:
		if f, ok := number(v); ok && f.IsInt() {
			return "integer"
		}
		return "number"
	}
	return "object"
}

func accepts(types []string, t string) bool {
	return slices.Contains(types, t) || t == "integer" && slices.Contains(types, "number")
}

func (s *schemaComparer) types(pointer string, a, b map[string]any) {
	x, y := typesOf(a), typesOf(b)
	lost := slices.DeleteFunc(slices.Clone(x), func(t string) bool { return accepts(y, t) })
	gained := slices.DeleteFunc(slices.Clone(y), func(t string) bool { return accepts(x, t) })
	at := pointer + "/type"
	switch {
	case len(lost) == 0 && len(gained) == 0:
	case s.dir == output && len(gained) > 0:
		s.add(at, KindBreaking, "%s may now be %s, where it was %s", subject(pointer), either(y), either(x))
	case s.dir == input && len(lost) > 0:
		s.add(at, KindBreaking, "%s must now be %s, where %s was accepted", subject(pointer), either(y), either(x))
	default:
		s.add(at, KindAdditive, "%s is now %s, where it was %s", subject(pointer), either(y), either(x))
	}
}

func either(types []string) string {
	if len(types) >= len(allTypes) {
		return "of any type"
	}
	return strings.Join(types, " or ")
}

// subject describes in words what a pointer points to.
func subject(pointer string) string {
	parts := strings.Split(pointer, "/")
	root := "the arguments"
	if len(parts) > 1 && parts[1] == "result_schema" {
		root = "the result"
	}
	if len(parts) <= 2 {
		return root
	}
	last := strings.ReplaceAll(strings.ReplaceAll(parts[len(parts)-1], "~1", "/"), "~0", "~")
	switch {
	case parts[len(parts)-2] == "properties" && root == "the arguments" && len(parts) == 4:
		return fmt.Sprintf("the parameter %q", last)
	case parts[len(parts)-2] == "properties":
		return fmt.Sprintf("the property %q", last)
	case last == "items":
		return "an element of the list"
	}
	return "the value"
}

func enumOf(m map[string]any) (map[string]bool, bool) {
	list, ok := m["enum"].([]any)
	if v, is := m["const"]; is {
		list, ok = []any{v}, true
	}
	if !ok {
		return nil, false
	}
	set := make(map[string]bool, len(list))
	for _, v := range list {
		set[string(canon.Append(nil, v))] = true
	}
	return set, true
}

func (s *schemaComparer) enums(pointer string, a, b map[string]any) {
	x, had := enumOf(a)
	y, has := enumOf(b)
	at := pointer + "/enum"
	switch {
	case !had && !has:
	case had && !has:
		s.opened(at, "%s is no longer limited to a list of values", subject(pointer))
	case !had && has:
		s.narrowed(at, "%s is now limited to a list of values", subject(pointer))
	default:
		for _, v := range slices.Sorted(maps.Keys(x)) {
			if !y[v] {
				s.narrowed(at, "%s may no longer be %s", subject(pointer), toolkeep.ClipBytes(v, 200))
			}
		}
		for _, v := range slices.Sorted(maps.Keys(y)) {
			if !x[v] {
				s.opened(at, "%s may now also be %s", subject(pointer), toolkeep.ClipBytes(v, 200))
			}
		}
	}
}

// bounds: a lower bound narrows when it rises, an upper one when it falls.
func (s *schemaComparer) bounds(pointer string, a, b map[string]any) {
	for _, k := range []string{"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"} {
		s.bound(pointer, k, a, b, 1)
	}
	for _, k := range []string{"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"} {
		s.bound(pointer, k, a, b, -1)
	}
	if x, y := a["uniqueItems"] == true, b["uniqueItems"] == true; x != y {
		if y {
			s.narrowed(pointer+"/uniqueItems", "%s must now have different elements", subject(pointer))
		} else {
			s.widened(pointer+"/uniqueItems", "%s may now have equal elements", subject(pointer))
		}
	}
}

func (s *schemaComparer) bound(pointer, keyword string, a, b map[string]any, sign int) {
	x, had := number(a[keyword])
	y, has := number(b[keyword])
	at := pointer + "/" + keyword
	switch {
	case !had && !has:
	case had && !has:
		s.widened(at, "%s of %s was lifted", keyword, subject(pointer))
	case !had && has:
		// A minimum count of zero is no limit.
		if y.Sign() == 0 && sign > 0 && keyword != "minimum" && keyword != "exclusiveMinimum" {
			return
		}
		s.narrowed(at, "%s now has %s %s", subject(pointer), keyword, written(b[keyword]))
	default:
		switch d := y.Cmp(x) * sign; {
		case d > 0:
			s.narrowed(at, "%s of %s went from %s to %s", keyword, subject(pointer), written(a[keyword]), written(b[keyword]))
		case d < 0:
			s.widened(at, "%s of %s went from %s to %s", keyword, subject(pointer), written(a[keyword]), written(b[keyword]))
		}
	}
}

// patterns: whether one expression includes another is not decided here.
func (s *schemaComparer) patterns(pointer string, a, b map[string]any) {
	for _, k := range []string{"pattern", "format", "multipleOf"} {
		x, had := a[k]
		y, has := b[k]
		switch {
		case !had && !has || had && has && sameTree(x, y):
		case had && !has && k != "multipleOf":
			s.opened(pointer+"/"+k, "%s of %s was lifted", k, subject(pointer))
		case had && !has:
			s.widened(pointer+"/"+k, "%s of %s was lifted", k, subject(pointer))
		case had && has && k != "multipleOf":
			s.add(pointer+"/"+k, KindBreaking, "%s of %s went from %s to %s", k, subject(pointer), toolkeep.ClipBytes(written(x), 200), toolkeep.ClipBytes(written(y), 200))
		case had && has && divides(y, x):
			s.widened(pointer+"/"+k, "%s of %s went from %s to %s", k, subject(pointer), written(x), written(y))
		default:
			s.narrowed(pointer+"/"+k, "%s must now have %s %s", subject(pointer), k, toolkeep.ClipBytes(written(y), 200))
		}
	}
}

func (s *schemaComparer) properties(pointer string, a, b map[string]any) {
	x, _ := a["properties"].(map[string]any)
	y, _ := b["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if _, ok := y[name]; !ok {
			at := pointer + "/properties" + canon.Pointer(name)
			s.add(at, KindBreaking, "%s was removed", subject(at))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(y)) {
		at := pointer + "/properties" + canon.Pointer(name)
		before, had := x[name]
		needed := s.new.requires(b, name, s.dir)
		was := s.old.requires(a, name, s.dir)
		switch {
		case !had && needed && s.dir == input:
			s.add(at, KindBreaking, "%s was added and is required", subject(at))
		case !had:
			s.add(at, KindAdditive, "%s was added", subject(at))
		default:
			s.required(at, was, needed)
			s.node(at, before, y[name])
		}
	}
	s.bareRequired(pointer, a, b, x, y)
}

func (s *schemaComparer) required(at string, was, needed bool) {
	switch {
	case was == needed:
	case needed && s.dir == input:
		s.add(at, KindBreaking, "%s is now required", subject(at))
	case needed:
		s.add(at, KindAdditive, "%s is now always there", subject(at))
	case s.dir == input:
		s.add(at, KindAdditive, "%s is no longer required", subject(at))
	default:
		s.add(at, KindBreaking, "%s is no longer always there", subject(at))
	}
}

// bareRequired compares names that are required but not described.
func (s *schemaComparer) bareRequired(pointer string, a, b, x, y map[string]any) {
	names := map[string]bool{}
	for _, m := range []map[string]any{a, b} {
		for _, name := range requiredNames(m) {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, inX := x[name]
		_, inY := y[name]
		if inX || inY {
			continue
		}
		s.required(pointer+"/properties"+canon.Pointer(name), slices.Contains(requiredNames(a), name), slices.Contains(requiredNames(b), name))
	}
}

func requiredNames(m map[string]any) []string {
	list, _ := m["required"].([]any)
	out := make([]string, 0, len(list))
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// closed compares the rules for undescribed properties.
func (s *schemaComparer) closed(pointer string, a, b map[string]any) {
	for _, k := range []string{"additionalProperties", "unevaluatedProperties"} {
		before, after := orTrue(a, k), orTrue(b, k)
		at := pointer + "/" + k
		switch {
		case sameTree(before, after):
		case before != false && after == false:
			s.narrowed(at, "%s no longer takes properties that are not described", subject(pointer))
		case before == false:
			s.widened(at, "%s now takes properties that are not described", subject(pointer))
		default:
			s.node(at, before, after)
		}
	}
	if had, has := orTrue(a, "propertyNames"), orTrue(b, "propertyNames"); !sameTree(had, has) {
		s.node(pointer+"/propertyNames", had, has)
	}
	x, _ := a["patternProperties"].(map[string]any)
	y, _ := b["patternProperties"].(map[string]any)
	for _, p := range slices.Sorted(maps.Keys(x)) {
		at := pointer + "/patternProperties" + canon.Pointer(p)
		after, ok := y[p]
		switch {
		case ok:
			s.node(at, x[p], after)
		case orTrue(b, "additionalProperties") == false || s.dir == output:
			s.add(at, KindBreaking, "properties named by the pattern were removed")
		default:
			s.widened(at, "properties named by the pattern are no longer checked")
		}
	}
	for _, p := range slices.Sorted(maps.Keys(y)) {
		if _, ok := x[p]; ok {
			continue
		}
		at := pointer + "/patternProperties" + canon.Pointer(p)
		if orTrue(a, "additionalProperties") == false {
			s.widened(at, "properties named by a pattern were added")
		} else {
			s.narrowed(at, "properties named by a pattern are now checked")
		}
	}
}

func orTrue(m map[string]any, key string) any {
	if v, ok := m[key]; ok {
		return v
	}
	return true
}

func (s *schemaComparer) arrays(pointer string, a, b map[string]any) {
	xs, restX, keyX := elements(a)
	ys, restY, keyY := elements(b)
	for i := range max(len(xs), len(ys)) {
		s.node(pointer+"/prefixItems/"+strconv.Itoa(i), elementAt(xs, restX, i), elementAt(ys, restY, i))
	}
	if keyX || keyY {
		s.node(pointer+"/items", restX, restY)
	}
}

// elements reads both forms of list schemas: prefixItems with items, and the older items list with additionalItems.
func elements(m map[string]any) (first []any, rest any, described bool) {
	if list, ok := m["items"].([]any); ok {
		_, described = m["additionalItems"]
		return list, orTrue(m, "additionalItems"), described
	}
	first, _ = m["prefixItems"].([]any)
	_, described = m["items"]
	return first, orTrue(m, "items"), described
}

func elementAt(list []any, rest any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return rest
}

// opaque keywords are compared as text, because their changes cannot be judged.
func (s *schemaComparer) opaque(pointer string, a, b map[string]any) {
	for _, k := range []string{"not", "if", "then", "else", "contains", "dependentRequired", "dependentSchemas", "dependencies",
		"$ref", "$dynamicRef", "$recursiveRef", "unevaluatedItems", "allOf", "anyOf", "oneOf", "contentSchema", "contentEncoding", "contentMediaType"} {
		before, had := a[k]
		after, has := b[k]
		if had == has && sameTree(before, after) {
			continue
		}
		at := pointer + canon.Pointer(k)
		switch {
		case had && !has:
			if s.dir == output || k == "if" || k == "then" || k == "else" {
				s.add(at, KindBreaking, "the condition %s was taken out, and what that admits cannot be judged", k)
			} else {
				s.widened(at, "the condition %s was taken out", k)
			}
		case !had && has && s.dir == output:
			s.add(at, KindAdditive, "the condition %s was added", k)
		default:
			s.add(at, KindBreaking, "the condition %s changed, and what that excludes cannot be judged", k)
		}
	}
}

func (s *schemaComparer) annotations(pointer string, a, b map[string]any) {
	if x, y := a["default"], b["default"]; !sameTree(x, y) {
		s.add(pointer+"/default", KindPatch, "the default of %s changed", subject(pointer))
	}
	for _, k := range []string{"title", "description", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "example"} {
		if !sameTree(a[k], b[k]) {
			s.add(pointer+"/"+k, KindPatch, "%s of %s changed", k, subject(pointer))
		}
	}
}

// variants compares anyOf and oneOf: some new variant must accept each old one; in results, some old variant must
// accept each new one.
func (s *schemaComparer) variants(pointer string, xs, ys []flatSchema) {
	if len(xs) > maxVariants || len(ys) > maxVariants {
		s.add(pointer, KindBreaking, "there are more than %d variants, which are not compared", maxVariants)
		return
	}
	covered := make([]bool, len(ys))
	for i, x := range xs {
		found := false
		for j, y := range ys {
			if s.covers(x, y) {
				covered[j], found = true, true
			}
		}
		if !found && s.dir == input {
			s.add(pointer, KindBreaking, "what variant %d accepted is no longer accepted as a whole", i+1)
		} else if !found {
			s.add(pointer, KindAdditive, "variant %d is no longer given", i+1)
		}
	}
	for j := range ys {
		if covered[j] {
			continue
		}
		if s.dir == output {
			s.add(pointer, KindBreaking, "the result may now be variant %d, which was not promised", j+1)
		} else {
			s.add(pointer, KindAdditive, "variant %d was added or widened", j+1)
		}
	}
}

// covers reports whether going from x to y breaks no caller, without recording differences.
func (s *schemaComparer) covers(x, y flatSchema) bool {
	quiet := &comparer{}
	inner := *s
	inner.out = quiet
	inner.seen = &pairs{here: map[[2]uintptr]bool{}, above: s.seen}
	inner.keywords("/", x.keys, y.keys)
	return !s.spent.exhausted && !slices.ContainsFunc(quiet.found, func(d Difference) bool { return d.Kind == KindBreaking })
}
