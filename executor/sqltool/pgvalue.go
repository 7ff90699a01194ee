package sqltool

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// encode writes an argument as PostgreSQL's text for the type; nil is NULL.
func (s *pgSession) encode(a argument, oid uint32) ([]byte, *toolkeep.Error) {
	if a.value == nil {
		return nil, nil
	}
	text, why := s.text(a.value, oid)
	if why != nil {
		return nil, unfit(a.arg, why.Error())
	}
	if strings.IndexByte(text, 0) >= 0 {
		return nil, unfit(a.arg, "holds a NUL character, which PostgreSQL does not accept")
	}
	return []byte(text), nil
}

var intBits = map[uint32]int{pgtype.Int2OID: 16, pgtype.Int4OID: 32, pgtype.Int8OID: 64}

func (s *pgSession) text(v any, oid uint32) (string, error) {
	switch oid {
	case pgtype.JSONOID, pgtype.JSONBOID:
		return string(canon.Append(nil, v)), nil
	case pgtype.ByteaOID:
		if t, ok := v.(string); ok {
			raw, err := decodeBase64(t)
			if err != nil {
				return "", errors.New("is not base64")
			}
			return `\x` + hex.EncodeToString(raw), nil
		}
	case pgtype.TimestampOID:
		if t, ok := v.(string); ok {
			// The server would drop the zone.
			if utc, ok := moment(t); ok {
				return utc, nil
			}
		}
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		if n, ok := v.(json.Number); ok {
			w, whole := wholeText(n)
			if !whole {
				return "", errors.New("must be a whole number")
			}
			if _, err := strconv.ParseInt(w, 10, intBits[oid]); err != nil {
				return "", fmt.Errorf("is beyond what the column's integer of %d bits holds", intBits[oid])
			}
			return w, nil
		}
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case json.Number:
		return string(v), nil
	case []any:
		element, ok := s.element(oid)
		if !ok {
			return "", errors.New("is a list where the statement takes one value")
		}
		var w strings.Builder
		err := s.array(&w, v, element, 0)
		return w.String(), err
	}
	return "", errors.New("is an object where the statement takes one value; give the parameter the type json to pass it as JSON")
}

// element returns the type of an array's elements; 0 if only the server knows it.
func (s *pgSession) element(oid uint32) (uint32, bool) {
	t, ok := s.types.TypeForOID(oid)
	if !ok {
		return 0, true // possibly an array of a user-defined type
	}
	if c, ok := t.Codec.(*pgtype.ArrayCodec); ok {
		return c.ElementType.OID, true
	}
	return 0, false
}

const maxArrayDepth = 6 // PostgreSQL's limit

func (s *pgSession) array(w *strings.Builder, list []any, element uint32, depth int) error {
	if depth == maxArrayDepth {
		return errors.New("has lists within lists more than 6 deep")
	}
	w.WriteByte('{')
	for i, v := range list {
		if i > 0 {
			w.WriteByte(',')
		}
		if v == nil {
			w.WriteString("NULL")
			continue
		}
		if sub, ok := v.([]any); ok && element != pgtype.JSONOID && element != pgtype.JSONBOID {
			if err := s.array(w, sub, element, depth+1); err != nil {
				return err
			}
			continue
		}
		text, err := s.text(v, element)
		if err != nil {
			return err
		}
		w.WriteByte('"')
		for j := range len(text) {
			if c := text[j]; c == '"' || c == '\\' {
				w.WriteByte('\\')
			}
			w.WriteByte(text[j])
		}
		w.WriteByte('"')
	}
	w.WriteByte('}')
	return nil
}

func (s *pgSession) typeName(oid uint32) string {
	if t, ok := s.types.TypeForOID(oid); ok {
		if name, isArray := strings.CutPrefix(t.Name, "_"); isArray {
			return name + "[]"
		}
		return t.Name
	}
	return "oid:" + strconv.FormatUint(uint64(oid), 10)
}

// decoder returns the converter from PostgreSQL's text of a type to a JSON tree.
func (s *pgSession) decoder(oid uint32) func([]byte) any {
	switch oid {
	case pgtype.BoolOID:
		return func(b []byte) any { return len(b) == 1 && b[0] == 't' }
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID, pgtype.NumericOID, pgtype.Float4OID, pgtype.Float8OID:
		return func(b []byte) any { return numeral(string(b)) }
	case pgtype.JSONOID, pgtype.JSONBOID:
		return func(b []byte) any { return document(b) }
	case pgtype.ByteaOID:
		return func(b []byte) any {
			raw, err := hex.DecodeString(strings.TrimPrefix(string(b), `\x`))
			if err != nil {
				return string(b)
			}
			return base64.StdEncoding.EncodeToString(raw)
		}
	case pgtype.TimestamptzOID:
		return func(b []byte) any { return instant(string(b)) }
	case pgtype.TimestampOID:
		return func(b []byte) any { return strings.Replace(string(b), " ", "T", 1) }
	}
	if t, ok := s.types.TypeForOID(oid); ok {
		if c, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			element := s.decoder(c.ElementType.OID)
			return func(b []byte) any { return list(string(b), element) }
		}
	}
	return func(b []byte) any { return strings.ToValidUTF8(string(b), "\uFFFD") }
}

// numeral is a number with its exact text; what is not a JSON number (NaN, Infinity) or
// has more than 1100 digits stays text.
func numeral(s string) any {
	if canon.IsNumber(s) && canon.Bounded(json.Number(s)) {
		return json.Number(s)
	}
	return s
}

// document is JSON as a tree, or as text if it exceeds the parser's limits.
func document(b []byte) any {
	v, err := canon.Parse(b, canon.Limits{Bytes: 16 << 20, Depth: 200, Properties: 1_000_000})
	if err != nil {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	return v
}

// instant converts 2026-01-02 03:04:05.6+00 to RFC 3339. What RFC 3339 cannot represent
// (infinity, years before 1 or after 9999) is unchanged.
func instant(s string) any {
	rest, ok := strings.CutSuffix(s, "+00")
	if !ok || len(rest) < 19 || rest[4] != '-' || rest[10] != ' ' {
		return s
	}
	return rest[:10] + "T" + rest[11:] + "Z"
}

// list parses an array's text, such as {1,NULL,"a b",{…}}. Lower bounds other than 1
// ([0:1]={…}) are dropped.
func list(s string, element func([]byte) any) any {
	if i := strings.Index(s, "={"); i > 0 && s[0] == '[' {
		s = s[i+1:]
	}
	p := arrayParser{s: s, element: element}
	v, ok := p.list(0)
	if !ok || p.pos != len(s) {
		return s
	}
	return v
}

type arrayParser struct {
	s       string
	pos     int
	element func([]byte) any
}

func (p *arrayParser) list(depth int) ([]any, bool) {
	if p.pos >= len(p.s) || p.s[p.pos] != '{' || depth > maxArrayDepth {
		return nil, false
	}
	p.pos++
	out := []any{}
	if p.pos < len(p.s) && p.s[p.pos] == '}' {
		p.pos++
		return out, true
	}
	for p.pos < len(p.s) {
		v, ok := p.member(depth)
		if !ok {
			return nil, false
		}
		out = append(out, v)
		if p.pos >= len(p.s) {
			return nil, false
		}
		c := p.s[p.pos]
		p.pos++
		switch c {
		case ',':
		case '}':
			return out, true
		default:
			return nil, false
		}
	}
	return nil, false
}

func (p *arrayParser) member(depth int) (any, bool) {
	switch p.s[p.pos] {
	case '{':
		return p.list(depth + 1)
	case '"':
		var w []byte
		for p.pos++; p.pos < len(p.s); p.pos++ {
			switch c := p.s[p.pos]; c {
			case '"':
				p.pos++
				return p.element(w), true
			case '\\':
				p.pos++
				if p.pos >= len(p.s) {
					return nil, false
				}
				w = append(w, p.s[p.pos])
			default:
				w = append(w, c)
			}
		}
		return nil, false
	}
	from := p.pos
	for p.pos < len(p.s) && p.s[p.pos] != ',' && p.s[p.pos] != '}' {
		p.pos++
	}
	if word := p.s[from:p.pos]; word != "NULL" {
		return p.element([]byte(word)), true
	}
	return nil, true
}
