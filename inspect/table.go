package inspect

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	tableType  = "text/csv; charset=utf-8; header=present; " + escapeName + "=" + escapeApostrophe
	maxColumns = 1000

	// A table with this parameter has an apostrophe before each text that is a formula to isFormula.
	escapeName, escapeApostrophe = "escape", "apostrophe"
)

// tableOf returns a list of flat objects as CSV (RFC 4180): a header with all names, sorted, and a line for each object. Texts
// and names stand in quotes; numbers keep their text; null and a member that is not there are empty. A text that a program
// which shows tables may run has an apostrophe before it, as OWASP advises on CSV injection. ok is false for any other value,
// for one without names, with over 1,000 or an empty one, so sparse that its empty fields would outweigh it, with a row that
// would be an empty line, or with a text that has CR and LF in turn, which readers take for a line's end. most is the list's size as JSON.
func tableOf(v any, most int) (text []byte, ok bool) {
	rows, isList := v.([]any)
	if !isList || len(rows) == 0 {
		return nil, false
	}
	names := map[string]bool{}
	for _, row := range rows {
		object, ok := row.(map[string]any)
		if !ok {
			return nil, false
		}
		for name, e := range object {
			if said, _ := e.(string); isContainer(e) || name == "" || strings.Contains(said, "\r\n") {
				return nil, false
			}
			if names[name] = true; len(names) > maxColumns {
				return nil, false
			}
		}
	}
	if len(names) == 0 || len(names)*len(rows) > most {
		return nil, false
	}
	header := slices.Sorted(maps.Keys(names))
	var b bytes.Buffer
	b.Grow(most)
	for n, name := range header {
		if strings.Contains(name, "\r\n") {
			return nil, false
		}
		writeField(&b, n, name)
	}
	b.WriteByte('\n')
	for _, row := range rows {
		object := row.(map[string]any)
		if len(header) == 1 && object[header[0]] == nil {
			return nil, false
		}
		for n, name := range header {
			writeField(&b, n, object[name])
		}
		b.WriteByte('\n')
	}
	return b.Bytes(), true
}

// writeField writes the field of column n.
func writeField(b *bytes.Buffer, n int, v any) {
	if n > 0 {
		b.WriteByte(',')
	}
	switch v := v.(type) {
	case string:
		b.WriteByte('"')
		if isFormula(v) {
			b.WriteByte('\'')
		}
		b.WriteString(strings.ReplaceAll(v, `"`, `""`))
		b.WriteByte('"')
	case json.Number:
		b.WriteString(string(v))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	}
}

// isFormula reports whether a program that shows tables may run a text, whatever apostrophes are before it.
func isFormula(text string) bool {
	text = strings.TrimLeft(text, "'")
	if text != "" && strings.IndexByte("\t\r\n", text[0]) >= 0 {
		return true
	}
	first, _ := utf8.DecodeRuneInString(strings.TrimSpace(text))
	return strings.ContainsRune("=+-@＝＋－＠", first)
}

// unescaped returns a text of a table without the apostrophe that writeField put before it.
func unescaped(text string) string {
	if strings.HasPrefix(text, "'") && isFormula(text) {
		return text[1:]
	}
	return text
}
