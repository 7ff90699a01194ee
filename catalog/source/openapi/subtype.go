package openapi

import (
	"slices"
	"strings"
)

// maxSubtypes bounds the subtypes of one schema that are listed; a schema with more stays as it is.
const maxSubtypes = 100

// subtype is a schema that extends another one and is told by values of its discriminator.
type subtype struct {
	schema *object
	name   string
	values []any
}

// subtypes returns the subtypes of a schema with a discriminator and no oneOf or anyOf of its own:
// those of the mapping, and every schema of the document whose allOf names it, which is told by its
// name. It returns nil where the discriminator says nothing that a request could be checked by.
func (d *document) subtypes(s *object) (property string, list []subtype) {
	if s.has("oneOf") || s.has("anyOf") {
		return "", nil
	}
	disc, _ := s.get("discriminator").(*object)
	property = disc.text("propertyName")
	if name, ok := s.get("discriminator").(string); ok {
		property = name // Swagger 2.0
	}
	prop := d.property(s, property)
	if property == "" || prop == nil || prop.has("type") && prop.text("type") != "string" || slices.Contains(d.wrongWayNames(s, request), property) {
		return "", nil
	}
	add := func(schema *object, name string, value any) {
		if i := slices.IndexFunc(list, func(t subtype) bool { return t.schema == schema }); i >= 0 {
			list[i].values = append(list[i].values, value)
		} else {
			list = append(list, subtype{schema, name, []any{value}})
		}
	}
	if mapping, ok := disc.get("mapping").(*object); ok {
		for _, value := range mapping.keys {
			ref, isText := mapping.vals[value].(string)
			if !isText || len(list) > maxSubtypes {
				return "", nil
			}
			target := d.mappedSchema(mapping, ref)
			if target == nil {
				return "", nil
			}
			add(target, defName(ref, target), value)
		}
	}
	for _, c := range d.extending(s) {
		if !slices.ContainsFunc(list, func(t subtype) bool { return t.schema == c.schema }) {
			add(c.schema, c.name, c.name)
		}
	}
	if len(list) > maxSubtypes {
		return "", nil
	}
	return property, list
}

// extending returns the named schemas of the document whose allOf names s.
func (d *document) extending(s *object) []subtype {
	if d.children == nil {
		d.children = map[*object][]subtype{}
		named, _ := d.object(d.root.get("definitions"), "")
		if d.dialect != v20 {
			comps, _ := d.object(d.root.get("components"), "")
			named, _ = d.object(comps.get("schemas"), "")
		}
		for _, name := range namesOf(named) {
			child, reason := d.object(named.vals[name], "schema")
			if reason != "" {
				continue
			}
			for _, parent := range (&look{d, maxLookNodes}).parts(child) {
				d.children[parent] = append(d.children[parent], subtype{schema: child, name: name})
			}
		}
	}
	return d.children[s]
}

func namesOf(o *object) []string {
	if o == nil {
		return nil
	}
	return o.keys
}

// polymorphic converts a schema whose discriminator tells its subtypes: each is a form with its
// values of the discriminator. Further values that the property lists are of the schema itself. It
// returns nil if the schema has no subtypes.
func (c *conversion) polymorphic(s *object, w where) map[string]any {
	property, subs := c.d.subtypes(s)
	if len(subs) == 0 {
		return nil
	}
	var listed []any
	if values, ok := c.d.property(s, property).get("enum").([]any); ok {
		listed = slices.Clone(values)
	}
	need := slices.Contains((&look{c.d, maxLookNodes}).relevant(s, []string{property}, 0, nil), property)
	form := func(out map[string]any, values []any) map[string]any {
		out["properties"] = map[string]any{property: map[string]any{"enum": values}}
		if need {
			out["required"] = []any{property}
		}
		return out
	}
	own := w
	own.base = true
	var forms []any
	for _, t := range subs {
		listed = slices.DeleteFunc(listed, func(v any) bool { return slices.Contains(t.values, v) })
		if t.schema == s {
			forms = append(forms, form(map[string]any{"allOf": []any{c.body(s, own)}}, t.values))
			continue
		}
		to := c.d.definition(t.schema, c.dir, w.drop, false)
		c.link(to, t.name, w)
		forms = append(forms, form(map[string]any{"$ref": to}, t.values))
	}
	if values, ok := plainValue(listed); ok && len(listed) > 0 {
		forms = append(forms, form(map[string]any{"allOf": []any{c.body(s, own)}}, values.([]any)))
	}
	out := map[string]any{}
	for _, k := range []string{"title", "description"} {
		if v := s.text(k); v != "" {
			out[k] = strings.TrimSpace(clean(v))
		}
	}
	if need {
		out["oneOf"] = forms
	} else {
		out["anyOf"] = forms
	}
	return out
}
