package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const (
	maxFaults = 500
	maxQuoted = 40 // characters of a caller's value in a message
	maxListed = 10 // values or names in a message
)

// propertyNames checks the names of an object instead of the library.
type propertyNames struct{ schema *jsonschema.Schema }

func (p propertyNames) Validate(ctx *jsonschema.ValidatorContext, v any) {
	obj, ok := v.(map[string]any)
	if !ok {
		return
	}
	for _, name := range sortedKeys(obj) {
		if err := p.schema.Validate(name); err != nil {
			ctx.AddError(&badName{name: name, cause: err})
		}
	}
}

// badName carries the cause, which the library's own kind lacks.
type badName struct {
	name  string
	cause error
}

func (*badName) KeywordPath() []string { return []string{"propertyNames"} }
func (b *badName) LocalizedString(p *message.Printer) string {
	return p.Sprintf("bad name %q", b.name)
}

// finding is a Fault with the data needed to choose between branches.
type finding struct {
	toolkeep.Fault
	want []string // the types a "type" fault asks for
	got  string
}

// renderer converts the library's error tree to a flat list of faults.
type renderer struct {
	root  any
	index map[string]*jsonschema.Schema // may be nil
	quiet bool                          // no value is quoted
}

func (r *renderer) list(err *jsonschema.ValidationError) []toolkeep.Fault {
	found := r.collect(err, nil)
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	found = slices.CompactFunc(found, func(a, b finding) bool { return a.Fault == b.Fault })
	faults := make([]toolkeep.Fault, 0, min(len(found), maxFaults+1))
	for _, f := range found {
		if len(faults) == maxFaults {
			faults = append(faults, toolkeep.Fault{Rule: "limit",
				Message: fmt.Sprintf("and %d more faults", len(found)-maxFaults)})
			break
		}
		faults = append(faults, f.Fault)
	}
	return faults
}

func (r *renderer) collect(e *jsonschema.ValidationError, out []finding) []finding {
	at := canon.Pointer(e.InstanceLocation...)
	add := func(pointer, rule, format string, args ...any) {
		out = append(out, finding{Fault: toolkeep.Fault{Pointer: pointer, Rule: rule, Message: fmt.Sprintf(format, args...)}})
	}
	child := func(name string) string { return at + "/" + canon.Escape(name) }
	switch k := e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		for _, c := range e.Causes {
			out = r.collect(c, out)
		}
	case *kind.AnyOf:
		out = append(out, r.branches(e, at, "anyOf")...)
	case *kind.OneOf:
		if len(k.Subschemas) == 2 {
			add(at, "oneOf", "fits the forms %d and %d and must fit exactly one", k.Subschemas[0]+1, k.Subschemas[1]+1)
		} else {
			out = append(out, r.branches(e, at, "oneOf")...)
		}
	case *kind.Required:
		for _, name := range k.Missing {
			add(at, "required", "the property %s is missing%s", quoteText(name, maxQuoted), r.typeHint(e, name))
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			add(child(name), "additionalProperties", "the property %s is not known here%s", quoteText(name, maxQuoted), r.nameHint(e, name))
		}
	case *kind.Dependency:
		for _, name := range k.Missing {
			add(at, "dependencies", "the property %s is missing; %s needs it", quoteText(name, maxQuoted), quoteText(k.Prop, maxQuoted))
		}
	case *kind.DependentRequired:
		for _, name := range k.Missing {
			add(at, "dependentRequired", "the property %s is missing; %s needs it", quoteText(name, maxQuoted), quoteText(k.Prop, maxQuoted))
		}
	case *badName:
		add(child(k.name), "propertyNames", "the name %s is not allowed: %s", quoteText(k.name, maxQuoted), firstMessage(k.name, k.cause))
	case *kind.Type:
		add(at, "type", "must be %s, not %s", orList(k.Want), r.describe(e))
		out[len(out)-1].want, out[len(out)-1].got = k.Want, r.describe(e)
	case *kind.FalseSchema:
		if strings.HasSuffix(e.SchemaURL, "/unevaluatedProperties") || strings.HasSuffix(e.SchemaURL, "/additionalProperties") {
			rule := e.SchemaURL[strings.LastIndexByte(e.SchemaURL, '/')+1:]
			add(at, rule, "this property is not known here; leave it out")
		} else if strings.HasSuffix(e.SchemaURL, "/unevaluatedItems") {
			add(at, "unevaluatedItems", "there is an element too many; leave it out")
		} else {
			add(at, "false", "no value is allowed here; leave it out")
		}
	case *kind.RefCycle:
		add(at, "$ref", "the schema refers to itself for one value; correct the schema")
	default:
		rule, message := r.plain(e)
		add(at, rule, "%s", message)
	}
	return out
}

// plain words the rules on a single value without parts.
func (r *renderer) plain(e *jsonschema.ValidationError) (rule, text string) {
	got := func() string { return r.describe(e) }
	switch k := e.ErrorKind.(type) {
	case *kind.Enum:
		return "enum", fmt.Sprintf("must be one of %s, not %s", listValues(k.Want), got())
	case *kind.Const:
		return "const", fmt.Sprintf("must be %s, not %s", quoteValue(k.Want), got())
	case *kind.Format:
		return "format", fmt.Sprintf("must be a %s%s, not %s", k.Want, formatExample(k.Want), got())
	case *kind.Pattern:
		return "pattern", fmt.Sprintf("must match the pattern %s, which %s does not", quoteText(k.Want, 200), got())
	case *kind.MinLength:
		return "minLength", fmt.Sprintf("must have at least %d characters, not %d", k.Want, k.Got)
	case *kind.MaxLength:
		return "maxLength", fmt.Sprintf("must have at most %d characters, not %d", k.Want, k.Got)
	case *kind.Minimum:
		return "minimum", fmt.Sprintf("must be at least %s, not %s", ratText(k.Want), got())
	case *kind.Maximum:
		return "maximum", fmt.Sprintf("must be at most %s, not %s", ratText(k.Want), got())
	case *kind.ExclusiveMinimum:
		return "exclusiveMinimum", fmt.Sprintf("must be more than %s, not %s", ratText(k.Want), got())
	case *kind.ExclusiveMaximum:
		return "exclusiveMaximum", fmt.Sprintf("must be less than %s, not %s", ratText(k.Want), got())
	case *kind.MultipleOf:
		return "multipleOf", fmt.Sprintf("must be a multiple of %s, which %s is not", ratText(k.Want), got())
	case *kind.MinItems:
		return "minItems", fmt.Sprintf("must have at least %d elements, not %d", k.Want, k.Got)
	case *kind.MaxItems:
		return "maxItems", fmt.Sprintf("must have at most %d elements, not %d", k.Want, k.Got)
	case *kind.AdditionalItems:
		return "additionalItems", fmt.Sprintf("has %d elements too many; leave the last ones out", k.Count)
	case *kind.UniqueItems:
		return "uniqueItems", fmt.Sprintf("the elements %d and %d are equal; each may stand once only", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "contains", "no element is of the kind that must be among them"
	case *kind.MinContains:
		return "minContains", fmt.Sprintf("must have at least %d elements of the kind asked for, not %d", k.Want, len(k.Got))
	case *kind.MaxContains:
		return "maxContains", fmt.Sprintf("must have at most %d elements of the kind asked for, not %d", k.Want, len(k.Got))
	case *kind.MinProperties:
		return "minProperties", fmt.Sprintf("must have at least %d properties, not %d", k.Want, k.Got)
	case *kind.MaxProperties:
		return "maxProperties", fmt.Sprintf("must have at most %d properties, not %d", k.Want, k.Got)
	case *kind.Not:
		return "not", fmt.Sprintf("%s is of a form that is excluded here", got())
	}
	rule = "schema"
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		rule = path[0]
	}
	return rule, e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}

// branches explains why no branch of anyOf or oneOf fits. If one branch was clearly meant, its faults are reported
// as if it stood alone.
func (r *renderer) branches(e *jsonschema.ValidationError, at, rule string) []finding {
	all := make([][]finding, 0, len(e.Causes))
	for _, c := range e.Causes {
		all = append(all, r.collect(c, nil))
	}
	meant := slices.DeleteFunc(slices.Clone(all), func(f []finding) bool { return otherType(f, at) })
	if len(meant) > 1 {
		if kept := slices.DeleteFunc(slices.Clone(meant), hasOtherTag); len(kept) == 1 {
			meant = kept
		}
	}
	switch {
	case len(meant) == 1:
		return meant[0]
	case len(meant) == 0 && len(all) > 0:
		var want []string
		for _, f := range all {
			for _, w := range f[0].want {
				if !slices.Contains(want, w) {
					want = append(want, w)
				}
			}
		}
		f := all[0][0]
		f.Message = fmt.Sprintf("must be %s, not %s", orList(want), f.got)
		f.want = want
		return []finding{f}
	}
	var parts []string
	for i, f := range all {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		if len(f) == 0 {
			continue
		}
		where := ""
		if rel := strings.TrimPrefix(f[0].Pointer, at); rel != "" {
			where = "at " + rel + " "
		}
		parts = append(parts, fmt.Sprintf("form %d: %s%s", i+1, where, f[0].Message))
	}
	return []finding{{Fault: toolkeep.Fault{Pointer: at, Rule: rule,
		Message: fmt.Sprintf("fits none of the %d forms allowed (%s)", len(all), strings.Join(parts, "; "))}}}
}

// otherType reports whether a branch is for another type of value.
func otherType(f []finding, at string) bool {
	return len(f) == 1 && f[0].Rule == "type" && f[0].Pointer == at && len(f[0].want) > 0
}

// hasOtherTag reports whether a branch failed at a constant, as in a union whose tag names another branch.
func hasOtherTag(f []finding) bool {
	return slices.ContainsFunc(f, func(f finding) bool { return f.Rule == "const" || f.Rule == "enum" })
}

func firstMessage(name string, err error) string {
	verr, ok := err.(*jsonschema.ValidationError)
	if !ok {
		return err.Error()
	}
	r := renderer{root: name}
	if faults := r.list(verr); len(faults) > 0 {
		return faults[0].Message
	}
	return "it breaks the rule for names"
}

// describe returns the faulty value if it is short, else its type.
func (r *renderer) describe(e *jsonschema.ValidationError) string {
	v, ok := canon.Lookup(r.root, canon.Pointer(e.InstanceLocation...))
	if !ok || r.quiet {
		return "the value sent"
	}
	return quoteValue(v)
}

func (r *renderer) typeHint(e *jsonschema.ValidationError, name string) string {
	s := r.index[e.SchemaURL]
	if s == nil {
		return ""
	}
	for p := s.Properties[name]; p != nil; p = p.Ref {
		if p.Types != nil && !p.Types.IsEmpty() {
			return "; it must be " + orList(p.Types.ToStrings())
		}
	}
	return ""
}

func (r *renderer) nameHint(e *jsonschema.ValidationError, name string) string {
	s := r.index[e.SchemaURL]
	if s == nil || len(s.Properties) == 0 {
		return "; leave it out"
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
		return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
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
		return fmt.Sprintf("a string of %d characters", utf8.RuneCountInString(v))
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
