package postgres

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// escaped marks text stored in hexadecimal because PostgreSQL would reject it. Text
// that starts with the mark itself is escaped too, so that no two strings are stored
// alike.
const escaped = "\x01"

// text returns a string's form in a column.
func text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 && !strings.HasPrefix(s, escaped) {
		return s
	}
	return escaped + hex.EncodeToString([]byte(s))
}

// plainText reads what text wrote.
func plainText(column string) string {
	rest, ok := strings.CutPrefix(column, escaped)
	if !ok {
		return column
	}
	b, err := hex.DecodeString(rest)
	if err != nil {
		return column // not written by text; better shown than lost
	}
	return string(b)
}
