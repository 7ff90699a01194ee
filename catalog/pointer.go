package catalog

import (
	"net/url"
	"strconv"
	"strings"
)

// escape escapes a name as a reference token (RFC 6901).
func escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// lookup resolves the fragment of a reference within one document: a JSON Pointer, percent-encoded or not.
func lookup(root any, fragment string) (any, bool) {
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	if fragment == "" {
		return root, true
	}
	if fragment[0] != '/' {
		return nil, false
	}
	here := root
	for token := range strings.SplitSeq(fragment[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch v := here.(type) {
		case map[string]any:
			next, ok := v[token]
			if !ok {
				return nil, false
			}
			here = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			here = v[i]
		default:
			return nil, false
		}
	}
	return here, true
}
