package sqltool

import (
	"context"
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
	oid = s.plain(oid)
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

// pgType is what the server says of a type that pgx does not know.
type pgType struct {
	name    string
	base    uint32 // of a domain
	element uint32 // of an array
}

// learn asks the server for types that pgx does not know, with the elements of arrays and
// the bases of domains, once per connection.
func (s *pgSession) learn(oids []uint32) error {
	for depth := 0; depth < maxTypeDepth; depth++ {
		var unknown []string
		for _, oid := range oids {
			_, ours := s.types.TypeForOID(oid)
			if _, asked := s.learned[oid]; !ours && !asked && oid != 0 {
				unknown = append(unknown, strconv.FormatUint(uint64(oid), 10))
			}
		}
		if len(unknown) == 0 {
			return nil
		}
		s.wire.allow(1 << 20)
		// An array is what its element's type names as its array; int2vector and the like are not.
		res, err := s.c.Exec(context.Background(), `SELECT t.oid, pg_catalog.format_type(t.oid, NULL), t.typbasetype, coalesce(e.oid, 0)
FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND e.typarray = t.oid WHERE t.oid IN (`+strings.Join(unknown, ", ")+")").ReadAll()
		if err != nil {
			return err
		}
		for _, oid := range oids {
			if _, ours := s.types.TypeForOID(oid); !ours && s.learned[oid].name == "" {
				s.learned[oid] = pgType{name: "oid:" + strconv.FormatUint(uint64(oid), 10)}
			}
		}
		oids = nil
		for _, row := range res[0].Rows {
			number := func(i int) uint32 {
				n, _ := strconv.ParseUint(string(row[i]), 10, 32)
				return uint32(n)
			}
			t := pgType{string(row[1]), number(2), number(3)}
			s.learned[number(0)] = t
			oids = append(oids, t.base, t.element)
		}
	}
	return nil
}

// maxTypeDepth bounds domains over domains and arrays of them.
const maxTypeDepth = 16

// plain returns a domain's base type, and other types as they are.
func (s *pgSession) plain(oid uint32) uint32 {
	for range maxTypeDepth {
		t := s.learned[oid]
		if t.base == 0 {
			break
		}
		oid = t.base
	}
	return oid
}

// element returns the type of an array's elements.
func (s *pgSession) element(oid uint32) (uint32, bool) {
	if t, ok := s.types.TypeForOID(oid); ok {
		if c, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			return c.ElementType.OID, true
		}
		return 0, false
	}
	element := s.learned[oid].element
	return element, element != 0
}

// delimiter stands between an array's elements.
func delimiter(element uint32) byte {
	if element == pgtype.BoxOID {
		return ';'
	}
	return ','
}

const maxArrayDepth = 6 // PostgreSQL's limit

func (s *pgSession) array(w *strings.Builder, list []any, element uint32, depth int) error {
	if depth == maxArrayDepth {
		return errors.New("has lists within lists more than 6 deep")
	}
	element = s.plain(element)
	w.WriteByte('{')
	for i, v := range list {
		if i > 0 {
			w.WriteByte(delimiter(element))
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
	return s.learned[oid].name
}

// decoder returns the converter from PostgreSQL's text of a type to a JSON tree of the result.
func (s *pgSession) decoder(oid uint32, out *sink) func([]byte) any {
	oid = s.plain(oid)
	switch oid {
	case pgtype.BoolOID:
		return func(b []byte) any { return len(b) == 1 && b[0] == 't' }
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID, pgtype.NumericOID, pgtype.Float4OID, pgtype.Float8OID:
		return func(b []byte) any { return numeral(string(b)) }
	case pgtype.JSONOID, pgtype.JSONBOID:
		return out.document
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
	if e, ok := s.element(oid); ok {
		element := s.decoder(e, out)
		return func(b []byte) any { return list(string(b), delimiter(s.plain(e)), element) }
	}
	return func(b []byte) any { return out.text(string(b)) }
}

// numeral is a number with its exact text; what is not a JSON number (NaN, Infinity) or
// has more than 1100 digits stays text.
func numeral(s string) any {
	if canon.IsNumber(s) && canon.Bounded(json.Number(s)) {
		return json.Number(s)
	}
	return s
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
func list(s string, delimiter byte, element func([]byte) any) any {
	if i := strings.Index(s, "={"); i > 0 && s[0] == '[' {
		s = s[i+1:]
	}
	p := arrayParser{s: s, delimiter: delimiter, element: element}
	v, ok := p.list(0)
	if !ok || p.pos != len(s) {
		return s
	}
	return v
}

type arrayParser struct {
	s         string
	pos       int
	delimiter byte
	element   func([]byte) any
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
		case p.delimiter:
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
	for p.pos < len(p.s) && p.s[p.pos] != p.delimiter && p.s[p.pos] != '}' {
		p.pos++
	}
	if word := p.s[from:p.pos]; word != "NULL" {
		return p.element([]byte(word)), true
	}
	return nil, true
}
