package discover

import (
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
)

// CheckQuery refuses a query with a NUL or another control character except tab, line feed and
// carriage return: they are not typed, and must not reach logs and records through a query. All
// faces apply it. E3311.
func CheckQuery(text string) error {
	i := strings.IndexFunc(text, control)
	if i < 0 {
		return nil
	}
	for _, r := range text[i:] {
		return toolkeep.NewError(toolkeep.InvalidEncoding, "the query contains the control character %U; leave it out", r)
	}
	return nil
}

// PlainQuery replaces control characters by spaces, for text not written as a query, such as a
// message of a conversation.
func PlainQuery(text string) string {
	return strings.Map(func(r rune) rune {
		if control(r) {
			return ' '
		}
		return r
	}, text)
}

func control(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' }
