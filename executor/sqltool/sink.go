package sqltool

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// column is one column of a result.
type column struct {
	name string // unique within the result
	typ  string
}

// sink collects the rows of one statement up to its caps.
type sink struct {
	maxRows  int
	paged    bool  // maxRows is what the caller asked for
	maxBytes int64 // cap of the binding: further rows are dropped
	hard     int64 // limit of the pipeline: above it the call fails
	total    *int64
	grow     func(bytes int64) *toolkeep.Error // is told of each row; nil for statements that hold locks

	columns  []column
	rows     []any
	bytes    int64
	cut      string // rows or bytes, "" if all came
	affected int64
	lastID   any
	changed  bool // affected is known
	repairs  canon.Repairs
}

// text is a value's text; what is not text becomes U+FFFD, which is a repair.
func (s *sink) text(v string) string {
	valid := strings.ToValidUTF8(v, "\uFFFD")
	s.repairs.Text = s.repairs.Text || valid != v
	return valid
}

// document is JSON as a tree, or as text if it exceeds the parser's limits. Half a surrogate
// pair and a name that stands twice are repairs, as in other JSON from outside.
func (s *sink) document(b []byte) any {
	v, repairs, err := canon.ParseLoose(b, canon.Limits{Bytes: 16 << 20, Depth: 200, Properties: 1_000_000})
	if err != nil {
		return s.text(string(b))
	}
	s.repairs = s.repairs.And(repairs)
	return v
}

// describe names the columns. A duplicate name gets a number.
func (s *sink) describe(n int, name, typ func(int) string) {
	s.columns = make([]column, n)
	taken := make(map[string]bool, n)
	for i := range n {
		base := name(i)
		if base == "" {
			base = "column" + strconv.Itoa(i+1)
		}
		unique := base
		for k := 2; taken[unique]; k++ {
			unique = base + "_" + strconv.Itoa(k)
		}
		taken[unique] = true
		s.columns[i] = column{unique, typ(i)}
	}
}

// full reports whether the next row would exceed the row cap; it is called when there
// is one.
func (s *sink) full() bool {
	if len(s.rows) < s.maxRows {
		return false
	}
	s.cut = "rows"
	return true
}

// add adds a row of about size bytes; a row over the cap is dropped and sets cut.
func (s *sink) add(row map[string]any, size int64) *toolkeep.Error {
	if *s.total+size > s.hard {
		return tooLarge(s.hard)
	}
	if s.bytes+size > s.maxBytes {
		if len(s.rows) == 0 {
			return toolkeep.NewError(toolkeep.ResultTooLarge,
				"the first row alone is over the tool's %d bytes; select fewer or shorter columns, or raise max_bytes in the binding", s.maxBytes)
		}
		s.cut = "bytes"
		return nil
	}
	s.bytes += size
	*s.total += size
	s.rows = append(s.rows, row)
	if s.grow != nil {
		return s.grow(size)
	}
	return nil
}

func tooLarge(limit int64) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ResultTooLarge, "the result is over %d bytes, the limit of a call; ask for fewer rows", limit)
}

// value returns the result as the caller sees it.
func (s *sink) value() map[string]any {
	columns := make([]any, len(s.columns))
	for i, c := range s.columns {
		columns[i] = map[string]any{"name": c.name, "type": c.typ}
	}
	rows := s.rows
	if rows == nil {
		rows = []any{}
	}
	out := map[string]any{"rows": rows, "row_count": number(len(rows)), "truncated": s.cut != "", "columns": columns}
	switch {
	case s.cut == "rows" && s.paged:
		out["warning"] = fmt.Sprintf("there are more rows than the %d asked for; ask for the next part, or for more rows", len(rows))
	case s.cut == "rows":
		out["warning"] = fmt.Sprintf("only the first %d rows are here: the tool's limit of rows was reached; narrow the query or ask for the next part", len(rows))
	case s.cut == "bytes":
		out["warning"] = fmt.Sprintf("only the first %d rows are here: more would be over the tool's limit of %d bytes; narrow the query or ask for the next part", len(rows), s.maxBytes)
	}
	if s.changed {
		out["rows_affected"] = json.Number(strconv.FormatInt(s.affected, 10))
		if s.lastID != nil {
			out["last_insert_id"] = s.lastID
		}
	}
	return out
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

// weigh estimates the bytes of v as JSON.
func weigh(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(len(v)) + 2
	case json.Number:
		return int64(len(v))
	case []any:
		n := int64(2)
		for _, e := range v {
			n += weigh(e) + 1
		}
		return n
	case map[string]any:
		n := int64(2)
		for k, e := range v {
			n += int64(len(k)) + 4 + weigh(e)
		}
		return n
	}
	return 5
}
