// Package inspect checks and cleans a tool's result before anyone sees it: its size, format, secrets, schema and
// length.
package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

const (
	defaultHardBytes = 100 << 20
	maxDepth         = 50        // nesting of JSON (Execution 8.9)
	maxTree          = 1000      // nesting of what other types become
	maxElements      = 2_000_000 // values of a JSON result; each costs far more in memory than in bytes
	maxPrograms      = 1024
	maxInline        = 4 << 10 // bytes of an attached binary that are also in the result
	maxHint          = 1 << 20 // bytes preallocated for a tree on its executor's word
	jsonType         = "application/json"
	marker           = "[REDACTED]"
)

// Config configures an Inspector. The zero value works.
type Config struct {
	// HardBytes is the size above which a result fails with E3710, both as received and as written; default 100
	// MiB.
	HardBytes int64
	// FieldBytes is the size above which one text in an object or array fails the result with E3710; default 10 MB.
	FieldBytes int64
	// Schemas caches compiled result schemas; default a private cache with schema.DefaultCacheBytes.
	Schemas *schema.Cache
	// CoerceTo has the types, of schema.TargetNames, that texts become in results of tools that coerce; nil is all of
	// them, empty none.
	CoerceTo []string
}

// Inspector inspects results. It is safe for concurrent use.
type Inspector struct {
	hard       int64
	field      int64
	schemas    *schema.Cache
	targets    schema.Targets
	programs   *otter.Cache[string, *shelf]
	patterns   *otter.Cache[string, *pattern]
	sanitizing time.Duration
}

// New makes an Inspector.
func New(c Config) *Inspector {
	if c.HardBytes <= 0 {
		c.HardBytes = defaultHardBytes
	}
	if c.FieldBytes <= 0 {
		c.FieldBytes = defaultFieldBytes
	}
	if c.Schemas == nil {
		c.Schemas = schema.NewCache(0)
	}
	if c.CoerceTo == nil {
		c.CoerceTo = schema.TargetNames
	}
	targets, ok := schema.NewTargets(c.CoerceTo)
	if !ok {
		panic(fmt.Sprintf("inspect: CoerceTo is %q; there are %q", c.CoerceTo, schema.TargetNames))
	}
	return &Inspector{
		hard:       c.HardBytes,
		field:      c.FieldBytes,
		targets:    targets,
		schemas:    c.Schemas,
		sanitizing: maxSanitizing,
		patterns: otter.Must(&otter.Options[string, *pattern]{MaximumWeight: maxPatternWeight, Weigher: func(text string, p *pattern) uint32 {
			return uint32(200*p.size + 4000*len(text)) // a class as short as \pL has kilobytes of characters
		}}),
		programs: otter.Must(&otter.Options[string, *shelf]{MaximumSize: maxPrograms}),
	}
}

// Inspected is a result that may be shown to the caller.
type Inspected struct {
	// Output is JSON as canon.Append writes it, at most the tool's MaxOutputBytes
	// long (or the minimum for its kind of value).
	Output []byte
	// Value is the tree of Output. It may share parts with the executor's tree
	// and must not be modified.
	Value any
	// Truncated says that Output is only part of the result. Whole is then the complete result: the tool's text or
	// bytes if the result is one unchanged text or binary, CSV if it is a list of flat objects (Table), JSON otherwise.
	Truncated bool
	Table     bool
	// Attached says that the result is a binary, whose bytes are Whole: Output has its type and length, and up to 4
	// KiB of bytes in base64.
	Attached bool
	Whole    []byte
	// ContentType is the type of the whole result, also if it is not truncated.
	ContentType string
	Warnings    []toolkeep.Warning
}

// valueCleaner is a Cleaner that can clean a whole tree.
type valueCleaner interface {
	CleanValue(v any) any
}

// Inspect runs all steps on a result: size, parse, transform, redact, coerce, schema, sensitive fields, texts, serialise,
// truncate. It modifies neither o nor a tree in it. clean may be nil.
//
// The error is a *toolkeep.Error of kind result:
//   - E3504: the body does not match its content type, or the tree contains
//     values outside JSON
//   - E3703: the transform failed, took over a second, or returned no or several values
//   - E3710: the result, or a text in it, is over the hard limit
//   - E3712: HTML or SVG that runs or loads something, of a tool whose manifest says html: reject
//   - E3722: a rule of result.sanitize with the action reject matched, or one could not be applied
//   - E3720: strict, and the result breaks the schema; details.errors lists the faults
//   - E3721: strict and coercing, and a field cannot be converted to its type
//
// If the tool is not strict, E3720 and E3721 are warnings.
func (i *Inspector) Inspect(t *toolkeep.Tool, o *toolkeep.Output, clean toolkeep.Cleaner) (*Inspected, error) {
	if o == nil {
		return nil, toolkeep.NewError(toolkeep.InvalidResponse, "the tool returned nothing")
	}
	r := &result{tool: t.Manifest, out: &Inspected{ContentType: jsonType, Warnings: slices.Clone(o.Warnings)}, clean: clean}
	if err := i.read(r, o); err != nil {
		return nil, err
	}
	if err := i.transform(r, clean); err != nil {
		return nil, err
	}
	s, err := i.schema(r, t)
	if err != nil {
		return nil, err
	}
	r.locate(o.Location, s)
	r.redact(clean)
	if !o.Undescribed {
		err = i.check(r, s)
	}
	if err != nil {
		return nil, err
	}
	r.hideSensitive()
	if err := i.sanitize(r); err != nil {
		return nil, err
	}
	if err := i.settle(r, s); err != nil {
		return nil, err
	}
	r.attach()
	r.out.Output = canon.Append(make([]byte, 0, r.sizeHint), r.value)
	if int64(len(r.out.Output)) > i.hard {
		return nil, i.tooLarge(int64(len(r.out.Output)))
	}
	r.out.Value = r.value
	r.truncate()
	return r.out, nil
}

// result is one result in processing.
type result struct {
	tool     *toolkeep.Manifest
	clean    toolkeep.Cleaner // nil if none
	out      *Inspected
	value    any
	sizeHint int

	form     form
	raw      []byte // the body of a binary
	base64   string // its base64, to see whether cleaning changed it
	media    string
	reshaped bool // changed by a transform or a sensitive field
}

type form int

const (
	formJSON form = iota
	formText
	formBinary
)

func (r *result) warn(code toolkeep.Code, format string, args ...any) {
	r.out.Warnings = append(r.out.Warnings, toolkeep.Warning{Code: code, Message: fmt.Sprintf(format, args...)})
}

func (i *Inspector) tooLarge(n int64) error {
	return toolkeep.NewError(toolkeep.ResultTooLarge,
		"the result has %d bytes, at most %d are accepted; ask the tool for less", n, i.hard).
		With("bytes", n).With("limit", i.hard)
}

// redact removes secrets from the tree. A text-only Cleaner gets each string, so that the tree stays valid.
func (r *result) redact(clean toolkeep.Cleaner) {
	switch c := clean.(type) {
	case nil:
	case valueCleaner:
		r.value = c.CleanValue(r.value)
	default:
		r.value, _ = cleanStrings(r.value, clean)
	}
}

func cleanStrings(v any, clean toolkeep.Cleaner) (any, bool) {
	return rewrite(v, func(v any) (any, bool) {
		switch v := v.(type) {
		case string:
			w := clean.Clean(v)
			return w, w != v
		case json.Number:
			if w := clean.Clean(string(v)); w != string(v) {
				return w, true
			}
		}
		return v, false
	})
}

// locate adds the upstream's Location to a result that is null or an object, where the result schema allows it. A
// transform decides by itself what is in the result.
func (r *result) locate(location string, s *schema.Schema) {
	object, ok := r.value.(map[string]any)
	if location == "" || r.form != formJSON || !ok && r.value != nil || r.tool.Result != nil && r.tool.Result.Transform != "" {
		return
	}
	if _, taken := object["location"]; taken {
		return
	}
	added := map[string]any{}
	maps.Copy(added, object)
	added["location"] = location
	if ok && s != nil && len(s.Validate(context.Background(), added)) > len(s.Validate(context.Background(), r.value)) {
		return
	}
	r.value = added
}

// schema returns the tool's result schema, nil if it has none or, where it is not strict, if it cannot be used.
func (i *Inspector) schema(r *result, t *toolkeep.Tool) (*schema.Schema, error) {
	raw := r.tool.ResultSchema
	if len(raw) == 0 {
		return nil, nil
	}
	key := t.Digest
	if key == "" {
		key = canon.Digest(raw)
	}
	s, err := i.schemas.Get(key+" result", raw)
	if err != nil {
		if r.tool.StrictResult() {
			return nil, toolkeep.NewError(toolkeep.ResultSchemaViolation,
				"the tool's result schema cannot be used; its publisher must correct it").Because(err)
		}
		r.warn(toolkeep.ResultSchemaViolation, "the tool's result schema cannot be used; the result was not checked")
		return nil, nil
	}
	return s, nil
}

// check coerces if the tool asks for it and validates if there is a schema.
func (i *Inspector) check(r *result, s *schema.Schema) error {
	if s == nil {
		return nil
	}
	coerce := r.tool.CoerceResult()
	if coerce {
		targets := i.targets
		if names := r.tool.Result.CoerceTo; names != nil {
			targets, _ = schema.NewTargets(names) // the manifest's schema knows the same names
		}
		r.value = s.CoerceTo(context.Background(), r.value, targets)
	}
	faults := s.Validate(context.Background(), r.value)
	if len(faults) == 0 {
		return nil
	}
	if r.hides() {
		for n := range faults {
			faults[n].Message = "the value breaks the rule " + faults[n].Rule + "; details are left out, because they may contain values that the tool hides"
		}
	}
	code, summary := toolkeep.ResultSchemaViolation, "the result does not match the tool's result schema"
	if coerce {
		for _, f := range faults {
			if f.Rule == "type" || f.Rule == "format" {
				code, summary = toolkeep.ResultCoercionFailed, "a field of the result cannot be brought to its declared type"
				break
			}
		}
	}
	summary = fmt.Sprintf("%s: at %q: %s", summary, faults[0].Pointer, faults[0].Message)
	if r.tool.StrictResult() {
		e := toolkeep.FaultsError(code, summary, faults)
		e.FaultSaid = len(faults) == 1
		return e
	}
	r.out.Warnings = append(r.out.Warnings, toolkeep.Warning{
		Code: code, Message: summary, Details: map[string]any{"errors": faults}})
	return nil
}

// hides reports whether the result has sensitive fields: then nothing may be quoted from it.
func (r *result) hides() bool { return r.tool.Result != nil && len(r.tool.Result.SensitiveFields) > 0 }

// hideSensitive writes the marker at the manifest's sensitive_fields. In a pointer, "*" stands for every element of
// an array.
func (r *result) hideSensitive() {
	if r.tool.Result == nil {
		return
	}
	for _, pointer := range r.tool.Result.SensitiveFields {
		names, ok := canon.Tokens(pointer)
		if !ok {
			// An invalid pointer was meant to hide something unknown, so hide everything.
			r.value, r.reshaped = marker, true
			r.warn(toolkeep.ResultSchemaViolation, "%q of sensitive_fields is not a JSON Pointer, so the whole result is hidden", pointer)
			return
		}
		if v, changed := hide(r.value, names); changed {
			r.value, r.reshaped = v, true
		}
	}
}

func hide(v any, names []string) (any, bool) {
	if len(names) == 0 {
		return marker, v != nil
	}
	switch t := v.(type) {
	case map[string]any:
		child, there := t[names[0]]
		if !there {
			return v, false
		}
		if w, changed := hide(child, names[1:]); changed {
			return withProperty(t, names[0], w), true
		}
	case []any:
		from, to := 0, len(t)
		if names[0] != "*" {
			n, ok := canon.Index(names[0], len(t))
			if !ok {
				return v, false
			}
			from, to = n, n+1
		}
		var out []any
		for n := from; n < to; n++ {
			if w, changed := hide(t[n], names[1:]); changed {
				if out == nil {
					out = append(make([]any, 0, len(t)), t...)
				}
				out[n] = w
			}
		}
		if out != nil {
			return out, true
		}
	}
	return v, false
}

func withProperty(obj map[string]any, name string, v any) map[string]any {
	out := make(map[string]any, len(obj))
	for k, e := range obj {
		out[k] = e
	}
	out[name] = v
	return out
}

// rewrite returns a tree with change applied to every non-container. v is not modified; unchanged parts are shared.
func rewrite(v any, change func(any) (any, bool)) (any, bool) {
	switch t := v.(type) {
	case map[string]any:
		var out map[string]any
		for k, e := range t {
			w, changed := rewrite(e, change)
			name, renamed := change(k)
			if !changed && !renamed {
				continue
			}
			if out == nil {
				out = make(map[string]any, len(t))
				for k, e := range t {
					out[k] = e
				}
			}
			if renamed {
				delete(out, k)
				k, _ = name.(string)
				for _, taken := out[k]; taken; _, taken = out[k] {
					k += "'" // two names must not merge
				}
			}
			out[k] = w
		}
		if out != nil {
			return out, true
		}
		return v, false
	case []any:
		var out []any
		for n, e := range t {
			if w, changed := rewrite(e, change); changed {
				if out == nil {
					out = append(make([]any, 0, len(t)), t...)
				}
				out[n] = w
			}
		}
		if out != nil {
			return out, true
		}
		return v, false
	}
	return change(v)
}
