package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/toolkeep/toolkeep"
)

// yamlParser converts YAML nodes to a tree by the YAML 1.2 core schema: `no`, `on`, `10:30` and
// dates are strings, and so are numbers with leading zeros, which JSON does not allow.
type yamlParser struct {
	f      *file
	done   map[*yaml.Node]any
	open   map[*yaml.Node]bool // anchors being read, to detect aliases inside themselves
	merged int
	// values counts the tree with all aliases expanded, sizes is each anchor's share: a few lines
	// of aliases to aliases can stand for billions of values.
	values int
	sizes  map[*yaml.Node]int
}

// maxWrittenOut bounds the values of a document with its aliases expanded.
const maxWrittenOut = 5_000_000

// parseYAML reads the first document of a YAML stream.
func parseYAML(data []byte, f *file) (v any, err error) {
	// The parser is third-party code on untrusted bytes: a panic means an unreadable document.
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("%s: the YAML reader gave up on it: %v", f.name, p)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(withoutVersion(data)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: the file is empty", f.name)
		}
		return nil, fmt.Errorf("%s: not YAML: %s", f.name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	p := &yamlParser{f: f, done: map[*yaml.Node]any{}, open: map[*yaml.Node]bool{}, sizes: map[*yaml.Node]int{}}
	v, err = p.value(&doc, 0)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, fmt.Errorf("%s: the file is empty", f.name)
	}
	var next yaml.Node
	if dec.Decode(&next) == nil {
		f.warn(next.Line, "the file holds several YAML documents; only the first is read")
	}
	return v, nil
}

// withoutVersion turns a %YAML directive before the document into a comment: the parser refuses
// every version except 1.1, although it reads 1.2.
func withoutVersion(data []byte) []byte {
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		line := data[at : at+end]
		switch {
		case bytes.HasPrefix(line, []byte("%YAML")):
			out := bytes.Clone(data)
			out[at] = '#'
			return out
		case len(bytes.TrimSpace(line)) > 0 && line[0] != '#' && line[0] != '%':
			return data
		}
		at += end + 1
	}
	return data
}

func (p *yamlParser) fail(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.f.name, n.Line, fmt.Sprintf(format, args...))
}

func (p *yamlParser) value(n *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s:%d: %w", p.f.name, n.Line, errTooDeep)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil, nil
		}
		return p.value(n.Content[0], depth)
	case yaml.AliasNode:
		return p.alias(n)
	case yaml.ScalarNode:
		p.values++
		return scalar(n), nil
	}
	before := p.values
	p.values++
	if n.Anchor != "" {
		p.open[n] = true
		defer delete(p.open, n)
	}
	var v any
	var err error
	if n.Kind == yaml.SequenceNode {
		v, err = p.sequence(n, depth)
	} else {
		v, err = p.mapping(n, depth)
	}
	if n.Anchor != "" && err == nil {
		p.done[n] = v
		p.sizes[n] = p.values - before
	}
	return v, err
}

func (p *yamlParser) alias(n *yaml.Node) (any, error) {
	if n.Alias == nil {
		return nil, p.fail(n, "the alias *%s has no anchor", toolkeep.Clip(n.Value, 80))
	}
	if n.Alias.Kind == yaml.ScalarNode {
		return scalar(n.Alias), nil
	}
	if v, ok := p.done[n.Alias]; ok {
		if p.values += p.sizes[n.Alias]; p.values > maxWrittenOut {
			return nil, p.fail(n, "with its aliases written out the document has more than %d values", maxWrittenOut)
		}
		return v, nil
	}
	return nil, p.fail(n, "the alias *%s stands inside of its own anchor", toolkeep.Clip(n.Value, 80))
}

func (p *yamlParser) sequence(n *yaml.Node, depth int) (any, error) {
	list := make([]any, 0, len(n.Content))
	for _, c := range n.Content {
		v, err := p.value(c, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (p *yamlParser) mapping(n *yaml.Node, depth int) (any, error) {
	o := newObject(p.f, n.Line)
	var merges []any
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind == yaml.AliasNode && k.Alias != nil {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			return nil, p.fail(n.Content[i], "a key of a mapping is not a scalar")
		}
		v, err := p.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if k.Value == "<<" && plain(k) {
			merges = append(merges, v)
			continue
		}
		if o.set(k.Value, v) {
			p.f.warn(k.Line, "the key %q comes twice; the last one counts", toolkeep.Clip(k.Value, 80))
		}
	}
	for _, m := range merges {
		if err := p.merge(o, m, n); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// merge copies the keys of a merged mapping that do not exist yet.
func (p *yamlParser) merge(o *object, from any, n *yaml.Node) error {
	switch from := from.(type) {
	case *object:
		if p.merged += len(from.keys); p.merged > maxMerged {
			return p.fail(n, "merge keys copy more than %d keys", maxMerged)
		}
		for _, k := range from.keys {
			if !o.has(k) {
				o.set(k, from.vals[k])
			}
		}
	case []any:
		for _, f := range from {
			if _, ok := f.(*object); !ok {
				return p.fail(n, "a merge key lists something that is not a mapping")
			}
			if err := p.merge(o, f, n); err != nil {
				return err
			}
		}
	case nil:
	default:
		return p.fail(n, "a merge key leads to something that is not a mapping")
	}
	return nil
}

func plain(n *yaml.Node) bool {
	return n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
}

func scalar(n *yaml.Node) any {
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.ShortTag() {
		case "!!null":
			return nil
		case "!!int", "!!float", "!!bool":
			return coreScalar(n.Value)
		}
		return n.Value
	}
	if !plain(n) {
		return n.Value
	}
	return coreScalar(n.Value)
}

// coreScalar reads a plain scalar by the core schema of YAML 1.2.
func coreScalar(s string) any {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	if num, ok := coreNumber(s); ok {
		return json.Number(num)
	}
	return s
}

// coreNumber returns the JSON text of a number of the core schema.
func coreNumber(s string) (string, bool) {
	if s == "" || len(s) > 64 {
		return "", false
	}
	if base, digits := radix(s); base != 0 {
		if i, ok := new(big.Int).SetString(digits, base); ok && digits[0] != '-' && digits[0] != '+' {
			return i.String(), true
		}
		return "", false
	}
	sign, rest := "", s
	if rest[0] == '-' || rest[0] == '+' {
		if rest[0] == '-' {
			sign = "-"
		}
		rest = rest[1:]
	}
	whole, rest := leadingDigits(rest)
	fraction, dot := "", false
	if strings.HasPrefix(rest, ".") {
		dot = true
		fraction, rest = leadingDigits(rest[1:])
	}
	if whole == "" && fraction == "" {
		return "", false
	}
	exponent := ""
	if rest != "" {
		if rest[0] != 'e' && rest[0] != 'E' {
			return "", false
		}
		e := strings.TrimPrefix(rest[1:], "+")
		digits, tail := leadingDigits(strings.TrimPrefix(e, "-"))
		if digits == "" || tail != "" || strings.HasPrefix(rest[1:], "+-") {
			return "", false
		}
		exponent = "e" + e
	}
	if len(whole) > 1 && whole[0] == '0' {
		return "", false
	}
	if whole == "" {
		whole = "0"
	}
	if dot && fraction == "" {
		fraction = "0"
	}
	if dot {
		fraction = "." + fraction
	}
	return sign + whole + fraction + exponent, true
}

func radix(s string) (int, string) {
	switch {
	case len(s) < 3:
	case strings.HasPrefix(s, "0x"):
		return 16, s[2:]
	case strings.HasPrefix(s, "0o"):
		return 8, s[2:]
	}
	return 0, ""
}

func leadingDigits(s string) (string, string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}
