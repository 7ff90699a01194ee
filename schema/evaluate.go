package schema

import (
	"context"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolkeep/toolkeep"
)

// The budget of one evaluation: baseSteps and stepsPerPart for each part of the value. A step is about one keyword
// on one part, or 16 bytes that a pattern, a format or a comparison reads; a million take some 50 ms.
const (
	baseSteps    = 500_000
	stepsPerPart = 64
	// memoAfter is after how many steps an evaluation begins to remember verdicts. Most end before.
	memoAfter = 4_000
	// maxMemo bounds what is remembered, about 6 MB.
	maxMemo = 64 << 10
)

// run is one evaluation of a value against a Schema.
//
// The library compiles schemas, and this evaluates them: where the branches of anyOf and the like lead to the same
// part of a value, the library checks that part again in each, which takes time exponential in the depth of the
// value. A run remembers the verdict of a schema on an object or array, so that its time is bounded by the number
// of schemas times the number of parts, and by its budget.
type run struct {
	schema *Schema
	ctx    context.Context
	left   int // steps
	used   int
	poll   int // steps until ctx is looked at
	memo   map[visit]bool
	edits  map[edit]edited // of coercion in branches
	scope  *scope          // nil unless the schema has dynamic references

	to Targets // of coercion

	// chain are the schemas in evaluation that lie on a cycle, each with the number of its value.
	chain  []link
	value  int // number of the value in evaluation
	values int
}

// visit is a schema on an object or array. The pointer keeps the value alive, so that no other takes its address.
type visit struct {
	schema *jsonschema.Schema
	at     unsafe.Pointer
	n      int
	scope  *scope
}

type link struct {
	schema *jsonschema.Schema
	value  int
}

// tooMuch ends a run by a panic, as patternTimeout does.
type tooMuch struct{ reason string }

func (s *Schema) newRun(ctx context.Context, parts int) *run {
	r := &run{schema: s, ctx: ctx, to: Targets{kinds: coercedKind}, left: baseSteps + stepsPerPart*parts, poll: 1 << 14}
	if s.resources != nil {
		r.scope = &scope{}
	}
	return r
}

func (r *run) spend(steps int) {
	r.used += steps
	if r.used > r.left {
		panic(tooMuch{fmt.Sprintf("it takes more than %d steps to check it against the schema; send less, or nest it less", r.left)})
	}
	if r.poll -= steps; r.poll < 0 {
		r.poll = 1 << 14
		if err := r.ctx.Err(); err != nil {
			panic(tooMuch{"the check was stopped: " + err.Error()})
		}
	}
}

func (r *run) spendText(n int) { r.spend(1 + n/16) }

// identity returns the address of a non-empty object or array.
func identity(v any) (at unsafe.Pointer, n int) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 {
			return *(*unsafe.Pointer)(unsafe.Pointer(&v)), -1
		}
	case []any:
		if len(v) > 0 {
			return unsafe.Pointer(unsafe.SliceData(v)), len(v)
		}
	}
	return nil, 0
}

// child evaluates a part of the value in evaluation.
func (r *run) child(s *jsonschema.Schema, v any) bool {
	outer := r.value
	r.values++
	r.value = r.values
	ok := r.valid(s, v, nil)
	r.value = outer
	return ok
}

// valid evaluates s on v. seen, if not nil, collects which members and elements were evaluated.
func (r *run) valid(s *jsonschema.Schema, v any, seen *evaluated) (ok bool) {
	if s.Bool != nil {
		return *s.Bool
	}
	r.spend(1)
	if outer := r.scope; outer != nil {
		r.scope = outer.enter(r.schema.resources[s])
		defer func() { r.scope = outer }()
	}
	if r.schema.cyclic[s] {
		here := link{s, r.value}
		for _, l := range r.chain {
			if l == here {
				return false
			}
		}
		r.chain = append(r.chain, here)
		ok = r.check(s, v, seen)
		r.chain = r.chain[:len(r.chain)-1]
		return ok
	}
	if seen != nil || r.used < memoAfter {
		return r.check(s, v, seen)
	}
	key := visit{schema: s, scope: r.scope}
	if key.at, key.n = identity(v); key.at == nil {
		return r.check(s, v, nil)
	}
	if ok, known := r.memo[key]; known {
		return ok
	}
	ok = r.check(s, v, nil)
	if len(r.memo) < maxMemo {
		if r.memo == nil {
			r.memo = map[visit]bool{}
		}
		r.memo[key] = ok
	}
	return ok
}

// branch evaluates a schema whose failure is not that of the whole: only a success counts as evaluation of parts.
func (r *run) branch(s *jsonschema.Schema, v any, seen *evaluated) bool {
	if seen == nil {
		return r.valid(s, v, nil)
	}
	var own evaluated
	if !r.valid(s, v, &own) {
		return false
	}
	seen.add(&own)
	return true
}

func (r *run) check(s *jsonschema.Schema, v any, seen *evaluated) bool {
	if s.UnevaluatedProperties == nil && s.UnevaluatedItems == nil {
		return r.keywords(s, v, seen)
	}
	// What counts is what s itself evaluates, and not what schemas beside it do.
	var own evaluated
	if !r.keywords(s, v, &own) || !r.unevaluated(s, v, &own) {
		return false
	}
	if seen != nil {
		seen.add(&own)
	}
	return true
}

// keywords evaluates all keywords but unevaluatedProperties and unevaluatedItems.
func (r *run) keywords(s *jsonschema.Schema, v any, seen *evaluated) bool {
	if s.Types != nil && !s.Types.IsEmpty() && !hasType(*s.Types, v) ||
		s.Const != nil && !r.equal(v, *s.Const) ||
		s.Enum != nil && !r.among(v, s.Enum.Values) ||
		s.Format != nil && !r.format(s.Format, v) {
		return false
	}
	if s.Ref != nil {
		if !r.valid(s.Ref, v, seen) {
			return false
		}
		if s.DraftVersion < 2019 {
			return true
		}
	}
	switch t := v.(type) {
	case map[string]any:
		if !r.object(s, t, seen) {
			return false
		}
	case []any:
		if !r.array(s, t, seen) {
			return false
		}
	case string:
		if !r.text(s, t) {
			return false
		}
	case nil, bool:
	default:
		if !r.number(s, v) {
			return false
		}
	}
	if to := r.dynamic(s); to != nil && !r.valid(to, v, seen) {
		return false
	}
	return r.combined(s, v, seen)
}

// dynamic returns the target of $recursiveRef or $dynamicRef, which depends on the resources on the way here.
func (r *run) dynamic(s *jsonschema.Schema) *jsonschema.Schema {
	switch {
	case s.DraftVersion < 2019:
	case s.RecursiveRef != nil:
		if s.RecursiveRef.RecursiveAnchor && r.scope != nil && r.scope.recursive != nil {
			return r.scope.recursive
		}
		return s.RecursiveRef
	case s.DynamicRef != nil:
		d := s.DynamicRef
		if d.Anchor != "" && d.Ref.DynamicAnchor == d.Anchor && r.scope != nil {
			if to := r.scope.anchors[d.Anchor]; to != nil {
				return to
			}
		}
		return d.Ref
	}
	return nil
}

func (r *run) combined(s *jsonschema.Schema, v any, seen *evaluated) bool {
	if s.Not != nil && r.valid(s.Not, v, nil) {
		return false
	}
	for _, b := range s.AllOf {
		if !r.valid(b, v, seen) {
			return false
		}
	}
	if len(s.AnyOf) > 0 {
		fits := false
		for _, b := range s.AnyOf {
			if r.branch(b, v, seen) {
				if fits = true; seen == nil {
					break
				}
			}
		}
		if !fits {
			return false
		}
	}
	if len(s.OneOf) > 0 {
		fit := 0
		for _, b := range s.OneOf {
			if r.branch(b, v, seen) {
				if fit++; fit > 1 {
					return false
				}
			}
		}
		if fit == 0 {
			return false
		}
	}
	if to := r.conditional(s, v, seen); to != nil {
		return r.valid(to, v, seen)
	}
	return true
}

// conditional returns then or else, whichever applies; nil for neither.
func (r *run) conditional(s *jsonschema.Schema, v any, seen *evaluated) *jsonschema.Schema {
	switch {
	case s.If == nil:
		return nil
	case r.branch(s.If, v, seen):
		return s.Then
	default:
		return s.Else
	}
}

func (r *run) object(s *jsonschema.Schema, obj map[string]any, seen *evaluated) bool {
	if s.MinProperties != nil && len(obj) < *s.MinProperties || s.MaxProperties != nil && len(obj) > *s.MaxProperties {
		return false
	}
	for _, name := range s.Required {
		if _, has := obj[name]; !has {
			return false
		}
	}
	if len(s.DependentRequired) > 0 || len(s.Dependencies) > 0 || len(s.DependentSchemas) > 0 {
		if !r.dependent(s, obj, seen) {
			return false
		}
	}
	if len(s.Properties) > 0 || len(s.PatternProperties) > 0 || s.AdditionalProperties != nil {
		for name, el := range obj {
			ok, known := r.member(s, name, el)
			if !ok {
				return false
			}
			if known && seen != nil {
				seen.name(name)
			}
		}
	}
	if s.PropertyNames != nil {
		for name := range obj {
			if !r.child(s.PropertyNames, name) {
				return false
			}
		}
	}
	return true
}

func (r *run) dependent(s *jsonschema.Schema, obj map[string]any, seen *evaluated) bool {
	for name, needs := range s.DependentRequired {
		if _, has := obj[name]; has && !hasAll(obj, needs) {
			return false
		}
	}
	for name, d := range s.Dependencies {
		if _, has := obj[name]; !has {
			continue
		}
		switch d := d.(type) {
		case []string:
			if !hasAll(obj, d) {
				return false
			}
		case *jsonschema.Schema:
			if !r.valid(d, obj, seen) {
				return false
			}
		}
	}
	for name, d := range s.DependentSchemas {
		if _, has := obj[name]; has && !r.valid(d, obj, seen) {
			return false
		}
	}
	return true
}

func hasAll(obj map[string]any, names []string) bool {
	for _, name := range names {
		if _, has := obj[name]; !has {
			return false
		}
	}
	return true
}

// member evaluates what s says of one member; known is false if it says nothing.
func (r *run) member(s *jsonschema.Schema, name string, el any) (ok, known bool) {
	r.spend(1)
	if p := s.Properties[name]; p != nil {
		if known = true; !r.child(p, el) {
			return false, true
		}
	}
	for re, p := range s.PatternProperties {
		r.spendText(len(name))
		if re.MatchString(name) {
			if known = true; !r.child(p, el) {
				return false, true
			}
		}
	}
	if known {
		return true, true
	}
	switch a := s.AdditionalProperties.(type) {
	case bool:
		return a, true
	case *jsonschema.Schema:
		return r.child(a, el), true
	}
	return true, false
}

func (r *run) array(s *jsonschema.Schema, list []any, seen *evaluated) bool {
	if s.MinItems != nil && len(list) < *s.MinItems || s.MaxItems != nil && len(list) > *s.MaxItems {
		return false
	}
	if s.UniqueItems {
		if _, _, twice := r.duplicate(list); twice {
			return false
		}
	}
	first, rest := elements(s)
	for i, el := range list {
		r.spend(1)
		switch {
		case i < len(first):
			if !r.child(first[i], el) {
				return false
			}
		case rest == nil:
		case rest == false:
			return false
		default:
			if sub, ok := rest.(*jsonschema.Schema); ok && !r.child(sub, el) {
				return false
			}
		}
		if rest == nil && i >= len(first) {
			break
		}
	}
	if seen != nil {
		if seen.first = max(seen.first, len(first)); rest != nil {
			seen.allElements = true
		}
	}
	return s.Contains == nil || r.contains(s, list, seen)
}

// elements returns the schemas of the first elements, and what holds for the others: nil, a bool or a schema.
func elements(s *jsonschema.Schema) (first []*jsonschema.Schema, rest any) {
	if s.DraftVersion >= 2020 {
		if s.Items2020 != nil {
			rest = s.Items2020
		}
		return s.PrefixItems, rest
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		return nil, items
	case []*jsonschema.Schema:
		return items, s.AdditionalItems
	}
	return nil, nil // additionalItems has no meaning without a list of items
}

func (r *run) contains(s *jsonschema.Schema, list []any, seen *evaluated) bool {
	n := r.count(s, list, seen)
	return n >= minContains(s) && (s.MaxContains == nil || n <= *s.MaxContains)
}

func minContains(s *jsonschema.Schema) int {
	if s.MinContains != nil {
		return *s.MinContains
	}
	return 1
}

func (r *run) count(s *jsonschema.Schema, list []any, seen *evaluated) (n int) {
	for i, el := range list {
		if r.child(s.Contains, el) {
			if n++; seen != nil && s.DraftVersion >= 2020 {
				seen.element(i)
			}
		}
	}
	return n
}

func (r *run) text(s *jsonschema.Schema, text string) bool {
	if s.MinLength != nil || s.MaxLength != nil {
		r.spendText(len(text))
		n := utf8.RuneCountInString(text)
		if s.MinLength != nil && n < *s.MinLength || s.MaxLength != nil && n > *s.MaxLength {
			return false
		}
	}
	if s.Pattern != nil {
		r.spendText(len(text) * 4)
		return s.Pattern.MatchString(text)
	}
	return true
}

func (r *run) format(f *jsonschema.Format, v any) bool {
	text, isText := v.(string)
	if !isText {
		return f.Validate(v) == nil
	}
	r.spendText(len(text))
	if f.Name == "regex" {
		_, err := compilePattern(text)
		return err == nil
	}
	return f.Validate(v) == nil
}

func (r *run) number(s *jsonschema.Schema, v any) bool {
	return (s.Minimum == nil || r.compare(v, s.Minimum) >= 0) &&
		(s.Maximum == nil || r.compare(v, s.Maximum) <= 0) &&
		(s.ExclusiveMinimum == nil || r.compare(v, s.ExclusiveMinimum) > 0) &&
		(s.ExclusiveMaximum == nil || r.compare(v, s.ExclusiveMaximum) < 0) &&
		(s.MultipleOf == nil || r.multiple(v, s.MultipleOf))
}

func (r *run) unevaluated(s *jsonschema.Schema, v any, seen *evaluated) bool {
	switch t := v.(type) {
	case map[string]any:
		if s.UnevaluatedProperties == nil {
			return true
		}
		for name, el := range t {
			if !seen.hasName(name) && !r.child(s.UnevaluatedProperties, el) {
				return false
			}
		}
		seen.allNames = true
	case []any:
		if s.UnevaluatedItems == nil {
			return true
		}
		for i, el := range t {
			if !seen.hasElement(i) && !r.child(s.UnevaluatedItems, el) {
				return false
			}
		}
		seen.allElements = true
	}
	return true
}

// evaluated are the members and elements of one value that a keyword has evaluated.
type evaluated struct {
	allNames    bool
	names       map[string]bool
	allElements bool
	first       int
	others      map[int]bool
}

func (e *evaluated) name(name string) {
	if e.names == nil {
		e.names = map[string]bool{}
	}
	e.names[name] = true
}

func (e *evaluated) element(i int) {
	if e.others == nil {
		e.others = map[int]bool{}
	}
	e.others[i] = true
}

func (e *evaluated) hasName(name string) bool { return e.allNames || e.names[name] }
func (e *evaluated) hasElement(i int) bool    { return e.allElements || i < e.first || e.others[i] }

func (e *evaluated) add(other *evaluated) {
	e.allNames = e.allNames || other.allNames
	e.allElements = e.allElements || other.allElements
	e.first = max(e.first, other.first)
	for name := range other.names {
		e.name(name)
	}
	for i := range other.others {
		e.element(i)
	}
}

// recoverLimits turns the end of a run at a limit into a fault of the whole value.
func recoverLimits(faults *[]toolkeep.Fault) {
	switch p := recover().(type) {
	case nil:
	case patternTimeout:
		*faults = []toolkeep.Fault{{Rule: "pattern", Message: fmt.Sprintf(
			"matching the pattern %s took longer than %s; send a shorter text", quoteText(p.pattern, 100), matchTimeout)}}
	case tooMuch:
		*faults = []toolkeep.Fault{{Rule: "limit", Message: p.reason}}
	default:
		panic(p)
	}
}
