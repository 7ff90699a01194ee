package clientconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

func parseYAML(text []byte) (map[string]any, error) {
	all := map[string]any{}
	root, err := openYAML(text)
	if err != nil || root == nil {
		return all, err
	}
	if err := root.Decode(&all); err != nil {
		return nil, notYAML(err)
	}
	return all, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s+)?line (\d+):`)

// notYAML tells where a text is not YAML. What stands there, which may be a secret, is left out.
func notYAML(err error) error {
	if at := yamlLine.FindStringSubmatch(err.Error()); at != nil {
		return fmt.Errorf("it is not YAML: line %s", at[1])
	}
	return errors.New("it is not YAML")
}

// openYAML returns the mapping at the top of a text, nil for one without a value.
func openYAML(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, notYAML(err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" && root.Value == "" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, errTop
	}
	return root, nil
}

// yamlFind returns name and value of a member of a mapping, nil if it is not there, and whether it is the only one.
func yamlFind(mapping *yaml.Node, name string) (key, value *yaml.Node, only bool) {
	for i := 0; mapping != nil && i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1], len(mapping.Content) == 2
		}
	}
	return nil, nil, false
}

// setYAML puts the entry before the others in the table, so that no comment comes to stand at another place. A new
// table stands at the end of the file.
func setYAML(text []byte, nl, key, name string, e Entry) ([]byte, error) {
	root, err := openYAML(text)
	if err != nil {
		return nil, err
	}
	if root != nil && (root.Style&yaml.FlowStyle != 0 || root.Column != 1) {
		return nil, errForm
	}
	at, table, _ := yamlFind(root, key)
	switch {
	case at == nil:
		block := key + ":" + nl + yamlLines(nl, "  ", Entry{{name, e}})
		if len(text) == 0 || text[len(text)-1] == '\n' {
			return append(bytes.Clone(text), block...), nil
		}
		return append(bytes.Clone(text), nl+strings.TrimSuffix(block, nl)...), nil // unset knows by it how the file ended
	case table.Kind != yaml.MappingNode:
		return nil, errForm // an alias
	case table.Style&yaml.FlowStyle != 0:
		open := offset(text, table.Line, table.Column)
		if open < 0 || text[open] != '{' {
			return nil, errForm
		}
		member := compact(name) + ": " + compact(e)
		if len(table.Content) > 0 {
			member += ", "
		}
		return splice(text, open+1, open+1, member), nil
	}
	line := offset(text, at.Line+1, 1)
	if line < 0 {
		return nil, errForm
	}
	return splice(text, line, line, yamlLines(nl, strings.Repeat(" ", table.Content[0].Column-1), Entry{{name, e}})), nil
}

// yamlLines returns the members of an entry, each object in it on lines of its own.
func yamlLines(nl, indent string, e Entry) string {
	var b strings.Builder
	for _, m := range e {
		if below, ok := m.Value.(Entry); ok && len(below) > 0 {
			b.WriteString(indent + m.Name + ":" + nl + yamlLines(nl, indent+"  ", below))
			continue
		}
		b.WriteString(indent + m.Name + ": " + compact(m.Value) + nl)
	}
	return b.String()
}

// unsetYAML removes the lines of an entry, and the table where they are all of it.
func unsetYAML(text []byte, key, name string) ([]byte, error) {
	root, err := openYAML(text)
	if err != nil {
		return nil, err
	}
	at, table, _ := yamlFind(root, key)
	own, value, only := yamlFind(table, name)
	if own == nil {
		return nil, errForm
	}
	if table.Style&yaml.FlowStyle != 0 {
		from, to := offset(text, own.Line, own.Column), offset(text, value.Line, value.Column)
		if from < 0 || to < 0 {
			return nil, errForm
		}
		dec := json.NewDecoder(bytes.NewReader(text[to:]))
		if err := dec.Decode(new(any)); err != nil {
			return nil, errForm
		}
		to += int(dec.InputOffset())
		if rest, ok := bytes.CutPrefix(text[to:], []byte(", ")); ok {
			to = len(text) - len(rest)
		}
		return splice(text, from, to, ""), nil
	}
	from, to := offset(text, own.Line, 1), offset(text, lastLine(value)+1, 1)
	if from < 0 || to < 0 {
		return nil, errForm
	}
	out := splice(text, from, to, "")
	if only {
		head, behind := offset(text, at.Line, 1), offset(text, at.Line+1, 1)
		if bytes.IndexByte(text[head:behind], '#') >= 0 { // a comment, which would go too
			return nil, errForm
		}
		out = splice(out, head, behind, "")
	}
	if to == len(text) && text[to-1] != '\n' {
		out = cutNewline(out)
	}
	return out, nil
}

// lastLine is the last line with a node of the tree.
func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// offset returns where a line and column, both from 1, stand in the text, -1 if they do not. The line behind the last
// one begins at the end. Columns hold for lines of ASCII.
func offset(text []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		i := bytes.IndexByte(text[at:], '\n')
		if i < 0 {
			if line == 2 && at < len(text) && column == 1 {
				return len(text)
			}
			return -1
		}
		at += i + 1
	}
	if at += column - 1; at > len(text) || column > 1 && at == len(text) {
		return -1
	}
	return at
}
