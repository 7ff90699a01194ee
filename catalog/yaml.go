package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Limits of YAML input.
const (
	MaxYAMLBytes     = 16 << 20 // of a whole stream
	MaxYAMLDocuments = 10_000
	maxYAMLNodes     = 200_000 // of one document, aliases expanded
	maxNumberLength  = 128
)

// ManifestsFromYAML converts each document of a YAML stream to JSON and drops empty documents. Numbers keep their
// exact value, also beyond 64 bits. Aliases and merge keys are expanded, to at most 200,000 values per document.
// Refused are duplicate keys, keys that are not scalars, tags other than YAML's own, infinities, NaN, and numbers
// with leading zeros, which YAML versions read differently. The stream has at most 16 MiB and 10,000 documents.
//
// Errors: E3008 with line and column; ParseManifest checks whether the JSON is a manifest.
func ManifestsFromYAML(data []byte) ([][]byte, error) {
	if len(data) > MaxYAMLBytes {
		return nil, badYAML(0, "size", fmt.Sprintf("the YAML has %d bytes; at most %d are read", len(data), MaxYAMLBytes))
	}
	var out [][]byte
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for n := 1; ; n++ {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, badYAML(n, "yaml", strings.TrimPrefix(toolkeep.ClipBytes(err.Error(), 200), "yaml: ")).Because(err)
		}
		if n > MaxYAMLDocuments {
			return nil, badYAML(n, "documents", fmt.Sprintf("the stream holds more than %d documents", MaxYAMLDocuments))
		}
		c := yamlConverter{left: maxYAMLNodes}
		v, err := c.value(&doc, 0)
		if err != nil {
			return nil, badYAML(n, "yaml", err.Error())
		}
		if v == nil {
			continue
		}
		out = append(out, canon.Append(nil, v))
	}
}

func badYAML(doc int, rule, message string) *toolkeep.Error {
	if doc > 1 {
		message = fmt.Sprintf("document %d: %s", doc, message)
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "the YAML cannot be read: "+message,
		[]toolkeep.Fault{{Rule: rule, Message: message}})
}

// yamlConverter converts one document. left limits the expansion of aliases; depth stops an alias that contains
// itself.
type yamlConverter struct{ left int }

func at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d, column %d: %s", n.Line, n.Column, fmt.Sprintf(format, args...))
}

func (c *yamlConverter) value(n *yaml.Node, depth int) (any, error) {
	if c.left--; c.left < 0 {
		return nil, at(n, "the document has more than %d values with its aliases written out", maxYAMLNodes)
	}
	if depth > MaxManifestDepth {
		return nil, at(n, "the document nests more than %d levels", MaxManifestDepth)
	}
	switch n.Kind {
	case 0:
		return nil, nil
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil, nil
		}
		return c.value(n.Content[0], depth)
	case yaml.AliasNode:
		return c.value(n.Alias, depth+1)
	case yaml.ScalarNode:
		return c.scalar(n)
	case yaml.SequenceNode:
		if t := n.ShortTag(); t != "!!seq" {
			return nil, at(n, "the tag %s is not supported", toolkeep.ClipBytes(t, 200))
		}
		list := make([]any, 0, len(n.Content))
		for _, e := range n.Content {
			v, err := c.value(e, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		return c.mapping(n, depth)
	}
	return nil, at(n, "this kind of YAML node is not supported")
}

func (c *yamlConverter) mapping(n *yaml.Node, depth int) (any, error) {
	if t := n.ShortTag(); t != "!!map" {
		return nil, at(n, "the tag %s is not supported", toolkeep.ClipBytes(t, 200))
	}
	m := make(map[string]any, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, e := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge" {
			merges = append(merges, e)
			continue
		}
		key, err := yamlKey(k)
		if err != nil {
			return nil, err
		}
		if _, ok := m[key]; ok {
			return nil, at(k, "the key %q stands twice in one mapping", toolkeep.ClipBytes(key, 200))
		}
		if m[key], err = c.value(e, depth+1); err != nil {
			return nil, err
		}
	}
	for _, e := range merges {
		if err := c.merge(m, e, depth); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// merge adds the members that m lacks; earlier sources win.
func (c *yamlConverter) merge(m map[string]any, e *yaml.Node, depth int) error {
	v, err := c.value(e, depth+1)
	if err != nil {
		return err
	}
	sources, ok := v.([]any)
	if !ok {
		sources = []any{v}
	}
	for _, s := range sources {
		from, ok := s.(map[string]any)
		if !ok {
			return at(e, "a merge key needs a mapping or a list of mappings")
		}
		for k, v := range from {
			if _, ok := m[k]; !ok {
				m[k] = v
			}
		}
	}
	return nil
}

func yamlKey(k *yaml.Node) (string, error) {
	if k.Kind == yaml.ScalarNode {
		switch k.ShortTag() {
		case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
			return k.Value, noNUL(k)
		}
	}
	return "", at(k, "a key must be a string or a number")
}

func noNUL(n *yaml.Node) error {
	if strings.ContainsRune(n.Value, 0) {
		return at(n, "the text holds a NUL character; leave it out")
	}
	return nil
}

func (c *yamlConverter) scalar(n *yaml.Node) (any, error) {
	switch t := n.ShortTag(); t {
	case "!!str", "!!timestamp":
		if n.Style == 0 && n.Tag == "!!str" && numberLike.MatchString(n.Value) {
			// The YAML package reads a bare number outside float64 as text.
			return yamlNumber(n.Value)
		}
		return n.Value, noNUL(n) // JSON has no dates: they stay text
	case "!!null":
		return nil, nil
	case "!!bool":
		switch n.Value {
		case "true", "True", "TRUE":
			return true, nil
		case "false", "False", "FALSE":
			return false, nil
		}
		return nil, at(n, "%q is not a truth value; write true or false", toolkeep.ClipBytes(n.Value, 200))
	case "!!int", "!!float":
		number, err := yamlNumber(n.Value)
		if err != nil {
			return nil, at(n, "%s", err)
		}
		return number, nil
	default:
		return nil, at(n, "the tag %s is not supported", toolkeep.ClipBytes(t, 200))
	}
}

var (
	numberLike    = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	jsonNumber    = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?$`)
	yamlBareFloat = regexp.MustCompile(`^(-?)([0-9]*)\.([0-9]*)([eE][+-]?[0-9]{1,4})?$`)
	leadingZero   = regexp.MustCompile(`^-?0[0-9]`)
)

// yamlNumber returns a YAML number as JSON text with the same value.
func yamlNumber(s string) (json.Number, error) {
	if len(s) > maxNumberLength {
		return "", fmt.Errorf("a number has more than %d characters", maxNumberLength)
	}
	plain := strings.ReplaceAll(strings.TrimPrefix(s, "+"), "_", "")
	if jsonNumber.MatchString(plain) {
		return json.Number(plain), nil
	}
	if leadingZero.MatchString(plain) {
		return "", fmt.Errorf("the number %s has leading zeros; put it in quotes or write 0o for octal", s)
	}
	if p := yamlBareFloat.FindStringSubmatch(plain); p != nil && p[2]+p[3] != "" {
		whole, fraction := p[2], p[3]
		if whole == "" {
			whole = "0"
		}
		if fraction == "" {
			fraction = "0"
		}
		return json.Number(p[1] + whole + "." + fraction + p[4]), nil
	}
	// 0x1F, 0o17, 0b101: base 0 reads the prefix.
	if i, ok := new(big.Int).SetString(plain, 0); ok {
		return json.Number(i.String()), nil
	}
	return "", fmt.Errorf("%s cannot be kept as a JSON number; infinities, NaN and exponents over 9999 cannot", toolkeep.ClipBytes(s, 200))
}
