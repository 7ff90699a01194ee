package discover

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
)

// CutQuestion returns what is read of a query, and whether that is less than the whole, which it does not hold in memory.
func CutQuestion(text string) (string, bool) {
	n := 0
	for i := range text {
		if n++; n > MaxQuestion {
			return strings.Clone(text[:i]), true
		}
	}
	return text, false
}

// CutNotice tells of Report.Cut.
var CutNotice = "the query has more than " + Thousands(MaxQuestion) + " characters; the rest was not read"

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

// NoneFound is the answer to a search that found nothing: every face refuses it, so that the caller
// learns what to ask instead. A list that a query narrows is empty instead. retrieval is the id by
// which feedback names the search, "" for none. E3101.
func NoneFound(ask Query, r Report, retrieval string) *toolkeep.Error {
	where := ""
	if ask.Category != "" {
		where = " within the category " + strconv.Quote(toolkeep.ClipBytes(ask.Category, 100)) + "; leave the category out"
	}
	why := ""
	if r.Degraded != "" && !r.WordsAlone { // a tool may be found in a minute
		why = ". " + r.Degraded
	}
	e := toolkeep.NewError(toolkeep.NoToolMatches, "no tool that you may see matches the query%s; use fewer or other words, name the thing and what to do with it, or list the tools of a category%s", where, why)
	if r.Degraded != "" {
		e = e.With("degraded", r.Degraded)
	}
	if retrieval != "" {
		e = e.With("retrieval_id", retrieval)
	}
	return e
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
