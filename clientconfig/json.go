package clientconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// errTop is returned for a file whose top is no object.
var errTop = errors.New("its top is not an object")

func parseJSON(text []byte) (map[string]any, error) {
	if blank(text) {
		return map[string]any{}, nil
	}
	plain, err := hujson.Standardize(bytes.Clone(text))
	if err != nil {
		return nil, notJSON(err)
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, notJSON(err)
	}
	all, ok := v.(map[string]any)
	if !ok {
		return nil, errTop
	}
	return all, nil
}

// notJSON tells where a text is not JSON. What stands there, which may be a secret, is left out.
func notJSON(err error) error {
	var line, column int
	if n, _ := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &column); n != 2 {
		return errors.New("it is not JSON")
	}
	return fmt.Errorf("it is not JSON: line %d, column %d", line, column)
}

// jsonObject is an object in a text: its braces stand at open and end.
type jsonObject struct {
	text      []byte
	members   []hujson.ObjectMember
	open, end int
	comma     bool // there is one behind the last member
}

func newJSONObject(text []byte, v *hujson.Value) (o jsonObject, err error) {
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return o, errTop
	}
	o = jsonObject{text: text, members: obj.Members, open: v.StartOffset, end: v.EndOffset - 1}
	o.comma = len(o.members) > 0 && o.members[len(o.members)-1].Value.AfterExtra != nil
	return o, nil
}

// find returns the place of a member, -1 if it is not there.
func (o *jsonObject) find(name string) (int, error) {
	at := -1
	for i, m := range o.members {
		if lit, ok := m.Name.Value.(hujson.Literal); ok && lit.String() == name {
			if at >= 0 {
				return 0, fmt.Errorf("it has %s twice", name)
			}
			at = i
		}
	}
	return at, nil
}

// commaAfter returns where the comma behind a member stands that has one.
func (o *jsonObject) commaAfter(i int) int {
	v := o.members[i].Value
	return v.EndOffset + len(v.AfterExtra)
}

// indents returns the white space before a new member and before the closing brace, and how much deeper each level
// stands; oneLine is true for an object with members and without line breaks.
func (o *jsonObject) indents(unit string) (member, closing string, oneLine bool) {
	if len(o.members) > 0 {
		if !bytes.ContainsRune(o.text[o.open:o.end], '\n') {
			return "", "", true
		}
		if own, ok := ownLine(o.text, o.members[0].Name.StartOffset); ok {
			return own, "", false
		}
	}
	start := bytes.LastIndexByte(o.text[:o.open], '\n') + 1
	line := o.text[start:o.open]
	closing = string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
	return closing + unit, closing, false
}

// ownLine returns the white space before an offset if nothing else stands before it on its line.
func ownLine(text []byte, at int) (string, bool) {
	start := bytes.LastIndexByte(text[:at], '\n') + 1
	lead := text[start:at]
	return string(lead), start > 0 && blank(lead)
}

// add returns the text with another member at the end of the object. value gets the indentation of its closing brace,
// and whether all is on one line.
//
// Where the object is empty, the layout tells unset what stood before: in {} the member is on lines of its own, in
// braces with white space between it follows the first one immediately.
func (o *jsonObject) add(nl, unit, name string, value func(indent string, oneLine bool) string) []byte {
	indent, closing, oneLine := o.indents(unit)
	member := compact(name) + ": " + value(indent, oneLine)
	between := o.text[o.open+1 : o.end]
	at := o.open + 1 + len(bytes.TrimRight(between, " \t\r\n"))
	switch {
	case len(between) == 0:
		return splice(o.text, at, at, nl+indent+member+nl+closing)
	case blank(between):
		return splice(o.text, at, at, member)
	case oneLine:
		member = " " + member
	default:
		member = nl + indent + member
	}
	if o.comma {
		member += ","
	}
	out := splice(o.text, at, at, member)
	if len(o.members) > 0 && !o.comma {
		behind := o.members[len(o.members)-1].Value.EndOffset
		out = splice(out, behind, behind, ",")
	}
	return out
}

// drop returns the text without a member, its comma and the white space before it.
func (o *jsonObject) drop(i int) []byte {
	m := o.members[i]
	from, to := m.Name.StartOffset, m.Value.EndOffset
	last := i == len(o.members)-1
	if len(o.members) == 1 && !o.comma && blank(o.text[o.open+1:from]) && blank(o.text[to:o.end]) {
		if from > o.open+1 {
			from, to = o.open+1, o.end
		}
		return splice(o.text, from, to, "")
	}
	lead := o.open + 1 + len(bytes.TrimRight(o.text[o.open+1:from], " \t\r\n"))
	switch {
	case !last || o.comma:
		comma := o.commaAfter(i)
		return splice(splice(o.text, comma, comma+1, ""), lead, to, "")
	case i > 0:
		out := splice(o.text, lead, to, "")
		comma := o.commaAfter(i - 1)
		return splice(out, comma, comma+1, "")
	}
	return splice(o.text, lead, to, "")
}

// alone reports whether the object is as setJSON makes it: with one member and no white space inside the braces.
func (o *jsonObject) alone() bool {
	return len(o.members) == 1 && o.members[0].Name.StartOffset == o.open+1 && o.members[0].Value.EndOffset == o.end
}

func setJSON(text []byte, nl, key, name string, e Entry) ([]byte, error) {
	if blank(text) {
		text = []byte("{}" + nl)
	}
	root, top, at, err := openJSON(text, key)
	if err != nil {
		return nil, err
	}
	unit := "  "
	if len(top.members) > 0 {
		if own, ok := ownLine(text, top.members[0].Name.StartOffset); ok && own != "" {
			unit = own
		}
	}
	entry := func(indent string, oneLine bool) string {
		if oneLine {
			return compact(e)
		}
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(compact(e)), indent, unit); err != nil {
			panic(fmt.Sprintf("clientconfig: an entry: %v", err)) // compact returns JSON
		}
		return strings.ReplaceAll(b.String(), "\n", nl)
	}
	if at < 0 {
		return top.add(nl, unit, key, func(indent string, oneLine bool) string {
			return "{" + compact(name) + ": " + entry(indent, oneLine) + "}"
		}), nil
	}
	table, err := newJSONObject(text, &root.Value.(*hujson.Object).Members[at].Value)
	if err != nil {
		return nil, err
	}
	return table.add(nl, unit, name, entry), nil
}

func unsetJSON(text []byte, key, name string) ([]byte, error) {
	root, top, at, err := openJSON(text, key)
	if err != nil {
		return nil, err
	}
	if at < 0 {
		return nil, errForm
	}
	table, err := newJSONObject(text, &root.Value.(*hujson.Object).Members[at].Value)
	if err != nil {
		return nil, err
	}
	i, err := table.find(name)
	switch {
	case err != nil:
		return nil, err
	case i < 0:
		return nil, errForm
	case table.alone():
		return top.drop(at), nil
	}
	return table.drop(i), nil
}

// openJSON returns the value of a text, its top, and the place of the key there, -1 if it is not there.
func openJSON(text []byte, key string) (root hujson.Value, top jsonObject, at int, err error) {
	if root, err = hujson.Parse(text); err != nil {
		return root, top, 0, notJSON(err)
	}
	if top, err = newJSONObject(text, &root); err == nil {
		at, err = top.find(key)
	}
	return root, top, at, err
}
