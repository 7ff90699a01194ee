package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Limits of the faults of one value, and of what a message quotes.
const (
	maxFound  = 1000 // beyond that faults are counted only
	maxQuoted = 40   // characters of a caller's value in a message
	maxListed = 10   // values or names in a message
	maxForms  = 3    // branches of a union in a message
	maxHints  = 200  // properties among which a similar name is looked for
)

// explainer collects the faults of an invalid value. It descends only where a part is invalid, and into one branch
// of a union, so that its work is bounded as that of the run.
type explainer struct {
	*run
	quiet bool // no value is quoted
	flat  bool // within the message of a union, another union is not explained
	found []toolkeep.Fault
	more  int            // faults beyond found
	been  map[where]bool // true once done, false under way
}

// where is a schema at a place of the value.
type where struct {
	schema *jsonschema.Schema
	at     string
}

// list returns the faults in order, as toolkeep.BoundFaults has them.
func (x *explainer) list() []toolkeep.Fault {
	slices.SortFunc(x.found, func(a, b toolkeep.Fault) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	found := slices.Compact(x.found)
	if x.more > 0 {
		found = append(found, toolkeep.MoreFaults(x.more))
	}
	return toolkeep.BoundFaults(found)
}

func (x *explainer) add(at, rule, format string, args ...any) {
	if len(x.found) == maxFound {
		x.more++
		return
	}
	x.found = append(x.found, toolkeep.Fault{Pointer: at, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// part explains a member or an element, if it is invalid.
func (x *explainer) part(s *jsonschema.Schema, v any, at string) {
	if s == nil || x.child(s, v) {
		return
	}
	outer := x.value
	x.values++
	x.value = x.values
	x.walk(s, v, at)
	x.value = outer
}

// same explains another schema of the same value, if the value breaks it.
func (x *explainer) same(s *jsonschema.Schema, v any, at string) {
	if s != nil && !x.valid(s, v, nil) {
		x.walk(s, v, at)
	}
}

// walk explains why v, which is at the pointer, breaks s.
func (x *explainer) walk(s *jsonschema.Schema, v any, at string) {
	if s.Bool != nil {
		x.noValue(s, at)
		return
	}
	x.spend(1)
	here := where{s, at}
	if done, been := x.been[here]; been {
		if !done {
			x.add(at, "$ref", "the schema refers to itself for one value; correct the schema")
		}
		return
	}
	x.been[here] = false
	defer func() { x.been[here] = true }()
	if outer := x.scope; outer != nil {
		x.scope = outer.enter(x.schema.resources[s])
		defer func() { x.scope = outer }()
	}
	if x.schema.cyclic[s] {
		x.chain = append(x.chain, link{s, x.value})
		defer func() { x.chain = x.chain[:len(x.chain)-1] }()
	}
	switch {
	case s.Types != nil && !s.Types.IsEmpty() && !hasType(*s.Types, v):
		x.add(at, "type", "must be %s, not %s", orList(s.Types.ToStrings()), x.quote(v))
		return
	case s.Const != nil && !x.equal(v, *s.Const):
		x.add(at, "const", "must be %s, not %s", quoteValue(*s.Const), x.quote(v))
		return
	case s.Enum != nil && !x.among(v, s.Enum.Values):
		x.add(at, "enum", "must be one of %s, not %s", listValues(s.Enum.Values), x.quote(v))
		return
	case s.Format != nil && !x.format(s.Format, v):
		x.add(at, "format", "must be a %s%s, not %s", s.Format.Name, formatExample(s.Format.Name), x.quote(v))
		return
	}
	x.same(s.Ref, v, at)
	if s.Ref != nil && s.DraftVersion < 2019 {
		return
	}
	switch t := v.(type) {
	case map[string]any:
		x.members(s, t, at)
	case []any:
		x.elements(s, t, at)
	case string:
		x.characters(s, t, at)
	case nil, bool:
	default:
		x.digits(s, v, at)
	}
	x.same(x.dynamic(s), v, at)
	if s.Not != nil && x.valid(s.Not, v, nil) {
		x.add(at, "not", "%s is of a form that is excluded here", x.quote(v))
	}
	for _, b := range s.AllOf {
		x.same(b, v, at)
	}
	x.union(s.AnyOf, "anyOf", v, at)
	x.union(s.OneOf, "oneOf", v, at)
	x.same(x.conditional(s, v, nil), v, at)
	x.leftOver(s, v, at)
}

// leftOver explains unevaluatedProperties and unevaluatedItems.
func (x *explainer) leftOver(s *jsonschema.Schema, v any, at string) {
	if s.UnevaluatedProperties == nil && s.UnevaluatedItems == nil {
		return
	}
	var seen evaluated
	if !x.keywords(s, v, &seen) {
		return // what is left over is known only where the other keywords hold
	}
	switch t := v.(type) {
	case map[string]any:
		for _, name := range sortedKeys(t) {
			if !seen.hasName(name) {
				x.part(s.UnevaluatedProperties, t[name], at+"/"+canon.Escape(name))
			}
		}
	case []any:
		for i, el := range t {
			if !seen.hasElement(i) {
				x.part(s.UnevaluatedItems, el, fmt.Sprintf("%s/%d", at, i))
			}
		}
	}
}

// noValue words the schema false.
func (x *explainer) noValue(s *jsonschema.Schema, at string) {
	switch rule := s.Location[strings.LastIndexByte(s.Location, '/')+1:]; rule {
	case "unevaluatedProperties", "additionalProperties":
		x.add(at, rule, "this property is not known here; leave it out")
	case "unevaluatedItems":
		x.add(at, rule, "there is an element too many; leave it out")
	default:
		x.add(at, "false", "no value is allowed here; leave it out")
	}
}

func (x *explainer) members(s *jsonschema.Schema, obj map[string]any, at string) {
	if s.MinProperties != nil && len(obj) < *s.MinProperties {
		x.add(at, "minProperties", "must have at least %s, not %d", counted(*s.MinProperties, "property", "properties"), len(obj))
	}
	if s.MaxProperties != nil && len(obj) > *s.MaxProperties {
		x.add(at, "maxProperties", "must have at most %s, not %d", counted(*s.MaxProperties, "property", "properties"), len(obj))
	}
	for _, name := range s.Required {
		if _, has := obj[name]; !has {
			x.add(at, "required", "the property %s is missing%s", quoteText(name, maxQuoted), typeHint(s, name))
		}
	}
	for _, name := range sortedKeys(s.DependentRequired) {
		x.missing("dependentRequired", obj, name, s.DependentRequired[name], at)
	}
	for _, name := range sortedKeys(s.Dependencies) {
		switch d := s.Dependencies[name].(type) {
		case []string:
			x.missing("dependencies", obj, name, d, at)
		case *jsonschema.Schema:
			if _, has := obj[name]; has {
				x.same(d, obj, at)
			}
		}
	}
	for _, name := range sortedKeys(s.DependentSchemas) {
		if _, has := obj[name]; has {
			x.same(s.DependentSchemas[name], obj, at)
		}
	}
	for _, name := range sortedKeys(obj) {
		x.member(s, name, obj[name], at+"/"+canon.Escape(name))
	}
}

func (x *explainer) missing(rule string, obj map[string]any, because string, needs []string, at string) {
	if _, has := obj[because]; !has {
		return
	}
	for _, name := range needs {
		if _, has := obj[name]; !has {
			x.add(at, rule, "the property %s is missing; %s needs it", quoteText(name, maxQuoted), quoteText(because, maxQuoted))
		}
	}
}

func (x *explainer) member(s *jsonschema.Schema, name string, el any, at string) {
	x.spend(1)
	if s.PropertyNames != nil && !x.child(s.PropertyNames, name) {
		inner := explainer{run: x.run, flat: true, been: map[where]bool{}}
		inner.part(s.PropertyNames, name, "")
		why := "it breaks the rule for names"
		if found := inner.list(); len(found) > 0 {
			why = found[0].Message
		}
		x.add(at, "propertyNames", "the name %s is not allowed: %s", quoteText(name, maxQuoted), why)
	}
	known := false
	if p := s.Properties[name]; p != nil {
		known = true
		x.part(p, el, at)
	}
	for re, p := range s.PatternProperties {
		x.spendText(len(name))
		if re.MatchString(name) {
			known = true
			x.part(p, el, at)
		}
	}
	if known {
		return
	}
	switch a := s.AdditionalProperties.(type) {
	case bool:
		if !a {
			hint := ""
			if len(x.found) < toolkeep.MaxFaults {
				hint = nameHint(s, name)
			}
			x.add(at, "additionalProperties", "the property %s is not known here%s", quoteText(name, maxQuoted), hint)
		}
	case *jsonschema.Schema:
		x.part(a, el, at)
	}
}

func (x *explainer) elements(s *jsonschema.Schema, list []any, at string) {
	if s.MinItems != nil && len(list) < *s.MinItems {
		x.add(at, "minItems", "must have at least %s, not %d", counted(*s.MinItems, "element", "elements"), len(list))
	}
	if s.MaxItems != nil && len(list) > *s.MaxItems {
		x.add(at, "maxItems", "must have at most %s, not %d", counted(*s.MaxItems, "element", "elements"), len(list))
	}
	if s.UniqueItems {
		if i, j, twice := x.duplicate(list); twice {
			x.add(at, "uniqueItems", "the elements %d and %d are equal; each may stand once only", i, j)
		}
	}
	first, rest := elements(s)
	for i, el := range list {
		x.spend(1)
		if i < len(first) {
			x.part(first[i], el, fmt.Sprintf("%s/%d", at, i))
		} else if sub, ok := rest.(*jsonschema.Schema); ok {
			x.part(sub, el, fmt.Sprintf("%s/%d", at, i))
		}
	}
	if n := len(list) - len(first); rest == false && n > 0 {
		x.add(at, "additionalItems", "has %s too many; leave the last out", counted(n, "element", "elements"))
	}
	if s.Contains == nil {
		return
	}
	switch n := x.count(s, list, nil); {
	case n == 0 && s.MinContains == nil:
		x.add(at, "contains", "no element is of the kind that must be among them")
	case n < minContains(s):
		x.add(at, "minContains", "must have at least %s of the kind asked for, not %d", counted(*s.MinContains, "element", "elements"), n)
	case s.MaxContains != nil && n > *s.MaxContains:
		x.add(at, "maxContains", "must have at most %s of the kind asked for, not %d", counted(*s.MaxContains, "element", "elements"), n)
	}
}

// counted says 1 element, 2 elements.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func (x *explainer) characters(s *jsonschema.Schema, text, at string) {
	n := utf8.RuneCountInString(text)
	if s.MinLength != nil && n < *s.MinLength {
		x.add(at, "minLength", "must have at least %s, not %d", counted(*s.MinLength, "character", "characters"), n)
	}
	if s.MaxLength != nil && n > *s.MaxLength {
		x.add(at, "maxLength", "must have at most %s, not %d", counted(*s.MaxLength, "character", "characters"), n)
	}
	if s.Pattern != nil && !s.Pattern.MatchString(text) {
		x.add(at, "pattern", "must match the pattern %s, which %s does not", quoteText(s.Pattern.String(), 200), x.quote(text))
	}
}

func (x *explainer) digits(s *jsonschema.Schema, v any, at string) {
	bound := func(rule, words string, b *big.Rat, ok func(int) bool) {
		if b != nil && !ok(x.compare(v, b)) {
			x.add(at, rule, "must be %s %s, not %s", words, ratText(b), x.quote(v))
		}
	}
	bound("minimum", "at least", s.Minimum, func(c int) bool { return c >= 0 })
	bound("maximum", "at most", s.Maximum, func(c int) bool { return c <= 0 })
	bound("exclusiveMinimum", "more than", s.ExclusiveMinimum, func(c int) bool { return c > 0 })
	bound("exclusiveMaximum", "less than", s.ExclusiveMaximum, func(c int) bool { return c < 0 })
	if s.MultipleOf != nil && !x.multiple(v, s.MultipleOf) {
		x.add(at, "multipleOf", "must be a multiple of %s, which %s is not", ratText(s.MultipleOf), x.quote(v))
	}
}

// union explains anyOf and oneOf. If one branch was clearly meant, its faults are reported as if it stood alone.
func (x *explainer) union(branches []*jsonschema.Schema, rule string, v any, at string) {
	if len(branches) == 0 {
		return
	}
	var fits, meant []int
	var want []string
	for i, b := range branches {
		if x.valid(b, v, nil) {
			fits = append(fits, i+1)
		}
		if other := otherTypes(b, v); other == nil {
			meant = append(meant, i)
		} else {
			for _, w := range other {
				if !slices.Contains(want, w) {
					want = append(want, w)
				}
			}
		}
	}
	switch {
	case rule == "anyOf" && len(fits) > 0 || len(fits) == 1:
		return
	case len(fits) > 1:
		if names := members(branches, fits); names != nil {
			x.add(at, rule, "gives %s, of which only one may be given", toolkeep.Clip(strings.Join(names, " and "), 400))
			return
		}
		x.add(at, rule, "fits the forms %s and %s and must fit exactly one", formName(branches, fits[0]), formName(branches, fits[1]))
		return
	case len(meant) == 0:
		x.add(at, "type", "must be %s, not %s", orList(want), x.quote(v))
		return
	}
	if len(meant) > 1 {
		if tagged := slices.DeleteFunc(slices.Clone(meant), func(i int) bool { return x.otherTag(branches[i], v, maxTagDepth) }); len(tagged) == 1 {
			meant = tagged
		}
	}
	if len(meant) == 1 {
		x.walk(branches[meant[0]], v, at)
		return
	}
	if x.flat {
		x.add(at, rule, "fits none of the %d forms allowed", len(branches))
		return
	}
	var forms []string
	for i, b := range branches {
		if i == maxForms {
			forms = append(forms, fmt.Sprintf("and %d more", len(branches)-i))
			break
		}
		inner := explainer{run: x.run, quiet: x.quiet, flat: true, been: map[where]bool{}}
		inner.walk(b, v, "")
		if found := inner.list(); len(found) > 0 {
			place := ""
			if found[0].Pointer != "" {
				place = "at " + toolkeep.Clip(found[0].Pointer, 200) + " "
			}
			forms = append(forms, fmt.Sprintf("form %s: %s%s", formName(branches, i+1), place, found[0].Message))
		}
	}
	x.add(at, rule, "fits none of the %d forms allowed (%s)", len(branches), strings.Join(forms, "; "))
}

// members returns the names that the forms require, if each fitting one requires one and says nothing else of it: the
// members of a choice, such as a oneof of protobuf.
func members(branches []*jsonschema.Schema, fits []int) []string {
	var out []string
	for _, n := range fits {
		b := branches[n-1]
		if len(b.Required) != 1 || b.Ref != nil || b.Types != nil || len(b.Properties) > 0 {
			return nil
		}
		out = append(out, strconv.Quote(b.Required[0]))
	}
	return out
}

// formName returns the number of a form, with the name that the schema has for it.
func formName(branches []*jsonschema.Schema, n int) string {
	name := branches[n-1].Title
	s := branches[n-1]
	for i := 0; name == "" && s.Ref != nil && i < maxLinks; i, s = i+1, s.Ref {
		if name = s.Ref.Title; name == "" {
			name = s.Ref.Location[strings.LastIndexAny(s.Ref.Location, "/#")+1:]
		}
	}
	if name == "" {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d (%s)", n, toolkeep.Clip(name, 60))
}

// maxLinks is how many references are followed to find the type of a branch.
const maxLinks = 16

// otherTypes returns the types that a branch is for, if v has none of them.
func otherTypes(s *jsonschema.Schema, v any) []string {
	for range maxLinks {
		if s.Types != nil && !s.Types.IsEmpty() && !hasType(*s.Types, v) {
			return s.Types.ToStrings()
		}
		if s.Ref == nil {
			break
		}
		s = s.Ref
	}
	return nil
}

// maxTagDepth is how deep in a value a tag is looked for.
const maxTagDepth = 3

// otherTag reports whether a constant of the branch says that v is of another, as in a union whose tag names it.
func (x *explainer) otherTag(s *jsonschema.Schema, v any, depth int) bool {
	for range maxLinks {
		x.spend(1)
		if s.Const != nil && !x.equal(v, *s.Const) || s.Enum != nil && !x.among(v, s.Enum.Values) {
			return true
		}
		if obj, ok := v.(map[string]any); ok && depth > 0 {
			for name, p := range s.Properties {
				if el, has := obj[name]; has && x.otherTag(p, el, depth-1) {
					return true
				}
			}
		}
		for _, part := range s.AllOf {
			if depth > 0 && x.otherTag(part, v, depth-1) {
				return true
			}
		}
		if s.Ref == nil {
			break
		}
		s = s.Ref
	}
	return false
}

// quote returns a value if it is short, else its type.
func (x *explainer) quote(v any) string {
	if x.quiet {
		return "the value sent"
	}
	return quoteValue(v)
}

func typeHint(s *jsonschema.Schema, name string) string {
	p := s.Properties[name]
	for range maxLinks {
		if p == nil {
			break
		}
		if p.Types != nil && !p.Types.IsEmpty() {
			return "; it must be " + orList(p.Types.ToStrings())
		}
		p = p.Ref
	}
	return ""
}

func nameHint(s *jsonschema.Schema, name string) string {
	if len(s.Properties) == 0 {
		return "; leave it out"
	}
	if len(s.Properties) > maxHints {
		return ""
	}
	names := sortedKeys(s.Properties)
	for _, n := range names {
		if similar(n, name) {
			return fmt.Sprintf("; did you mean %s?", quoteText(n, maxQuoted))
		}
	}
	more := ""
	if len(names) > maxListed {
		more = fmt.Sprintf(" and %d more", len(names)-maxListed)
		names = names[:maxListed]
	}
	for i, n := range names {
		names[i] = quoteText(n, maxQuoted)
	}
	return "; known are " + strings.Join(names, ", ") + more
}

// similar reports whether two names differ by case, separators or one typing mistake: a letter changed, left out,
// added, or two swapped.
func similar(a, b string) bool {
	if len(a) > 64 || len(b) > 64 {
		return false
	}
	fold := func(s string) string {
		return strings.NewReplacer("_", "", "-", "", " ", "", ".", "", "[", "", "]", "").Replace(strings.ToLower(s))
	}
	a, b = fold(a), fold(b)
	if a == b {
		return true
	}
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b) < 4 || len(b)-len(a) > 1 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	return a[i+1:] == b[i+1:] ||
		i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

func orList(types []string) string {
	switch n := len(types); n {
	case 0:
		return "of another type"
	case 1:
		return types[0]
	default:
		return strings.Join(types[:n-1], ", ") + " or " + types[n-1]
	}
}

func listValues(values []any) string {
	var out []string
	for i, v := range values {
		if i == maxListed {
			return strings.Join(out, ", ") + fmt.Sprintf(" and %d more", len(values)-i)
		}
		out = append(out, quoteValue(v))
	}
	return strings.Join(out, ", ")
}

// quoteValue writes a value of at most maxQuoted characters, or its kind.
func quoteValue(v any) string {
	what := "a number"
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(v)
	case string:
		if utf8.RuneCountInString(v) <= maxQuoted {
			return string(canon.AppendString(nil, v))
		}
		return "a string of " + counted(utf8.RuneCountInString(v), "character", "characters")
	case []any:
		what = fmt.Sprintf("an array of %d elements", len(v))
	case map[string]any:
		what = fmt.Sprintf("an object of %d properties", len(v))
	case json.Number:
		if len(v) <= maxQuoted {
			return string(v)
		}
		return what
	}
	if n := size(v); n <= maxQuoted && canon.Check(v, 4) == nil {
		if text := canon.Append(nil, v); len(text) <= maxQuoted {
			return string(text)
		}
	}
	return what
}

// size returns a lower bound of the length of v's text; it stops early on big values.
func size(v any) int {
	n := 1
	switch v := v.(type) {
	case string:
		n = len(v)
	case []any:
		for i := 0; i < len(v) && n <= maxQuoted; i++ {
			n += size(v[i])
		}
	case map[string]any:
		if len(v) > maxQuoted {
			return len(v)
		}
		for k, e := range v {
			n += len(k) + size(e)
		}
	}
	return n
}

// quoteText quotes a name or a pattern, cut at max characters.
func quoteText(s string, max int) string {
	return string(canon.AppendString(nil, toolkeep.Clip(s, max)))
}

func ratText(r *big.Rat) string {
	if r.IsInt() {
		return toolkeep.Clip(r.Num().String(), maxQuoted)
	}
	digits, exact := r.FloatPrec()
	if !exact || digits > 30 {
		digits = 30
	}
	return toolkeep.Clip(r.FloatString(digits), maxQuoted)
}

func formatExample(format string) string {
	switch format {
	case "date-time":
		return ` such as "2026-01-31T08:30:00Z"`
	case "date":
		return ` such as "2026-01-31"`
	case "time":
		return ` such as "08:30:00Z"`
	case "duration":
		return ` such as "PT15M"`
	case "email":
		return ` such as "ada@example.com"`
	case "uri", "iri":
		return ` such as "https://example.com/a"`
	case "uuid":
		return ` such as "4b0f7c1e-7d53-4c55-9a39-0d0b7f1f6a11"`
	case "ipv4":
		return ` such as "192.0.2.1"`
	case "ipv6":
		return ` such as "2001:db8::1"`
	case "hostname":
		return ` such as "www.example.com"`
	}
	return ""
}
