package sqltool

import (
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// argument is the value of one placeholder, as a JSON type.
type argument struct {
	parameter
	value any
}

// arguments orders the call's arguments by placeholder, one list per statement. A
// missing argument is its default, or NULL.
func (b *binding) arguments(args map[string]any) ([][]argument, *toolkeep.Error) {
	out := make([][]argument, len(b.statements))
	for i, st := range b.statements {
		list := make([]argument, len(st.params))
		for j, p := range st.params {
			v, ok := args[p.arg]
			if !ok && p.has {
				v = p.def
			}
			if p.like != "" && v != nil {
				s, isText := v.(string)
				if !isText {
					return nil, unfit(p.arg, "must be a text")
				}
				v = pattern(p.like, s)
			}
			if p.page && v != nil {
				n, err := pageSize(p.arg, v)
				if err != nil {
					return nil, err
				}
				v = number(n + 1)
			}
			list[j] = argument{p, v}
		}
		out[i] = list
	}
	return out, nil
}

// pageSize reads a page size, a whole number from 0 to maxRows.
func pageSize(arg string, v any) (int, *toolkeep.Error) {
	n, ok := v.(json.Number)
	text, whole := "", false
	if ok {
		text, whole = wholeText(n)
	}
	size, err := strconv.Atoi(text)
	if !whole || err != nil || size < 0 || size > maxRows {
		return 0, unfit(arg, "must be a whole number of rows from 0 to "+strconv.Itoa(maxRows))
	}
	return size, nil
}

// shown returns how many rows the arguments ask for; false if none is a page size.
func shown(args []argument) (int, bool) {
	for _, a := range args {
		if n, ok := a.value.(json.Number); ok && a.page {
			size, err := strconv.Atoi(string(n))
			return size - 1, err == nil
		}
	}
	return 0, false
}

// unfit is the error for an argument that cannot be bound.
func unfit(arg, why string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.UnsafeArgument, "argument %q cannot be bound: it %s", arg, why)
	e.NothingSent = true
	return e
}

// tooWide is the error for an integer that SQLite would store as an inexact double.
func tooWide(arg string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.InputValidationFailed, "argument %q is an integer over 64 bits, which SQLite cannot hold with every digit; pass it as text, or give the parameter the type number if the digits do not matter", arg)
	e.NothingSent = true
	return e.With("errors", []toolkeep.Fault{{Pointer: canon.Pointer(arg), Rule: "range", Message: e.Message}})
}

// likeEscape is the character of ESCAPE '!' in statements with like parameters. A
// backslash would depend on MySQL's settings.
const likeEscape = '!'

// pattern returns a LIKE pattern that matches s literally as that part of the value.
func pattern(how, s string) string {
	var w strings.Builder
	w.Grow(len(s) + 8)
	if how != "prefix" {
		w.WriteByte('%')
	}
	for i := range len(s) {
		if c := s[i]; c == '%' || c == '_' || c == likeEscape {
			w.WriteByte(likeEscape)
		}
		w.WriteByte(s[i])
	}
	if how != "suffix" {
		w.WriteByte('%')
	}
	return w.String()
}

// wholeText returns the digits of an integer: 1, 1.0 and 1e3 are integers.
func wholeText(n json.Number) (string, bool) {
	s := string(n)
	if canon.IsInteger(s) {
		return s, true
	}
	if !canon.Bounded(n) {
		return "", false
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok || !r.IsInt() {
		return "", false
	}
	return r.Num().String(), true
}

// native converts an argument to a type that the MySQL and SQLite drivers bind.
func (a argument) native(d dialect) (any, *toolkeep.Error) {
	switch a.typ {
	case "json":
		if a.value == nil {
			return nil, nil
		}
		return string(canon.Append(nil, a.value)), nil
	case "bytes":
		if s, ok := a.value.(string); ok {
			raw, err := decodeBase64(s)
			if err != nil {
				return nil, unfit(a.arg, "is not base64")
			}
			return raw, nil
		}
	case "timestamp":
		if s, ok := a.value.(string); ok && d == mysqlDB {
			t, ok := moment(s)
			if !ok {
				return nil, unfit(a.arg, "is no time such as 2026-01-31T23:59:59Z")
			}
			return t, nil
		}
	}
	switch v := a.value.(type) {
	case nil:
		return nil, nil
	case string:
		return v, nil
	case bool:
		if a.typ == "text" {
			return strconv.FormatBool(v), nil
		}
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case json.Number:
		return a.number(v, d)
	}
	return nil, unfit(a.arg, "is an array or an object; give the parameter the type json to pass it as JSON text")
}

func (a argument) number(n json.Number, d dialect) (any, *toolkeep.Error) {
	if a.typ == "text" {
		return string(n), nil
	}
	if s, ok := wholeText(n); ok && (a.typ == "integer" || canon.IsInteger(string(n))) {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i, nil
		}
		if d == mysqlDB {
			if u, err := strconv.ParseUint(s, 10, 64); err == nil {
				return u, nil
			}
			return s, nil // a DECIMAL can be wider
		}
		switch a.typ {
		case "integer":
			return nil, unfit(a.arg, "is over 64 bits")
		case "number": // a double, as declared
		default:
			return nil, tooWide(a.arg)
		}
	} else if a.typ == "integer" {
		return nil, unfit(a.arg, "must be a whole number")
	}
	if d == mysqlDB {
		return string(n), nil // exact; the server converts it to DECIMAL where needed
	}
	f, err := n.Float64()
	if err != nil {
		return nil, unfit(a.arg, "is beyond the range of a double")
	}
	return f, nil
}

// Texts that moment reads, with T or a space between date and time and with any
// fraction of a second.
var (
	zoned   = []string{"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z0700", "2006-01-02 15:04:05Z07", "2006-01-02 15:04Z07:00"}
	unzoned = []string{"2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly}
)

// moment returns a time as text without a zone: of a text with a zone, the instant in
// UTC, which is the sessions' zone; false if s is no time.
func moment(s string) (string, bool) {
	if len(s) > 10 && (s[10] == 'T' || s[10] == 't') {
		s = s[:10] + " " + s[11:]
	}
	if t, ok := strings.CutSuffix(s, "z"); ok {
		s = t + "Z"
	}
	for i, layout := range slices.Concat(zoned, unzoned) {
		t, err := time.Parse(layout, s)
		switch {
		case err != nil:
		case i < len(zoned):
			return t.UTC().Format("2006-01-02 15:04:05.999999999"), true
		default:
			return s, true
		}
	}
	return "", false
}

func decodeBase64(s string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		raw, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	}
	return raw, err
}
