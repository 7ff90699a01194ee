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

// unsafe refuses an argument. pointer is its place in the call's arguments.
func unsafe(pointer, format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.UnsafeArgument, format, args...).With("pointer", pointer)
	e.NothingSent = true
	return e
}

// plain returns the text of a value that is not a list, object or null.
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
	// taken are names that an exploded object must not use; keys are those of
	// credentials.
	taken map[string]bool
	keys  []header
	// gather, if set, receives the pairs instead of buf.
	gather *[]header
}

// raw adds a pair with an unencoded value.
func (w *pairs) raw(name, value string) {
	w.name(name)
	w.buf = append(w.buf, value...)
}

func (w *pairs) isTaken(name string) bool {
	return w.taken[name] || slices.ContainsFunc(w.keys, func(h header) bool { return h.name == name })
}

func (w *pairs) name(name string) {
	if w.gather != nil {
		w.finish()
		*w.gather = append(*w.gather, header{name: name})
		return
	}
	if len(w.buf) > 0 {
		w.buf = append(w.buf, w.sep...)
	}
	w.buf = append(w.names.append(w.buf, name), '=')
}

// finish sets the value of the last gathered pair.
func (w *pairs) finish() {
	if n := len(*w.gather); n > 0 {
		(*w.gather)[n-1].value = string(w.buf)
	}
	w.buf = w.buf[:0]
}

func (w *pairs) add(name, value string, esc escaping) {
	w.name(name)
	w.buf = esc.append(w.buf, value)
}

// parameter adds an argument's pairs.
func (w *pairs) parameter(p *parameter, v any, esc escaping) *toolkeep.Error {
	if p.allowReserved {
		esc = escReserved
	}
	at := canon.Pointer(p.arg)
	if p.style == "cookie" {
		names := w.names
		esc, w.names = escNone, escNone
		defer func() { w.names = names }()
		if err := cookieTexts(p, at, v); err != nil {
			return err
		}
	}
	if p.json {
		w.add(p.name, string(canon.Append(nil, v)), esc)
		return nil
	}
	if p.content != nil {
		text, _, err := p.content.render(at, v, nil)
		if err != nil {
			return err
		}
		w.add(p.name, string(text), esc)
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
			return w.deep(p.name, at, v, esc, deepList{how: p.deepLists}, 0)
		}
		return w.list(p, at, t, esc)
	case map[string]any:
		if p.style == "deepObject" {
			return w.deep(p.name, at, v, esc, deepList{how: p.deepLists}, 0)
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

// delimiters separate the elements of a list that is not exploded, by style; the
// default is a comma.
var delimiters = map[string]string{"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}

func delimiter(style string) string {
	if d := delimiters[style]; d != "" {
		return d
	}
	return ","
}

// delimit returns the delimiter as sent: a comma plain, others encoded.
func (e escaping) delimit(style string) string {
	d := delimiter(style)
	if d == "," {
		return d
	}
	return string(e.append(nil, d))
}

// element encodes one element of a list that is not exploded. It refuses one that
// contains a delimiter which encoding does not distinguish.
func (p *parameter) element(dst []byte, at, s string, esc escaping) ([]byte, *toolkeep.Error) {
	joined := !p.explode || len(p.items) > 0
	for i := -1; i < len(p.items); i++ {
		style := p.style
		if i >= 0 {
			style = p.items[i]
		} else if p.explode {
			continue // each element is its own pair
		}
		d := delimiter(style)
		if d == "," && !esc.none {
			continue // the element's own comma is encoded
		}
		if strings.Contains(s, d) {
			return nil, unsafe(at, "the argument %s is sent as a list with %q between its elements, so the elements may not contain any", p.arg, d)
		}
	}
	if joined {
		esc = esc.without(",")
	}
	return esc.append(dst, s), nil
}

// value encodes one list element: a plain value, or a nested list if the document
// defines it.
func (p *parameter) value(dst []byte, at string, el any, esc escaping, level int) ([]byte, *toolkeep.Error) {
	if inner, ok := el.([]any); ok && level < len(p.items) {
		if len(inner) == 0 {
			return nil, unsafe(at, "the argument %s has an empty list within a list, which cannot be distinguished from an empty text", p.arg)
		}
		between := esc.delimit(p.items[level])
		for i, e := range inner {
			if i > 0 {
				dst = append(dst, between...)
			}
			var err *toolkeep.Error
			if dst, err = p.value(dst, at+"/"+strconv.Itoa(i), e, esc, level+1); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	s, ok := plain(el)
	if !ok {
		return nil, unsafe(at, "the argument %s may only hold plain values: null, lists and objects within it cannot be sent in style %s", p.arg, p.style)
	}
	return p.element(dst, at, s, esc)
}

func (w *pairs) list(p *parameter, at string, list []any, esc escaping) *toolkeep.Error {
	if len(list) == 0 {
		if p.allowEmpty {
			w.name(p.name)
		}
		return nil
	}
	between := esc.delimit(p.style)
	for i, el := range list {
		switch {
		case p.explode || i == 0:
			w.name(p.name)
		default:
			w.buf = append(w.buf, between...)
		}
		var err *toolkeep.Error
		if w.buf, err = p.value(w.buf, at+"/"+strconv.Itoa(i), el, esc, 0); err != nil {
			return err
		}
	}
	return nil
}

func (w *pairs) object(p *parameter, at string, obj map[string]any, esc escaping) *toolkeep.Error {
	between := esc.delimit(p.style)
	first := true
	for _, key := range slices.Sorted(maps.Keys(obj)) {
		v := obj[key]
		if v == nil {
			continue
		}
		here := at + canon.Pointer(key)
		s, ok := plain(v)
		if !ok {
			return unsafe(here, "the argument %s may only hold plain values: lists and objects within it cannot be sent in style %s", p.arg, p.style)
		}
		if p.explode {
			if w.isTaken(key) {
				return unsafe(here, "the property %q of %s would be sent under the name of another parameter", key, p.arg)
			}
			w.add(key, s, esc)
			continue
		}
		if first {
			w.name(p.name)
			first = false
		} else {
			w.buf = append(w.buf, between...)
		}
		var err *toolkeep.Error
		if w.buf, err = p.element(w.buf, here, key, esc); err != nil {
			return err
		}
		w.buf = append(w.buf, between...)
		if w.buf, err = p.element(w.buf, here, s, esc); err != nil {
			return err
		}
	}
	if first && !p.explode && p.allowEmpty {
		w.name(p.name)
	}
	return nil
}

// cookieTexts refuses what a cookie cannot hold: style cookie does not encode.
func cookieTexts(p *parameter, at string, v any) *toolkeep.Error {
	bad := func(at string) *toolkeep.Error {
		return unsafe(at, "the argument %s has characters that a cookie cannot hold; its style is to send them as they are", p.arg)
	}
	switch t := v.(type) {
	case []any:
		for i, el := range t {
			if err := cookieTexts(p, at+"/"+strconv.Itoa(i), el); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(t)) {
			if !validCookieValue(k) {
				return bad(at + canon.Pointer(k))
			}
			if err := cookieTexts(p, at+canon.Pointer(k), t[k]); err != nil {
				return err
			}
		}
	default:
		if s, ok := plain(v); ok && !validCookieValue(s) {
			return bad(at)
		}
	}
	return nil
}

// appendPath appends a path parameter in its style.
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
	isPlain = isPlain || p.json || p.content != nil
	esc := escStrict
	if p.allowReserved {
		if esc = escPath; !isPlain || p.style != "simple" {
			esc = esc.without(",;=")
		}
	}
	var prefix string
	between := esc.delimit(p.style)
	repeat := "" // prefix of each exploded matrix item
	switch p.style {
	case "label":
		prefix = "."
		if p.explode {
			between = "."
		}
	case "matrix":
		name := string(escStrict.append(nil, p.name))
		prefix = ";" + name + "="
		if p.explode && !isPlain {
			prefix, between = ";", ";"
			if !keyed {
				repeat = name + "="
			}
		} else if isPlain && items[0].value == "" {
			prefix = ";" + name
		}
	}
	before := len(dst)
	dst = append(dst, prefix...)
	for i, it := range items {
		if !isPlain && p.style == "label" && p.explode && strings.ContainsRune(it.key+it.value, '.') {
			return nil, unsafe(at, "the argument %s is sent with dots between its elements, so the elements may not contain any", p.arg)
		}
		if i > 0 {
			dst = append(dst, between...)
		}
		dst = append(dst, repeat...)
		if keyed {
			if dst, err = p.pathText(dst, at, it.key, esc); err != nil {
				return nil, err
			}
			if p.explode {
				dst = append(dst, '=')
			} else {
				dst = append(dst, between...)
			}
		}
		switch {
		case it.list != nil:
			dst, err = p.value(dst, at, it.list, esc, 0)
		case isPlain:
			dst = esc.append(dst, it.value)
		default:
			dst, err = p.pathText(dst, at, it.value, esc)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(dst) == before {
		return nil, unsafe(at, "the argument %s is empty, but it is part of the path", p.arg)
	}
	return dst, nil
}

// pathText encodes one text of a list or object in a path.
func (p *parameter) pathText(dst []byte, at, s string, esc escaping) ([]byte, *toolkeep.Error) {
	if d := delimiter(p.style); d != "," && strings.Contains(s, d) {
		return nil, unsafe(at, "the argument %s is sent as a list with %q between its elements, so the elements may not contain any", p.arg, d)
	}
	return esc.append(dst, s), nil
}

// item is one text of a path value. list marks an element that is a list itself; value
// is then its joined texts, for checking.
type item struct {
	key, value string
	list       []any
}

// pathItems lists the texts of a path value and refuses those that would change the
// path when the upstream decodes it.
func pathItems(p *parameter, at string, v any) (items []item, keyed bool, err *toolkeep.Error) {
	if p.json {
		items = []item{{value: string(canon.Append(nil, v))}}
		return items, false, safePath(at, p.arg, items[0].value, false)
	}
	if p.content != nil {
		text, _, err := p.content.render(at, v, nil)
		if err != nil {
			return nil, false, err
		}
		return []item{{value: string(text)}}, false, safePath(at, p.arg, string(text), true)
	}
	nested := func(at string) *toolkeep.Error {
		return unsafe(at, "the argument %s may only hold plain values: it is part of the path", p.arg)
	}
	switch t := v.(type) {
	case []any:
		for i, el := range t {
			here := at + "/" + strconv.Itoa(i)
			if inner, ok := el.([]any); ok && len(p.items) > 0 {
				text, err := p.value(nil, here, inner, escNone, 0)
				if err != nil {
					return nil, false, err
				}
				items = append(items, item{value: string(text), list: inner})
				continue
			}
			s, ok := plain(el)
			if !ok {
				return nil, false, nested(here)
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
			items = append(items, item{key: k, value: s})
		}
	default:
		s, ok := plain(v)
		if !ok {
			return nil, false, nested(at)
		}
		return []item{{value: s}}, false, safePath(at, p.arg, s, p.style != "label" && p.style != "matrix")
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

// safePath refuses text that a decoding upstream could take for other segments.
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

// headerText is a header parameter's value in style simple.
func headerText(p *parameter, v any) (string, *toolkeep.Error) {
	at := canon.Pointer(p.arg)
	s, err := simpleText(p, at, v)
	if err != nil {
		return "", err
	}
	if !validHeaderValue(s) {
		what := "the argument " + p.arg
		if p.templated {
			if _, isPlace := p.template.node.(placeholder); !isPlace {
				at, what = "", "the header "+p.name+", which arguments are part of,"
			}
		}
		return "", unsafe(at, "%s has a line break or another control character, which a header cannot hold", what)
	}
	return s, nil
}

func simpleText(p *parameter, at string, v any) (string, *toolkeep.Error) {
	if p.json {
		return string(canon.Append(nil, v)), nil
	}
	if p.content != nil {
		text, _, err := p.content.render(at, v, nil)
		return string(text), err
	}
	if s, ok := plain(v); ok {
		return s, nil
	}
	between := delimiter(p.style)
	var buf []byte
	begin := func() {
		if len(buf) > 0 {
			buf = append(buf, between...)
		}
	}
	flat := *p
	flat.explode = false // explode makes no difference for a list in a header
	var err *toolkeep.Error
	switch t := v.(type) {
	case []any:
		for i, el := range t {
			if i > 0 {
				buf = append(buf, between...)
			}
			if buf, err = flat.value(buf, at+"/"+strconv.Itoa(i), el, escNone, 0); err != nil {
				return "", err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(t)) {
			here := at + canon.Pointer(k)
			s, ok := plain(t[k])
			if !ok {
				return "", unsafe(here, "the argument %s may only hold plain values: it is sent in a header", p.arg)
			}
			if strings.ContainsAny(k, "="+between) {
				return "", unsafe(here, "the property name %q cannot be sent in a header", k)
			}
			begin()
			buf = append(buf, k...)
			if p.explode {
				buf = append(buf, '=')
			} else {
				buf = append(buf, between...)
			}
			if buf, err = flat.element(buf, here, s, escNone); err != nil {
				return "", err
			}
		}
	default:
		return "", unsafe(at, "the argument %s cannot be sent in a header", p.arg)
	}
	return string(buf), nil
}
