package canon

import (
	"strconv"
	"strings"
)

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// Escape escapes a name as a reference token of a JSON Pointer (RFC 6901).
func Escape(token string) string {
	if strings.IndexByte(token, '~') < 0 && strings.IndexByte(token, '/') < 0 {
		return token
	}
	return escaper.Replace(token)
}

// Unescape is the reverse of Escape.
func Unescape(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	return unescaper.Replace(token)
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

// Pointer joins names into a JSON Pointer; without names it is "", the whole document.
func Pointer(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteByte('/')
		b.WriteString(Escape(n))
	}
	return b.String()
}

// Tokens splits a JSON Pointer into names. ok is false if pointer breaks RFC 6901's grammar.
func Tokens(pointer string) (names []string, ok bool) {
	if pointer == "" {
		return nil, true
	}
	if pointer[0] != '/' {
		return nil, false
	}
	names = strings.Split(pointer[1:], "/")
	for i, n := range names {
		if strings.IndexByte(n, '~') < 0 {
			continue
		}
		rest := strings.ReplaceAll(strings.ReplaceAll(n, "~0", ""), "~1", "")
		if strings.IndexByte(rest, '~') >= 0 {
			return nil, false
		}
		names[i] = strings.ReplaceAll(strings.ReplaceAll(n, "~1", "/"), "~0", "~")
	}
	return names, true
}

// Lookup finds the value at a JSON Pointer. ok is false if there is none.
func Lookup(v any, pointer string) (found any, ok bool) {
	names, ok := Tokens(pointer)
	if !ok {
		return nil, false
	}
	for _, n := range names {
		switch t := v.(type) {
		case map[string]any:
			if v, ok = t[n]; !ok {
				return nil, false
			}
		case []any:
			i, ok := Index(n, len(t))
			if !ok {
				return nil, false
			}
			v = t[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// Index parses a token as an index into an array of n elements.
func Index(token string, n int) (int, bool) {
	if token == "" || len(token) > 1 && token[0] == '0' || digits(token, 0) != len(token) {
		return 0, false
	}
	i, err := strconv.Atoi(token)
	return i, err == nil && i < n
}
