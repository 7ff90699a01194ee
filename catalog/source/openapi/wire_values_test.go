package openapi_test

import (
	"encoding/json"
	"slices"
	"strings"
)

// texts exercise encoding. Those of a list or an object lose what separates its elements.
var texts = []string{
	"plain", "a b&c=d/e?f#g", "100%25 [x]@!$'()*+,;:", "Übung ✓ 漢字", "~-._", `"q" \ {x} <y> | ^`, "a.b,c d|e",
}

// values makes arguments from a document's schemas, the same ones each time.
type values struct {
	variant    int // which texts, and which branch of oneOf and anyOf
	all        bool
	n          int    // texts so far
	plainNames bool   // no space in the name of a further property
	without    string // characters that texts must not have
}

// shape is a schema with its allOf merged and one branch of its oneOf and anyOf chosen.
type shape struct {
	types         []string
	enum          []any
	props         map[string]node
	required      map[string]bool
	items, others node
	format        string
	node          node // the schema itself
}

func shapeOf(n node, variant int) *shape {
	s := &shape{props: map[string]node{}, required: map[string]bool{}}
	left := 200
	s.add(n, variant, &left)
	s.node = n.follow()
	return s
}

func (s *shape) add(n node, variant int, left *int) {
	n = n.follow()
	if *left--; *left < 0 || n.v == nil {
		return
	}
	for _, part := range n.list("allOf") {
		s.add(part, variant, left)
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		var forms []node
		for _, form := range n.list(key) {
			if form.follow().text("type") != "null" {
				forms = append(forms, form)
			}
		}
		if len(forms) > 0 {
			s.add(forms[variant%len(forms)], variant, left)
		}
	}
	switch t := n.get("type").v.(type) {
	case string:
		s.types = []string{t}
	case []any:
		s.types = nil
		for _, one := range t {
			if text, ok := one.(string); ok && text != "null" {
				s.types = append(s.types, text)
			}
		}
	}
	if list, ok := n.get("enum").v.([]any); ok {
		s.enum = list
	}
	if n.has("const") {
		s.enum = []any{n.get("const").v}
	}
	if f := n.text("format"); f != "" {
		s.format = f
	}
	props := n.in("properties")
	for _, k := range props.keys() {
		s.props[k] = props.get(k)
	}
	for _, name := range n.list("required") {
		if text, ok := name.v.(string); ok {
			s.required[text] = true
		}
	}
	if n.has("items") {
		s.items = n.get("items")
	}
	if _, ok := n.get("additionalProperties").v.(map[string]any); ok {
		s.others = n.get("additionalProperties")
	}
}

func (s *shape) kind(variant int) string {
	switch {
	case len(s.types) > 0:
		return s.types[variant%len(s.types)]
	case len(s.props) > 0 || s.others.v != nil:
		return "object"
	case s.items.v != nil:
		return "array"
	}
	return ""
}

const deepest = 5

// of makes a value. flat leaves out what the styles cannot hold: lists and objects within another.
func (g *values) of(n node, depth int, flat bool) any {
	s := shapeOf(n, g.variant)
	kind := s.kind(g.variant)
	for _, e := range s.enum {
		if _, isText := e.(string); e != nil && (isText || kind != "string") && kind != "array" && kind != "object" {
			return s.enum[(g.variant+slices.IndexFunc(s.enum, func(v any) bool { return v != nil }))%len(s.enum)]
		}
	}
	switch kind {
	case "object":
		return g.object(s, depth, flat)
	case "array":
		out := []any{}
		if depth >= deepest || flat && depth > 0 {
			return out
		}
		for range 1 + g.variant%3 {
			if v := g.of(s.items, depth+1, flat); v != nil && !(flat && nested(v)) {
				out = append(out, v)
			}
		}
		return out
	case "integer":
		return []any{json.Number("7"), json.Number("-3"), json.Number("9007199254740993")}[g.variant%3]
	case "number":
		if strings.Contains(g.without, ".") {
			return json.Number("1000")
		}
		return []any{json.Number("1.5"), json.Number("-0.25"), json.Number("1000")}[g.variant%3]
	case "boolean":
		return g.variant%2 == 0
	case "null":
		return nil
	}
	switch s.format {
	case "date":
		return "2024-02-29"
	case "date-time":
		return "2024-02-29T10:30:00+02:00"
	case "byte":
		return "aGkgdGhlcmU="
	}
	return g.text()
}

func mayBeNull(n node) bool {
	types, _ := n.get("type").v.([]any)
	return n.flag("nullable") || n.flag("x-nullable") || slices.Contains(types, any("null"))
}

func nested(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

func (g *values) text() string {
	g.n++
	text := texts[(g.n+g.variant)%len(texts)]
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(g.without, r) {
			return '_'
		}
		return r
	}, text)
}

func (g *values) object(s *shape, depth int, flat bool) any {
	out := map[string]any{}
	names := make([]string, 0, len(s.props))
	for name := range s.props {
		names = append(names, name)
	}
	slices.Sort(names)
	optional := 0
	for _, name := range names {
		p := s.props[name].follow()
		if p.flag("readOnly") || s.props[name].flag("readOnly") || depth >= deepest {
			continue
		}
		if !s.required[name] {
			if optional++; !g.all || optional > 12 {
				continue
			}
			if (optional+g.variant)%4 == 0 && mayBeNull(p) {
				out[name] = nil
				continue
			}
		}
		if v := g.of(p, depth+1, flat); !flat || v != nil && !nested(v) {
			out[name] = v
		}
	}
	if s.others.v != nil && depth < deepest {
		if v := g.of(s.others, depth+1, flat); !flat || v != nil && !nested(v) {
			name := "another name"
			if g.plainNames {
				name = "another"
			}
			out[name] = v
		}
	}
	return out
}
