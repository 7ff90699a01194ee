package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep/canon/yaml"
)

// kind is the notation of a value.
type kind int

const (
	text kind = iota
	whole
	size    // bytes: 1048576, 64KiB, 1MiB
	boolean // true or false
	span    // 300ms, 30s, 24h, 7d
	list    // a YAML list, or words separated by commas
	level   // DEBUG, INFO, WARN, ERROR
	decimal
	anything // accepted unchanged
)

// expected describes the valid values of a kind.
var expected = map[kind]string{text: "text", whole: "a whole number", size: "a size such as 1048576, 64KiB or 1MiB", boolean: "true or false",
	span: "a duration with its unit, such as 300ms, 30s, 24h, 7d", list: "a list", level: "a level: DEBUG, INFO, WARN or ERROR", decimal: "a number"}

// parse parses a value of a kind from a source: text from flags and environment, YAML's
// own types from a file. It returns string, int64, bool, time.Duration, []string,
// slog.Level, float64, or the value itself.
func parse(k kind, raw any) (any, error) {
	if k == anything {
		return raw, nil
	}
	var v any
	ok := false
	switch raw := raw.(type) {
	case nil:
		switch k {
		case text:
			return "", nil
		case list:
			return []string(nil), nil
		}
		return nil, errors.New("the value is missing")
	case string:
		if v, ok = parseText(k, raw); !ok && k == text {
			return nil, errors.New("the value has a line break or NUL in it")
		} else if !ok {
			return nil, fmt.Errorf("%s is not %s", quote(raw), expected[k])
		}
	case []any:
		if k == list {
			return parseList(raw)
		}
	case bool:
		if v, ok = raw, k == boolean; k == text {
			v, ok = strconv.FormatBool(raw), true
		}
	case json.Number:
		v, ok = parseNumber(k, raw.String())
	}
	if !ok {
		return nil, fmt.Errorf("the value must be %s", expected[k])
	}
	return v, nil
}

// parseNumber parses the text of a number in YAML.
func parseNumber(k kind, n string) (any, bool) {
	switch k {
	case text:
		return n, true
	case decimal:
		return parseText(k, n)
	case whole, size:
		i, err := strconv.ParseInt(n, 10, 64)
		return i, err == nil
	}
	return nil, false
}

// parseText parses the text of a flag, an environment variable or a quoted string.
func parseText(k kind, raw string) (any, bool) {
	s := strings.TrimSpace(raw)
	switch k {
	case text:
		return raw, !strings.ContainsAny(raw, "\x00\n\r")
	case whole:
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	case size:
		return parseSize(s)
	case boolean:
		switch strings.ToLower(s) {
		case "true", "1", "yes", "on":
			return true, true
		case "false", "0", "no", "off":
			return false, true
		}
	case span:
		if days, ok := strings.CutSuffix(s, "d"); ok {
			n, err := strconv.ParseUint(days, 10, 15)
			return time.Duration(n) * 24 * time.Hour, err == nil
		}
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= 0
	case list:
		var items []string
		for part := range strings.SplitSeq(raw, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, part)
			}
		}
		return items, len(items) <= maxItems
	case level:
		l, ok := map[string]slog.Level{"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "ERROR": slog.LevelError}[strings.ToUpper(s)]
		return l, ok
	case decimal:
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return nil, false
}

var sizeUnits = []struct {
	name string
	n    int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

func parseSize(s string) (any, bool) {
	unit := int64(1)
	for _, u := range sizeUnits {
		if head, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(head), u.n
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n * unit, err == nil && n >= 0 && n <= math.MaxInt64/unit
}

const maxItems = 1000

func parseList(raw []any) (any, error) {
	if len(raw) > maxItems {
		return nil, fmt.Errorf("the list has more than %d entries", maxItems)
	}
	var items []string
	for _, x := range raw {
		t, err := parse(text, x)
		if err != nil {
			return nil, fmt.Errorf("an entry of the list: %w", err)
		}
		items = append(items, t.(string))
	}
	return items, nil
}

// quote formats a value for a message, shortened if it is long.
func quote(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strconv.Quote(s)
}

// empty reports whether a value requests nothing.
func empty(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.String || r.Kind() == reflect.Slice) && r.Len() == 0
}

// show formats a value as it would be set, on one line of YAML.
func show(k kind, v any) string {
	if s, ok := v.(fmt.Stringer); ok { // durations and levels
		return s.String()
	}
	if n := reflect.ValueOf(v); k == size && n.CanInt() && n.Int() > 0 {
		for _, u := range sizeUnits {
			if u.n > 1 && n.Int()%u.n == 0 {
				return strconv.FormatInt(n.Int()/u.n, 10) + u.name
			}
		}
	}
	out, err := yaml.Line(v)
	if err != nil {
		return `""`
	}
	return out
}
