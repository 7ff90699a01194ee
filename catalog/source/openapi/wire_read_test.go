package openapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// raw is a document as its files say it, read without any code of the product.
type raw struct {
	files   map[string]any // by path
	root    node
	version string // 2.0, 3.0, 3.1 or 3.2
}

// node is a value of a document and the file that it stands in.
type node struct {
	v    any
	file string
	doc  *raw
}

func readRaw(path string) (*raw, error) {
	d := &raw{files: map[string]any{}}
	v, err := d.file(path)
	if err != nil {
		return nil, err
	}
	d.root = node{v, path, d}
	version := d.root.text("swagger") + d.root.text("openapi")
	d.version = version[:min(len(version), 3)]
	if d.version == "3" {
		d.version = "3.0"
	}
	return d, nil
}

func (d *raw) file(path string) (any, error) {
	if v, ok := d.files[path]; ok {
		return v, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if !strings.HasSuffix(path, ".json") || dec.Decode(&v) != nil {
		var n yaml.Node
		if err := yaml.Unmarshal(data, &n); err != nil {
			return nil, err
		}
		v = fromYAML(&n)
	}
	d.files[path] = v
	return v, nil
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// fromYAML converts by the core schema of YAML 1.2: what is no plain number, boolean or null is a text.
func fromYAML(n *yaml.Node) any {
	switch n.Kind {
	case yaml.DocumentNode:
		return fromYAML(n.Content[0])
	case yaml.AliasNode:
		return fromYAML(n.Alias)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			list[i] = fromYAML(e)
		}
		return list
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "<<" && n.Content[i].Style == 0 {
				if from, ok := fromYAML(n.Content[i+1]).(map[string]any); ok {
					for k, v := range from {
						if _, has := m[k]; !has {
							m[k] = v
						}
					}
				}
				continue
			}
			m[n.Content[i].Value] = fromYAML(n.Content[i+1])
		}
		return m
	}
	if n.Style != 0 && n.Style != yaml.TaggedStyle {
		return n.Value
	}
	switch n.Value {
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	case "null", "Null", "NULL", "~", "":
		return nil
	}
	if decimal.MatchString(n.Value) {
		return json.Number(n.Value)
	}
	return n.Value
}

// get returns a member as it stands there.
func (n node) get(key string) node {
	m, _ := n.v.(map[string]any)
	n.v = m[key]
	return n
}

// in returns a member with its references followed.
func (n node) in(key string) node { return n.get(key).follow() }

func (n node) text(key string) string {
	switch v := n.get(key).v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

func (n node) flag(key string) bool { b, _ := n.get(key).v.(bool); return b }

func (n node) has(key string) bool {
	m, _ := n.v.(map[string]any)
	_, ok := m[key]
	return ok
}

func (n node) keys() []string {
	m, _ := n.v.(map[string]any)
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (n node) list(key string) []node {
	list, _ := n.in(key).v.([]any)
	out := make([]node, len(list))
	for i, v := range list {
		out[i] = node{v, n.in(key).file, n.doc}
	}
	return out
}

// unread ends the reading of one operation.
type unread string

// follow leads to what a Reference Object names (3.1 §4.8.23; Swagger 2.0 §Reference Object). Beside
// a reference of a Path Item the members stand over those that it leads to (3.1 §4.8.9).
func (n node) follow() node {
	over := map[string]any{}
	for range 64 {
		m, _ := n.v.(map[string]any)
		ref, ok := m["$ref"].(string)
		if !ok {
			if len(over) == 0 || m == nil {
				return n
			}
			both := map[string]any{}
			for k, v := range m {
				both[k] = v
			}
			for k, v := range over {
				both[k] = v
			}
			n.v = both
			return n
		}
		for k, v := range m {
			if _, has := over[k]; !has && isMethod(k) {
				over[k] = v
			}
		}
		n = n.lead(ref)
	}
	panic(unread("references lead in a circle"))
}

func isMethod(key string) bool {
	return slices.Contains([]string{"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"}, key)
}

func (n node) lead(ref string) node {
	file, pointer, _ := strings.Cut(ref, "#")
	to := n.file
	if file != "" {
		to = filepath.Join(filepath.Dir(n.file), filepath.FromSlash(file))
		if _, err := os.Stat(to); err != nil {
			if plain, err := url.PathUnescape(file); err == nil {
				to = filepath.Join(filepath.Dir(n.file), filepath.FromSlash(plain))
			}
		}
	}
	v, err := n.doc.file(to)
	if err != nil {
		panic(unread(fmt.Sprintf("%s: %v", ref, err)))
	}
	at := node{v, to, n.doc}
	if pointer == "" {
		return at
	}
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if plain, err := url.PathUnescape(step); err == nil {
			step = plain
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		at = at.follow()
		if list, ok := at.v.([]any); ok {
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(list) {
				panic(unread(ref + " leads nowhere"))
			}
			at.v = list[i]
		} else if !at.has(step) {
			panic(unread(ref + " leads nowhere"))
		} else {
			at = at.get(step)
		}
	}
	return at
}
