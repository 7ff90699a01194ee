package inspect

import (
	"unicode/utf8"

	"github.com/toolkeep/toolkeep/canon"
)

// previewName is the only property of an object that replaces a long one.
const previewName = "truncated_preview"

// truncate cuts an output over the tool's limit to valid JSON of the same kind: a string to its beginning, an array
// to its first elements, and anything else to an object with the beginning of its JSON as text.
func (r *result) truncate() {
	limit := int(min(r.tool.MaxOutputBytes(), int64(maxInt)))
	whole := r.out.Output
	if len(whole) <= limit {
		return
	}
	r.out.Truncated = true
	r.out.Whole = r.whole(whole)
	switch v := r.value.(type) {
	case string:
		n := textLength(v, limit-2)
		r.out.Value = v[:n]
		r.out.Output = canon.AppendString(nil, v[:n])
	case []any:
		end, n := firstElements(whole, limit)
		r.out.Value = v[:n:n]
		r.out.Output = append(append(make([]byte, 0, end+1), whole[:end]...), ']')
	default:
		n := textLength(string(whole[:min(len(whole), limit)]), limit-len(`{"":""}`)-len(previewName))
		r.out.Value = map[string]any{previewName: string(whole[:n])}
		r.out.Output = canon.Append(make([]byte, 0, limit), r.out.Value)
	}
}

const maxInt = int(^uint(0) >> 1)

// whole chooses the form in which the whole result is kept and sets its type.
func (r *result) whole(serialised []byte) []byte {
	if r.out.Attached {
		return r.raw
	}
	if !r.reshaped {
		switch v := r.value.(type) {
		case string:
			if r.form == formText {
				return []byte(v)
			}
		case map[string]any:
			// The raw bytes were not cleaned, so they may be used only if cleaning found nothing in their base64.
			if r.form == formBinary && v["base64"] == any(r.base64) {
				return r.raw
			}
		}
	}
	if text, ok := tableOf(r.value, len(serialised)); ok {
		r.out.ContentType, r.out.Table = tableType, true
		return text
	}
	r.out.ContentType = jsonType
	return serialised
}

// textLength returns how many bytes of s, cut between characters, fit into limit bytes of a JSON string.
func textLength(s string, limit int) int {
	used := 0
	for i := 0; i < len(s); {
		c, n := s[i], 1
		cost := 1
		switch {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t', c == '\b', c == '\f':
			cost = 2
		case c < ' ':
			cost = 6
		case c >= utf8.RuneSelf:
			var r rune
			if r, n = utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && n == 1 {
				cost = 3 // of its replacement
			} else {
				cost = n
			}
		}
		if used += cost; used > limit {
			return i
		}
		i += n
	}
	return len(s)
}

// firstElements returns how many elements of the serialised array fit into limit bytes with the closing bracket,
// and where the last of them ends.
func firstElements(array []byte, limit int) (end, n int) {
	end, depth, inString := 1, 0, false
	for i, count := 1, 0; i < len(array) && i < limit; i++ {
		switch c := array[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			count++
			end, n = i, count
		}
	}
	return end, n
}
