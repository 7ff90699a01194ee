// Package yaml contains the system's only reader of YAML, and writes the trees of package canon as YAML.
//
// A number is a json.Number with the exact value, also beyond 64 bits. Quoted text is always text, and dates are text.
// Errors name a line and never quote a value, which can be secret.
package yaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/toolkeep/toolkeep"
)

// maxMerged bounds the keys that the merge keys of one document copy.
const maxMerged = 1 << 20

// Options says how a stream is read. All limits are required.
type Options struct {
	Bytes  int // of the stream, and of the texts of one document with its aliases written out
	Values int // of one document with its aliases written out
	Depth  int // levels of mappings and lists
	// Aliases reads aliases and merge keys; without it they are refused.
	Aliases bool
	// Lenient is for documents written for other programs: keys and tags of any kind are read, and a number that
	// needs a later or an earlier YAML than 1.2 (0123, 1_000, .inf) is text. Otherwise numbers with leading zeros,
	// infinities, NaN, NUL characters and tags other than YAML's own are refused.
	Lenient bool
}

// Node is a value with its place. Aliases share the node of their anchor.
type Node struct {
	Line, Column int
	Value        any // nil, bool, string, json.Number, []*Node or Mapping
}

// Mapping has its members in the order of the document; those of merge keys come last.
type Mapping []Member

// Member is a key with its place, and its value.
type Member struct {
	Key          string
	Line, Column int
	Value        *Node
	Repeated     bool // an earlier member has the same key
}

// Error is a fault of a document. Line and Column are 0 where unknown.
type Error struct {
	Line, Column int
	Message      string
}

// Error returns the message with its place.
func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.Message
	case e.Column == 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Documents reads the documents of a stream and ends after the first error, which is an *Error. The value of an empty
// document is nil.
func Documents(data []byte, o Options) iter.Seq2[*Node, error] {
	return func(yield func(*Node, error) bool) {
		if len(data) > o.Bytes {
			yield(nil, &Error{Message: fmt.Sprintf("the YAML has %d bytes; at most %d are read", len(data), o.Bytes)})
			return
		}
		dec := yaml.NewDecoder(bytes.NewReader(withoutVersion(data)))
		for {
			n, err := next(dec, o)
			if err == io.EOF || !yield(n, err) || err != nil {
				return
			}
		}
	}
}

// One reads a stream of one document. A stream without a document is nil.
func One(data []byte, o Options) (*Node, error) {
	var first *Node
	for n, err := range Documents(data, o) {
		switch {
		case err != nil:
			return nil, err
		case first == nil:
			first = n
		case n.Value != nil:
			return nil, &Error{Line: n.Line, Column: n.Column, Message: "there is more than one document; only one is read"}
		}
	}
	return first, nil
}

// next reads one document. The scanner is third-party code on untrusted bytes: a panic means an unreadable document.
func next(dec *yaml.Decoder, o Options) (n *Node, err error) {
	defer func() {
		if recover() != nil {
			n, err = nil, &Error{Message: "the document cannot be read"}
		}
	}()
	var doc yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		return nil, err
	} else if err != nil {
		return nil, syntax(err)
	}
	if len(doc.Content) == 0 {
		return &Node{Line: 1, Column: 1}, nil
	}
	p := parser{Options: o, anchors: make(map[*yaml.Node]anchor)}
	return p.value(doc.Content[0], 0)
}

// syntax converts an error of the scanner. Its only messages with a text of the document are those about anchors.
func syntax(err error) *Error {
	line, text := 0, strings.TrimPrefix(err.Error(), "yaml: ")
	if place, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(place, "line ") {
		if n, err := strconv.Atoi(place[len("line "):]); err == nil {
			line, text = n, rest
		}
	}
	if strings.Contains(text, "anchor '") {
		text = "an alias has no anchor, or stands inside of its own anchor; put a text that begins with * in quotes"
	}
	return &Error{Line: line, Message: text}
}

// withoutVersion turns a %YAML directive before the document into a comment: the scanner refuses every version
// except 1.1, although it reads 1.2.
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

// parser reads one document. An alias counts as much as its anchor: a few lines of aliases to aliases can stand for
// billions of values.
type parser struct {
	Options
	anchors               map[*yaml.Node]anchor
	values, bytes, merged int
	deepest               int // the deepest level of the value being read
}

// anchor is a list or mapping that has been read, and what an alias to it counts.
type anchor struct {
	node                  *Node
	values, bytes, levels int
}

func fail(n *yaml.Node, format string, args ...any) error {
	return &Error{Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...)}
}

// count adds values and bytes at a depth, and checks them against the limits.
func (p *parser) count(n *yaml.Node, values, bytes, depth int) error {
	p.values += values
	p.bytes += bytes
	p.deepest = max(p.deepest, depth)
	switch {
	case p.values > p.Values:
		return fail(n, "the document has more than %d values with its aliases written out", p.Values)
	case p.bytes > p.Bytes:
		return fail(n, "the document has more than %d bytes with its aliases written out", p.Bytes)
	case depth > p.Depth:
		return fail(n, "the document nests deeper than %d levels", p.Depth)
	}
	return nil
}

func (p *parser) value(n *yaml.Node, depth int) (*Node, error) {
	if n.Kind == yaml.AliasNode {
		if !p.Aliases {
			return nil, fail(n, "aliases are not read here; write the value again, or put a text that begins with * in quotes")
		}
		if n.Alias.Kind != yaml.ScalarNode {
			a, ok := p.anchors[n.Alias]
			if !ok {
				return nil, fail(n, "an alias stands inside of its own anchor")
			}
			return a.node, p.count(n, a.values, a.bytes, depth+a.levels)
		}
		n = n.Alias
	}
	values, bytes, outer := p.values, p.bytes, p.deepest
	p.deepest = depth
	if err := p.count(n, 1, len(n.Value), depth); err != nil {
		return nil, err
	}
	node := &Node{Line: n.Line, Column: n.Column}
	var err error
	switch n.Kind {
	case yaml.ScalarNode:
		node.Value, err = p.scalar(n)
	case yaml.SequenceNode:
		node.Value, err = p.list(n, depth)
	case yaml.MappingNode:
		node.Value, err = p.mapping(n, depth)
	}
	if err != nil {
		return nil, err
	}
	if n.Anchor != "" {
		p.anchors[n] = anchor{node, p.values - values, p.bytes - bytes, p.deepest - depth}
	}
	p.deepest = max(p.deepest, outer)
	return node, nil
}

// tag refuses every tag but the one that a list or mapping has without one.
func (p *parser) tag(n *yaml.Node, want string) error {
	if !p.Lenient && n.ShortTag() != want {
		return fail(n, "the tag of this value is not supported")
	}
	return nil
}

func (p *parser) list(n *yaml.Node, depth int) (any, error) {
	list := make([]*Node, 0, len(n.Content))
	for _, c := range n.Content {
		v, err := p.value(c, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, p.tag(n, "!!seq")
}

func (p *parser) mapping(n *yaml.Node, depth int) (any, error) {
	m := make(Mapping, 0, len(n.Content)/2)
	seen := make(map[string]bool, len(n.Content)/2)
	var merges []*yaml.Node
	var from []*Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind == yaml.AliasNode && p.Aliases {
			k = k.Alias
		}
		merge := k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge"
		if merge && !p.Aliases {
			return nil, fail(k, "merge keys are not read here; write the keys again")
		}
		if !merge {
			if err := p.key(k); err != nil {
				return nil, err
			}
		}
		v, err := p.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if merge {
			merges, from = append(merges, n.Content[i+1]), append(from, v)
			continue
		}
		m = append(m, Member{k.Value, k.Line, k.Column, v, seen[k.Value]})
		seen[k.Value] = true
	}
	for i, f := range from {
		if err := p.merge(&m, seen, f, merges[i]); err != nil {
			return nil, err
		}
	}
	return m, p.tag(n, "!!map")
}

// merge adds the members that m lacks; earlier sources win.
func (p *parser) merge(m *Mapping, seen map[string]bool, from *Node, n *yaml.Node) error {
	sources, ok := from.Value.([]*Node)
	if !ok {
		sources = []*Node{from}
	}
	for _, s := range sources {
		members, ok := s.Value.(Mapping)
		if !ok && (s.Value != nil || !p.Lenient) {
			return fail(n, "a merge key needs a mapping or a list of mappings")
		}
		if p.merged += len(members); p.merged > maxMerged {
			return fail(n, "merge keys copy more than %d keys", maxMerged)
		}
		for _, member := range members {
			if !seen[member.Key] {
				seen[member.Key] = true
				*m = append(*m, member)
			}
		}
	}
	return nil
}

func (p *parser) key(k *yaml.Node) error {
	if k.Kind != yaml.ScalarNode {
		return fail(k, "a key is not a scalar; write a text or a number")
	}
	if err := p.count(k, 0, len(k.Value), 0); err != nil || p.Lenient {
		return err
	}
	switch k.ShortTag() {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return noNUL(k)
	}
	return fail(k, "a key must be a text or a number")
}

func noNUL(n *yaml.Node) error {
	if strings.ContainsRune(n.Value, 0) {
		return fail(n, "the text holds a NUL character; leave it out")
	}
	return nil
}

func (p *parser) scalar(n *yaml.Node) (any, error) {
	tag := n.ShortTag()
	if n.Style&(yaml.TaggedStyle|yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 && tag != "!!merge" {
		tag = "" // the rules of this package decide
	}
	switch tag {
	case "!!null":
		return nil, nil
	case "", "!!int", "!!float", "!!bool":
	case "!!str", "!!timestamp", "!!merge":
		if !p.Lenient {
			return n.Value, noNUL(n)
		}
		return n.Value, nil
	default:
		if !p.Lenient {
			return nil, fail(n, "the tag of this value is not supported")
		}
		return n.Value, nil
	}
	v, err := Plain(n.Value, p.Lenient)
	if err != nil {
		return nil, fail(n, "%s", err)
	}
	if !p.Lenient {
		switch v.(type) {
		case bool:
			if tag == "!!int" || tag == "!!float" {
				return nil, fail(n, "the value is not a number")
			}
		case json.Number:
			if tag == "!!bool" {
				return nil, fail(n, "the value is not a truth value; write true or false")
			}
		default:
			if tag != "" {
				return nil, fail(n, "the value does not have the type of its tag")
			}
		}
		if err := noNUL(n); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Tree returns the value as package canon has it: map[string]any, []any, string, bool, nil and json.Number. A key that
// stands twice in one mapping is an *Error.
func (n *Node) Tree() (any, error) {
	switch v := n.Value.(type) {
	case []*Node:
		list := make([]any, len(v))
		for i, e := range v {
			var err error
			if list[i], err = e.Tree(); err != nil {
				return nil, err
			}
		}
		return list, nil
	case Mapping:
		m := make(map[string]any, len(v))
		for _, e := range v {
			if e.Repeated {
				return nil, &Error{e.Line, e.Column, fmt.Sprintf("the key %q stands twice in one mapping", toolkeep.ClipBytes(e.Key, 200))}
			}
			var err error
			if m[e.Key], err = e.Value.Tree(); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	return n.Value, nil
}

// Marshal writes a tree as a block of YAML, with the keys sorted.
func Marshal(v any) ([]byte, error) {
	n, err := encode(v)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(n)
}

// Line writes a tree on one line.
func Line(v any) (string, error) {
	n, err := encode(v)
	if err != nil {
		return "", err
	}
	flow(n)
	out, err := yaml.Marshal(n)
	return strings.TrimRight(string(out), "\n"), err
}

// flow sets lists and mappings to one-line form, and quotes text that would break a line.
func flow(n *yaml.Node) {
	switch n.Kind {
	case yaml.SequenceNode, yaml.MappingNode:
		n.Style = yaml.FlowStyle
	case yaml.ScalarNode:
		if n.Tag == "!!str" && (len(n.Value) > 60 || strings.ContainsAny(n.Value, "\n#")) {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, c := range n.Content {
		flow(c)
	}
}

func encode(v any) (*yaml.Node, error) {
	n := new(yaml.Node)
	switch v := v.(type) {
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	case string:
		err := n.Encode(v)
		if read, bad := Plain(v, false); bad != nil || read != any(v) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n, err
	case []any:
		n.Kind = yaml.SequenceNode
		for _, e := range v {
			c, err := encode(e)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
		return n, nil
	case map[string]any:
		n.Kind = yaml.MappingNode
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			name, err := encode(k)
			c, err2 := encode(v[k])
			if err := errors.Join(err, err2); err != nil {
				return nil, err
			}
			n.Content = append(n.Content, name, c)
		}
		return n, nil
	}
	return n, n.Encode(v)
}
