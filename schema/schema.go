package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Schema is a compiled schema. It is immutable and safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	plan     *node // nil if no value can need coercion or defaults
	// cyclic are the schemas that lead back to themselves for one value.
	cyclic map[*jsonschema.Schema]bool
	// resources has the resource of each schema; nil unless a dynamic reference can lead to several.
	resources map[*jsonschema.Schema]*resource
	names     func() map[string]bool // of all properties that it defines
	text      int                    // bytes of what it was compiled from, in a Cache
}

// Defines tells whether a property of that name stands anywhere in the schema; the zero Schema defines none.
func (s *Schema) Defines(name string) bool { return s.names != nil && s.names()[name] }

// Known returns a pointer into a value with "*" for every name that the schema does not define; the zero Schema defines
// none. What is left are names that the schema's author chose, and numbers up to 2^31.
func (s *Schema) Known(pointer string) string {
	if pointer == "" {
		return ""
	}
	parts := strings.Split(pointer, "/")[1:]
	for i, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 31); err != nil && !s.Defines(canon.Unescape(part)) {
			parts[i] = "*"
		}
	}
	return "/" + strings.Join(parts, "/")
}

// definedNames returns the names of all properties in a schema.
func definedNames(root *jsonschema.Schema) map[string]bool {
	names := map[string]bool{}
	for _, sch := range survey(root) {
		for name := range sch.Properties {
			names[name] = true
		}
		for _, name := range sch.Required {
			names[name] = true
		}
	}
	return names
}

// home is the address of a schema without $id. Its scheme has no loader, so a relative reference resolves below it
// and not in the working directory.
const home = "toolkeep://schema/"

// limits apply to a schema's text. The compiler's time grows with the square of the number of subschemas, so the
// limit on their number is low.
var limits = canon.Limits{Bytes: 4 << 20, Depth: 200, Properties: 20_000, Elements: 100_000}

// Compile compiles a schema of at most 4 MiB, 20,000 properties and 200 levels.
//
// The error is an E3008 whose details.errors is a []toolkeep.Fault with JSON Pointers into the schema: it is not
// JSON, it breaks its metaschema, a $ref leads nowhere or out of the schema, a pattern is invalid, its $schema is
// unknown, or too many references lead to places that hold no schemas, see maxCost.
func Compile(raw []byte) (*Schema, error) {
	doc, err := canon.Parse(raw, limits)
	if err != nil {
		e := toolkeep.AsError(err)
		pointer, _ := e.Details["pointer"].(string)
		return nil, broken([]toolkeep.Fault{{Pointer: pointer, Rule: "json", Message: e.Message}}, err)
	}
	if faults := tooCostly(doc); faults != nil {
		return nil, broken(faults, nil)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(refusingLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	for _, name := range []string{"period", "semver"} { // the library's own, in no draft
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	c.UseRegexpEngine(compilePattern)
	if err := c.AddResource(home, doc); err != nil {
		return nil, broken([]toolkeep.Fault{{Rule: "schema", Message: err.Error()}}, err)
	}
	compiled, err := c.Compile(home)
	if err != nil {
		return nil, broken(compileFaults(doc, err), err)
	}
	s := &Schema{compiled: compiled, names: sync.OnceValue(func() map[string]bool { return definedNames(compiled) })}
	all := survey(compiled)
	if dynamic(all) {
		for _, at := range named(doc) { // what only a dynamic reference leads to
			if sub, err := c.Compile(home + "#" + (&url.URL{Path: at}).EscapedPath()); err == nil {
				maps.Copy(all, survey(sub))
			}
		}
		s.resources = findResources(all)
	}
	if at, ok := findExplosion(all); ok {
		return nil, broken([]toolkeep.Fault{{Pointer: at, Rule: "schema", Message: fmt.Sprintf(
			"one value would be checked in more than %d ways; let fewer $ref, allOf, anyOf and oneOf lead to each other", maxWays)}}, nil)
	}
	s.cyclic = findCycles(all)
	s.plan = makePlan(s)
	return s, nil
}

func broken(faults []toolkeep.Fault, cause error) *toolkeep.Error {
	f := faults[0]
	summary := fmt.Sprintf("the schema cannot be used: at %q: %s", f.Pointer, f.Message)
	if n := len(faults) - 1; n > 0 {
		summary += fmt.Sprintf(" (and %d more)", n)
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, summary, faults).Because(cause)
}

// refusingLoader loads nothing. The library calls it for every document that is neither the schema itself nor a
// metaschema.
type refusingLoader struct{}

var errRefused = errors.New("only the schema itself and the metaschemas can be referred to")

func (refusingLoader) Load(string) (any, error) { return nil, errRefused }

// compileFaults returns where in the schema the compiler's error lies.
func compileFaults(doc any, err error) []toolkeep.Fault {
	var (
		invalid *jsonschema.SchemaValidationError
		regex   *jsonschema.InvalidRegexError
		load    *jsonschema.LoadURLError
		pointer *jsonschema.JSONPointerNotFoundError
		anchor  *jsonschema.AnchorNotFoundError
		draft   *jsonschema.UnsupportedDraftError
	)
	one := func(at, rule, format string, args ...any) []toolkeep.Fault {
		return []toolkeep.Fault{{Pointer: at, Rule: rule, Message: fmt.Sprintf(format, args...)}}
	}
	switch {
	case errors.As(err, &invalid):
		if faults := metaFaults(doc); len(faults) > 0 {
			return faults
		}
	case errors.As(err, &regex):
		return one(fragment(regex.URL), "pattern", "the pattern %s cannot be read as a regular expression", quoteText(regex.Regex, 200))
	case errors.As(err, &load):
		at, keyword := findReference(doc, load.URL, "")
		if keyword == "$schema" {
			return one(at, keyword, "the draft %s is not known; use 2020-12, 2019-09 or draft-07", quoteText(load.URL, 200))
		}
		return one(at, "$ref", "the reference to %s leaves the schema, which is not allowed; put the definition under $defs", quoteText(load.URL, 200))
	case errors.As(err, &pointer):
		at, _ := findReference(doc, fragment(pointer.URL), "")
		return one(at, "$ref", "the reference to %s leads nowhere", quoteText(fragment(pointer.URL), 200))
	case errors.As(err, &anchor):
		at, _ := findReference(doc, anchor.Reference, "")
		return one(at, "$ref", "the reference to %s leads nowhere", quoteText(anchor.Reference, 200))
	case errors.As(err, &draft):
		return one("/$schema", "$schema", "the draft %s is not supported; use 2020-12, 2019-09 or draft-07", quoteText(draft.URL, 200))
	}
	return one("", "schema", "%s", strings.ReplaceAll(err.Error(), home, ""))
}

// metaFaults checks a schema against the metaschema of its draft.
func metaFaults(doc any) []toolkeep.Fault {
	address := "https://json-schema.org/draft/2020-12/schema"
	if obj, ok := doc.(map[string]any); ok {
		if named, ok := obj["$schema"].(string); ok {
			address = named
		}
	}
	meta, err := Compile(canon.Append(nil, map[string]any{"$ref": address}))
	if err != nil {
		return nil // of a draft that only a part of the schema names
	}
	return meta.Validate(context.Background(), doc)
}

// fragment returns the JSON Pointer in the fragment of a location.
func fragment(location string) string {
	_, fragment, _ := strings.Cut(location, "#")
	if p, err := url.PathUnescape(fragment); err == nil {
		return p
	}
	return fragment
}

// findReference finds the keyword that refers to target, to show an author its place. The written and the resolved
// reference share only the last part of the target.
func findReference(v any, target, at string) (string, string) {
	tail := target[strings.LastIndexByte(strings.TrimSuffix(target, "/"), '/')+1:]
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			if s, ok := v[k].(string); ok {
				switch k {
				case "$ref", "$schema", "$dynamicRef", "$recursiveRef":
					if strings.Contains(s, tail) {
						return at + "/" + k, k
					}
				}
				continue
			}
			if p, kw := findReference(v[k], target, at+"/"+canon.Escape(k)); kw != "" {
				return p, kw
			}
		}
	case []any:
		for i, e := range v {
			if p, kw := findReference(e, target, fmt.Sprintf("%s/%d", at, i)); kw != "" {
				return p, kw
			}
		}
	}
	return "", ""
}

// survey returns every schema that references and keywords lead to, by location.
func survey(root *jsonschema.Schema) map[string]*jsonschema.Schema {
	all := map[string]*jsonschema.Schema{}
	todo := []*jsonschema.Schema{root}
	for len(todo) > 0 {
		sch := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if sch == nil || all[sch.Location] != nil { // children leaves holes
			continue
		}
		all[sch.Location] = sch
		todo = append(todo, children(sch)...)
	}
	return all
}

// maxWays limits how often one value is checked. Thirty schemas that each name the next one twice would otherwise
// take 2^30 checks.
const maxWays = 50_000

// findExplosion finds a schema from which more than maxWays chains of references and combinations lead on for the
// same value.
func findExplosion(all map[string]*jsonschema.Schema) (at string, found bool) {
	ways := map[*jsonschema.Schema]int{}
	var count func(sch *jsonschema.Schema) int
	count = func(sch *jsonschema.Schema) int {
		if sch == nil {
			return 0
		}
		if n, ok := ways[sch]; ok {
			return n
		}
		ways[sch] = 1 // a cycle ends here, as in the validator
		n := 1
		for _, next := range combined(sch) {
			n = min(n+count(next), maxWays+1)
		}
		ways[sch] = n
		return n
	}
	for _, location := range sortedKeys(all) {
		if count(all[location]) > maxWays {
			return fragment(location), true
		}
	}
	return "", false
}

// combined returns the schemas that may be checked for the same value as s.
func combined(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		out = append(out, s.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		out = append(out, list...)
	}
	for _, c := range s.DependentSchemas {
		out = append(out, c)
	}
	for _, d := range s.Dependencies {
		if c, ok := d.(*jsonschema.Schema); ok {
			out = append(out, c)
		}
	}
	return out
}

func children(s *jsonschema.Schema) []*jsonschema.Schema {
	out := append(combined(s), s.PrefixItems...)
	out = append(out, s.Contains, s.Items2020, s.UnevaluatedItems, s.UnevaluatedProperties, s.ContentSchema, s.PropertyNames)
	for _, c := range s.Properties {
		out = append(out, c)
	}
	for _, c := range s.PatternProperties {
		out = append(out, c)
	}
	for _, a := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} {
		switch a := a.(type) {
		case *jsonschema.Schema:
			out = append(out, a)
		case []*jsonschema.Schema:
			out = append(out, a...)
		}
	}
	return out
}

// Validate returns the faults of v, ordered by pointer; nil means that v is valid. Pointer leads to the faulty
// value (for an absent property, to the object that lacks it), Rule is the schema's keyword. Messages quote no
// value of more than 40 characters. Of a union (anyOf, oneOf) the faults of the branch that was meant are returned, if
// the types or a constant say which. At most 100 faults and 64 KiB of them are returned; then a last one with Rule
// "limit" says how many there are beyond. A check that takes too many steps for the size of v, see baseSteps, or
// whose ctx ends, is one fault with Rule "limit".
func (s *Schema) Validate(ctx context.Context, v any) []toolkeep.Fault {
	return s.validate(ctx, v, false)
}

// ValidateSecret is Validate for values that may contain secrets: no message quotes a value.
func (s *Schema) ValidateSecret(ctx context.Context, v any) []toolkeep.Fault {
	return s.validate(ctx, v, true)
}

func (s *Schema) validate(ctx context.Context, v any, quiet bool) (faults []toolkeep.Fault) {
	parts, faults := checkNumbers(v)
	if faults != nil {
		return faults
	}
	defer recoverLimits(&faults)
	return s.newRun(ctx, parts).faults(v, quiet)
}

func (r *run) faults(v any, quiet bool) []toolkeep.Fault {
	if r.valid(r.schema.compiled, v, nil) {
		return nil
	}
	x := explainer{run: r, quiet: quiet, been: map[where]bool{}}
	x.walk(r.schema.compiled, v, "")
	if found := x.list(); len(found) > 0 {
		return found
	}
	return []toolkeep.Fault{{Rule: "schema", Message: "does not match the schema"}}
}

// Prepare coerces args and fills defaults (see the package documentation), and validates the result. args is never
// modified: changed parts are copied, unchanged parts are shared, and without changes the result is args itself.
// nil counts as the empty object. The faults are those of Validate.
func (s *Schema) Prepare(ctx context.Context, args map[string]any) (prepared map[string]any, faults []toolkeep.Fault) {
	if args == nil {
		args = map[string]any{}
	}
	parts, faults := checkNumbers(args)
	if faults != nil {
		return args, faults
	}
	prepared = args
	defer recoverLimits(&faults)
	r := s.newRun(ctx, parts)
	if s.plan != nil {
		if v, changed := r.apply(s.plan, args, true); changed {
			// An object is never coerced into another type.
			prepared = v.(map[string]any)
		}
	}
	return prepared, r.faults(prepared, false)
}

// Targets is a set of the types that Coerce converts strings to.
type Targets struct {
	kinds kinds
	dates bool // texts of the formats date and date-time are brought to the form of RFC 3339
}

// TargetNames are the types that a Targets can have. A date is a text of the format date or date-time.
var TargetNames = []string{"number", "integer", "boolean", "date"}

// NewTargets returns the set of the named types; ok is false if a name is none of TargetNames.
func NewTargets(names []string) (t Targets, ok bool) {
	for _, name := range names {
		if !slices.Contains(TargetNames, name) {
			return Targets{}, false
		}
		switch name {
		case "number":
			t.kinds |= kindNumber
		case "integer":
			t.kinds |= kindInteger
		case "boolean":
			t.kinds |= kindBoolean
		case "date":
			t.dates = true
		}
	}
	return t, true
}

// of returns those of a place's types that strings are converted to. A number is an integer too, which then is no
// target of its own.
func (t Targets) of(place kinds) kinds {
	switch {
	case place&kindNumber == 0:
		return place & t.kinds
	case t.kinds&kindNumber == 0:
		return place & t.kinds &^ kindInteger
	}
	return place & (t.kinds | kindInteger)
}

// Coerce is the first half of Prepare, for any value and without defaults: it returns v with strings converted to
// the numbers and booleans that the schema asks for, copied where something changed. It does not validate.
func (s *Schema) Coerce(ctx context.Context, v any) (coerced any) {
	return s.CoerceTo(ctx, v, Targets{kinds: coercedKind})
}

// CoerceTo is Coerce for places whose type is one of to.
func (s *Schema) CoerceTo(ctx context.Context, v any, to Targets) (coerced any) {
	parts, faults := checkNumbers(v)
	if s.plan == nil || faults != nil {
		return v
	}
	var stopped []toolkeep.Fault
	coerced = v // result at a limit; Validate then reports it
	defer recoverLimits(&stopped)
	r := s.newRun(ctx, parts)
	r.to = to
	coerced, _ = r.apply(s.plan, v, false)
	return coerced
}

// checkNumbers refuses numbers on which exact arithmetic would take practically forever. canon.Parse refuses them
// as well, but a tree can have another origin.
// It also counts the parts of v.
func checkNumbers(v any) (parts int, faults []toolkeep.Fault) {
	pointer, bad := findBadNumber(v, &parts)
	if !bad {
		return parts, nil
	}
	return parts, []toolkeep.Fault{{Pointer: pointer, Rule: "type",
		Message: "is not a number of at most 1100 characters with an exponent within ±9999"}}
}

func findBadNumber(v any, parts *int) (pointer string, found bool) {
	*parts++
	switch v := v.(type) {
	case json.Number:
		return "", !canon.Bounded(v) || !canon.IsNumber(string(v))
	case string:
		*parts += len(v) / 64
	case map[string]any:
		for k, e := range v {
			if p, bad := findBadNumber(e, parts); bad {
				return "/" + canon.Escape(k) + p, true
			}
		}
	case []any:
		for i, e := range v {
			if p, bad := findBadNumber(e, parts); bad {
				return fmt.Sprintf("/%d%s", i, p), true
			}
		}
	}
	return "", false
}
