package openapi

import "slices"

// discriminate handles a oneOf with a discriminator. The branches of such a oneOf often overlap,
// and then plain JSON Schema refuses valid values. If the mapping names every branch and no branch
// contradicts it, each branch gets its discriminator values, so that exactly one applies; else
// oneOf is loosened to anyOf. It returns the keyword to use.
func (c *conversion) discriminate(s *object, list, conv []any) string {
	disc, ok := s.get("discriminator").(*object)
	property := disc.text("propertyName")
	if !ok || property == "" {
		return "anyOf"
	}
	values := c.mappedValues(disc, list)
	if values == nil || !c.d.agree(list, property, values) {
		return "anyOf"
	}
	for i := range list {
		branch, ok := conv[i].(map[string]any)
		if !ok || branch["properties"] != nil || branch["required"] != nil {
			return "anyOf"
		}
	}
	for i := range list {
		branch := conv[i].(map[string]any)
		branch["properties"] = map[string]any{property: map[string]any{"enum": values[i]}}
		branch["required"] = []any{property}
	}
	return "oneOf"
}

// mappedValues returns the values that the mapping assigns to each branch, nil unless every branch
// has some.
func (c *conversion) mappedValues(disc *object, list []any) [][]any {
	mapping, ok := disc.get("mapping").(*object)
	if !ok || len(mapping.keys) > 1000 {
		return nil
	}
	targets := make([]*object, len(list))
	for i, e := range list {
		o, ok := e.(*object)
		if !ok || o.ref() == "" || len(o.keys) > 1 {
			return nil
		}
		t, reason := c.d.object(o, "branch")
		if reason != "" || slices.Contains(targets, t) {
			return nil
		}
		targets[i] = t
	}
	values := make([][]any, len(list))
	for _, value := range mapping.keys {
		ref, ok := mapping.vals[value].(string)
		if !ok {
			return nil
		}
		i := slices.Index(targets, c.d.mappedSchema(mapping, ref))
		if i < 0 {
			continue // the target is not a branch here
		}
		values[i] = append(values[i], value)
	}
	for _, v := range values {
		if len(v) == 0 {
			return nil
		}
	}
	return values
}

// mappedSchema resolves one target of a mapping: a reference, or a component's name.
func (d *document) mappedSchema(mapping *object, ref string) *object {
	probe := &object{keys: []string{"$ref"}, vals: map[string]any{"$ref": ref}, src: mapping.src, res: mapping.res, line: mapping.line}
	v := d.bareName(probe)
	if v == nil {
		var reason string
		if v, reason = d.lookup(probe, ref); reason != "" {
			return nil
		}
	}
	o, _ := d.object(v, "branch")
	return o
}

// agree reports whether each branch has the property as text and, if it lists its values, lists
// those of the mapping.
func (d *document) agree(list []any, property string, values [][]any) bool {
	for i, e := range list {
		o, reason := d.object(e, "branch")
		if reason != "" {
			return false
		}
		prop := d.property(o, property)
		if prop == nil {
			return false
		}
		if t := prop.get("type"); t != nil && t != any("string") {
			return false
		}
		if v := prop.get("const"); v != nil && (len(values[i]) != 1 || v != values[i][0]) {
			return false
		}
		if enum, ok := prop.get("enum").([]any); ok {
			for _, v := range values[i] {
				if !slices.Contains(enum, v) {
					return false
				}
			}
		}
	}
	return true
}
