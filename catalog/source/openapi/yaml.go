package openapi

import (
	"errors"
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon/yaml"
)

// maxWrittenOut bounds the values of a document with its aliases expanded.
const maxWrittenOut = 5_000_000

// parseYAML reads the first document of a YAML stream. Of a repeated key the last value counts, with a warning.
func parseYAML(data []byte, f *file) (any, error) {
	c := yamlConverter{f: f, done: make(map[*yaml.Node]any)}
	var v any
	n := 0
	for doc, err := range yaml.Documents(data, yaml.Options{Bytes: max(maxBytes, len(data)), Values: maxWrittenOut, Depth: maxDepth, Aliases: true, Lenient: true}) {
		if n++; n > 1 {
			if err == nil {
				f.warn(doc.Line, "the file holds several YAML documents; only the first is read")
			}
			break
		}
		if err != nil {
			return nil, unreadable(err, f)
		}
		v = c.value(doc)
	}
	if v == nil {
		return nil, fmt.Errorf("%s: the file is empty", f.name)
	}
	return v, nil
}

func unreadable(err error, f *file) error {
	var e *yaml.Error
	if errors.As(err, &e) && e.Line > 0 {
		return fmt.Errorf("%s:%d: not YAML that can be read: %s", f.name, e.Line, e.Message)
	}
	return fmt.Errorf("%s: not YAML that can be read: %w", f.name, err)
}

// yamlConverter converts nodes to a tree. Aliases share an object or a list.
type yamlConverter struct {
	f    *file
	done map[*yaml.Node]any
}

func (c *yamlConverter) value(n *yaml.Node) any {
	if v, ok := c.done[n]; ok {
		return v
	}
	var out any
	switch v := n.Value.(type) {
	case []*yaml.Node:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = c.value(e)
		}
		out = list
	case yaml.Mapping:
		o := newObject(c.f, n.Line)
		for _, m := range v {
			if o.set(m.Key, c.value(m.Value)) {
				c.f.warn(m.Line, "the key %q comes twice; the last one counts", toolkeep.Clip(m.Key, 80))
			}
		}
		out = o
	default:
		return v
	}
	c.done[n] = out
	return out
}
