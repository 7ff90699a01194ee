package source

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

// Limits of a schema that a reader makes, in bytes of JSON. What an upstream wrote itself, as MCP
// servers do, stays as it is.
const (
	MaxParameters = 32 << 10 // a model reads them all, at about 4 bytes a token
	MaxResult     = 64 << 10
)

const shortText = 300 // bytes of a description that is cut

// Shrink returns a schema made of $defs and references to them within limit bytes of JSON, and the end
// of a sentence ("is larger than …") about what it lost, "" if it fits. It cuts descriptions, then
// leaves them out, then the deepest parts become {}, so that every value that was valid stays valid.
func Shrink(s map[string]any, limit int) (smaller map[string]any, lost string) {
	size := len(canon.Append(nil, s))
	if size <= limit {
		return s, ""
	}
	told := func(left string, by map[string]any) (map[string]any, string) {
		return by, fmt.Sprintf("is larger than %d KiB; %s: %d KiB became %d KiB", limit>>10, left, kib(size), kib(len(canon.Append(nil, by))))
	}
	c := &cutter{schema: s}
	deepest := c.levels()
	for _, step := range []struct {
		text int
		lost string
	}{{shortText, "long descriptions are cut"}, {0, "descriptions are left out"}} {
		c.text = step.text
		if by := c.cut(deepest); len(canon.Append(nil, by)) <= limit {
			return told(step.lost, by)
		}
	}
	smaller = map[string]any{"type": "object"}
	for level := range deepest {
		by := c.cut(level)
		if len(canon.Append(nil, by)) > limit {
			break
		}
		smaller = by
	}
	return told("descriptions and the inner parts are left out", smaller)
}

func kib(bytes int) int { return (bytes + 1023) >> 10 }

// cutter copies a schema without what is too deep. A level is a step to a part of the value; a
// definition is on the lowest level of its references.
type cutter struct {
	schema map[string]any
	level  map[string]int // of each definition that is reached
	text   int            // longest description in bytes
}

const definitions = "#/$defs/"

// levels finds the levels of the definitions, and returns the deepest of all.
func (c *cutter) levels() (deepest int) {
	defs, _ := c.schema["$defs"].(map[string]any)
	c.level = map[string]int{}
	type at struct {
		v     any
		level int
	}
	// Breadth first, so that a definition is met on its lowest level first.
	for queue := []at{{c.schema, 0}}; len(queue) > 0; queue = queue[1:] {
		m, ok := queue[0].v.(map[string]any)
		if !ok {
			continue
		}
		level := queue[0].level
		deepest = max(deepest, level)
		if ref, ok := m["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, definitions)
			if _, met := c.level[name]; !met {
				c.level[name] = level
				queue = slices.Insert(queue, 1, at{defs[name], level})
			}
		}
		here := 1
		for p, below := range schema.Below(m) {
			switch {
			case p.Keyword.Name == "$defs":
			case p.Keyword.InPlace:
				queue = slices.Insert(queue, here, at{below, level})
				here++
			default:
				queue = append(queue, at{below, level + 1})
			}
		}
	}
	return deepest
}

// cut copies the schema down to a level.
func (c *cutter) cut(deepest int) map[string]any {
	out := c.part(c.schema, 0, deepest)
	defs, _ := c.schema["$defs"].(map[string]any)
	kept := map[string]any{}
	for name, level := range c.level {
		if level <= deepest && defs[name] != nil {
			kept[name] = c.value(defs[name], level, deepest)
		}
	}
	if len(kept) > 0 {
		out["$defs"] = kept
	}
	return out
}

func (c *cutter) value(v any, level, deepest int) any {
	m, ok := v.(map[string]any)
	switch {
	case !ok:
		return v
	case level > deepest:
		return map[string]any{}
	}
	return c.part(m, level, deepest)
}

func (c *cutter) part(m map[string]any, level, deepest int) map[string]any {
	out := maps.Clone(m)
	delete(out, "$defs")
	if text, ok := out["description"].(string); ok && len(text) > c.text {
		if out["description"] = toolkeep.ClipBytes(text, c.text); c.text == 0 {
			delete(out, "description")
		}
	}
	for k, v := range out {
		kw := schema.Find(k)
		next := level + 1
		if kw.InPlace {
			next = level
		}
		switch below := v.(type) {
		case map[string]any:
			switch {
			case k == "not" || k == "if" || kw.Form == schema.Data:
				// As it stands: cut, it would refuse more. Readers name properties alone in it.
			case kw.Form == schema.Map:
				named := make(map[string]any, len(below))
				for name, one := range below {
					named[name] = c.value(one, next, deepest)
				}
				out[k] = named
			default:
				out[k] = c.value(below, next, deepest)
			}
		case []any:
			if k == "allOf" || k == "anyOf" || k == "prefixItems" {
				list := make([]any, len(below))
				for i, one := range below {
					list[i] = c.value(one, next, deepest)
				}
				out[k] = list
			}
		}
	}
	return out
}
