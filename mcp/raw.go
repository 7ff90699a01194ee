package mcp

import (
	"bytes"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep/canon"
)

// The functions below require JSON text that Parse or Check has accepted. They find the
// ends of values by brackets and quotes alone. On other text they return nil or
// garbage, but never panic.

// Get returns the member at path, one name per level of objects. It is a slice of obj,
// or nil if absent; a null is the text null. Get(obj) is obj without surrounding space.
func Get(obj []byte, path ...string) []byte {
	v := trim(obj)
	for _, name := range path {
		_, from, to, ok := find(v, name)
		if !ok {
			return nil
		}
		v = v[from:to:to]
	}
	if len(v) == 0 {
		return nil
	}
	return v
}

// Text returns the string at path, unquoted; "" if the member is absent or not a
// string.
func Text(obj []byte, path ...string) string {
	s, _ := Unquote(Get(obj, path...))
	return s
}

// Unquote reads a raw JSON string. ok is false if raw is not one.
func Unquote(raw []byte) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	plain, err := jsontext.AppendUnquote(nil, raw)
	return string(plain), err == nil
}

// Quote encodes s as a JSON string; invalid UTF-8 becomes U+FFFD.
func Quote(s string) []byte { return canon.AppendString(make([]byte, 0, len(s)+2), s) }

// IsObject reports whether raw is a JSON object.
func IsObject(raw []byte) bool {
	i := skipSpace(raw, 0)
	return i < len(raw) && raw[i] == '{'
}

// IsNull reports whether raw is null or empty.
func IsNull(raw []byte) bool {
	i := skipSpace(raw, 0)
	return i >= len(raw) || raw[i] == 'n'
}

// Set returns a copy of obj with the member at path set to value; everything else is
// unchanged. Missing objects on the path are created, and a non-object on the path is
// replaced by one. A nil obj counts as {}, a nil value as null. Without a path it
// returns a copy of value.
func Set(obj, value []byte, path ...string) []byte {
	if len(value) == 0 {
		value = null
	}
	n := len(obj) + len(value) + 2
	for _, name := range path {
		n += len(name) + 8
	}
	return appendSet(make([]byte, 0, n), obj, value, path)
}

var null = []byte("null")

func appendSet(dst, obj, value []byte, path []string) []byte {
	if len(path) == 0 {
		return append(dst, value...)
	}
	if !IsObject(obj) {
		return appendChain(dst, value, path)
	}
	if _, from, to, ok := find(obj, path[0]); ok {
		dst = append(dst, obj[:from]...)
		dst = appendSet(dst, obj[from:to], value, path[1:])
		return append(dst, obj[to:]...)
	}
	end := bytes.LastIndexByte(obj, '}')
	if end < 0 { // truncated text
		return appendChain(dst, value, path)
	}
	body := bytes.TrimRight(obj[:end], " \t\r\n")
	dst = append(dst, body...)
	if len(body) > 0 && body[len(body)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(canon.AppendString(dst, path[0]), ':')
	dst = appendChain(dst, value, path[1:])
	return append(dst, obj[end:]...)
}

// appendChain appends value wrapped into one object per name.
func appendChain(dst, value []byte, path []string) []byte {
	for _, name := range path {
		dst = append(canon.AppendString(append(dst, '{'), name), ':')
	}
	dst = append(dst, value...)
	for range path {
		dst = append(dst, '}')
	}
	return dst
}

// Delete returns a copy of obj without the member at path; everything else is
// unchanged. If there is no such member it returns obj itself.
func Delete(obj []byte, path ...string) []byte {
	if len(path) == 0 {
		return obj
	}
	at, inner := 0, obj
	for _, name := range path[:len(path)-1] {
		_, from, to, ok := find(inner, name)
		if !ok {
			return obj
		}
		at, inner = at+from, inner[from:to]
	}
	name, _, to, ok := find(inner, path[len(path)-1])
	if !ok {
		return obj
	}
	// Remove the comma too: the one after the member, else the one before.
	next := skipSpace(inner, to)
	if next < len(inner) && inner[next] == ',' {
		to = skipSpace(inner, next+1)
	} else if before := bytes.TrimRight(inner[:name], " \t\r\n"); len(before) > 0 && before[len(before)-1] == ',' {
		name = len(before) - 1
	}
	out := make([]byte, 0, len(obj))
	out = append(out, obj[:at+name]...)
	return append(out, obj[at+to:]...)
}

// Members iterates over an object's unquoted names and raw values, in their order.
// Anything but an object has none.
func Members(obj []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		var w walker
		for w.open(obj, '{'); w.member(); {
			if !yield(w.name(), w.value()) {
				return
			}
		}
	}
}

// Elements iterates over an array's raw values. Anything but an array has none.
func Elements(arr []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var w walker
		for w.open(arr, '['); w.element(); {
			if !yield(w.value()) {
				return
			}
		}
	}
}

// find returns where a member's name begins and the bounds of its value.
func find(obj []byte, name string) (start, from, to int, ok bool) {
	var w walker
	for w.open(obj, '{'); w.member(); {
		if w.is(name) {
			return w.nameFrom, w.from, w.to, true
		}
	}
	return 0, 0, 0, false
}

// walker iterates over the members of one object or the elements of one array.
type walker struct {
	data             []byte
	pos              int // after the last value or the bracket
	nameFrom, nameTo int
	from, to         int
}

func (w *walker) open(data []byte, bracket byte) {
	w.data = data
	w.pos = skipSpace(data, 0)
	if w.pos >= len(data) || data[w.pos] != bracket {
		w.pos = len(data)
		return
	}
	w.pos++
}

// start skips to the next item, and reports whether there is one.
func (w *walker) start() bool {
	i := skipSpace(w.data, w.pos)
	if i < len(w.data) && w.data[i] == ',' {
		i = skipSpace(w.data, i+1)
	}
	w.pos = i
	return i < len(w.data) && w.data[i] != '}' && w.data[i] != ']'
}

func (w *walker) member() bool {
	if !w.start() || w.data[w.pos] != '"' {
		return false
	}
	w.nameFrom = w.pos
	w.nameTo = skipString(w.data, w.pos)
	i := skipSpace(w.data, w.nameTo)
	if i >= len(w.data) || w.data[i] != ':' {
		return false
	}
	w.pos = skipSpace(w.data, i+1)
	return w.take()
}

func (w *walker) element() bool { return w.start() && w.take() }

func (w *walker) take() bool {
	w.from = w.pos
	w.to = skipValue(w.data, w.pos)
	w.pos = w.to
	return w.to > w.from
}

func (w *walker) value() []byte { return w.data[w.from:w.to:w.to] }

func (w *walker) name() string {
	s, _ := Unquote(w.data[w.nameFrom:w.nameTo])
	return s
}

// is compares the name; it copies only a name with escapes.
func (w *walker) is(name string) bool {
	if w.nameTo-w.nameFrom < 2 {
		return false
	}
	inner := w.data[w.nameFrom+1 : w.nameTo-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	return w.name() == name
}

func trim(v []byte) []byte {
	v = v[skipSpace(v, 0):]
	for len(v) > 0 && isSpace(v[len(v)-1]) {
		v = v[:len(v)-1]
	}
	return v[:len(v):len(v)]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func skipSpace(data []byte, i int) int {
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i.
func skipString(data []byte, i int) int {
	i++
	for i < len(data) {
		quote := bytes.IndexByte(data[i:], '"')
		if quote < 0 {
			return len(data)
		}
		end := i + quote
		slashes := 0
		for end-1-slashes >= i && data[end-1-slashes] == '\\' {
			slashes++
		}
		i = end + 1
		if slashes%2 == 0 {
			return i
		}
	}
	return len(data)
}

// skipValue returns the index after the value that begins at i.
func skipValue(data []byte, i int) int {
	if i >= len(data) {
		return i
	}
	switch data[i] {
	case '"':
		return skipString(data, i)
	case '{', '[':
		depth := 0
		for i < len(data) {
			switch data[i] {
			case '"':
				i = skipString(data, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(data)
	}
	for i < len(data) && !isSpace(data[i]) && data[i] != ',' && data[i] != '}' && data[i] != ']' && data[i] != ':' {
		i++
	}
	return i
}
