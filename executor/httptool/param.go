package httptool

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// unsafe refuses an argument. pointer leads to it in the call's arguments.
func unsafe(pointer, format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.UnsafeArgument, format, args...).With("pointer", pointer)
	e.NothingSent = true
	return e
}

// plain is the text of a value that is neither list nor object nor null.
func plain(v any) (string, bool) {
	switch t := v.(type) {
	case string:
		return t, true
	case json.Number:
		return string(t), true
	case bool:
		return strconv.FormatBool(t), true
	}
	return "", false
}

// pairs builds name=value pairs for a query, a form body or a cookie header.
type pairs struct {
	buf   []byte
	sep   string
	names escaping
	// taken are names that an exploded object may not bring along; keys are those
	// of credentials.
	taken map[string]bool
	keys  []header
}

// raw adds a pair whose value stays as it is.
func (w *pairs) raw(name, value string) {
	w.name(name)
	w.buf = append(w.buf, value...)
}

func (w *pairs) isTaken(name string) bool {
	return w.taken[name] || slices.ContainsFunc(w.keys, func(h header) bool { return h.name == name })
}

func (w *pairs) name(name string) {
	if len(w.buf) > 0 {
		w.buf = append(w.buf, w.sep...)
	}
	w.buf = append(w.names.append(w.buf, name), '=')
}

func (w *pairs) add(name, value string, esc escaping) {
	w.name(name)
	w.buf = esc.append(w.buf, value)
}

// parameter adds the pairs of one argument.
func (w *pairs) parameter(p *parameter, v any, esc escaping) *toolkeep.Error {
	if p.allowReserved {
		esc = escReserved
	}
	at := canon.Pointer(p.arg)
	if p.json {
		w.add(p.name, string(canon.Append(nil, v)), esc)
		return nil
	}
	switch t := v.(type) {
	case nil:
		if p.allowEmpty {
			w.name(p.name)
		}
		return nil
	case []any:
		if p.style == "deepObject" {
			return w.deep(p.name, at, v, esc, 0)
		}
		return w.list(p, at, t, esc)
	case map[string]any:
		if p.style == "deepObject" {
			return w.deep(p.name, at, v, esc, 0)
		}
		return w.object(p, at, t, esc)
	}
	s, ok := plain(v)
	if !ok {
		return unsafe(at, "the argument %s has a value that cannot be sent", p.arg)
	}
	w.add(p.name, s, esc)
	return nil
}

// delimiter stands between the elements of a list that is not exploded.
func (p *parameter) delimiter(esc escaping) string {
	switch p.style {
	case "spaceDelimited":
		if esc.plus {
			return "+"
		}
		return "%20"
	case "pipeDelimited":
		return "%7C"
	}
	return ","
}

func (w *pairs) list(p *parameter, at string, list []any, esc escaping) *toolkeep.Error {
	if len(list) == 0 {
		if p.allowEmpty {
			w.name(p.name)
		}
		return nil
	}
	delimiter := p.delimiter(esc)
	for i, el := range list {
		s, ok := plain(el)
		if !ok {
			return unsafe(at+"/"+strconv.Itoa(i), "the argument %s may only hold plain values: null, lists and objects within it cannot be sent in style %s", p.arg, p.style)
		}
		switch {
		case p.explode:
			w.add(p.name, s, esc)
			continue
		case i == 0:
			w.name(p.name)
		default:
			w.buf = append(w.buf, delimiter...)
		}
		w.buf = esc.append(w.buf, s)
	}
	return nil
}

func (w *pairs) object(p *parameter, at string, obj map[string]any, esc escaping) *toolkeep.Error {
	delimiter := p.delimiter(esc)
	first := true
	for _, key := range slices.Sorted(maps.Keys(obj)) {
		v := obj[key]
		if v == nil {
			continue
		}
		s, ok := plain(v)
		if !ok {
			return unsafe(at+canon.Pointer(key), "the argument %s may only hold plain values: lists and objects within it cannot be sent in style %s", p.arg, p.style)
		}
		if p.explode {
			if w.isTaken(key) {
				return unsafe(at+canon.Pointer(key), "the property %q of %s would be sent under the name of another parameter", key, p.arg)
			}
			w.add(key, s, esc)
			continue
		}
		if first {
			w.name(p.name)
			first = false
		} else {
			w.buf = append(w.buf, delimiter...)
		}
		w.buf = esc.append(w.buf, key)
		w.buf = append(w.buf, delimiter...)
		w.buf = esc.append(w.buf, s)
	}
	if first && !p.explode && p.allowEmpty {
		w.name(p.name)
	}
	return nil
}

// maxDeep bounds the nesting of deepObject.
const maxDeep = 16

func (w *pairs) deep(name, at string, v any, esc escaping, depth int) *toolkeep.Error {
	if depth > maxDeep {
		return unsafe(at, "the argument is nested over %d levels deep, which deepObject does not send", maxDeep)
	}
	switch t := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(t)) {
			if strings.ContainsAny(key, "[]") {
				return unsafe(at+canon.Pointer(key), "the property name %q has a bracket, which deepObject cannot send", key)
			}
			if t[key] == nil {
				continue
			}
			if err := w.deep(name+"["+key+"]", at+canon.Pointer(key), t[key], esc, depth+1); err != nil {
				return err
			}
		}
		return nil
	case []any:
		for i, el := range t {
			here := at + "/" + strconv.Itoa(i)
			if s, ok := plain(el); ok {
				w.add(name, s, esc)
				continue
			}
			if _, ok := el.(map[string]any); !ok {
				return unsafe(here, "null and lists within a list cannot be sent as deepObject")
			}
			if err := w.deep(name+"["+strconv.Itoa(i)+"]", here, el, esc, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	s, ok := plain(v)
	if !ok {
		return unsafe(at, "the value cannot be sent as deepObject")
	}
	w.add(name, s, esc)
	return nil
}

// appendPath adds a path parameter in its style.
func appendPath(dst []byte, p *parameter, v any) ([]byte, *toolkeep.Error) {
	at := canon.Pointer(p.arg)
	if v == nil {
		e := toolkeep.NewError(toolkeep.MissingParameter, "the argument %s is part of the path and must have a value", p.arg).With("pointer", at)
		e.NothingSent = true
		return nil, e
	}
	items, keyed, err := pathItems(p, at, v)
	if err != nil {
		return nil, err
	}
	_, isPlain := plain(v)
	isPlain = isPlain || p.json
	var prefix, delimiter string
	repeat := "" // stands before every exploded item of matrix
	switch p.style {
	case "label":
		prefix, delimiter = ".", ","
		if p.explode {
			delimiter = "."
		}
	case "matrix":
		name := string(escStrict.append(nil, p.name))
		prefix, delimiter = ";"+name+"=", ","
		if p.explode && !isPlain {
			prefix, delimiter = ";", ";"
			if !keyed {
				repeat = name + "="
			}
		} else if isPlain && items[0].value == "" {
			prefix = ";" + name
		}
	default:
		delimiter = ","
	}
	before := len(dst)
	dst = append(dst, prefix...)
	for i, it := range items {
		if i > 0 {
			dst = append(dst, delimiter...)
		}
		dst = append(dst, repeat...)
		if keyed {
			dst = escStrict.append(dst, it.key)
			if p.explode {
				dst = append(dst, '=')
			} else {
				dst = append(dst, delimiter...)
			}
		}
		dst = escStrict.append(dst, it.value)
	}
	if len(dst) == before {
		return nil, unsafe(at, "the argument %s is empty, but it is part of the path", p.arg)
	}
	return dst, nil
}

type item struct{ key, value string }

// pathItems lists the texts of a path value and refuses what would change the
// path where the upstream decodes it.
func pathItems(p *parameter, at string, v any) (items []item, keyed bool, err *toolkeep.Error) {
	if p.json {
		items = []item{{value: string(canon.Append(nil, v))}}
		return items, false, safePath(at, p.arg, items[0].value, false)
	}
	nested := func(at string) *toolkeep.Error {
		return unsafe(at, "the argument %s may only hold plain values: it is part of the path", p.arg)
	}
	switch t := v.(type) {
	case []any:
		for i, el := range t {
			s, ok := plain(el)
			if !ok {
				return nil, false, nested(at + "/" + strconv.Itoa(i))
			}
			items = append(items, item{value: s})
		}
	case map[string]any:
		keyed = true
		for _, k := range slices.Sorted(maps.Keys(t)) {
			s, ok := plain(t[k])
			if !ok {
				return nil, false, nested(at + canon.Pointer(k))
			}
			items = append(items, item{k, s})
		}
	default:
		s, ok := plain(v)
		if !ok {
			return nil, false, nested(at)
		}
		return []item{{value: s}}, false, safePath(at, p.arg, s, p.style == "simple")
	}
	if len(items) == 0 {
		return nil, false, unsafe(at, "the argument %s is empty, but it is part of the path", p.arg)
	}
	for _, it := range items {
		if err := safePath(at, p.arg, it.key, false); err != nil {
			return nil, false, err
		}
		if err := safePath(at, p.arg, it.value, false); err != nil {
			return nil, false, err
		}
	}
	return items, keyed, nil
}

// safePath refuses what an upstream that decodes could take for other segments.
func safePath(at, arg, s string, whole bool) *toolkeep.Error {
	if whole && s == "" {
		return unsafe(at, "the argument %s is empty, but it is part of the path", arg)
	}
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '\\' })
	if slices.Contains(parts, ".") || slices.Contains(parts, "..") {
		return unsafe(at, "the argument %s would lead to another path: \".\" and \"..\" cannot be sent in a path", arg)
	}
	return nil
}

// headerText is the value of a header parameter in style simple.
func headerText(p *parameter, v any) (string, *toolkeep.Error) {
	at := canon.Pointer(p.arg)
	s, err := simpleText(p, at, v)
	if err != nil {
		return "", err
	}
	if !validHeaderValue(s) {
		return "", unsafe(at, "the argument %s has a line break or another control character, which a header cannot hold", p.arg)
	}
	return s, nil
}

func simpleText(p *parameter, at string, v any) (string, *toolkeep.Error) {
	if p.json {
		return string(canon.Append(nil, v)), nil
	}
	if s, ok := plain(v); ok {
		return s, nil
	}
	var parts []string
	part := func(at string, v any) *toolkeep.Error {
		s, ok := plain(v)
		if !ok {
			return unsafe(at, "the argument %s may only hold plain values: it is sent in a header", p.arg)
		}
		if strings.ContainsRune(s, ',') {
			return unsafe(at, "the argument %s is sent as a list with commas, so its values may not have any", p.arg)
		}
		parts = append(parts, s)
		return nil
	}
	switch t := v.(type) {
	case []any:
		for i, el := range t {
			if err := part(at+"/"+strconv.Itoa(i), el); err != nil {
				return "", err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(t)) {
			if strings.ContainsAny(k, ",=") {
				return "", unsafe(at+canon.Pointer(k), "the property name %q cannot be sent in a header", k)
			}
			if !p.explode {
				parts = append(parts, k)
			}
			if err := part(at+canon.Pointer(k), t[k]); err != nil {
				return "", err
			}
			if p.explode {
				parts[len(parts)-1] = k + "=" + parts[len(parts)-1]
			}
		}
	default:
		return "", unsafe(at, "the argument %s cannot be sent in a header", p.arg)
	}
	return strings.Join(parts, ","), nil
}
