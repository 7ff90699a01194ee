package mcp

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/promptscan"
)

// Limits of one Diff.
const (
	maxChanges     = 500
	maxChangeText  = 8000    // characters of one value
	maxChangeTotal = 1 << 20 // bytes of all values; beyond it each is cut to maxChangeShort
	maxChangeShort = 200
)

// Values of Change.Op.
const (
	OpAdded   = "added"
	OpRemoved = "removed"
	OpChanged = "changed"
)

// Change is one difference between two definitions.
type Change struct {
	Pointer string `json:"pointer"` // JSON Pointer into the definition, invisible characters escaped
	Op      string `json:"op,omitempty"`
	// Kind is breaking, additive or patch, by catalog.Compare. Changed texts are a patch.
	Kind string `json:"kind"`
	// Message says what a caller notices, if Compare reports it.
	Message string `json:"message,omitempty"`
	// Old and New are the values: text as it is, other values as JSON. Invisible characters are
	// escaped, and at most 8,000 characters are shown.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// Diff lists the differences between two definitions of a tool: breaking changes first, then
// additive ones, then others, each ordered by pointer, at most 500. It is empty if both are
// equivalent. An unreadable definition is one breaking change of the whole.
func Diff(before, after []byte) []Change {
	a, errA := canon.ParseObject(before, definitionLimits)
	b, errB := canon.ParseObject(after, definitionLimits)
	if errA != nil || errB != nil {
		c := Change{Op: OpChanged, Kind: catalog.KindBreaking, Message: "the new definition cannot be read"}
		if errB == nil {
			c.Message = "the old definition cannot be read"
		}
		return []Change{c}
	}
	d := &differ{}
	d.node("", a, b)
	d.judge(compare(a, b))
	slices.SortStableFunc(d.changes, func(x, y Change) int {
		if n := grave[y.Kind] - grave[x.Kind]; n != 0 {
			return n
		}
		return strings.Compare(x.Pointer, y.Pointer)
	})
	if n := len(d.changes); n > maxChanges {
		d.changes = append(d.changes[:maxChanges-1:maxChanges-1], Change{Kind: d.changes[maxChanges-1].Kind, Message: "and " + strconv.Itoa(n-maxChanges+1) + " changes more"})
	}
	d.values()
	return d.changes
}

type differ struct {
	changes []Change
	old     map[string]any // the values by pointer, formatted at the end
	new     map[string]any
}

func (d *differ) add(pointer, op string, before, after any) {
	if d.old == nil {
		d.old, d.new = map[string]any{}, map[string]any{}
	}
	if op != OpAdded {
		d.old[pointer] = before
	}
	if op != OpRemoved {
		d.new[pointer] = after
	}
	d.changes = append(d.changes, Change{Pointer: pointer, Op: op, Kind: catalog.KindPatch})
}

func (d *differ) node(pointer string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			d.object(pointer, x, y)
			return
		}
	case []any:
		if y, ok := b.([]any); ok && allObjects(x) && allObjects(y) {
			d.list(pointer, x, y)
			return
		}
	}
	if !same(a, b) {
		d.add(pointer, OpChanged, a, b)
	}
}

func (d *differ) object(pointer string, a, b map[string]any) {
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := pointer + canon.Pointer(name)
		x, had := a[name]
		y, has := b[name]
		switch {
		case !has:
			d.add(at, OpRemoved, x, nil)
		case !had:
			d.add(at, OpAdded, nil, y)
		default:
			d.node(at, x, y)
		}
	}
}

func (d *differ) list(pointer string, a, b []any) {
	for i := range max(len(a), len(b)) {
		at := pointer + "/" + strconv.Itoa(i)
		switch {
		case i >= len(b):
			d.add(at, OpRemoved, a[i], nil)
		case i >= len(a):
			d.add(at, OpAdded, nil, b[i])
		default:
			d.node(at, a[i], b[i])
		}
	}
}

// values formats the values of the shown changes.
func (d *differ) values() {
	left := maxChangeTotal
	text := func(values map[string]any, pointer string) string {
		v, ok := values[pointer]
		if !ok {
			return ""
		}
		s, ok := v.(string)
		if !ok {
			s = string(canon.Append(nil, v))
		}
		n := maxChangeText
		if left <= 0 {
			n = maxChangeShort
		}
		s = promptscan.Visible(toolkeep.Clip(s, n))
		left -= len(s)
		return s
	}
	for i := range d.changes {
		c := &d.changes[i]
		if c.Op != "" {
			c.Old, c.New = text(d.old, c.Pointer), text(d.new, c.Pointer)
		}
		c.Pointer, c.Message = promptscan.Visible(c.Pointer), promptscan.Visible(c.Message)
	}
}

// compare returns what the catalogue reports about the change, with pointers into the definition.
func compare(a, b map[string]any) []catalog.Difference {
	x, y := bare(a), bare(b)
	if x == nil || y == nil {
		return []catalog.Difference{{Kind: catalog.KindBreaking, Message: "the definition cannot become a tool"}}
	}
	var out []catalog.Difference
	for _, d := range catalog.Compare(x, y).Differences {
		switch d.Pointer {
		case "/annotations", "/source", "/execution", "/category", "/short_description":
			continue // already covered by the definition's own changes
		}
		d.Pointer = inDefinition(d.Pointer)
		out = append(out, d)
	}
	return out
}

// bare returns a definition's tool without the checks of publishing. Hints are trusted, so that
// their changes count.
func bare(tree map[string]any) *toolkeep.Tool {
	o := Options{Server: "server", TrustAnnotations: true}
	var result any
	if output := tree["outputSchema"]; output != nil {
		result = resultSchema(output)
	}
	core, absent := o.core(tree, "server.tool", "tool", result)
	raw, err := canon.JCS(o.encode(core, catalog.FirstVersion, "", "tool", absent))
	if err != nil {
		return nil
	}
	m, err := catalog.DecodeManifest(raw)
	if err != nil {
		return nil
	}
	return &toolkeep.Tool{ID: "server.tool", Version: catalog.FirstVersion, Manifest: m, Raw: raw}
}

// inDefinition converts a pointer into the manifest to one into the definition.
func inDefinition(pointer string) string {
	for _, place := range [...][2]string{
		{"/parameters_schema", "/inputSchema"},
		{"/result_schema/properties/structuredContent", "/outputSchema"},
		{"/result_schema", "/outputSchema"},
		{"/tool_name", "/title"},
		{"/side_effects", "/annotations/readOnlyHint"},
		{"/idempotent", "/annotations/idempotentHint"},
		{"/risk", "/annotations/destructiveHint"},
		{"/annotations/mcp", ""},
	} {
		if rest, ok := strings.CutPrefix(pointer, place[0]); ok && (rest == "" || rest[0] == '/') {
			return place[1] + rest
		}
	}
	return pointer
}

// judge gives each change the most severe kind that Compare reports at its place, and adds reports
// about unchanged places, such as references to something changed.
func (d *differ) judge(differences []catalog.Difference) {
	x := newPlaces(differences)
	told := make([]bool, len(differences))
	for i := range d.changes {
		c := &d.changes[i]
		if c.Pointer == "/name" {
			c.Kind = catalog.KindBreaking
		}
		x.about(c.Pointer, func(n int) {
			told[n] = true
			if diff := differences[n]; c.Message == "" || grave[diff.Kind] > grave[c.Kind] {
				c.Message = diff.Message
				if grave[diff.Kind] > grave[c.Kind] {
					c.Kind = diff.Kind
				}
			}
		})
	}
	for n, diff := range differences {
		if !told[n] {
			d.changes = append(d.changes, Change{Pointer: diff.Pointer, Kind: diff.Kind, Message: diff.Message})
		}
	}
}

var grave = map[string]int{catalog.KindPatch: 0, catalog.KindAdditive: 1, catalog.KindBreaking: 2}

// places indexes differences by location.
type places struct {
	at    map[string][]int // by pointer
	below map[string][]int // by each pointer above
	list  []catalog.Difference
}

func newPlaces(list []catalog.Difference) *places {
	x := &places{at: map[string][]int{}, below: map[string][]int{}, list: list}
	for n, d := range list {
		x.at[d.Pointer] = append(x.at[d.Pointer], n)
		for p := range above(d.Pointer) {
			x.below[p] = append(x.below[p], n)
		}
	}
	return x
}

// above yields the ancestors of a pointer up to the root, without itself.
func above(pointer string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(pointer, '/'); i >= 0; i = strings.LastIndexByte(pointer, '/') {
			if pointer = pointer[:i]; !yield(pointer) {
				return
			}
		}
	}
}

// about calls each with the differences at a change's place, above or below it.
func (x *places) about(change string, each func(n int)) {
	for _, n := range x.at[change] {
		each(n)
	}
	for _, n := range x.below[change] {
		each(n)
	}
	for p := range above(change) {
		for _, n := range x.at[p] {
			each(n)
		}
	}
	// Compare reports required at the property, but the schema has it next to the properties.
	object, ok := strings.CutSuffix(change, "/required")
	if !ok {
		return
	}
	for _, n := range x.below[object+"/properties"] {
		if name := x.list[n].Pointer[len(object)+len("/properties/"):]; !strings.Contains(name, "/") {
			each(n)
		}
	}
}
