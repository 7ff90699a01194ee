package clientconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Limits of a file.
const (
	maxFile  = 64 << 20 // bytes
	maxDepth = 10_000   // open brackets
)

// syntax changes files of one format. The functions get text without a byte order mark, and nl is its end of line.
type syntax struct {
	parse func(text []byte) (map[string]any, error)
	// set adds an entry that is not there.
	set func(text []byte, nl, key, name string, e Entry) ([]byte, error)
	// unset removes an entry that is there.
	unset func(text []byte, key, name string) ([]byte, error)
}

var syntaxes = map[Format]syntax{
	JSON: {parseJSON, setJSON, unsetJSON},
	TOML: {parseTOML, setTOML, unsetTOML},
	YAML: {parseYAML, setYAML, unsetYAML},
}

// errForm is returned where an entry stands in a form that this package does not write.
var errForm = errors.New("it is written in a form that cannot be changed safely; change it by hand")

// Find returns the entry of a name in the client's table of servers, in the types of encoding/json. It fails if the
// file, or the table in it, cannot be read. An empty file, or nil, has no entry.
func (c Client) Find(file []byte, name string) (entry any, ok bool, err error) {
	text, _, err := c.open(file)
	if err != nil {
		return nil, false, err
	}
	all, table, err := c.parse(text)
	if err != nil || all == nil {
		return nil, false, err
	}
	entry, ok = table[name]
	return entry, ok, nil
}

// Set returns the file with the entry of the name, in place of one that is there. Everything else keeps its bytes, and
// Unset takes away what was added; where that cannot be, Set fails.
func (c Client) Set(file []byte, name string, e Entry) ([]byte, error) {
	file, _, err := c.Unset(file, name)
	if err != nil {
		return nil, err
	}
	text, bom, err := c.open(file)
	if err != nil {
		return nil, err
	}
	nl := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		nl = "\r\n"
	}
	out, err := syntaxes[c.Format].set(text, nl, c.Key, name, e)
	if err != nil {
		return nil, err
	}
	if got, ok, err := c.Find(out, name); err != nil || !ok || !Equal(got, e) {
		return nil, errForm
	}
	if back, _, err := c.Unset(out, name); err != nil || !bytes.Equal(back, text) && !blank(text) {
		return nil, errForm
	}
	return append(bom, out...), nil
}

// Unset returns the file without the entry of the name, and whether it was there. What Set added to a file goes as a
// whole: the file is then as it was before, except one that was empty, where an empty object is left.
func (c Client) Unset(file []byte, name string) ([]byte, bool, error) {
	text, bom, err := c.open(file)
	if err != nil {
		return nil, false, err
	}
	if _, ok, err := c.Find(file, name); err != nil || !ok {
		return file, false, err
	}
	out, err := syntaxes[c.Format].unset(text, c.Key, name)
	if err != nil {
		return nil, false, err
	}
	if err := c.same(text, out, name); err != nil {
		return nil, false, err
	}
	if _, ok, err := c.Find(out, name); err != nil || ok {
		return nil, false, errForm
	}
	return append(bom, out...), true, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// open checks the limits of a file, and cuts the byte order mark off.
func (c Client) open(file []byte) (text, bom []byte, err error) {
	if len(file) > maxFile {
		return nil, nil, fmt.Errorf("it is over %d MiB", maxFile>>20)
	}
	depth := 0
	for i := 0; i < len(file); i++ {
		switch b := file[i]; {
		case c.Format == JSON && (b == '"' || b == '/'):
			i = passJSON(file, i)
		case b == '{' || b == '[':
			if depth++; depth > maxDepth {
				return nil, nil, fmt.Errorf("it has more than %d open brackets", maxDepth)
			}
		case b == '}' || b == ']':
			depth = max(depth-1, 0)
		}
	}
	if rest, ok := bytes.CutPrefix(file, byteOrderMark); ok {
		return rest, bytes.Clone(byteOrderMark), nil
	}
	return file, nil, nil
}

// passJSON returns where the string or comment that begins at i ends.
func passJSON(file []byte, i int) int {
	rest, end := file[i:], -1
	switch {
	case rest[0] == '"':
		for i++; i < len(file) && file[i] != '"'; i++ {
			if file[i] == '\\' {
				i++
			}
		}
		return i
	case bytes.HasPrefix(rest, []byte("//")):
		end = bytes.IndexByte(rest, '\n')
	case bytes.HasPrefix(rest, []byte("/*")):
		if end = bytes.Index(rest[2:], []byte("*/")); end >= 0 {
			end += len("/*") + 1
		}
	default:
		return i
	}
	if end < 0 {
		return len(file)
	}
	return i + end
}

// parse returns the content of a text and its table of servers, nil where it has none.
func (c Client) parse(text []byte) (all, table map[string]any, err error) {
	if all, err = syntaxes[c.Format].parse(text); err != nil {
		return nil, nil, err
	}
	v, ok := all[c.Key]
	if !ok {
		return all, nil, nil
	}
	if table, ok = v.(map[string]any); !ok {
		return nil, nil, fmt.Errorf("%s in it is not a table of servers", c.Key)
	}
	return all, table, nil
}

// same fails if two texts differ in more than the entry of the name and an empty table of servers.
func (c Client) same(before, after []byte, name string) error {
	var rest [2]map[string]any
	for i, text := range [][]byte{before, after} {
		all, table, err := c.parse(text)
		if err != nil {
			return errForm
		}
		delete(table, name)
		if len(table) == 0 {
			delete(all, c.Key)
		}
		rest[i] = all
	}
	if !reflect.DeepEqual(rest[0], rest[1]) {
		return errForm
	}
	return nil
}

// Equal reports whether an entry that Find returned says the same as e.
func Equal(found any, e Entry) bool {
	var trees [2]any
	for i, v := range []any{found, e} {
		raw, err := json.Marshal(v)
		if err != nil || json.Unmarshal(raw, &trees[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(trees[0], trees[1])
}

// splice replaces text[from:to] of a text.
func splice(text []byte, from, to int, with string) []byte {
	out := make([]byte, 0, len(text)+len(with))
	out = append(out, text[:from]...)
	out = append(out, with...)
	return append(out, text[to:]...)
}

// blank reports whether a text is white space only.
func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }
