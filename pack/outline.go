package pack

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

// Outline returns a manifest without the members that only calls and descriptions need: both schemas, examples,
// annotations, the source's metadata, and the binding, but for that of an MCP tool, which names its server.
func Outline(m *toolkeep.Manifest) *toolkeep.Manifest {
	o := *m
	o.ParametersSchema, o.ResultSchema, o.Examples, o.Annotations = nil, nil, nil, nil
	if o.Execution.Kind != "mcp" {
		o.Execution.Binding = nil
	}
	if o.Source != nil {
		source := *o.Source
		source.Metadata = nil
		o.Source = &source
	}
	return &o
}

// Words are what a manifest's parameters and examples say, for search and contexts.
type Words struct {
	Required   []string `json:"required,omitempty"`   // parameters, in the schema's order, each once
	Optional   []string `json:"optional,omitempty"`   // parameters by name
	Parameters string   `json:"parameters,omitempty"` // names and descriptions, also of nested ones, by lines
	Examples   []Spoken `json:"examples,omitempty"`
}

// Spoken is what an example says.
type Spoken struct {
	Scenario    string `json:"scenario,omitempty"`
	Explanation string `json:"explanation,omitempty"`
}

// WordsOf returns the words of a tool, an outline or whole. What cannot be read has none: it was checked when it was
// published.
func WordsOf(t *toolkeep.Tool) (w Words) {
	if p, ok := t.Packed.(interface{ Packed() *Manifest }); ok {
		if text, err := decompress(p.Packed().words); err == nil {
			_ = json.Unmarshal(text, &w)
		}
		return w
	}
	if t.Manifest == nil {
		return w
	}
	return words(t.Manifest.ParametersSchema, t.Manifest.Examples)
}

// wordsOf returns the Words of a manifest in JSON.
func wordsOf(raw []byte) ([]byte, error) {
	var m struct {
		Parameters jsontext.Value     `json:"parameters_schema"`
		Examples   []toolkeep.Example `json:"examples"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("read a manifest's words: %w", err)
	}
	return json.Marshal(words(m.Parameters, m.Examples))
}

func words(parameters []byte, examples []toolkeep.Example) (w Words) {
	for _, e := range examples {
		w.Examples = append(w.Examples, Spoken{e.Scenario, e.Explanation})
	}
	if len(parameters) == 0 {
		return w
	}
	tree, err := canon.Parse(parameters, canon.Limits{Depth: 200, Properties: 50_000, Elements: 200_000})
	root, ok := tree.(map[string]any)
	if err != nil || !ok {
		return w
	}
	list, _ := root["required"].([]any)
	for _, v := range list {
		if s, ok := v.(string); ok && !slices.Contains(w.Required, s) {
			w.Required = append(w.Required, s)
		}
	}
	properties, _ := root["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !slices.Contains(w.Required, name) {
			w.Optional = append(w.Optional, name)
		}
	}
	var lines []string
	describe(root, 0, &lines)
	w.Parameters = strings.Join(lines, "\n")
	return w
}

// describe appends the names and descriptions of all parameters, a few levels deep.
func describe(node any, depth int, lines *[]string) {
	m, ok := node.(map[string]any)
	if !ok || depth > 4 {
		return
	}
	if s, ok := m["description"].(string); ok && depth > 0 {
		*lines = append(*lines, s)
	}
	for p, below := range schema.Below(m) {
		switch p.Keyword.Name {
		case "properties":
			*lines = append(*lines, p.Name)
		case "items", "allOf", "anyOf", "oneOf":
		default:
			continue
		}
		describe(below, depth+1, lines)
	}
}
