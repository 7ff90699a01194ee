package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// parse reads a value of a kind out of what a source has: text from flags and
// environment, YAML's own types from a file. It gives string, int64, bool,
// time.Duration, []string, slog.Level, float64, or the value itself.
func parse(k kind, raw any) (any, error) {
	if raw == nil && k != anything && k != list && k != text {
		return nil, errors.New("the value is missing")
	}
	switch k {
	case text:
		return parseText(raw)
	case whole:
		return parseWhole(raw)
	case size:
		return parseSize(raw)
	case boolean:
		return parseFlag(raw)
	case span:
		return parseSpan(raw)
	case list:
		return parseList(raw)
	case level:
		return parseLevel(raw)
	case decimal:
		return parseDecimal(raw)
	}
	return raw, nil
}

func parseText(raw any) (any, error) {
	switch v := raw.(type) {
	case nil:
		return "", nil
	case string:
		if strings.ContainsAny(v, "\x00\n\r") {
			return nil, errors.New("the value has a line break or NUL in it")
		}
		return v, nil
	case int, int64, uint64, float64, bool:
		return fmt.Sprint(v), nil
	}
	return nil, errors.New("the value must be text")
}

func parseWhole(raw any) (any, error) {
	switch v := raw.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case string:
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not a whole number", quote(v))
		}
		return n, nil
	}
	return nil, errors.New("the value must be a whole number")
}

var sizeUnits = []struct {
	name string
	n    int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

func parseSize(raw any) (any, error) {
	s, isText := raw.(string)
	if !isText {
		return parseWhole(raw)
	}
	t, unit := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits {
		if head, ok := strings.CutSuffix(t, u.name); ok {
			t, unit = strings.TrimSpace(head), u.n
			break
		}
	}
	n, err := strconv.ParseInt(t, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return nil, fmt.Errorf("%s is not a size; write bytes, or 64KiB, 1MiB", quote(s))
	}
	return n * unit, nil
}

func parseFlag(raw any) (any, error) {
	switch v := raw.(type) {
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "true", "1", "yes", "on":
			return true, nil
		case "false", "0", "no", "off":
			return false, nil
		}
		return nil, fmt.Errorf("%s is neither true nor false", quote(v))
	}
	return nil, errors.New("the value must be true or false")
}

func parseSpan(raw any) (any, error) {
	s, ok := raw.(string)
	if !ok {
		return nil, errors.New("the value must be a duration with its unit, such as 300ms, 30s, 24h, 7d")
	}
	t := strings.TrimSpace(s)
	if days, ok := strings.CutSuffix(t, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 32); err == nil && n >= 0 && n < 36500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(t)
	if err != nil || d < 0 {
		return nil, fmt.Errorf("%s is not a duration; write it with its unit, such as 300ms, 30s, 24h, 7d", quote(s))
	}
	return d, nil
}

func parseList(raw any) (any, error) {
	var items []string
	switch v := raw.(type) {
	case nil:
	case string:
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, part)
			}
		}
	case []string:
		items = append(items, v...)
	case []any:
		for _, x := range v {
			t, err := parseText(x)
			if err != nil {
				return nil, fmt.Errorf("an entry of the list: %w", err)
			}
			items = append(items, t.(string))
		}
	default:
		return nil, errors.New("the value must be a list")
	}
	if len(items) > 1000 {
		return nil, errors.New("the list has more than 1000 entries")
	}
	return items, nil
}

func parseLevel(raw any) (any, error) {
	s, _ := raw.(string)
	switch strings.ToUpper(strings.TrimSpace(s)) {
	case "DEBUG":
		return slog.LevelDebug, nil
	case "INFO":
		return slog.LevelInfo, nil
	case "WARN":
		return slog.LevelWarn, nil
	case "ERROR":
		return slog.LevelError, nil
	}
	return nil, fmt.Errorf("%s is not a level; use DEBUG, INFO, WARN or ERROR", quote(fmt.Sprint(raw)))
}

func parseDecimal(raw any) (any, error) {
	switch v := raw.(type) {
	case int:
		return float64(v), nil
	case int64:
		return float64(v), nil
	case float64:
		return v, nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%s is not a number", quote(v))
		}
		return f, nil
	}
	return nil, errors.New("the value must be a number")
}

// quote shows a value in a message, cut where it is long.
func quote(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strconv.Quote(s)
}

// put stores a parsed value in a field.
func put(p, v any) {
	switch p := p.(type) {
	case *string:
		*p = v.(string)
	case *bool:
		*p = v.(bool)
	case *int:
		*p = int(min(v.(int64), math.MaxInt))
	case *int64:
		*p = v.(int64)
	case *float64:
		*p = v.(float64)
	case *time.Duration:
		*p = v.(time.Duration)
	case *[]string:
		*p = v.([]string)
	case *slog.Level:
		*p = v.(slog.Level)
	}
}
