package rest

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// repeatable are the query parameters that are lists, on some route.
var repeatable = map[string]bool{"tool": true, "tag": true, "source": true, "state": true, "risk": true, "side_effects": true, "auth_state": true, "auth_scope": true}

// checkQuery refuses what net/url would pass over: a part that cannot be decoded, of two
// values all but the first, and characters that no JSON body may have.
func checkQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return toolkeep.NewError(toolkeep.MalformedRequest, "the query string cannot be read: %v", err)
	}
	return checkValues(query, "query parameter")
}

// checkValues is checkQuery for values of a query or a form; what names one of them in an error.
func checkValues(all url.Values, what string) error {
	for name, values := range all {
		if len(values) > 1 && !repeatable[name] {
			return toolkeep.NewError(toolkeep.InvalidEncoding, "the %s %q is given %d times", what, toolkeep.ClipBytes(name, 100), len(values))
		}
		for _, v := range values {
			if name == "q" || name == "capability_query" { // which the other faces have too, with the same words
				if err := discover.CheckQuery(v); err != nil {
					return err
				}
			}
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
				return toolkeep.NewError(toolkeep.InvalidEncoding, "the %s %q holds a NUL or bytes that are not UTF-8", what, toolkeep.ClipBytes(name, 100))
			}
		}
	}
	return nil
}
