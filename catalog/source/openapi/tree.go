package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
)

// object is a mapping in document order. The values of a tree are *object, []any, string, bool, nil
// and json.Number. YAML aliases share objects, so a tree is a graph without cycles, and walking it
// needs a budget. An object is immutable once its file is parsed.
type object struct {
	keys []string
	vals map[string]any
	src  *file
	// res is the object's schema resource: the nearest enclosing object with an $id, or the root of
	// the file.
	res  *object
	line int
}

func newObject(src *file, line int) *object {
	return &object{vals: make(map[string]any), src: src, line: line}
}

// arrayOf returns the schema of a list of items, made at the place of o.
func (o *object) arrayOf(item any) *object {
	list := o.empty()
	list.set("type", "array")
	list.set("items", item)
	return list
}

// empty returns an object without keys at the place of o.
func (o *object) empty() *object {
	out := newObject(o.src, o.line)
	out.res = o.res
	return out
}

func (o *object) get(key string) any {
	if o == nil {
		return nil
	}
	return o.vals[key]
}

func (o *object) has(key string) bool {
	if o == nil {
		return false
	}
	_, ok := o.vals[key]
	return ok
}

// set stores a value and reports whether the key existed.
func (o *object) set(key string, v any) bool {
	_, was := o.vals[key]
	if !was {
		o.keys = append(o.keys, key)
	}
	o.vals[key] = v
	return was
}

// text returns a scalar as text, "" for everything else.
func (o *object) text(key string) string {
	s, _ := scalarText(o.get(key))
	return s
}

func (o *object) flag(key string) bool {
	b, _ := o.get(key).(bool)
	return b
}

// ref returns the object's reference, "" if it has none.
func (o *object) ref() string {
	if o == nil {
		return ""
	}
	s, _ := o.vals["$ref"].(string)
	return s
}

// location returns the object's location for display: file:line.
func (o *object) location() string {
	if o == nil || o.src == nil {
		return "an unknown place"
	}
	return o.src.name + ":" + strconv.Itoa(o.line)
}

func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// parseTree parses one file. JSON is tried first if the text starts like it, because YAML parsers
// reject some JSON escapes.
func parseTree(data []byte, f *file) (any, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		v, err := parseJSON(data, f)
		if err == nil {
			return v, nil
		}
		if f.isJSON() || errors.Is(err, errTooDeep) {
			return nil, err
		}
		f.warnings = nil
	}
	return parseYAML(data, f)
}

var errTooDeep = fmt.Errorf("nested deeper than %d levels", maxDepth)

type jsonParser struct {
	dec  *jsontext.Decoder
	data []byte
	f    *file
	pos  int // lines were counted up to here
	line int
}

// parseJSON parses exactly one JSON value. Of a duplicate key the last value counts, with a
// warning; invalid UTF-8 becomes U+FFFD.
func parseJSON(data []byte, f *file) (any, error) {
	p := &jsonParser{data: data, f: f, line: 1, dec: jsontext.NewDecoder(bytes.NewReader(data),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	v, err := p.value(0)
	if err == nil {
		if _, err = p.dec.ReadToken(); err == io.EOF {
			return v, nil
		} else if err == nil {
			err = errors.New("text after the end of the value")
		}
	}
	if errors.Is(err, errTooDeep) {
		return nil, fmt.Errorf("%s:%d: %w", f.name, p.here(), errTooDeep)
	}
	return nil, fmt.Errorf("%s:%d: not JSON: %s", f.name, p.here(), jsonReason(err))
}

func jsonReason(err error) string {
	var se *jsontext.SyntacticError
	if errors.As(err, &se) && se.Err != nil {
		return se.Err.Error()
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "it ends too early"
	}
	return err.Error()
}

func (p *jsonParser) here() int {
	to := min(int(p.dec.InputOffset()), len(p.data))
	if to > p.pos {
		p.line += bytes.Count(p.data[p.pos:to], []byte{'\n'})
		p.pos = to
	}
	return p.line
}

func (p *jsonParser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	tok, err := p.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case '{':
		return p.object(depth)
	case '[':
		list := []any{}
		for p.dec.PeekKind() != ']' {
			v, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := p.dec.ReadToken()
		return list, err
	case '"':
		return tok.String(), nil
	case '0':
		return json.Number(tok.String()), nil
	case 't', 'f':
		return tok.Bool(), nil
	}
	return nil, nil
}

func (p *jsonParser) object(depth int) (any, error) {
	o := newObject(p.f, p.here())
	for p.dec.PeekKind() != '}' {
		key, err := p.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		name := key.String()
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if o.set(name, v) {
			p.f.warn(p.here(), "the key %q comes twice; the last one counts", toolkeep.Clip(name, 80))
		}
	}
	_, err := p.dec.ReadToken()
	return o, err
}

// clean removes characters that do not belong into text for people and models: control characters,
// direction overrides and invisible tag characters.
func clean(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20 || r >= 0x7f && r < 0xa0,
			r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069,
			r >= 0xe0000 && r <= 0xe007f:
			return -1
		}
		return r
	}, s)
}
