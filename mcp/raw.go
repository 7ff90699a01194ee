package mcp

import (
	"bytes"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep/canon"
)

// The functions below work on JSON text that Parse or Check has accepted. They
// find the ends of values by their brackets and quotes alone. On other text they
// give nil or something meaningless, but never fail.

// Get finds the member at path, a name for each level of objects. It is a slice
// of obj, nil where there is none; a null is the text null. Get(obj) is obj
// itself without the space around it.
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

// Text is the string at path, unquoted; "" where there is none or the member is
// no string.
func Text(obj []byte, path ...string) string {
	s, _ := Unquote(Get(obj, path...))
	return s
}

// Unquote reads a raw JSON string. ok is false where raw is none.
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

// Quote makes s a raw JSON string; invalid UTF-8 becomes U+FFFD.
func Quote(s string) []byte { return canon.AppendString(make([]byte, 0, len(s)+2), s) }

// IsObject tells whether raw is a JSON object, IsNull whether it is null or
// nothing at all.
func IsObject(raw []byte) bool {
	i := skipSpace(raw, 0)
	return i < len(raw) && raw[i] == '{'
}

// IsNull: see IsObject.
func IsNull(raw []byte) bool {
	i := skipSpace(raw, 0)
	return i >= len(raw) || raw[i] == 'n'
}

// Set gives a copy of obj in which the member at path is value; all else stays as
// it is written. Objects that are missing on the way are made, and what stands on
// the way without being an object is replaced by one. obj nil counts as {}, value
// nil as null. Without a path it is a copy of value.
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
	if end < 0 { // cut off text
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

// appendChain writes value wrapped into one object a name.
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

// Delete gives a copy of obj without the member at path. All else stays as it is
// written. Where there is no such member it is obj itself.
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
	// The comma goes with the member: the one behind it, else the one before.
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

// Members goes through an object: unquoted names and raw values, in the order
// they are written. Anything else has none.
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

// Elements goes through an array's raw values. Anything else has none.
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

// find looks for a member of obj: where its name begins and its value stands.
func find(obj []byte, name string) (start, from, to int, ok bool) {
	var w walker
	for w.open(obj, '{'); w.member(); {
		if w.is(name) {
			return w.nameFrom, w.from, w.to, true
		}
	}
	return 0, 0, 0, false
}

// walker goes through the members of one object or the elements of one array.
type walker struct {
	data             []byte
	pos              int // behind the last value, or behind the bracket
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

// start skips to the next item, or tells that there is none.
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

// is compares the name, with a copy only where it has escapes.
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

// skipString gives the place behind the string that begins at i.
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

// skipValue gives the place behind the value that begins at i.
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
