package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/schema"
)

// Limits of one schema in a manifest, which is limited to 1 MiB and 64 levels in total.
const (
	maxParameters = source.MaxParameters
	maxResult     = source.MaxResult
	maxLevels     = 52
	maxMembers    = 8_000 // properties of all its objects
)

// bundle merges the schema of root and every definition it reaches into one schema.
type bundle struct {
	root  *def
	order []*def
	depth map[*def]int
	name  map[*def]string
	cut   map[edge]bool
}

// edge is a reference from one definition to another for the same value.
type edge struct{ from, to *def }

// newBundle collects the definitions. A reason says which of them cannot be used.
func newBundle(root *def) (*bundle, string) {
	b := &bundle{root: root, depth: map[*def]int{}, name: map[*def]string{}, cut: map[edge]bool{}}
	if root.err != "" {
		return nil, root.err
	}
	queue := []*def{root}
	for len(queue) > 0 {
		d := queue[0]
		queue = queue[1:]
		for _, l := range d.refs {
			to := l.to
			if _, seen := b.depth[to]; seen {
				continue
			}
			if to.err != "" {
				return nil, to.err
			}
			b.depth[to] = b.depth[d] + 1
			b.name[to] = l.name
			b.order = append(b.order, to)
			queue = append(queue, to)
		}
	}
	b.cutCircles()
	b.giveNames()
	return b, ""
}

// giveNames names definitions as in the document. Equal names get a number in the order in which
// the schema reaches them.
func (b *bundle) giveNames() {
	taken, last := map[string]bool{}, map[string]int{}
	for _, d := range b.order {
		base := b.name[d]
		name := base
		for taken[name] {
			last[base] = max(last[base], 1) + 1
			name = base + "_" + strconv.Itoa(last[base])
		}
		taken[name] = true
		b.name[d] = name
	}
}

// cutCircles finds the references that lead back to a definition for the same value, such as a
// parent that lists its children where children extend the parent. Validation would never end, so
// these references are left out, which accepts more values.
func (b *bundle) cutCircles() {
	const open, done = 1, 2
	state := map[*def]int{}
	type frame struct {
		d *def
		i int
	}
	for _, start := range append([]*def{b.root}, b.order...) {
		if state[start] != 0 {
			continue
		}
		stack := []frame{{start, 0}}
		state[start] = open
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if f.i == len(f.d.same) {
				state[f.d] = done
				stack = stack[:len(stack)-1]
				continue
			}
			to := f.d.same[f.i]
			f.i++
			switch state[to] {
			case open:
				b.cut[edge{f.d, to}] = true
			case 0:
				state[to] = open
				stack = append(stack, frame{to, 0})
			}
		}
	}
}

// squeeze says what is left out of a schema that is too large.
type squeeze struct {
	examples bool // no examples
	prose    int  // longest description in bytes, 0 for all of it, -1 for none
	depth    int  // definitions further from the root become {}
	levels   int  // schemas nested deeper in a definition become {}
	// lossy means that parts become {}. Keywords that would then refuse more than before (not, if,
	// oneOf and such) are left out as well.
	lossy bool
	begin int // level at which definitions begin, as if they stood in the place of their references
}

// steps returns the steps of squeezing, tried one after the other.
func (b *bundle) steps() []squeeze {
	far := 0
	for _, n := range b.depth {
		far = max(far, n)
	}
	list := []squeeze{
		{false, 0, far, maxDepth, false, 0},
		{true, 0, far, maxDepth, false, 0},
		{true, 300, far, maxDepth, false, 0},
		{true, -1, far, maxDepth, false, 0},
	}
	for n := far - 1; n >= 1; n-- {
		if far > 12 && n > 12 && n%4 != 0 {
			continue
		}
		list = append(list, squeeze{true, 300, n, maxDepth, true, 0})
	}
	for _, levels := range []int{20, 16, 12, 8, 6, 4, 3} {
		list = append(list, squeeze{true, 300, min(far, 3), levels, true, 0}, squeeze{true, -1, 1, levels, true, 0})
	}
	// The names of what is in each argument, and then those of the arguments alone.
	return append(list, squeeze{true, -1, 1, 1, true, 1}, squeeze{true, -1, 0, 0, true, 0})
}

// tree returns the schema within the limit, and a sentence of what had to be left out. It is nil if
// nothing helps.
func (b *bundle) tree(limit int) (v any, lost string) {
	over := fmt.Sprintf("is larger than %d KiB or %d levels", limit>>10, maxLevels)
	for i, s := range b.steps() {
		pruned := s.lossy
		s.lossy = s.lossy || len(b.cut) > 0
		if s.levels == maxDepth {
			if all := b.size(s); all.bytes > limit || all.members > maxMembers || all.levels > maxLevels {
				continue
			}
		}
		t := b.render(s)
		if t == nil || !fits(t, limit) {
			continue
		}
		if i == 0 {
			return t, ""
		}
		left := "descriptions and examples"
		if pruned {
			left = "the inner parts"
		}
		return t, fmt.Sprintf("%s; %s are left out: %s became %d KiB", over, left, b.size(b.steps()[0]).kib(), (len(canon.Append(nil, t))+1023)>>10)
	}
	return nil, over + " and cannot be made smaller"
}

// size estimates the size from the definitions' measures, so that the large definitions of a large
// document are not rendered for each operation. bytes is a lower bound.
func (b *bundle) size(s squeeze) measure {
	all := b.root.measured(s)
	for _, d := range b.order {
		if b.depth[d] > s.depth {
			break // order is by distance
		}
		m := d.measured(s)
		all.bytes += m.bytes
		all.members += m.members
		all.levels = max(all.levels, m.levels)
	}
	return all
}

// kib is the size in words.
func (m measure) kib() string {
	if m.bytes >= endless {
		return "what is too large to be measured"
	}
	return fmt.Sprintf("about %d KiB", (m.bytes+1023)>>10)
}

func fits(v any, limit int) bool {
	m := measure{}
	m.of(v, 0)
	return m.levels <= maxLevels && m.members <= maxMembers && m.bytes <= limit && len(canon.Append(nil, v)) <= limit
}

// measure is the size of a tree; bytes is a lower bound.
type measure struct{ levels, members, bytes int }

func (m *measure) of(v any, level int) {
	m.levels = max(m.levels, level)
	switch v := v.(type) {
	case map[string]any:
		m.members += len(v)
		for k, e := range v {
			m.bytes += len(k) + 4
			m.of(e, level+1)
		}
	case []any:
		for _, e := range v {
			m.bytes++
			m.of(e, level+1)
		}
	case string:
		m.bytes += len(v) + 2
	default:
		m.bytes++
	}
}

// measured returns a lower bound of a definition's size after squeezing its text.
func (d *def) measured(s squeeze) measure {
	mode := 0
	switch {
	case s.prose < 0:
		mode = 3
	case s.prose > 0:
		mode = 2
	case s.examples:
		mode = 1
	}
	if !d.known[mode] {
		d.known[mode] = true
		r := &renderer{b: &bundle{}, s: squeeze{examples: s.examples, prose: s.prose, levels: maxDepth, lossy: s.lossy}, left: maxRendered, bare: true}
		t := r.value(d.frag, 0, true, true)
		if r.left < 0 {
			d.size[mode] = measure{bytes: endless}
		} else {
			d.size[mode].of(t, 0)
		}
	}
	return d.size[mode]
}

// endless is the size of a definition that is too large to be measured.
const endless = 1 << 30

// maxRendered bounds the values in a rendered schema.
const maxRendered = 200_000

// render renders the schema; nil if it grows beyond the limit.
func (b *bundle) render(s squeeze) any {
	r := &renderer{b: b, s: s, left: maxRendered, used: map[*def]bool{}}
	r.cur = b.root
	root, ok := r.value(b.root.frag, 0, true, true).(map[string]any)
	if !ok {
		return b.root.frag // true or false
	}
	defs := map[string]any{}
	for len(r.todo) > 0 && r.left > 0 {
		d := r.todo[0]
		r.todo = r.todo[1:]
		r.cur = d
		defs[b.name[d]] = r.value(d.frag, s.begin, true, true)
	}
	if r.left <= 0 {
		return nil
	}
	if len(defs) > 0 {
		root["$defs"] = defs
	}
	return root
}

type renderer struct {
	b    *bundle
	s    squeeze
	left int // values that may still be rendered
	used map[*def]bool
	todo []*def
	cur  *def // the definition being rendered
	bare bool // references are measured, not followed
}

// value copies a converted schema. isSchema is set if v itself is a schema, and not a map from
// names to schemas; same if it applies to the value of its definition.
func (r *renderer) value(v any, level int, isSchema, same bool) any {
	if r.left--; r.left < 0 {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		if isSchema && level > r.s.levels {
			return map[string]any{}
		}
		return r.object(v, level, isSchema, same)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = r.value(e, level+1, isSchema, same)
		}
		return out
	}
	return v
}

func (r *renderer) object(v map[string]any, level int, isSchema, same bool) any {
	out := make(map[string]any, len(v))
	for _, k := range slices.Sorted(maps.Keys(v)) {
		if !isSchema {
			out[k] = r.value(v[k], level+1, true, same)
		} else if e, keep := r.keyword(k, v[k], level, same); keep {
			out[k] = e
		}
	}
	if one, ok := out["oneOf"]; ok && isSchema && r.s.lossy {
		delete(out, "oneOf")
		if _, taken := out["anyOf"]; !taken {
			out["anyOf"] = one
		}
	}
	return out
}

// keyword copies the value of one keyword, if it is kept.
func (r *renderer) keyword(k string, v any, level int, same bool) (any, bool) {
	switch k {
	case "$ref":
		to := v.(*def)
		if same && r.b.cut[edge{r.cur, to}] {
			return nil, false
		}
		name := r.ref(to)
		return name, name != ""
	case "enum", "const", "required", "type", "dependentRequired":
		return v, true
	case "examples":
		return v, !r.s.examples
	case "description":
		text := r.prose(v.(string))
		return text, text != ""
	case "not", "if", "then", "else", "contains", "minContains", "maxContains", "unevaluatedItems", "unevaluatedProperties":
		if r.s.lossy {
			return nil, false
		}
	}
	kw := schema.Find(k)
	if kw.Form == schema.Map {
		return r.value(v, level, false, same && kw.InPlace), true
	}
	return r.value(v, level+1, true, same && kw.InPlace), true
}

// ref returns the reference to a definition, "" if it was squeezed out.
func (r *renderer) ref(to *def) string {
	if r.bare {
		return "#/$defs/"
	}
	if r.b.depth[to] > r.s.depth {
		return ""
	}
	if !r.used[to] {
		r.used[to] = true
		r.todo = append(r.todo, to)
	}
	return "#/$defs/" + r.b.name[to]
}

func (r *renderer) prose(s string) string {
	switch {
	case r.s.prose < 0:
		return ""
	case r.s.prose == 0 || len(s) <= r.s.prose:
		return s
	}
	return toolkeep.ClipBytes(s, r.s.prose)
}
