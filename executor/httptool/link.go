package httptool

import "strings"

const maxLinks = 64 // links looked at in one answer

// nextLink finds the target of the first link with the relation "next" in Link
// headers (RFC 8288), "" where there is none. Links about another resource (with
// an anchor) are passed over. A header that breaks the grammar is read as far as
// it keeps it.
func nextLink(headers []string) string {
	links := 0
	for _, s := range headers {
		for {
			s = strings.TrimLeft(s, " \t,")
			if !strings.HasPrefix(s, "<") {
				break
			}
			target, rest, closed := strings.Cut(s[1:], ">")
			if links++; !closed || links > maxLinks {
				return ""
			}
			var next bool
			if next, s = linkParams(rest); next {
				return strings.TrimSpace(target)
			}
		}
	}
	return ""
}

// linkParams reads the parameters of one link up to the comma that ends it, and
// tells whether they say that it is the next page of this answer.
func linkParams(s string) (next bool, rest string) {
	relSeen, anchored := false, false
	for {
		s = strings.TrimLeft(s, " \t")
		if !strings.HasPrefix(s, ";") {
			return next && !anchored, s
		}
		s = strings.TrimLeft(s[1:], " \t")
		end := strings.IndexAny(s, "=;, \t")
		if end < 0 {
			end = len(s)
		}
		name, value := strings.ToLower(s[:end]), ""
		s = strings.TrimLeft(s[end:], " \t")
		if strings.HasPrefix(s, "=") {
			value, s = linkValue(strings.TrimLeft(s[1:], " \t"))
		}
		switch name {
		case "rel":
			if relSeen {
				continue // RFC 8288, 3.3: only the first counts
			}
			relSeen = true
			for _, rel := range strings.Fields(value) {
				next = next || strings.EqualFold(rel, "next")
			}
		case "anchor":
			anchored = true
		}
	}
}

// linkValue reads a token or a quoted string.
func linkValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, ";, \t")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:]
		case '\\':
			if i++; i == len(s) {
				return b.String(), ""
			}
		}
		b.WriteByte(s[i])
	}
	return b.String(), ""
}
