package inspect

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	tableType  = "text/csv; charset=utf-8; header=present"
	maxColumns = 1000
)

// tableOf returns a list of flat objects as CSV (RFC 4180): a header with all names, sorted, and a line for each object. A member
// that is null or not there is an empty field; numbers keep their text. ok is false for any other value, for one without
// names, with over 1,000, so sparse that its empty fields would outweigh it, or with a text that a field changes. most is the list's size as JSON.
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
			text, isText := e.(string)
			if isContainer(e) || isFormula(name) || isText && (isFormula(text) || isLiteral(text)) {
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
	w := csv.NewWriter(&b)
	w.Write(header)
	fields := make([]string, len(header))
	for _, row := range rows {
		object := row.(map[string]any)
		for n, name := range header {
			fields[n] = field(object[name])
		}
		if len(fields) == 1 && fields[0] == "" { // an empty line would be no row
			w.Flush()
			b.WriteString("\"\"\n")
			continue
		}
		w.Write(fields)
	}
	w.Flush()
	return b.Bytes(), true // a Buffer has no write errors
}

// isFormula reports whether a program that shows tables may run a field.
func isFormula(text string) bool {
	if text != "" && (text[0] == '\t' || text[0] == '\r') {
		return true
	}
	text = strings.TrimSpace(text)
	return text != "" && strings.ContainsAny(text[:1], "=+-@")
}

// isLiteral reports whether a text, as a field, reads as a number, a boolean or null.
func isLiteral(text string) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	_, err := strconv.ParseFloat(text, 64)
	return text == "" || text == "true" || text == "false" || text == "null" || err == nil || errors.Is(err, strconv.ErrRange)
}

func field(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}
