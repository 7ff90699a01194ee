package openapi

import (
	"encoding/json"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

const (
	maxValueDepth = 16
	maxValueNodes = 2_000
	maxExamples   = 3    // per schema
	maxExample    = 1024 // bytes per example
)

// plainValue converts a value of the document to a JSON tree. It returns false for values a
// manifest cannot hold: numbers beyond doubles, and very large values.
func plainValue(v any) (any, bool) {
	left := maxValueNodes
	return copyValue(v, 0, &left)
}

func copyValue(v any, depth int, left *int) (any, bool) {
	if *left--; *left < 0 || depth > maxValueDepth {
		return nil, false
	}
	switch v := v.(type) {
	case nil, bool:
		return v, true
	case string:
		return v, !strings.ContainsRune(v, 0)
	case json.Number:
		return v, exact(v)
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			c, ok := copyValue(e, depth+1, left)
			if !ok {
				return nil, false
			}
			out = append(out, c)
		}
		return out, true
	case *object:
		out := make(map[string]any, len(v.keys))
		for _, k := range v.keys {
			c, ok := copyValue(v.vals[k], depth+1, left)
			if !ok || strings.ContainsRune(k, 0) {
				return nil, false
			}
			out[k] = c
		}
		return out, true
	}
	return nil, false
}

// smallExamples keeps the first few small examples of a schema.
func smallExamples(list []any) []any {
	var out []any
	for _, e := range list {
		v, ok := plainValue(e)
		if !ok || v == nil || len(canon.Append(nil, v)) > maxExample {
			continue
		}
		if out = append(out, v); len(out) == maxExamples {
			break
		}
	}
	return out
}

// withDefault adds the upstream's default to a description.
func withDefault(text string, v any) string {
	s := "Default: " + toolkeep.Clip(string(canon.Append(nil, v)), 200) + "."
	if text == "" {
		return s
	}
	return strings.TrimRight(text, " \n") + " " + s
}

// exact reports whether a manifest can hold a number, since its digest is over its RFC 8785 form.
func exact(n json.Number) bool {
	if len(n) > 64 {
		return false
	}
	_, err := canon.JCS([]byte(n))
	return err == nil
}

// patternReason returns why a pattern cannot be used, "" if it can.
func (d *document) patternReason(p string) string {
	if reason, ok := d.patterns[p]; ok {
		return reason
	}
	reason := ""
	if len(p) > 4096 {
		reason = "it is longer than 4096 bytes"
	} else if _, err := schema.Compile(canon.Append(nil, map[string]any{"pattern": p})); err != nil {
		reason = "it cannot be read as a regular expression"
	}
	if d.patterns == nil {
		d.patterns = map[string]string{}
	}
	d.patterns[p] = reason
	return reason
}
